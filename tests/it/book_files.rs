//! A broker's book out into a file and in from one.

use std::collections::BTreeMap;
use std::io::{BufReader, Cursor};

use serde_json::Value;
use settlenet::app::Stores;
use settlenet::domain::book_file::FileProblem;
use settlenet::domain::book_table::BOOK_TABLES;
use settlenet::domain::broker::BrokerPlan;
use settlenet::domain::ids::BrokerId;
use settlenet::services::book_files::{BookFileError, BookFiles, Exported, Imported};
use settlenet::services::plans::AskedBy;
use settlenet::stores::book::{self, HeldBook};
use settlenet::stores::master::placement;
use sqlx::{AssertSqlSafe, Connection as _};

use crate::harness::{World, assert_invariants};

const NO_PROGRESS: fn(&'static str, u64, u64) = |_, _, _| {};

fn files(world: &World) -> BookFiles {
    Stores::open(&world.config).unwrap().book_files()
}

async fn export(world: &World, broker: BrokerId) -> (Exported, Vec<u8>) {
    let mut out = Cursor::new(Vec::new());
    let now = world.clock.now();
    let exported = files(world)
        .export(broker, &mut out, now, &NO_PROGRESS)
        .await;
    (exported.unwrap(), out.into_inner())
}

async fn import(world: &World, file: &[u8], replace: bool) -> Result<Imported, BookFileError> {
    let open = || Ok(BufReader::new(Cursor::new(file.to_vec())));
    let now = world.clock.now();
    files(world).import(open, replace, now, &NO_PROGRESS).await
}

/// Every row of a broker in the shard's tables, straight from the database.
async fn rows(world: &World, broker: BrokerId) -> BTreeMap<&'static str, Vec<String>> {
    let mut database = connect(world).await;
    let mut all = BTreeMap::new();
    for table in BOOK_TABLES {
        let columns = table.columns.iter().map(|column| column.name);
        let columns: Vec<_> = columns.map(|name| format!("QUOTE(HEX({name}))")).collect();
        let sql = format!(
            "SELECT CONCAT_WS(',', {}) FROM {} WHERE broker_id = {broker} ORDER BY 1",
            columns.join(", "),
            table.name
        );
        let found: Vec<String> = sqlx::query_scalar(AssertSqlSafe(sql))
            .fetch_all(&mut database)
            .await
            .unwrap();
        all.insert(table.name, found);
    }
    all
}

async fn connect(world: &World) -> sqlx::mysql::MySqlConnection {
    let url = world.databases.shard_url();
    sqlx::mysql::MySqlConnection::connect(url.expose())
        .await
        .unwrap()
}

/// As a server that was lost with everything of the broker.
async fn lose(world: &World, broker: BrokerId) {
    let mut database = connect(world).await;
    for table in [
        "book_fence",
        "chain_head",
        "account",
        "reservation",
        "saga_step",
        "idempotency_key",
        "feed_event",
        "transaction",
        "partner",
        "book_limit",
    ] {
        let sql = format!("DELETE FROM {table} WHERE broker_id = {broker}");
        sqlx::query(AssertSqlSafe(sql))
            .execute(&mut database)
            .await
            .unwrap();
    }
}

