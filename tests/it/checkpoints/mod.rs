//! The log of chain heads: what has changed is in it once, whoever dies over it, and what was signed is
//! never contradicted.

mod faults;
mod keys;

use std::collections::BTreeSet;

use chrono::Duration;
use ed25519_dalek::SigningKey;
use settlenet::domain::checkpoint::{Checkpoint, LeafKind};
use settlenet::domain::merkle::Growing;
use settlenet::domain::merkle::proof::{extends, includes};
use settlenet::domain::note::{Algorithm, Note, NoteKey};
use settlenet::services::checkpoints::{CheckpointError, Cosigned, FORKED, Passed, Wanted};
use settlenet::stores::master::log;
use sqlx::AssertSqlSafe;

use crate::harness::{Child, Databases, MovedClock, SOON, World, until};

/// Longer than the time between two looks.
pub const INTERVAL: Duration = Duration::seconds(20);

pub async fn completed(world: &World) {
    let id = world.sent(world.alpha, world.beta).await;
    world.confirm(id).await.unwrap();
}

pub async fn passed(world: &World) -> Passed {
    world.clock.advance(INTERVAL);
    world.app.checkpoints.pass().await.unwrap()
}

/// The last checkpoint, whose signature is checked.
pub async fn signed(world: &World) -> Checkpoint {
    let service = &world.app.checkpoints;
    let shown = service.checkpoint(None, None).await.unwrap();
    let log = service.log(None).await.unwrap();
    let keys = service.keys(&log).await.unwrap();
    let note = Note::parse(shown.note.as_bytes()).unwrap();
    note.signed_by(&keys).unwrap();
    Checkpoint::parse(&note.text).unwrap()
}

