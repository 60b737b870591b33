//! Checkpoints over REST, for anybody; witnesses and a new log for who may.

use ed25519_dalek::SigningKey;
use serde_json::json;
use settlenet::domain::note::{Algorithm, NoteKey};
use std::process::Command;

use super::Api;
use crate::harness::program;

#[tokio::test(flavor = "multi_thread")]
async fn anybody_checks_that_nothing_was_rewritten() {
    let api = Api::new().await;
    let world = &api.world;
    let none = api.get("/v1/checkpoints/latest", "").await;
    assert_eq!(none.problem(), (404, "not_found"));
    let mut kept = Vec::new();
    for _ in 0..2 {
        let id = world.sent(world.alpha, world.beta).await;
        world.confirm(id).await.unwrap();
        world.clock.advance(chrono::Duration::seconds(20));
        world.app.checkpoints.pass().await.unwrap();
        kept.push(api.get("/v1/checkpoints/latest", "").await.text);
    }
    let size = |note: &str| note.lines().nth(1).unwrap().to_owned();
    let (old, new) = (size(&kept[0]), size(&kept[1]));
    let again = api.get(&format!("/v1/checkpoints/{old}"), "").await;
    assert_eq!(again.text, kept[0], "no checkpoint ever changes");
    let keys = api.get("/v1/checkpoints/keys", "").await;
    let key = keys.body["keys"][0].as_str().unwrap().to_owned();
    let path = format!("/v1/checkpoints/consistency?from={old}&to={new}");
    let proof = api.get(&path, "").await.text;

    let folder = std::env::temp_dir().join(format!("settlenet-log-{}", uuid::Uuid::new_v4()));
    std::fs::create_dir(&folder).unwrap();
    let verify = |new: &str, proof: &str| {
        for (name, text) in [("old", kept[0].as_str()), ("new", new), ("proof", proof)] {
            std::fs::write(folder.join(name), text).unwrap();
        }
        let mut command = Command::new(program());
        command.args([
            "verify",
            "checkpoint",
            "old",
            "new",
            "--proof",
            "proof",
            "--key",
            &key,
        ]);
        let output = command.current_dir(&folder).output().unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stdout).unwrap(),
        )
    };
    let (code, said) = verify(&kept[1], &proof);
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains(&format!("with {new} leaves begins with the one of {old}")),
        "{said}"
    );
    let forked = kept[1].replacen(&new, "99", 1);
    assert_eq!(
        verify(&forked, &proof).0,
        Some(4),
        "its signature is of another text"
    );
    let digit = if proof.contains('a') {
        ('a', "b")
    } else {
        ('0', "1")
    };
    let wrong = proof.replacen(digit.0, digit.1, 1);
    assert_ne!(verify(&kept[1], &wrong).0, Some(0));
    std::fs::remove_dir_all(&folder).unwrap();

    // A head that one knows is proved, another one is not there.
    let as_alpha = api.admin_of(world.alpha).await;
    let own = api.get("/v1/chain/logged", &as_alpha).await;
    assert_eq!(own.body["leaf"]["seq"], "2", "{}", own.text);
    let hash = own.body["leaf"]["hash"].as_str().unwrap().to_owned();
    let head = |seq: u32, hash: &str| {
        let broker = world.alpha;
        format!("/v1/checkpoints/inclusion?kind=book&id={broker}&seq={seq}&hash={hash}")
    };
    let proved = api.get(&head(2, &hash), "").await;
    assert_eq!(proved.body["proof"], own.body["proof"], "{}", proved.text);
    for path in [head(2, &"0".repeat(64)), head(7, &hash)] {
        assert_eq!(api.get(&path, "").await.problem(), (404, "not_found"));
    }
    for (path, field) in [
        (
            format!("/v1/checkpoints/consistency?from={new}&to={old}"),
            "to",
        ),
        (
            format!("/v1/checkpoints/consistency?from=0&to={}", u64::MAX),
            "to",
        ),
        ("/v1/checkpoints/consistency?from=x&to=1".to_owned(), "from"),
        (head(2, "zz"), "hash"),
        ("/v1/checkpoints/latest?log=x".to_owned(), "log"),
    ] {
        let refused = api.get(&path, "").await;
        assert_eq!(
            (refused.status, refused.fields()),
            (422, vec![field]),
            "{path}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_register_a_witness_and_begin_a_log() {
    let api = Api::new().await;
    let world = &api.world;
    let as_alpha = api.admin_of(world.alpha).await;
    let platform = api.platform().await;
    let private = SigningKey::from_bytes(&[3; 32]);
    let public = private.verifying_key().to_bytes();
    let key = NoteKey::new("alpha.example", Algorithm::Ed25519, &public).unwrap();
    let body = json!({ "key": key.to_string() });
    let set = api.put("/v1/witness", &as_alpha, body.clone()).await;
    assert_eq!(set.body["broker_id"], world.alpha, "{}", set.text);
    let shown = api.get("/v1/witness", &as_alpha).await;
    assert_eq!(shown.body["witness"]["key"], key.to_string());
    let taken = api.post("/v1/admin/witnesses", &platform, body).await;
    assert_eq!(taken.problem(), (409, "name_taken"));
    let odd = api
        .put("/v1/witness", &as_alpha, json!({ "key": "x" }))
        .await;
    assert_eq!((odd.status, odd.fields()), (422, vec!["key"]));
    let listed = api.get("/v1/admin/witnesses", &platform).await;
    assert_eq!(listed.items().len(), 1);
    let hidden = api.get("/v1/admin/witnesses", &as_alpha).await;
    assert_eq!(hidden.problem(), (403, "role_forbidden"));
    let reason = json!({ "after": 1, "reason": "no reason" });
    let refused = api
        .post("/v1/admin/checkpoints/begin", &as_alpha, reason.clone())
        .await;
    assert_eq!(refused.problem(), (403, "role_forbidden"));
    let nothing = api
        .post("/v1/admin/checkpoints/begin", &platform, reason)
        .await;
    assert_eq!(
        nothing.problem(),
        (409, "conflict"),
        "nothing was signed yet"
    );
    let cosign = json!({ "signature": "\u{2014} nobody.example AAAAAAA=" });
    let refused = api.post("/v1/checkpoints/1/cosignatures", "", cosign).await;
    assert_eq!(refused.fields(), ["signature"], "{}", refused.text);
}
