//! A process whose routes are old reads and writes nothing where the book was.

use std::sync::atomic::{AtomicU32, Ordering};

use settlenet::app::{App, Stores};
use settlenet::domain::broker_move::MoveState;
use settlenet::runtime::Entropy;
use settlenet::services::book_files::BookFileError;
use settlenet::services::moves::Destination;
use settlenet::stores::StoreError;
use settlenet::stores::book;

use super::Stage;
use crate::harness::{World, assert_invariants};

#[tokio::test(flavor = "multi_thread")]
async fn an_old_route_leads_to_nothing_and_is_asked_for_again() {
    let stage = Stage::new().await;
    let world = &stage.world;
    stage.furnish().await;
    // Another process, which learns where the book is and then nothing more of it.
    let client = World::shared_ledger().await;
    let entropy = Entropy::seeded(7);
    let late = App::on_ledger(&world.config, client, world.clock.clone(), entropy).unwrap();
    let account = stage.open(world.alpha, "FO-1").await;
    for round in 0..3_u64 {
        let before = late.systems.router.book(world.alpha).await.unwrap();
        let head = book::head(&mut before.read().await.unwrap()).await.unwrap();
        let to = if round % 2 == 0 {
            Destination::Shard(Some(1))
        } else {
            Destination::Own(None)
        };
        stage.moved(world.alpha, to).await;
        stage.book(world.alpha, account).await.unwrap();
        // Its scope and its memory are those of before the move; it reads what is true now.
        let mut read = before.read().await.unwrap();
        assert_eq!(book::head(&mut read).await.unwrap().seq, head.seq + 1);
        read.end().await.unwrap();
        let (meant, entry) = (World::intention(), super::entry(account));
        let booked = late
            .books
            .book_entry(world.alpha, &meant, entry, world.clock.now());
        assert_eq!(booked.await.unwrap().entry.seq, head.seq + 2);
        let id = world.sent(world.alpha, world.beta).await;
        late.network
            .confirm_received(&World::actor(world.beta), id, None)
            .await
            .unwrap();
    }
    assert_invariants(world).await;
}

/// What a book has left may be gone altogether by the time somebody looks for it there.
#[tokio::test(flavor = "multi_thread")]
async fn an_old_route_to_a_database_that_was_dropped_is_asked_for_again() {
    let stage = Stage::new().await;
    let (world, delta) = (&stage.world, stage.world.delta);
    let to_b = Destination::Own(Some("b".to_owned()));
    stage.moved(delta, to_b).await;
    let client = World::shared_ledger().await;
    let entropy = Entropy::seeded(9);
    let late = App::on_ledger(&world.config, client, world.clock.clone(), entropy).unwrap();
    let before = late.systems.router.book(delta).await.unwrap();
    before.read().await.unwrap().end().await.unwrap();
    let left = stage.moved(delta, Destination::Shard(Some(1))).await.from;
    let drop = format!("DROP DATABASE `{}`", left.database);
    let server = world.databases.url(&left.server, "information_schema");
    let server = sqlx::MySqlPool::connect(server.expose()).await.unwrap();
    sqlx::query(sqlx::AssertSqlSafe(drop))
        .execute(&server)
        .await
        .unwrap();
    before.read().await.unwrap().end().await.unwrap();
    let account = stage.open(delta, "FO-1").await;
    let (meant, entry) = (World::intention(), super::entry(account));
    let booked = late
        .books
        .book_entry(delta, &meant, entry, world.clock.now());
    booked.await.expect("finds where it is");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_may_not_wait_is_told_that_the_book_has_moved() {
    let stage = Stage::new().await;
    let world = &stage.world;
    stage.furnish().await;
    let mut config = world.config.clone();
    config.books.move_wait_ms = settlenet::config::Millis(0);
    let client = World::shared_ledger().await;
    let impatient =
        App::on_ledger(&config, client, world.clock.clone(), Entropy::seeded(8)).unwrap();
    let scope = impatient.systems.router.book(world.alpha).await.unwrap();
    stage.moved(world.alpha, Destination::Shard(Some(1))).await;
    let head = stage.app().books.head(world.alpha).await.unwrap();
    // The old database is there, with all its rows, and says no to both.
    let read = scope.read().await.err().unwrap();
    assert!(matches!(read, StoreError::Moving { broker } if broker == world.alpha));
    let write = book::append(&scope, &[], world.clock.now())
        .await
        .unwrap_err();
    assert!(matches!(write, StoreError::Moving { broker } if broker == world.alpha));
    // Told once, it asks where the book is.
    let account = stage.open(world.alpha, "FO-1").await;
    let (meant, entry) = (World::intention(), super::entry(account));
    let told = impatient
        .books
        .book_entry(world.alpha, &meant, entry, world.clock.now());
    assert_eq!(
        told.await.unwrap().entry.seq,
        head.seq + 1,
        "it has asked again"
    );
    assert_invariants(world).await;
}

/// A book that moves while somebody reads the file that is to take its place.
#[tokio::test(flavor = "multi_thread")]
async fn an_import_that_a_move_overtakes_leaves_nothing_where_the_book_was() {
    let stage = Stage::new().await;
    let (world, delta) = (&stage.world, stage.world.delta);
    let to_b = Destination::Own(Some("b".to_owned()));
    let home = stage.moved(delta, to_b).await.to;
    let account = stage.open(delta, "FO-1").await;
    stage.book(delta, account).await.unwrap();
    let files = Stores::open(&world.config).unwrap().book_files();
    let mut file = std::io::Cursor::new(Vec::new());
    let now = world.clock.now();
    files
        .export(delta, &mut file, now, &|_, _, _| {})
        .await
        .unwrap();
    let file = file.into_inner();
    // Read once to be verified, and once more to be compared with what is there.
    let times = AtomicU32::new(0);
    let open = || {
        if times.fetch_add(1, Ordering::SeqCst) == 1 {
            tokio::task::block_in_place(|| {
                let moves = async {
                    let left = stage.moved(delta, Destination::Shard(Some(1))).await;
                    stage.app().moves.purge(left.id).await.unwrap();
                    stage.until(left.id, MoveState::Done).await;
                };
                tokio::runtime::Handle::current().block_on(moves);
            });
        }
        Ok(std::io::Cursor::new(file.clone()))
    };
    let overtaken = files.import(open, true, now, &|_, _, _| {}).await;
    assert!(
        matches!(overtaken, Err(BookFileError::Moved { .. })),
        "{overtaken:?}"
    );
    assert_eq!(stage.rows_in(&home.server, &home.database, delta).await, 0);
    stage
        .moved(delta, Destination::Own(Some("b".to_owned())))
        .await;
    assert_invariants(world).await;
}