/// Every leaf stands once, the tree is that of the leaves, and every chain's head is in it.
pub async fn is_whole(world: &World) {
    let master = &world.app.systems.master;
    let now = log::last(master).await.unwrap().unwrap();
    let mut tree = Growing::default();
    let mut seen = BTreeSet::new();
    for index in 0..now.size {
        let (_, leaf) = log::leaf(master, now.number, index).await.unwrap().unwrap();
        tree.push(leaf.hash_in_tree());
        assert!(
            seen.insert((leaf.kind, leaf.id.clone(), leaf.seq)),
            "{leaf:?} twice"
        );
    }
    let checkpoint = signed(world).await;
    assert_eq!((checkpoint.size, checkpoint.root), (now.size, tree.root()));
    let heads: Vec<(u64, u32)> =
        sqlx::query_as("SELECT request_id, event_seq FROM network_request")
            .fetch_all(master)
            .await
            .unwrap();
    for (id, seq) in heads {
        let id = settlenet::domain::ids::RequestId::from_bits(id).to_string();
        assert!(
            seen.contains(&(LeafKind::Request, id.clone(), seq.into())),
            "{id}"
        );
    }
    for broker in [world.alpha, world.beta] {
        let head = world.app.books.head(broker).await.unwrap();
        assert!(
            seen.contains(&(LeafKind::Book, broker.to_string(), head.seq)),
            "{broker}"
        );
        let entries = (1..=head.seq).map(|seq| (LeafKind::Entry, broker.to_string(), seq));
        assert!(
            entries.into_iter().all(|entry| seen.contains(&entry)),
            "{broker}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_changed_is_logged_once_and_signed() {
    let world = World::new().await;
    completed(&world).await;
    let first = passed(&world).await;
    // Two heads of books, a request, and the entries that it names.
    assert_eq!((first.appended, first.signed), (5, true));
    is_whole(&world).await;
    let old = signed(&world).await;
    let idle = passed(&world).await;
    assert_eq!((idle.appended, idle.signed), (0, false));
    let early = world.app.checkpoints.pass().await.unwrap();
    assert_eq!(early, Passed::default(), "not due yet");

    completed(&world).await;
    passed(&world).await;
    is_whole(&world).await;
    let new = signed(&world).await;
    let service = &world.app.checkpoints;
    let (_, proof) = service.consistency(None, old.size, new.size).await.unwrap();
    assert!(extends((old.size, old.root), (new.size, new.root), &proof));
    let wanted = Wanted::Last(LeafKind::Book, world.alpha.to_string());
    for (size, root) in [(old.size, old.root), (new.size, new.root)] {
        let found = service.inclusion(None, Some(size), &wanted).await.unwrap();
        let leaf = found.leaf.hash_in_tree();
        assert!(includes(leaf, found.index, size, root, &found.proof));
    }
    let beyond = service.consistency(None, old.size, new.size + 1).await;
    assert!(matches!(beyond, Err(CheckpointError::Range(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn passes_at_once_append_nothing_twice() {
    let world = World::new().await;
    for _ in 0..3 {
        completed(&world).await;
        world.clock.advance(INTERVAL);
        let service = &world.app.checkpoints;
        let all = futures::future::join_all((0..4).map(|_| service.pass())).await;
        let appended: usize = all.into_iter().map(|one| one.unwrap().appended).sum();
        assert_eq!(appended, 5);
        is_whole(&world).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_dies_over_a_pass_is_gone_on_for() {
    let clock = MovedClock::new();
    let (databases, ledger) = (Databases::new().await, World::shared_ledger().await);
    let world = World::on(databases, ledger, clock.clock(Duration::zero()), 0).await;
    for place in [
        "log.append.before",
        "log.append.after",
        "log.sign.before",
        "log.sign.after",
        "log.checkpoint.after",
        "log.mark.before",
    ] {
        completed(&world).await;
        clock.advance(INTERVAL);
        let mut worker = Child::worker(&world, &clock, &format!("{place}=kill"));
        worker.killed(place).await;
        clock.advance(INTERVAL);
        world.app.checkpoints.pass().await.unwrap();
        is_whole(&world).await;
        clock.advance(INTERVAL);
        let again = world.app.checkpoints.pass().await.unwrap();
        assert_eq!((again.appended, again.signed), (0, false), "{place}");
    }
}

/// Whoever was slow over a pass finds a log that others have signed, or begun anew, meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_pass_is_no_fork() {
    let clock = MovedClock::new();
    let (databases, ledger) = (Databases::new().await, World::shared_ledger().await);
    let world = World::on(databases, ledger, clock.clock(Duration::zero()), 0).await;
    let service = &world.app.checkpoints;
    let pass = async || {
        clock.advance(INTERVAL);
        service.pass().await.unwrap()
    };
    completed(&world).await;
    assert!(pass().await.signed);
    let place = "log.sign.before";
    for anew in [false, true] {
        completed(&world).await;
        clock.advance(INTERVAL);
        let mut slow = Child::worker(&world, &clock, &format!("{place}=stop"));
        slow.stopped(place).await;
        if anew {
            service
                .begin_new(1, "the keys are lost", "US-1")
                .await
                .unwrap();
        }
        completed(&world).await;
        assert!(pass().await.signed, "anew: {anew}");
        let newest = signed(&world).await;
        slow.go_on();
        completed(&world).await;
        // The slow one takes on the pass that is due next.
        until("it has gone on", SOON, async || {
            clock.advance(INTERVAL);
            signed(&world).await.size > newest.size
        })
        .await;
        drop(slow);
        pass().await;
        is_whole(&world).await;
        assert!(signed(&world).await.size > newest.size, "anew: {anew}");
        let alerts = world.app.alerts.list(true, None, 10).await.unwrap();
        assert!(alerts.is_empty(), "anew: {anew}: {alerts:?}");
    }
}

const TABLES: [&str; 4] = ["checkpoint_log", "log_leaf", "log_node", "checkpoint"];

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_master_signs_no_second_history() {
    let world = World::new().await;
    let master = world.app.systems.master.clone();
    let run = async |sql: String| {
        sqlx::query(AssertSqlSafe(sql))
            .execute(&master)
            .await
            .unwrap();
    };
    completed(&world).await;
    passed(&world).await;
    for table in TABLES {
        run(format!(
            "CREATE TABLE kept_{table} AS SELECT * FROM {table}"
        ))
        .await;
    }
    completed(&world).await;
    passed(&world).await;
    let lost = signed(&world).await;
    for table in TABLES {
        run(format!("DELETE FROM {table}")).await;
        run(format!("INSERT INTO {table} SELECT * FROM kept_{table}")).await;
    }
    completed(&world).await;
    for _ in 0..2 {
        let refused = passed(&world).await;
        assert_eq!((refused.appended, refused.signed), (0, false));
    }
    let alerts = world.app.alerts.list(true, None, 10).await.unwrap();
    assert_eq!(
        alerts.iter().filter(|alert| alert.kind == FORKED).count(),
        1
    );
    let service = &world.app.checkpoints;
    let silent = service.begin_new(1, " ", "US-1").await;
    assert!(matches!(silent, Err(CheckpointError::Reason(_))));
    let log = service
        .begin_new(1, "restored from Monday's backup", "US-1")
        .await
        .unwrap();
    let statement = Note::parse(log.statement.unwrap().as_bytes()).unwrap();
    let first = service.log(Some(1)).await.unwrap();
    let keys = service.keys(&first).await.unwrap();
    statement.signed_by(&keys).unwrap();
    assert!(
        statement.text.contains(&format!("size {}\n", lost.size)),
        "{}",
        statement.text
    );
    passed(&world).await;
    is_whole(&world).await;
    let wanted = Wanted::Index(0);
    let before = service.inclusion(None, None, &wanted).await.unwrap().leaf;
    assert_eq!((before.seq, before.hash), (lost.size, lost.root));
}

#[tokio::test(flavor = "multi_thread")]
async fn witnesses_cosign_what_they_have_seen() {
    let world = World::new().await;
    completed(&world).await;
    passed(&world).await;
    let service = &world.app.checkpoints;
    let private = SigningKey::from_bytes(&[9; 32]);
    let public = private.verifying_key().to_bytes();
    let name = format!("witness.example/{}", world.alpha);
    let key = NoteKey::new(&name, Algorithm::Cosignature, &public).unwrap();
    let at = signed(&world).await;
    let line = key
        .sign(&private, &at.to_string(), 1_767_225_600)
        .to_string();
    let stranger = service.cosign(None, at.size, &line).await;
    assert!(matches!(stranger, Err(CheckpointError::UnknownWitness)));
    let (alpha, text) = (Some(world.alpha), key.to_string());
    let registered = service
        .register_witness(alpha, &text, "US-1")
        .await
        .unwrap();
    let again = service
        .register_witness(alpha, &text, "US-1")
        .await
        .unwrap();
    assert_eq!(registered, again);
    let taken = service.register_witness(None, &text, "US-1").await;
    assert!(matches!(taken, Err(CheckpointError::NameTaken { .. })));
    let other = key.sign(&private, "another\n1\nroot\n", 1).to_string();
    let wrong = service.cosign(None, at.size, &other).await;
    assert!(matches!(wrong, Err(CheckpointError::WrongSignature)));
    assert_eq!(
        service.cosign(None, at.size, &line).await.unwrap(),
        Cosigned::Now
    );
    assert_eq!(
        service.cosign(None, at.size, &line).await.unwrap(),
        Cosigned::Before
    );
    let shown = service.checkpoint(None, None).await.unwrap();
    let note = Note::parse(shown.note.as_bytes()).unwrap();
    assert_eq!(note.signed_by(std::slice::from_ref(&key)).unwrap(), [&key]);
    service.withdraw_witness(registered.id).await.unwrap();
    let late = service.cosign(None, at.size, &line).await;
    assert!(matches!(late, Err(CheckpointError::UnknownWitness)));
}
