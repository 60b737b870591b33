//! Reconciliation finds nothing where nothing is wrong, and names what is.

use std::sync::Arc;

use settlenet::domain::account::{OwnerKind, Side};
use settlenet::domain::ids::BrokerId;
use settlenet::domain::money::Amount;
use settlenet::domain::netting_proposal::Act;
use settlenet::domain::request::{RequestKind, RequestStatus};
use settlenet::services::books::{BooksService, EntryInput, NewAccount, OwnEntryKind};
use settlenet::services::netting::NewProposal;
use settlenet::services::network::{CommissionInput, CreateRequest};
use settlenet::services::reconcile::{Reconcile, Report};
use settlenet::stores::pool::{Pool, PoolBounds};
use sqlx::AssertSqlSafe;

use crate::harness::{World, start};
use crate::saga::Shape;
use crate::saga::shapes::owing;

fn reconcile(world: &World) -> Reconcile {
    let currencies = Arc::clone(&world.app.currencies);
    Reconcile::new(world.app.systems.clone(), currencies)
}

/// Runs it as a server would: in a task of its own.
async fn report(world: &World) -> Report {
    let reconcile = reconcile(world);
    let report = tokio::spawn(async move { reconcile.run(None, &|_| {}).await });
    report.await.unwrap().unwrap()
}

/// The breaks of one invariant, as text; all others must have none.
async fn only_breaks(world: &World, invariant: u8) -> Vec<String> {
    let report = report(world).await;
    let mut lines = Vec::new();
    for one in &report.invariants {
        assert_eq!(one.unchecked, []);
        if one.invariant == invariant {
            lines.extend(
                one.breaks
                    .iter()
                    .map(|finding| format!("{}: {}", finding.subject, finding.what)),
            );
        } else {
            assert_eq!(one.breaks, [], "invariant {}", one.invariant);
        }
    }
    lines
}

/// A client of Gamma's with 20,000.00.
async fn client(world: &World, broker: BrokerId) -> settlenet::domain::ids::AccountId {
    let books = BooksService::new(world.app.systems.router.clone());
    let new = NewAccount {
        owner_kind: OwnerKind::Partner,
        owner_ref: "FO-1".to_owned(),
        currency: world.currency.clone(),
    };
    books
        .open_account(broker, &World::intention(), new, start())
        .await
        .unwrap();
    let account = world.client(broker, "FO-1").id();
    let opening = EntryInput {
        account,
        kind: OwnEntryKind::Opening,
        side: Side::Credit,
        amount: Amount::from_minor(2_000_000).unwrap(),
        note: Some("opening".to_owned()),
    };
    books
        .book_entry(broker, &World::intention(), opening, start())
        .await
        .unwrap();
    account
}

/// Requests of every sort: completed both ways, with and without a debt, with a commission, of
/// less than was sent, from an account with a floor; and open, ended and frozen ones.
async fn busy_world() -> World {
    let world = World::new().await;
    let network = &world.app.network;
    let confirm = async |by, id, received: Option<&str>| {
        network
            .confirm_received(&World::actor(by), id, received)
            .await
            .unwrap()
            .request
    };

    let id = world.sent(world.alpha, world.beta).await;
    let done = confirm(world.beta, id, None).await;
    assert_eq!(done.status, RequestStatus::Completed);

    let receive = CreateRequest {
        kind: RequestKind::Receive,
        commission: Some(CommissionInput {
            payer: settlenet::domain::terms::Party::Author,
            amount: None,
            basis_points: Some(50),
        }),
        ..world.send(Some(world.gamma))
    };
    let request = world.create(world.beta, receive).await;
    world.bring_to_sent(&request, world.gamma).await;
    confirm(world.beta, request.id, None).await;

    let even = CreateRequest {
        obligation: Some(settlenet::domain::terms::ObligationTerm::None),
        ..world.send(Some(world.delta))
    };
    let request = world.create(world.alpha, even).await;
    world.bring_to_sent(&request, world.delta).await;
    confirm(world.delta, request.id, Some("9990.00")).await;
    confirm(world.alpha, request.id, Some("9990.00")).await;

    let account = client(&world, world.gamma).await;
    for confirmed in [true, false] {
        let reserved = CreateRequest {
            account_id: Some(account),
            ..world.send(Some(world.delta))
        };
        let request = world.create(world.gamma, reserved).await;
        world.bring_to_sent(&request, world.delta).await;
        if confirmed {
            confirm(world.delta, request.id, None).await;
        }
    }

    world.create(world.alpha, world.send(None)).await;
    let request = world.create(world.alpha, world.send(None)).await;
    network
        .cancel_request(&World::actor(world.alpha), request.id)
        .await
        .unwrap();
    let id = world.sent(world.delta, world.alpha).await;
    network
        .dispute_request(&World::actor(world.alpha), id, World::said("nothing came"))
        .await
        .unwrap();
    world
}