/// Gamma and Delta share a shard, and have settled with each other.
async fn settled(times: u32) -> World {
    let world = World::new().await;
    for _ in 0..times {
        let id = world.sent(world.gamma, world.delta).await;
        world.confirm(id).await.unwrap();
    }
    world
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_book_comes_back_as_it_was_and_its_neighbour_never_notices() {
    let world = settled(3).await;
    let (gamma, delta) = (world.gamma, world.delta);
    let (before, neighbour) = (rows(&world, gamma).await, rows(&world, delta).await);
    let (exported, file) = export(&world, gamma).await;
    assert_eq!(exported.header.head.seq, 3);
    // Each line is of that broker's book alone.
    assert!(
        !String::from_utf8(file.clone())
            .unwrap()
            .contains(&delta.to_string())
    );

    lose(&world, gamma).await;
    let imported = import(&world, &file, false).await.unwrap();
    assert_eq!(
        (imported.digest, imported.replaced),
        (exported.digest, None)
    );
    assert_eq!(rows(&world, gamma).await, before);
    assert_eq!(rows(&world, delta).await, neighbour);
    assert_invariants(&world).await;
    // And it goes on from there.
    let id = world.sent(gamma, delta).await;
    world.confirm(id).await.unwrap();
    assert_invariants(&world).await;
    // The same moment gives the same file.
    let again = import(&world, &file, false).await;
    assert!(
        matches!(again, Err(BookFileError::NotEmpty { .. })),
        "{again:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_book_is_replaced_only_by_one_that_goes_on_from_it() {
    let world = settled(2).await;
    let gamma = world.gamma;
    let (_, older) = export(&world, gamma).await;
    let held = rows(&world, gamma).await;
    let id = world.sent(gamma, world.delta).await;
    world.confirm(id).await.unwrap();
    let (_, newer) = export(&world, gamma).await;
    let there = rows(&world, gamma).await;

    // What the older file lacks would be lost.
    for replace in [false, true] {
        let refused = import(&world, &older, replace).await.unwrap_err();
        let said = refused.to_string();
        assert!(
            said.contains("up to entry 3") || said.contains("ends with entry 2"),
            "{said}"
        );
        assert_eq!(rows(&world, gamma).await, there);
    }
    // The database was restored from a backup of before: the file goes on from it.
    lose(&world, gamma).await;
    import(&world, &older, false).await.unwrap();
    assert_eq!(rows(&world, gamma).await, held);
    let refused = import(&world, &newer, false).await;
    assert!(matches!(refused, Err(BookFileError::NotEmpty { .. })));
    let replaced = import(&world, &newer, true).await.unwrap();
    assert_eq!(replaced.replaced.map(|head| head.seq), Some(2));
    assert_eq!(rows(&world, gamma).await, there);
    assert_invariants(&world).await;

    // A write that is no entry would be lost too.
    let owner = world.client(gamma, "FO-0000000000aa");
    let scope = world.app.systems.router.book(gamma).await.unwrap();
    book::open_account(&scope, &World::intention(), &owner, world.clock.now())
        .await
        .unwrap();
    let lossy = import(&world, &newer, true).await.unwrap_err();
    assert!(lossy.to_string().contains("has had 1 since"), "{lossy}");
    let scope = world.app.systems.router.book(gamma).await.unwrap();
    scope
        .read()
        .await
        .expect("the book is open")
        .end()
        .await
        .unwrap();

    // Another chain of the same length is no continuation: as of another history.
    let mut database = connect(&world).await;
    let forge = format!(
        "UPDATE chain_head SET tx_hash = REPEAT('x', 32), change_seq = 0 WHERE broker_id = {gamma}"
    );
    sqlx::query(AssertSqlSafe(forge))
        .execute(&mut database)
        .await
        .unwrap();
    let other = import(&world, &newer, true).await.unwrap_err();
    assert!(
        other.to_string().contains("its entry 3 is another"),
        "{other}"
    );
}

/// Every kind of damage is told by its line, and nothing is touched.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_wrong_is_refused_by_its_line() {
    let world = settled(2).await;
    let gamma = world.gamma;
    let owner = world.client(gamma, "FO-0000000000aa");
    let scope = world.app.systems.router.book(gamma).await.unwrap();
    book::open_account(&scope, &World::intention(), &owner, world.clock.now())
        .await
        .unwrap();
    let (_, file) = export(&world, gamma).await;
    lose(&world, gamma).await;
    let text = String::from_utf8(file.clone()).unwrap();
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let at = |table: &str| -> usize {
        let of = format!(r#""table":"{table}"}}"#);
        lines.iter().position(|line| line.contains(&of)).unwrap()
    };
    let (entry, account) = (at("transaction"), at("account"));
    let changed = |line: usize, from: &str, to: &str| {
        let mut lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        let new = lines[line].replacen(from, to, 1);
        assert_ne!(new, lines[line], "{from}");
        lines[line] = new;
        lines.concat()
    };
    let without = |line: usize| {
        let mut lines = lines.clone();
        lines.remove(line);
        lines.concat()
    };
    let mut swapped = lines.clone();
    swapped.swap(account, account + 1);
    let mut doubled = lines.clone();
    doubled.insert(account, lines[account]);
    let last = lines.len();
    for (what, file, line) in [
        ("nothing", String::new(), 1),
        ("no first line", lines[1..].concat(), 1),
        ("another version", changed(0, r#""v":1}"#, r#""v":2}"#), 1),
        (
            "another head",
            changed(0, r#""seq":"2""#, r#""seq":"3""#),
            last + 1,
        ),
        (
            "another broker",
            changed(0, &gamma.to_string(), "7"),
            entry + 1,
        ),
        (
            "an amount",
            changed(entry, r#""amount":"1000000""#, r#""amount":"1000001""#),
            entry + 1,
        ),
        (
            "a balance",
            changed(
                account,
                r#""balance":"-2000000""#,
                r#""balance":"-2000001""#,
            ),
            account + 2,
        ),
        ("spacing", changed(entry, ":", ": "), entry + 1),
        (
            "a column more",
            changed(account, r#""balance""#, r#""aaa":"1","balance""#),
            account + 1,
        ),
        (
            "a table that is none",
            changed(account, r#"account"}"#, r#"amount"}"#),
            account + 1,
        ),
        ("an entry less", without(entry), entry + 1),
        ("an account less", without(account + 1), account + 2),
        ("the end", lines[..last - 1].concat(), last),
        ("half a line", text[..text.len() - 9].to_owned(), last),
        (
            "something after it",
            format!("{text}{}", lines[last - 1]),
            last + 1,
        ),
        ("another order", swapped.concat(), account + 2),
        ("a row twice", doubled.concat(), account + 2),
    ] {
        let refused = import(&world, file.as_bytes(), false).await.unwrap_err();
        let BookFileError::File(fault) = &refused else {
            panic!("{what}: {refused}")
        };
        assert_eq!(fault.line, line as u64, "{what}: {refused}");
    }
    let empty = rows(&world, gamma).await;
    assert!(empty.values().all(Vec::is_empty), "{empty:?}");
    import(&world, &file, false).await.unwrap();
    assert_invariants(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_hold_is_not_exported() {
    let world = settled(1).await;
    let mut database = connect(&world).await;
    let forge = format!(
        "UPDATE account SET balance = balance + 1 WHERE broker_id = {}",
        world.gamma
    );
    sqlx::query(AssertSqlSafe(forge))
        .execute(&mut database)
        .await
        .unwrap();
    let mut out = Cursor::new(Vec::new());
    let now = world.clock.now();
    let refused = files(&world)
        .export(world.gamma, &mut out, now, &NO_PROGRESS)
        .await;
    assert!(
        matches!(refused, Err(BookFileError::Book(FileProblem::Book(_)))),
        "{refused:?}"
    );
    let torn = BookFiles::verify(Cursor::new(out.into_inner()), &NO_PROGRESS);
    assert!(torn.is_err(), "what was written until then is no export");
}

/// While the broker works, each export is of one moment.
#[tokio::test(flavor = "multi_thread")]
async fn exports_beside_writers_hold_each() {
    let world = settled(1).await;
    let work = async {
        for _ in 0..8 {
            let id = world.sent(world.gamma, world.delta).await;
            world.confirm(id).await.unwrap();
        }
    };
    let exports = async {
        for _ in 0..6 {
            let (exported, file) = export(&world, world.gamma).await;
            let found = BookFiles::verify(Cursor::new(file), &NO_PROGRESS).unwrap();
            assert_eq!(found, exported);
        }
    };
    futures::future::join(work, exports).await;
}

/// The broker must be one that works here, and its book rest.
#[tokio::test(flavor = "multi_thread")]
async fn a_book_has_to_have_its_place_here() {
    let world = settled(1).await;
    let (_, file) = export(&world, world.gamma).await;
    lose(&world, world.gamma).await;
    let master = &world.app.systems.master;
    let set = async |state: &str| {
        sqlx::query("UPDATE broker SET state = ? WHERE broker_id = ?")
            .bind(state.to_owned())
            .bind(world.gamma)
            .execute(master)
            .await
            .unwrap();
    };
    for state in ["provisioning", "archived"] {
        set(state).await;
        let refused = import(&world, &file, false).await;
        assert!(
            matches!(refused, Err(BookFileError::State { .. })),
            "{state}"
        );
    }
    set("suspended").await;
    // Somebody else has the place.
    let router = &world.app.systems.router;
    let scope = router.book(world.delta).await.unwrap();
    let held = HeldBook::new(router, world.gamma, &scope.route().database).unwrap();
    let foreign = settlenet::domain::fence::closed_for_import(uuid::Uuid::from_u128(9), 1);
    let turn = |found| settlenet::domain::fence::close_for_import(foreign, found);
    held.turn(world.clock.now(), turn).await.unwrap().unwrap();
    let refused = import(&world, &file, false).await;
    assert!(
        matches!(refused, Err(BookFileError::Fence(_))),
        "{refused:?}"
    );
    held.remove_fence(uuid::Uuid::from_u128(9)).await.unwrap();
    import(&world, &file, false).await.unwrap();

    let nobody: Value =
        serde_json::from_slice(file.split(|byte| *byte == b'\n').next().unwrap()).unwrap();
    assert_eq!(nobody["broker"], world.gamma.to_string());
    sqlx::query("DELETE FROM broker WHERE broker_id = ?")
        .bind(world.gamma)
        .execute(master)
        .await
        .unwrap();
    let refused = import(&world, &file, false).await;
    assert!(matches!(refused, Err(BookFileError::NoSuchBroker { .. })));
}

/// Two imports of one file would write over each other; and what the file says of the plan is of
/// another day.
#[tokio::test(flavor = "multi_thread")]
async fn one_import_at_a_time_and_the_plan_of_today() {
    let world = settled(1).await;
    let (gamma, app) = (world.gamma, &world.app);
    let set = "UPDATE broker SET plan = 'starter' WHERE broker_id = ?";
    let master = &app.systems.master;
    sqlx::query(set).bind(gamma).execute(master).await.unwrap();
    let put = async |plan| {
        let changed = app
            .plans
            .change(gamma, plan, AskedBy::Platform, world.clock.now());
        Box::pin(changed).await.unwrap();
    };
    put(BrokerPlan::Growth).await;
    put(BrokerPlan::Starter).await;
    let bound = async || -> Option<u32> {
        let mut database = connect(&world).await;
        sqlx::query_scalar("SELECT offline_partners FROM book_limit WHERE broker_id = ?")
            .bind(gamma)
            .fetch_one(&mut database)
            .await
            .unwrap()
    };
    assert_eq!(bound().await, Some(3));
    let (_, file) = export(&world, gamma).await;
    put(BrokerPlan::Growth).await;
    lose(&world, gamma).await;

    let kept = placement::keep(master, "import", &gamma.to_string())
        .await
        .unwrap();
    let second = import(&world, &file, false).await;
    assert!(matches!(second, Err(BookFileError::Contended { id }) if id == gamma));
    placement::give_back(kept.unwrap(), "import", &gamma.to_string())
        .await
        .unwrap();
    import(&world, &file, false).await.unwrap();
    assert_eq!(bound().await, Some(50), "of the plan that is in force");
    assert_invariants(&world).await;
}
