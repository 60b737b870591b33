//! Evidence bundles made of real systems, and what becomes of them where somebody has tampered.

use settlenet::app::App;
use settlenet::domain::bundle::Bundle;
use settlenet::domain::bundle::verify::{ClaimKind, Report, Trust, verify};
use settlenet::domain::ids::{BrokerId, RequestId};
use settlenet::domain::note::NoteKey;
use settlenet::domain::request::{RequestStatus, Verdict};
use settlenet::runtime::Entropy;
use settlenet::services::audit::TAMPERED;
use settlenet::services::bundles::{BundleError, Viewer};
use settlenet::services::checkpoints::CONTRADICTED;
use settlenet::services::network::{Judgment, NetworkError};
use sqlx::mysql::MySqlPool;

use crate::harness::World;

async fn logged(world: &World) {
    world.clock.advance(chrono::Duration::seconds(20));
    world.app.checkpoints.pass().await.unwrap();
}

async fn keys(world: &World) -> Vec<NoteKey> {
    let log = world.app.checkpoints.log(None).await.unwrap();
    world.app.checkpoints.keys(&log).await.unwrap()
}

async fn judged(world: &World, bundle: &Bundle) -> Report {
    let keys = keys(world).await;
    let trust = Trust {
        keys: &keys,
        ..Trust::default()
    };
    verify(&bundle.to_bytes().unwrap(), &trust)
}

async fn bundle(world: &World, id: RequestId) -> Bundle {
    let bundles = &world.app.bundles;
    bundles.bundle(id, Viewer::Arbiter).await.unwrap()
}

/// What fails first of the bundle as it is now.
async fn fails(world: &World, id: RequestId) -> Option<ClaimKind> {
    let report = judged(world, &bundle(world, id).await).await;
    let failing = report.claims.iter().find(|claim| !claim.holds);
    failing.map(|claim| claim.claim)
}

async fn completed(world: &World) -> RequestId {
    let id = world.sent(world.alpha, world.beta).await;
    world.confirm(id).await.unwrap();
    assert_eq!(world.request(id).await.status, RequestStatus::Completed);
    id
}

