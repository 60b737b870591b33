//! The keys that sign are changed one after the other, while everybody checks what they sign.

use std::path::Path;

use ed25519_dalek::SigningKey;
use ed25519_dalek::pkcs8::EncodePrivateKey as _;
use ed25519_dalek::pkcs8::spki::der::pem::LineEnding;
use settlenet::app::App;
use settlenet::domain::note::{Note, NoteKey};
use settlenet::runtime::Entropy;
use settlenet::services::checkpoints::CheckpointError;

use super::{INTERVAL, completed};
use crate::harness::World;

fn put(folder: &Path, name: &str, seed: u8) {
    let key = SigningKey::from_bytes(&[seed; 32]);
    let pem = key.to_pkcs8_pem(LineEnding::LF).unwrap();
    std::fs::write(folder.join(name), pem.as_bytes()).unwrap();
}

/// The next checkpoint, and all keys that are known by then.
async fn next(world: &World, app: &App) -> (Note, Vec<NoteKey>) {
    completed(world).await;
    world.clock.advance(INTERVAL);
    assert!(app.checkpoints.pass().await.unwrap().signed);
    let shown = app.checkpoints.checkpoint(None, None).await.unwrap();
    let log = app.checkpoints.log(None).await.unwrap();
    let keys = app.checkpoints.keys(&log).await.unwrap();
    (Note::parse(shown.note.as_bytes()).unwrap(), keys)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_changed_without_a_gap() {
    let world = World::new().await;
    let folder = std::env::temp_dir().join(&world.config.checkpoints.name);
    std::fs::create_dir(&folder).unwrap();
    let mut config = world.config.clone();
    config.checkpoints.signing_key_file = Some(folder.clone());
    let (ledger, clock) = (world.app.systems.ledger.clone(), world.clock.clone());
    let app = App::on_ledger(&config, ledger, clock, Entropy::seeded(1)).unwrap();

    put(&folder, "first.pem", 1);
    let (before, keys) = next(&world, &app).await;
    let [first] = &keys[..] else {
        panic!("{keys:?}")
    };
    assert_eq!(before.signatures.len(), 1);

    put(&folder, "second.pem", 2);
    let (between, keys) = next(&world, &app).await;
    let second = keys.iter().find(|key| *key != first).unwrap();
    assert_eq!(keys.len(), 2);
    for known in [first, second] {
        // Whoever knows one of the two only can check it.
        assert_eq!(
            between.signed_by(std::slice::from_ref(known)).unwrap(),
            [known]
        );
    }

    std::fs::remove_file(folder.join("first.pem")).unwrap();
    let (after, keys) = next(&world, &app).await;
    assert_eq!(
        keys.len(),
        2,
        "what the first has signed can be checked for ever"
    );
    assert_eq!(after.signed_by(&keys).unwrap(), [second]);
    assert_eq!(before.signed_by(&keys).unwrap(), [first]);
    assert!(after.signed_by(std::slice::from_ref(first)).is_err());

    // Nothing is appended that nobody could sign.
    std::fs::write(folder.join("second.pem"), "no key").unwrap();
    completed(&world).await;
    world.clock.advance(INTERVAL);
    let refused = app.checkpoints.pass().await;
    assert!(
        matches!(refused, Err(CheckpointError::Key(_))),
        "{refused:?}"
    );
    std::fs::remove_dir_all(folder).unwrap();
}