fn pool(world: &World, server: &str, database: &str) -> Pool {
    let url = world.databases.url(server, database);
    Pool::new(url.expose().parse().unwrap(), PoolBounds::default())
}

async fn run(pool: &Pool, sql: String) {
    let done = sqlx::query(AssertSqlSafe(sql.clone()))
        .execute(pool)
        .await
        .unwrap();
    assert!(done.rows_affected() > 0, "{sql}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sound_network_has_no_breaks() {
    let world = busy_world().await;
    let report = report(&world).await;
    for one in &report.invariants {
        assert_eq!((&one.breaks, &one.unchecked), (&vec![], &vec![]));
        // It has paid nobody through a provider.
        let has_any = one.invariant != 5;
        assert_eq!(one.checked > 0, has_any, "invariant {}", one.invariant);
    }
    assert!(report.is_clean());
    let numbers: Vec<u8> = report.invariants.iter().map(|one| one.invariant).collect();
    assert_eq!(numbers, [1, 2, 3, 5, 7]);
}

/// Each is changed, found, and changed back.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_changed_in_a_book_is_found() {
    let world = busy_world().await;
    let shard = pool(&world, "a", &world.databases.shard);
    let gamma = world.gamma;
    let of_gamma = format!("broker_id = {gamma}");

    for column in ["balance", "reserved"] {
        for (sign, back) in [("+", "-"), ("-", "+")] {
            let change = |sign: &str| {
                format!(
                    "UPDATE account SET {column} = {column} {sign} 1 WHERE {of_gamma} AND owner_ref = 'FO-1'"
                )
            };
            run(&shard, change(sign)).await;
            let found = only_breaks(&world, 2).await;
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].contains(&format!("broker {gamma}: account AC-")));
            run(&shard, change(back)).await;
        }
    }

    let note = "UPDATE transaction SET private = '{\"note\":\"other\"}' WHERE private IS NOT NULL";
    run(&shard, note.to_owned()).await;
    let found = only_breaks(&world, 2).await;
    assert!(found[0].contains("free text"), "{found:?}");
    // Erasing it is allowed.
    run(
        &shard,
        "UPDATE transaction SET private = NULL WHERE private IS NOT NULL".to_owned(),
    )
    .await;
    assert_eq!(only_breaks(&world, 2).await, [] as [String; 0]);

    let change = |kind: &str| {
        format!("UPDATE transaction SET kind = '{kind}' WHERE {of_gamma} AND kind LIKE 'account.%'")
    };
    run(&shard, change("account.nonsense")).await;
    let report = report(&world).await;
    assert!(
        report.invariants[1].breaks[0]
            .what
            .contains("can't be read")
    );
    run(&shard, change("account.opening")).await;

    let head = |sign: &str| format!("UPDATE chain_head SET seq = seq {sign} 1 WHERE {of_gamma}");
    run(&shard, head("+")).await;
    let found = only_breaks(&world, 2).await;
    assert!(found[0].contains("the chain ends before it"), "{found:?}");
    run(&shard, head("-")).await;

    let turn = |from: &str, to: &str| {
        format!("UPDATE reservation SET state = '{to}' WHERE {of_gamma} AND state = '{from}'")
    };
    run(&shard, turn("held", "mislaid")).await;
    let found = only_breaks(&world, 2).await;
    assert!(
        found.iter().any(|line| line.contains("promises 1000000")),
        "{found:?}"
    );
    run(&shard, turn("mislaid", "held")).await;
    assert_eq!(only_breaks(&world, 2).await, [] as [String; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_or_doubled_effect_is_found() {
    let world = busy_world().await;
    let master = world.app.systems.master.clone();

    // The obligation of a completed request is less, of another state, or gone.
    let change = |set: &str| {
        format!(
            "UPDATE obligation SET {set} WHERE debtor_broker_id = {}",
            world.alpha
        )
    };
    run(
        &master,
        change("amount = amount - 1, remaining_amount = remaining_amount - 1"),
    )
    .await;
    let all = report(&world).await;
    assert!(
        all.invariants[0].breaks[0]
            .what
            .contains("not as the terms say")
    );
    assert_eq!(all.invariants[2].breaks.len(), 2, "both positions");
    assert!(!all.is_clean());
    run(
        &master,
        change("amount = amount + 1, remaining_amount = remaining_amount + 1"),
    )
    .await;
    run(&master, change("status = 'failed'")).await;
    let all = report(&world).await;
    assert!(all.invariants[0].breaks[0].what.contains("does not stand"));
    run(&master, change("status = 'active'")).await;
    assert!(report(&world).await.is_clean());

    // A request that is completed by word alone.
    let claim = |from: &str, to: &str| {
        format!("UPDATE network_request SET status = '{to}' WHERE status = '{from}'")
    };
    run(&master, claim("cancelled", "completed")).await;
    let found = only_breaks(&world, 1).await;
    assert_eq!(found.len(), 2);
    assert!(found[0].contains("its status is not what"), "{found:?}");
    assert!(
        found[1].contains("no event says by which saga"),
        "{found:?}"
    );
    run(
        &master,
        "UPDATE network_request SET status = 'cancelled' WHERE target_broker_id IS NULL AND status = 'completed'".to_owned(),
    )
    .await;

    // A request that has completed and says that it has not.
    run(&master, claim("completed", "sent")).await;
    let all = report(&world).await;
    let lines: Vec<_> = all.invariants[0]
        .breaks
        .iter()
        .map(|one| &one.what)
        .collect();
    assert!(
        lines
            .iter()
            .any(|line| line.contains("no completed saga has booked it"))
    );
    assert!(lines.iter().any(|line| line.contains("is active of saga")));
    assert!(
        lines
            .iter()
            .any(|line| line.contains("has posted in the ledger"))
    );

    let event = "UPDATE network_request_event SET actor = 'somebody' WHERE kind = 'accepted'";
    run(&master, event.to_owned()).await;
    let all = report(&world).await;
    let events = all.invariants[0].breaks.iter();
    assert!(
        events
            .filter(|one| one.what.contains("breaks the chain of events"))
            .count()
            > 1
    );
}

/// What was promised of a debt, what repaid it, and what counts against a credit line.
#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_follow_from_repayments_is_found() {
    let world = World::new().await;
    let master = world.app.systems.master.clone();
    let repaid = Shape::Settles.sent(&world).await;
    world.confirm(repaid).await.unwrap();
    let open = Shape::SettlesFromClient.accepted(&world).await.id;
    let owing = Shape::Plain.accepted(&world).await.id;
    assert!(report(&world).await.is_clean());
    let (repaid, open) = (format!("'{repaid}'"), format!("'{open}'"));
    let parts = |set: &str, subject: &str| {
        format!("UPDATE obligation_settlement SET {set} WHERE subject = {subject} LIMIT 1")
    };
    let of_plain = |set: &str| {
        let id = owing.bits();
        format!("UPDATE network_request SET {set} WHERE request_id = {id}")
    };
    for (there, back, expected) in [
        (
            parts("settled_amount = settled_amount - 1", &repaid),
            parts("settled_amount = settled_amount + 1", &repaid),
            ["it has repaid", "its settlements say"],
        ),
        (
            parts("status = 'released'", &open),
            parts("status = 'reserved'", &open),
            [
                "of debts is reserved for it",
                "is reserved; its settlements say",
            ],
        ),
        (
            "UPDATE obligation SET reserved_amount = reserved_amount + 1".to_owned(),
            "UPDATE obligation SET reserved_amount = reserved_amount - 1".to_owned(),
            [
                "is reserved; its settlements say",
                "is reserved; its settlements say",
            ],
        ),
        (
            of_plain("credit_amount = credit_amount - 1"),
            of_plain("credit_amount = credit_amount + 1"),
            ["of a credit line", "of a credit line"],
        ),
    ] {
        run(&master, there.clone()).await;
        let found = of_requests(&world).await;
        for words in expected {
            assert!(
                found.iter().any(|line| line.contains(words)),
                "{there}: {found:?}"
            );
        }
        run(&master, back).await;
        assert_eq!(of_requests(&world).await, [] as [String; 0], "{there}");
    }
}

/// What was netted has a proposal that was applied, and is just what that says.
#[tokio::test(flavor = "multi_thread")]
async fn netting_that_nobody_has_agreed_to_is_found() {
    let world = World::new().await;
    let master = world.app.systems.master.clone();
    let there = owing(&world, world.alpha, world.beta).await;
    let back = owing(&world, world.beta, world.alpha).await;
    let new = NewProposal {
        counterparty: world.beta,
        currency_code: world.currency.to_string(),
        amount: Some("10.00".to_owned()),
        expires_at: None,
    };
    let (netting, alpha) = (&world.app.netting, World::actor(world.alpha));
    let proposed = netting.propose_to(&alpha, World::intention(), new).await;
    let (id, beta) = (proposed.unwrap().id, World::actor(world.beta));
    netting.act_on(&beta, id, Act::Approve).await.unwrap();
    assert!(report(&world).await.is_clean());

    for (sql, undo, words) in [
        (
            "UPDATE netting_proposal SET netted = netted + 1",
            "UPDATE netting_proposal SET netted = netted - 1",
            "of each side",
        ),
        (
            "UPDATE netting_proposal SET status = 'declined'",
            "UPDATE netting_proposal SET status = 'applied'",
            "was not applied",
        ),
    ] {
        run(&master, sql.to_owned()).await;
        let found = of_requests(&world).await;
        assert!(
            found.len() == 1 && found[0].contains(words),
            "{sql}: {found:?}"
        );
        run(&master, undo.to_owned()).await;
    }
    for obligation in [there, back] {
        let id = obligation.bits();
        let forged = format!(
            "INSERT INTO obligation_settlement VALUES
             ('NP-ffffffffffff', {id}, 500, 500, 'settled', NOW(6), NOW(6))"
        );
        run(&master, forged).await;
        let lower = format!(
            "UPDATE obligation SET remaining_amount = remaining_amount - 500
             WHERE obligation_id = {id}"
        );
        run(&master, lower).await;
    }
    let found = of_requests(&world).await;
    assert!(
        found.len() == 1 && found[0].starts_with("NP-ffffffffffff: has settled debts"),
        "{found:?}"
    );
}

/// The breaks of invariant 1 alone.
async fn of_requests(world: &World) -> Vec<String> {
    let report = reconcile(world).run(Some(1), &|_| {}).await.unwrap();
    let found = report.invariants[0].breaks.iter();
    found
        .map(|finding| format!("{}: {}", finding.subject, finding.what))
        .collect()
}

/// Rows that are taken out of the master leave what came of them, and that is found.
#[tokio::test(flavor = "multi_thread")]
async fn what_has_no_request_behind_it_is_found() {
    let world = busy_world().await;
    let master = world.app.systems.master.clone();
    let taken = |table: &str, which: &str| {
        let (kept, master) = (format!("kept_{table}"), &master);
        let take = [
            format!("CREATE TABLE {kept} AS SELECT * FROM {table} WHERE {which}"),
            format!("DELETE FROM {table} WHERE {which}"),
        ];
        let give = [
            // Of a column that the server computes it ignores the value then.
            format!("SET STATEMENT sql_mode = '' FOR INSERT INTO {table} SELECT * FROM {kept}"),
            format!("DROP TABLE {kept}"),
        ];
        let sql = |sql: [String; 2]| async move {
            for one in sql {
                sqlx::query(AssertSqlSafe(one))
                    .execute(master)
                    .await
                    .unwrap();
            }
        };
        (sql(take), sql(give))
    };
    let has = |found: &[String], what: &str| found.iter().any(|line| line.contains(what));

    let (take, give) = taken("network_request", "status = 'completed'");
    take.await;
    let found = only_breaks(&world, 1).await;
    for what in [
        ": has events: there is no such request",
        "is of it: there is no such request",
        "is active of it: there is no such request",
        "seq 1: books it: there is no such request",
    ] {
        assert!(has(&found, what), "{what}: {found:?}");
    }
    give.await;

    // What is held for a request that is gone is promised to nobody.
    let (take, give) = taken("network_request", "status <> 'completed'");
    take.await;
    let all = report(&world).await;
    let held = &all.invariants[1].breaks;
    assert!(held[0].what.contains("which promises nothing"), "{held:?}");
    give.await;

    let (take, give) = taken("saga", "kind = 'confirm'");
    take.await;
    let found = of_requests(&world).await;
    for what in [
        "has steps in exchange_outbox and is not in the master",
        "was booked by saga",
        "is active of saga",
        "completed by saga",
    ] {
        assert!(has(&found, what), "{what}: {found:?}");
    }
    give.await;

    let (take, give) = taken("exchange_outbox", "target_db = 'ledger' OR step > 0");
    take.await;
    let found = of_requests(&world).await;
    assert!(has(&found, "has no steps"), "{found:?}");
    give.await;
    assert!(report(&world).await.is_clean());
}

/// What is fixed when a request is made, and what its transitions leave, is in its events too.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_is_not_what_its_events_say_is_found() {
    let world = busy_world().await;
    let master = world.app.systems.master.clone();
    let run = async |sql: &str| {
        let done = sqlx::query(AssertSqlSafe(sql.to_owned()))
            .execute(&master)
            .await;
        assert!(done.unwrap().rows_affected() > 0, "{sql}");
    };
    run("CREATE TABLE kept AS SELECT * FROM network_request").await;
    // Of a column that the server computes it ignores the value then.
    let restore = "SET STATEMENT sql_mode = '' FOR REPLACE INTO network_request SELECT * FROM kept";
    let open = "status = 'pending'";
    let done = "status = 'completed'";
    for (which, column, value) in [
        (open, "deadline_at", "NOW(6)"),
        (open, "method", "'bank'"),
        (open, "city_code", "NULL"),
        (open, "counterpart_uid", "'FO-9'"),
        (open, "contact", "'somebody'"),
        (open, "note", "'other'"),
        (open, "amount", "amount + 1"),
        (open, "currency_code", "'USD'"),
        (open, "type", "'receive'"),
        (open, "broadcast", "FALSE"),
        (open, "terms", "JSON_SET(terms, '$.obligation', 'none')"),
        (open, "created_at", "NOW(6)"),
        (open, "target_broker_id", "1"),
        (open, "status", "'rejected'"),
        (open, "received_amount", "5"),
        (done, "deadline_at", "NOW(6)"),
        (done, "accepted_at", "NOW(6)"),
        (done, "sent_at", "NOW(6)"),
        (done, "closed_at", "NOW(6)"),
        (done, "proof_digest", "REPEAT('x', 32)"),
        (done, "version", "version + 1"),
        (done, "updated_at", "NOW(6)"),
        ("status = 'sent'", "proposal", "'cancel', proposal_by = 1"),
    ] {
        run(&format!(
            "UPDATE network_request SET {column} = {value} WHERE {which}"
        ))
        .await;
        let found = of_requests(&world).await;
        let what = format!("its {column} is not what its events say");
        assert!(
            found.iter().any(|line| line.contains(&what)),
            "{what}: {found:?}"
        );
        run(restore).await;
    }
    // A saga that does not run owns nothing.
    run("UPDATE network_request SET saga_id = REPEAT('x', 16) WHERE status = 'pending'").await;
    let found = of_requests(&world).await;
    assert!(
        found.iter().any(|line| line.contains("which does not run")),
        "{found:?}"
    );
    run(restore).await;
    // A row that can't be read hides no other.
    run("UPDATE network_request SET terms = '{}' WHERE status = 'pending'").await;
    let found = of_requests(&world).await;
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("can't be read"), "{found:?}");
    run(restore).await;
    assert_eq!(of_requests(&world).await, [] as [String; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_in_another_brokers_database_are_found() {
    let world = busy_world().await;
    let shard = pool(&world, "a", &world.databases.shard);
    let stray = format!(
        "INSERT INTO idempotency_key (broker_id, client, idempotency_key, fingerprint, subject, created_at)
         VALUES ({}, 'c', 'k', REPEAT('x', 32), 's', NOW(6))",
        world.alpha
    );
    run(&shard, stray).await;
    let found = only_breaks(&world, 7).await;
    assert_eq!(found.len(), 1);
    let what = format!("idempotency_key has rows of broker {}", world.alpha);
    assert!(found[0].contains(&what), "{found:?}");
    run(
        &shard,
        "DELETE FROM idempotency_key WHERE client = 'c'".to_owned(),
    )
    .await;
    let fence = format!("DELETE FROM book_fence WHERE broker_id = {}", world.delta);
    run(&shard, fence).await;
    let all = report(&world).await;
    assert!(
        all.invariants[4].breaks[0]
            .what
            .contains("book_fence has no row")
    );
    assert!(
        all.invariants[1].unchecked_count > 0,
        "its book can't be read"
    );
}

/// It runs beside the working product without false alarms.
#[tokio::test(flavor = "multi_thread")]
async fn sagas_in_flight_are_no_breaks() {
    let world = Arc::new(busy_world().await);
    let working = {
        let world = Arc::clone(&world);
        tokio::spawn(async move {
            for _ in 0..15 {
                let id = world.sent(world.alpha, world.beta).await;
                let by = World::actor(world.beta);
                world
                    .app
                    .network
                    .confirm_received(&by, id, None)
                    .await
                    .unwrap();
            }
        })
    };
    while !working.is_finished() {
        let report = report(&world).await;
        for one in &report.invariants {
            assert_eq!(one.breaks, [], "invariant {}", one.invariant);
        }
    }
    working.await.unwrap();
    assert!(report(&world).await.is_clean());
}

/// Requests of the measurement, and how many are made at once.
const MANY: usize = 3_000;
const AT_ONCE: usize = 32;

/// Prints how long invariant 1 takes over many requests.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement: cargo test --test it thousands_of_requests -- --ignored --nocapture"]
async fn thousands_of_requests_are_read_by_the_page() {
    use futures::StreamExt as _;
    let world = World::new().await;
    let pairs = [
        (world.alpha, world.beta),
        (world.beta, world.gamma),
        (world.gamma, world.delta),
        (world.delta, world.alpha),
    ];
    futures::stream::iter(0..MANY)
        .for_each_concurrent(AT_ONCE, |number| {
            let (world, (author, target)) = (&world, pairs[number % pairs.len()]);
            async move {
                let id = world.sent(author, target).await;
                if number % 10 != 0 {
                    world.confirm(id).await.unwrap();
                }
            }
        })
        .await;
    let reconcile = reconcile(&world);
    for number in [1, 2, 3] {
        let began = std::time::Instant::now();
        let report = reconcile.run(Some(number), &|_| {}).await.unwrap();
        assert!(report.is_clean(), "{report:?}");
        let checked = report.invariants[0].checked;
        println!("invariant {number}: {checked} in {:?}", began.elapsed());
    }
}