async fn tenant(world: &World, number: usize) -> MySqlPool {
    let url = world.databases.url("b", &world.databases.tenants[number]);
    MySqlPool::connect(url.expose()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bundle_of_what_completed_holds_for_everybody_who_may_have_it() {
    let world = World::new().await;
    let id = completed(&world).await;
    let bundles = &world.app.bundles;
    let early = bundles.bundle(id, Viewer::Arbiter).await;
    assert!(matches!(early, Err(BundleError::NotLogged)), "{early:?}");
    logged(&world).await;
    for viewer in [
        Viewer::Arbiter,
        Viewer::Party(world.alpha),
        Viewer::Party(world.beta),
    ] {
        let bundle = bundles.bundle(id, viewer).await.unwrap();
        let report = judged(&world, &bundle).await;
        assert!(report.holds, "{:#?}", report.claims);
        assert_eq!(report.status, Some("completed"));
        // Nothing of a book but the subject's entry.
        for segment in bundle.books.iter().flat_map(|book| &book.segments) {
            assert!(
                segment
                    .entries
                    .iter()
                    .all(|one| one.entry.subject == id.to_string())
            );
        }
    }
    let stranger = bundles.bundle(id, Viewer::Party(world.gamma)).await;
    assert!(matches!(stranger, Err(BundleError::NotFound)));
    // Once more has happened elsewhere, and after another checkpoint.
    completed(&world).await;
    logged(&world).await;
    assert_eq!(fails(&world, id).await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_correction_is_in_it_and_what_is_newer_than_the_checkpoint_is_waited_for() {
    let world = World::new().await;
    let id = completed(&world).await;
    logged(&world).await;
    let alpha = World::actor(world.alpha);
    let network = &world.app.network;
    let disputed = network
        .dispute_request(&alpha, id, World::said("counterfeit"))
        .await;
    disputed.unwrap();
    let early = world.app.bundles.bundle(id, Viewer::Arbiter).await;
    assert!(matches!(early, Err(BundleError::NotLogged)), "{early:?}");
    network.assign_dispute("US-00000000000a", id).await.unwrap();
    let judgment = settlenet::services::network::Judgment {
        verdict: settlenet::domain::request::Verdict::Adjust,
        amount: Some("4000.00".to_owned()),
        reason: "six thousand were counterfeit".to_owned(),
    };
    network
        .decide("US-00000000000a", id, &judgment)
        .await
        .unwrap();
    logged(&world).await;
    let bundle = bundle(&world, id).await;
    assert_eq!((bundle.obligations.len(), bundle.transfers.len()), (2, 2));
    let report = judged(&world, &bundle).await;
    assert!(report.holds, "{:#?}", report.claims);
}

/// Runs a statement on a book, and says what a bundle comes to then.
async fn tampered(world: &World, book: BrokerId, sql: &'static str) -> MySqlPool {
    let number = usize::from(book == world.beta);
    let pool = tenant(world, number).await;
    let done = sqlx::query(sql).execute(&pool).await.unwrap();
    assert!(done.rows_affected() > 0, "{sql}");
    pool
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_rewrites_its_book_is_named() {
    let world = World::new().await;
    let id = completed(&world).await;
    logged(&world).await;
    for (sql, claim) in [
        (
            "UPDATE transaction SET amount = amount + 1",
            ClaimKind::Books,
        ),
        (
            "UPDATE transaction SET amount = amount - 1, booked_at = booked_at - INTERVAL 1 DAY",
            ClaimKind::Books,
        ),
        (
            "UPDATE transaction SET booked_at = booked_at + INTERVAL 1 DAY, subject = 'NR-000000000001'",
            ClaimKind::Books,
        ),
        ("DELETE FROM transaction", ClaimKind::Entries),
    ] {
        tampered(&world, world.beta, sql).await;
        assert_eq!(fails(&world, id).await, Some(claim), "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_that_rewrites_the_master_is_named() {
    let world = World::new().await;
    let id = completed(&world).await;
    logged(&world).await;
    let master = &world.app.systems.master;
    for (change, back, claim) in [
        (
            "UPDATE network_request_event SET actor = 'US-2' WHERE seq = 2",
            "UPDATE network_request_event SET actor = 'staff' WHERE seq = 2 AND actor = 'US-2'",
            ClaimKind::Events,
        ),
        (
            "UPDATE obligation SET amount = amount + 1, remaining_amount = remaining_amount + 1",
            "UPDATE obligation SET amount = amount - 1, remaining_amount = remaining_amount - 1",
            ClaimKind::Obligations,
        ),
    ] {
        let before: String =
            sqlx::query_scalar("SELECT actor FROM network_request_event WHERE seq = 2")
                .fetch_one(master)
                .await
                .unwrap();
        sqlx::query(change).execute(master).await.unwrap();
        assert_eq!(fails(&world, id).await, Some(claim), "{change}");
        sqlx::query(back).execute(master).await.unwrap();
        sqlx::query("UPDATE network_request_event SET actor = ? WHERE seq = 2")
            .bind(before)
            .execute(master)
            .await
            .unwrap();
        assert_eq!(fails(&world, id).await, None, "{back}");
    }
    // Another leaf in the log than what was signed.
    sqlx::query("UPDATE log_leaf SET seq = seq + 1 WHERE kind = 'book'")
        .execute(master)
        .await
        .unwrap();
    assert_eq!(fails(&world, id).await, None, "nothing of this request");
    sqlx::query("UPDATE log_leaf SET at = at - INTERVAL 1 DAY WHERE kind = 'request'")
        .execute(master)
        .await
        .unwrap();
    assert_eq!(fails(&world, id).await, Some(ClaimKind::Log), "back-dated");
}

/// What an arbiter decides is signed as he decides it, and so is what silence decides.
#[tokio::test(flavor = "multi_thread")]
async fn decisions_are_signed_in_the_bundle() {
    let world = World::new().await;
    let network = &world.app.network;
    let alpha = World::actor(world.alpha);
    let (heard, silent) = (
        completed(&world).await,
        world.sent(world.alpha, world.beta).await,
    );
    for id in [heard, silent] {
        let opened = network.dispute_request(&alpha, id, World::said("not so"));
        opened.await.unwrap();
    }
    network.assign_dispute("US-9", heard).await.unwrap();
    let judgment = Judgment {
        verdict: Verdict::Adjust,
        amount: Some("4000.00".to_owned()),
        reason: "the slip says so".to_owned(),
    };
    network.decide("US-9", heard, &judgment).await.unwrap();
    world.clock.advance(chrono::Duration::days(4));
    network.go_on_with_disputes(10).await.unwrap();
    logged(&world).await;
    for id in [heard, silent] {
        let report = judged(&world, &bundle(&world, id).await).await;
        assert!(report.holds, "{:#?}", report.claims);
        let decided = report
            .claims
            .iter()
            .find(|one| one.claim == ClaimKind::Decisions);
        assert!(
            decided.unwrap().says.contains("are signed: event"),
            "{decided:?}"
        );
    }
}

/// Without the key nothing is decided, by whomever.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_without_the_key_decides_nothing() {
    let world = World::new().await;
    let mut config = world.config.clone();
    config.checkpoints.signing_key_file = None;
    let (ledger, clock) = (world.app.systems.ledger.clone(), world.clock.clone());
    let app = App::on_ledger(&config, ledger, clock, Entropy::seeded(1)).unwrap();
    let id = world.sent(world.alpha, world.beta).await;
    let (network, alpha) = (&app.network, World::actor(world.alpha));
    let opened = network.dispute_request(&alpha, id, World::said("not so"));
    opened.await.unwrap();
    network.assign_dispute("US-9", id).await.unwrap();
    let judgment = Judgment {
        verdict: Verdict::Complete,
        amount: None,
        reason: "the slip says so".to_owned(),
    };
    let refused = network.decide("US-9", id, &judgment).await;
    assert!(
        matches!(refused, Err(NetworkError::Unsigned(_))),
        "{refused:?}"
    );
    world.clock.advance(chrono::Duration::days(4));
    network.go_on_with_disputes(10).await.unwrap();
    assert_eq!(world.request(id).await.status, RequestStatus::Disputed);
    world.app.network.go_on_with_disputes(10).await.unwrap();
    assert_eq!(world.request(id).await.status, RequestStatus::Completed);
}

async fn open_alerts(world: &World, kind: &str) -> Vec<String> {
    let alerts = world.app.alerts.list(true, None, 100).await.unwrap();
    let of_kind = alerts.into_iter().filter(|alert| alert.kind == kind);
    of_kind.map(|alert| alert.message).collect()
}

/// Every book that is due, until none is.
async fn audited(world: &World) {
    world.clock.advance(chrono::Duration::hours(2));
    while let Some(audited) = world.app.audit.next().await.unwrap() {
        audited.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_names_the_broker_and_the_seq() {
    let world = World::new().await;
    for _ in 0..3 {
        completed(&world).await;
    }
    logged(&world).await;
    audited(&world).await;
    assert_eq!(open_alerts(&world, TAMPERED).await, Vec::<String>::new());
    // Nobody is due again before a round has passed.
    assert!(world.app.audit.next().await.unwrap().is_none());
    for (sql, back, seq) in [
        (
            "UPDATE transaction SET amount = amount + 1 WHERE seq = 2",
            "UPDATE transaction SET amount = amount - 1 WHERE seq = 2",
            2,
        ),
        (
            "UPDATE transaction SET seq = 9 WHERE seq = 1",
            "UPDATE transaction SET seq = 1 WHERE seq = 9",
            1,
        ),
        (
            "UPDATE transaction SET booked_at = booked_at - INTERVAL 1 DAY WHERE seq = 3",
            "UPDATE transaction SET booked_at = booked_at + INTERVAL 1 DAY WHERE seq = 3",
            3,
        ),
    ] {
        let pool = tampered(&world, world.beta, sql).await;
        audited(&world).await;
        let alerts = open_alerts(&world, TAMPERED).await;
        assert_eq!(alerts.len(), 1, "{sql}: {alerts:?}");
        let named = format!(
            "broker {} does not hold. The first bad seq is {seq}:",
            world.beta
        );
        assert!(alerts[0].contains(&named), "{sql}: {}", alerts[0]);
        sqlx::query(back).execute(&pool).await.unwrap();
        audited(&world).await;
        assert_eq!(
            open_alerts(&world, TAMPERED).await,
            Vec::<String>::new(),
            "{back}"
        );
    }
}

/// What a book has grown by is verified a minute after the last time, from where it held; all of it
/// only when its round is over.
#[tokio::test(flavor = "multi_thread")]
async fn growth_is_audited_soon_and_the_whole_book_in_its_round() {
    let world = World::new().await;
    completed(&world).await;
    logged(&world).await;
    audited(&world).await;
    let next = async || {
        world.clock.advance(chrono::Duration::seconds(61));
        let mut found = Vec::new();
        while let Some(audited) = world.app.audit.next().await.unwrap() {
            found.push(audited.unwrap());
        }
        found
    };
    assert_eq!(next().await, [], "nothing has grown");
    completed(&world).await;
    logged(&world).await;
    let grown = next().await;
    let brokers: Vec<_> = grown.iter().map(|audited| audited.broker).collect();
    assert_eq!(brokers, [world.alpha, world.beta]);
    assert!(grown.iter().all(|audited| audited.fault.is_none()));

    // An old entry is not looked at before the round is over; the one from which it goes on is.
    let old = "UPDATE transaction SET amount = amount + 1 WHERE seq = 1";
    let pool = tampered(&world, world.beta, old).await;
    completed(&world).await;
    logged(&world).await;
    assert!(next().await.iter().all(|audited| audited.fault.is_none()));
    audited(&world).await;
    assert_eq!(open_alerts(&world, TAMPERED).await.len(), 1);
    sqlx::query("UPDATE transaction SET amount = amount - 1 WHERE seq = 1")
        .execute(&pool)
        .await
        .unwrap();
    audited(&world).await;
    assert_eq!(open_alerts(&world, TAMPERED).await, Vec::<String>::new());
    completed(&world).await;
    let last = "UPDATE transaction SET amount = amount + 1 WHERE seq = 3";
    tampered(&world, world.beta, last).await;
    logged(&world).await;
    let found = next().await;
    let beta = found.iter().find(|audited| audited.broker == world.beta);
    let fault = beta.unwrap().fault.clone().unwrap();
    assert_eq!((fault.seq, fault.problem.code()), (3, "tx_hash"));
    assert_eq!(open_alerts(&world, TAMPERED).await.len(), 1);
    // One that is not where it was logged the log itself names, at once.
    let away = "UPDATE transaction SET seq = 77 WHERE seq = 4";
    tampered(&world, world.beta, away).await;
    sqlx::query("UPDATE chain_head SET seq = 5")
        .execute(&pool)
        .await
        .unwrap();
    logged(&world).await;
    assert_eq!(open_alerts(&world, CONTRADICTED).await.len(), 1);
}

/// A broker that cuts its chain off, or writes all of it anew, has a chain that holds by itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_chain_that_was_cut_off_or_written_anew_is_not_the_one_in_the_log() {
    let world = World::new().await;
    completed(&world).await;
    completed(&world).await;
    logged(&world).await;
    let pool = tampered(&world, world.beta, "DELETE FROM transaction WHERE seq = 2").await;
    sqlx::query(
        "UPDATE chain_head SET seq = 1, tx_hash = (SELECT tx_hash FROM transaction WHERE seq = 1)",
    )
    .execute(&pool)
    .await
    .unwrap();
    let cut = world
        .app
        .audit
        .audit(world.beta)
        .await
        .unwrap()
        .fault
        .unwrap();
    assert_eq!((cut.seq, cut.problem.code()), (2, "cut_tail"));
    // It goes on from there as if nothing had been.
    completed(&world).await;
    let anew = world
        .app
        .audit
        .audit(world.beta)
        .await
        .unwrap()
        .fault
        .unwrap();
    assert_eq!((anew.seq, anew.problem.code()), (2, "rewritten"));
    // Longer than before it is a head that the log does not have, and must not get.
    completed(&world).await;
    logged(&world).await;
    assert_eq!(open_alerts(&world, CONTRADICTED).await.len(), 1);
    let still = world
        .app
        .audit
        .audit(world.beta)
        .await
        .unwrap()
        .fault
        .unwrap();
    assert_eq!((still.seq, still.problem.code()), (2, "rewritten"));
}
