//! Brokers that leave.

use std::io::Cursor;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use settlenet::app::Stores;
use settlenet::domain::account::Side;
use settlenet::domain::broker::BrokerState;
use settlenet::domain::ids::AccountId;
use settlenet::domain::money::Amount;
use settlenet::domain::terms::ObligationTerm;
use settlenet::services::books::{BooksError, EntryInput, OwnEntryKind};
use settlenet::services::network::CreateRequest;
use settlenet::services::offboarding::ExitError;

use crate::api::{Api, PASSWORD};
use crate::cli;
use crate::harness::{Child, MovedClock, SOON, World, assert_invariants, until};
use crate::moves::Stage;

const REQUESTS: &str = "/v1/network/requests";

/// Somebody's account in a book, with 100.00 on it.
async fn funded(world: &World, broker: u64, name: &str) -> AccountId {
    world.funded(world.client(broker, name), 10_000).await.id()
}

async fn enter(
    world: &World,
    broker: u64,
    account: AccountId,
    side: Side,
) -> Result<(), BooksError> {
    let input = EntryInput {
        account,
        kind: OwnEntryKind::Correction,
        side,
        amount: Amount::try_from(10_000).unwrap(),
        note: None,
    };
    let now = world.clock.now();
    let books = &world.app.books;
    books
        .book_entry(broker, &World::intention(), input, now)
        .await
        .map(drop)
}

/// A send after which nobody owes anybody.
fn owing_nothing(world: &World, target: u64) -> CreateRequest {
    CreateRequest {
        obligation: Some(ObligationTerm::None),
        ..world.send(Some(target))
    }
}

async fn settle(world: &World, input: CreateRequest, author: u64, target: u64) {
    let request = world.create(author, input).await;
    world.bring_to_sent(&request, target).await;
    world.confirm(request.id).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_must_be_settled_first_is_told() {
    let api = Api::new().await;
    let world = &api.world;
    let (gamma, delta) = (world.gamma, world.delta);
    let platform = api.platform().await;
    let path = format!("/v1/admin/brokers/{gamma}/offboard");
    settle(world, world.send(Some(delta)), gamma, delta).await;
    let pending = world.create(delta, world.send(Some(gamma))).await;
    let account = funded(world, gamma, "FO-0000000000aa").await;
    let promised = CreateRequest {
        account_id: Some(account),
        amount: "40.00".to_owned(),
        ..world.send(Some(delta))
    };
    let promised = world.create(gamma, promised).await;
    let as_delta = World::actor(delta);
    let network = &world.app.network;
    let accepted = network.accept_request(&as_delta, promised.id, None).await;
    accepted.unwrap();

    for answer in [
        api.get(&path, &platform).await,
        api.post_as(&path, &platform, None, json!({})).await,
    ] {
        assert_eq!(
            (answer.status, &answer.body["state"]),
            (200, &json!("active"))
        );
        assert_eq!(answer.body["settled"], false);
        let open = &answer.body["outstanding"];
        let mut requests = [pending.id.to_string(), promised.id.to_string()];
        requests.sort_unstable();
        let named: Vec<_> = open["requests"]["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| item["id"].as_str().unwrap())
            .collect();
        assert_eq!(named, requests);
        assert_eq!(open["requests"]["count"], 2);
        assert_eq!(open["sagas"]["count"], 0);
        assert_eq!(
            open["obligations"]["items"],
            json!([{"counterparty_broker_id": delta, "currency_code": world.currency,
                    "owed": "0.00", "owing": "10000.00"}])
        );
        assert_eq!(open["reservations"]["items"][0]["amount_minor"], "4000");
        assert_eq!(
            open["reservations"]["items"][0]["subject"],
            promised.id.to_string()
        );
        // The house's own -10,000.00 is its own affair.
        assert_eq!(open["balances"]["count"], 1);
        assert_eq!(open["balances"]["items"][0]["balance"], "100.00");
        assert!(
            !answer.text.contains("FO-0000000000aa"),
            "whose it is stands in the book"
        );
    }
    // Nothing has changed: it works on.
    world.create(gamma, world.send(Some(delta))).await;
    let nobody = api
        .post("/v1/admin/brokers/7/offboard", &platform, json!({}))
        .await;
    assert_eq!(nobody.problem(), (404, "not_found"));
}

#[tokio::test(flavor = "multi_thread")]
async fn who_leaves_starts_nothing_and_may_stay_after_all() {
    let api = Api::new().await;
    let world = &api.world;
    let (gamma, delta) = (world.gamma, world.delta);
    let (platform, hers) = (api.platform().await, api.admin_of(gamma).await);
    let theirs = api.admin_of(delta).await;
    let path = format!("/v1/admin/brokers/{gamma}/offboard");
    settle(world, owing_nothing(world, delta), gamma, delta).await;
    let send = |target: u64| {
        json!({"target_broker_id": target, "type": "send", "amount": "5.00",
        "currency_code": world.currency, "method": "cash"})
    };
    for _ in 0..2 {
        let leaving = api.post_as(&path, &platform, None, json!({})).await;
        assert_eq!(
            (leaving.status, &leaving.body["state"]),
            (200, &json!("leaving")),
            "{leaving:?}"
        );
    }
    for (token, target) in [(&hers, delta), (&theirs, gamma)] {
        let new = api.post(REQUESTS, token, send(target)).await;
        assert_eq!(new.problem(), (409, "broker_not_active"), "{new:?}");
    }
    let pause = json!({"scope": "broker", "broker_id": gamma, "reason": "x"});
    assert_eq!(
        api.post("/v1/admin/pauses", &platform, pause)
            .await
            .problem(),
        (409, "conflict")
    );
    let stays = api
        .post_as(&path, &platform, None, json!({"cancel": true}))
        .await;
    assert_eq!(stays.body["state"], "active");
    assert_eq!(api.post(REQUESTS, &hers, send(delta)).await.status, 201);
    assert_invariants(world).await;
}

/// A folder of the test's own, removed with what is in it.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

fn folder() -> Folder {
    let name = format!("exits-{}", uuid::Uuid::new_v4());
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).unwrap();
    Folder(folder)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_leaves_whoever_is_killed_and_its_book_is_kept() {
    let api = Api::new().await;
    let world = &api.world;
    let (gamma, delta) = (world.gamma, world.delta);
    let hers = api.admin_of(gamma).await;
    let account = funded(world, gamma, "FO-0000000000aa").await;
    settle(world, owing_nothing(world, delta), gamma, delta).await;
    let folder = folder();
    let (id, file) = (gamma.to_string(), folder.0.join("gamma.jsonl"));
    let file = file.to_str().unwrap();
    let leave = ["admin", "broker", "offboard", &id, "--out", file];

    let first = cli::run(&world.databases, &leave).await;
    assert_eq!(first.status.code(), Some(5), "{}", cli::stderr(&first));
    assert!(
        cli::stdout(&first).contains("balance AC-"),
        "{}",
        cli::stdout(&first)
    );
    enter(world, gamma, account, Side::Debit).await.unwrap();

    // What comes into the book while it leaves is found before anything is archived.
    let bare = &leave[..4];
    let (code, leaving) = cli::json(&world.databases, bare).await;
    assert_eq!((code, &leaving["state"]), (Some(0), &json!("leaving")));
    enter(world, gamma, account, Side::Credit).await.unwrap();
    let (code, found) = cli::json(&world.databases, &leave).await;
    assert_eq!(
        (code, &found["outstanding"]["balances"]["count"]),
        (Some(5), &json!(1))
    );
    enter(world, gamma, account, Side::Debit)
        .await
        .expect("the book is open");
    let stay = ["admin", "broker", "offboard", &id, "--cancel"];
    let (_, stays) = cli::json(&world.databases, &stay).await;
    assert_eq!(stays["state"], "active");

    for place in [
        "offboard.leaving",
        "offboard.frozen",
        "export.lines",
        "offboard.exported",
        "offboard.archived",
    ] {
        let failpoint = format!("{place}=kill");
        let env = [("SETTLENET_FAILPOINTS", failpoint.as_str())];
        let killed = cli::run_env(&world.databases, &leave, &env).await;
        assert_eq!(
            killed.status.signal(),
            Some(9),
            "{place}: {}",
            cli::stderr(&killed)
        );
        assert_invariants(world).await;
    }
    let (code, gone) = cli::json(&world.databases, &leave).await;
    assert_eq!((code, &gone["state"]), (Some(0), &json!("archived")));
    let check = ["admin", "broker", "import", file, "--check"];
    let (_, kept) = cli::json(&world.databases, &check).await;
    assert_eq!(gone["archived"]["export_digest"], kept["digest"]);
    assert_eq!(gone["archived"]["head"], kept["head"]);

    nobody_logs_in(&api, gamma).await;
    nothing_is_written(&api, gamma, account, file, &hers).await;
    what_is_kept_is_checked(world, gamma, delta).await;
}

async fn nobody_logs_in(api: &Api, gamma: u64) {
    let world = &api.world;
    let id = gamma.to_string();
    let logins: Vec<String> = sqlx::query_scalar("SELECT login FROM user WHERE broker_id = ?")
        .bind(gamma)
        .fetch_all(&world.app.systems.master)
        .await
        .unwrap();
    for login in logins {
        let body = json!({"grant_type": "password", "login": login, "password": PASSWORD});
        let refused = api.post_as("/v1/auth/token", "", None, body).await;
        assert_eq!(refused.problem(), (401, "credentials_invalid"));
    }
    let user = [
        "admin",
        "user",
        "create",
        "late",
        "--role",
        "broker_admin",
        "--broker",
        &id,
    ];
    let user = cli::run_with(&world.databases, &user, PASSWORD).await;
    assert!(
        cli::stderr(&user).contains("is archived"),
        "{}",
        cli::stderr(&user)
    );
}

async fn nothing_is_written(api: &Api, gamma: u64, account: AccountId, file: &str, hers: &str) {
    let world = &api.world;
    let id = gamma.to_string();
    let read = api.get("/v1/chain", hers).await;
    assert_eq!(
        read.status, 200,
        "a token lives for its 15 minutes: {read:?}"
    );
    let late = enter(world, gamma, account, Side::Credit)
        .await
        .unwrap_err();
    assert!(late.to_string().contains("is archived"), "{late}");
    let stay = ["admin", "broker", "offboard", &id, "--cancel"];
    let back = cli::run(&world.databases, &stay).await;
    assert!(
        cli::stderr(&back).contains("it has left"),
        "{}",
        cli::stderr(&back)
    );
    let import = cli::run(
        &world.databases,
        &["admin", "broker", "import", file, "--replace"],
    )
    .await;
    assert!(
        cli::stderr(&import).contains("is archived"),
        "{}",
        cli::stderr(&import)
    );
}

async fn what_is_kept_is_checked(world: &World, gamma: u64, delta: u64) {
    let report = world.app.reconcile.run(None, &|_| {}).await.unwrap();
    for invariant in report.invariants {
        assert_eq!((invariant.breaks, invariant.unchecked), (vec![], vec![]));
    }
    settle(world, world.send(Some(world.alpha)), delta, world.alpha).await;
    assert_invariants(world).await;
    // Were its book to take writes again, that would show.
    let url = world.databases.shard_url();
    let mut shard = <sqlx::MySqlConnection as sqlx::Connection>::connect(url.expose())
        .await
        .unwrap();
    sqlx::query("UPDATE book_fence SET state = 'open' WHERE broker_id = ?")
        .bind(gamma)
        .execute(&mut shard)
        .await
        .unwrap();
    let report = world.app.reconcile.run(Some(7), &|_| {}).await.unwrap();
    let found: Vec<Value> = report.invariants[0]
        .breaks
        .iter()
        .map(|one| json!(one.what))
        .collect();
    assert_eq!(
        found,
        [json!(format!(
            "the book of broker {gamma}, which has left, is not frozen"
        ))]
    );
}

/// Whoever lets a broker stay, and whoever archives it with the file of before, take turns: of the
/// two one is told, and an archived book is always the frozen one that is in the file.
#[tokio::test(flavor = "multi_thread")]
async fn who_stays_is_not_archived_by_somebody_who_was_about_to() {
    let world = World::new().await;
    let (gamma, now) = (world.gamma, world.clock.now());
    let exits = &world.app.offboarding;
    let account = funded(&world, gamma, "FO-0000000000aa").await;
    enter(&world, gamma, account, Side::Debit).await.unwrap();
    let frozen = async || {
        let begun = Box::pin(exits.begin(gamma, "test", now)).await.unwrap();
        assert_eq!(begun.broker.state, BrokerState::Leaving);
        let number = exits.freeze(gamma, now).await.unwrap();
        let written = Cursor::new(Vec::new());
        let files = Stores::open(&world.config).unwrap().book_files();
        let exported = files.export(gamma, written, now, &|_, _, _| {}).await;
        (number, exported.unwrap())
    };
    let (number, exported) = frozen().await;
    exits.stay(gamma, "test", now).await.unwrap();
    let late = exits.archive(gamma, number, &exported, "test", now).await;
    assert!(matches!(late, Err(ExitError::State { .. })), "{late:?}");
    // It leaves again, written in meanwhile, and is frozen: the file is of before.
    enter(&world, gamma, account, Side::Credit).await.unwrap();
    enter(&world, gamma, account, Side::Debit).await.unwrap();
    Box::pin(exits.begin(gamma, "test", now)).await.unwrap();
    exits.freeze(gamma, now).await.unwrap();
    let late = exits.archive(gamma, number, &exported, "test", now).await;
    assert!(matches!(late, Err(ExitError::State { .. })), "{late:?}");
    exits.stay(gamma, "test", now).await.unwrap();

    let mut archived = false;
    for _ in 0..10 {
        let (number, exported) = frozen().await;
        let (stayed, left) = tokio::join!(
            exits.stay(gamma, "test", now),
            exits.archive(gamma, number, &exported, "test", now)
        );
        archived = left.is_ok();
        assert_ne!(stayed.is_ok(), archived, "{stayed:?} {left:?}");
        let written = enter(&world, gamma, account, Side::Credit).await;
        assert_ne!(written.is_ok(), archived, "{written:?}");
        if archived {
            break;
        }
        enter(&world, gamma, account, Side::Debit).await.unwrap();
    }
    if !archived {
        let (number, exported) = frozen().await;
        let left = exits.archive(gamma, number, &exported, "test", now).await;
        assert_eq!(left.unwrap().broker.state, BrokerState::Archived);
    }
    assert_invariants(&world).await;
}

/// A book's server that stands still is its broker's trouble: nobody else waits for who stays.
#[tokio::test(flavor = "multi_thread")]
async fn who_stays_with_a_server_that_stands_still_holds_up_nobody_else() {
    let (stack, stage) = Stage::that_may_fail().await;
    let world = &stage.world;
    let (exits, now) = (&world.app.offboarding, world.clock.now());
    let beta = world.beta;
    Box::pin(exits.begin(beta, "test", now)).await.unwrap();
    exits.freeze(beta, now).await.unwrap();
    stack.order("pause mariadb-b").await;
    let others = async {
        let began = std::time::Instant::now();
        for _ in 0..5 {
            let input = owing_nothing(world, world.delta);
            world.create(world.gamma, input).await;
        }
        began.elapsed()
    };
    let (stayed, took) = tokio::join!(exits.stay(beta, "test", now), others);
    assert!(stayed.is_err(), "its book can't be opened yet");
    assert!(took < std::time::Duration::from_secs(3), "{took:?}");
    stack.order("resume mariadb-b").await;
    // Said again, it is.
    until("the book is open", SOON, async || {
        exits.stay(beta, "test", world.clock.now()).await.is_ok()
    })
    .await;
    stage.written_again(beta).await;
}

/// Two that let a broker leave at once: the one that comes late does not open the other's book.
#[tokio::test(flavor = "multi_thread")]
async fn an_archived_book_stays_frozen_whoever_comes_late() {
    let clock = MovedClock::new();
    let world = World::with_clock(clock.clock(chrono::Duration::zero())).await;
    let (gamma, now) = (world.gamma, world.clock.now());
    let folder = folder();
    let (id, file) = (gamma.to_string(), folder.0.join("late.jsonl"));
    let file = file.to_str().unwrap();
    let leave = ["admin", "broker", "offboard", &id, "--out", file];
    let mut late = Child::program(&world, &clock, &leave, "offboard.frozen=stop");
    late.stopped("offboard.frozen").await;
    let exits = &world.app.offboarding;
    let number = exits.freeze(gamma, now).await.unwrap();
    let files = Stores::open(&world.config).unwrap().book_files();
    let written = Cursor::new(Vec::new());
    let exported = files
        .export(gamma, written, now, &|_, _, _| {})
        .await
        .unwrap();
    let left = exits
        .archive(gamma, number, &exported, "test", now)
        .await
        .unwrap();
    assert_eq!(left.broker.state, BrokerState::Archived);
    late.go_on();
    assert_eq!(
        late.ended().await.code(),
        Some(1),
        "it is told that it came late"
    );
    // Reconciliation finds an archived book that is not frozen.
    assert_invariants(&world).await;
}
