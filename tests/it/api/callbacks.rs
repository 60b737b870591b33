//! QR codes, and what providers send of themselves, over REST.

use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::Request;
use serde_json::{Value, json};
use settlenet::services::payments::PaymentService;
use tower::ServiceExt as _;
use uuid::Uuid;

use super::{Answer, Api};
use crate::payments::incoming::{SECRET, Stall, signed};
use crate::payments::sim::Sim;

const PATH: &str = "/v1/psp/qp/callbacks";

struct Scene {
    api: Api,
    payments: PaymentService,
    sim: Sim,
    currency: String,
    id: Uuid,
}

impl Scene {
    /// A top-up of 250.00 that nobody has paid.
    async fn set() -> Self {
        let stall = Stall::set(Duration::from_mins(15), "").await;
        let id = stall.ask().await;
        stall.settle().await;
        let Stall {
            till,
            sim,
            payments,
        } = stall;
        let currency = till.currency.code.to_string();
        let mut world = *till.world;
        world.app.payments = payments.clone();
        Self {
            api: Api::on(world).await,
            payments,
            sim,
            currency,
            id,
        }
    }

    fn word(&self, reference: &str, payment: &str) -> String {
        let word = json!({
            "eventId": format!("E{payment}"), "qrRef": "QR1", "reference": reference,
            "paymentId": payment, "amount": "250.00", "currency": self.currency,
            "paidAt": self.api.world.clock.now(),
        });
        word.to_string()
    }

    async fn send(&self, path: &str, body: &str, secret: &str, apart_s: i64) -> Answer {
        let now = self.api.world.clock.now();
        let headers = signed(now, body.as_bytes(), secret, apart_s);
        let mut request = Request::post(path);
        for (name, value) in &headers {
            request = request.header(name, value);
        }
        let request = request.body(Body::from(body.to_owned())).unwrap();
        self.api.send(request).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_top_up_shows_a_code_that_a_phone_reads() {
    let scene = Box::pin(Scene::set()).await;
    let (api, alpha) = (&scene.api, scene.api.world.alpha);
    let admin = api.admin_of(alpha).await;
    let path = format!("/v1/intents/{}", scene.id);
    let shown = api.get(&path, &admin).await;
    let payload = shown.body["qr_payload"].as_str().unwrap().to_owned();

    let svg = api.get(&format!("{path}/qr.svg"), &admin).await;
    assert_eq!(
        (svg.status, &svg.headers["content-type"]),
        (200, &"image/svg+xml".parse().unwrap())
    );
    assert!(svg.text.contains("<svg"), "{}", svg.text);
    assert_eq!(svg.headers["cache-control"], "no-store");
    let request =
        Request::get(format!("{path}/qr.png")).header("authorization", format!("Bearer {admin}"));
    let answer = api
        .router
        .clone()
        .oneshot(request.body(Body::empty()).unwrap())
        .await;
    let answer = answer.unwrap();
    assert_eq!(answer.headers()["content-type"], "image/png");
    let png = to_bytes(answer.into_body(), 1 << 20).await.unwrap();
    let picture = image::load_from_memory(&png).unwrap().to_luma8();
    let mut picture = rqrr::PreparedImage::prepare(picture);
    let codes = picture.detect_grids();
    let (_, read) = codes[0].decode().unwrap();
    assert_eq!(read, payload);

    // Another broker's is not there, and one that is paid is not to be paid again.
    let other = api.admin_of(api.world.beta).await;
    for path in [
        path.clone(),
        format!("{path}/qr.svg"),
        format!("{path}/qr.png"),
    ] {
        assert_eq!(api.get(&path, &other).await.problem(), (404, "not_found"));
    }
    assert!(scene.sim.pay(&scene.id.to_string()).await);
    for _ in 0..4 {
        api.world.clock.advance(chrono::Duration::minutes(10));
        let engine = scene.payments.engine();
        for row in engine
            .pick_up(settlenet::domain::payment::PspName::Qp, 10)
            .await
            .unwrap()
        {
            engine.serve(row).await;
        }
        scene.payments.outbox().serve(10).await.unwrap();
    }
    // The first token is of half an hour ago.
    let admin = api.admin_of(alpha).await;
    let paid = api.get(&path, &admin).await;
    assert_eq!(
        (&paid.body["status"], &paid.body["qr_payload"]),
        (&json!("completed"), &Value::Null)
    );
    let late = api.get(&format!("{path}/qr.svg"), &admin).await;
    assert_eq!(late.problem(), (409, "conflict"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_callback_counts_only_where_the_provider_has_signed_it() {
    let scene = Box::pin(Scene::set()).await;
    let id = scene.id.to_string();
    let word = scene.word(&id, "P1");
    let taken = scene.send(PATH, &word, SECRET, 0).await;
    assert_eq!(
        (taken.status, &taken.body["status"]),
        (200, &json!("waiting"))
    );
    let again = scene.send(PATH, &word, SECRET, 5).await;
    assert_eq!((again.status, &again.body["id"]), (200, &taken.body["id"]));

    let forged = scene.send(PATH, &word, "another", 0).await;
    assert_eq!(forged.problem(), (401, "callback_refused"));
    let replayed = scene.send(PATH, &word, SECRET, -3_600).await;
    assert_eq!(replayed.problem(), (401, "callback_refused"));
    let bare = Request::post(PATH).body(Body::from(word.clone())).unwrap();
    assert_eq!(
        scene.api.send(bare).await.problem(),
        (401, "callback_refused")
    );
    for path in [
        "/v1/psp/ipps/callbacks",
        "/v1/psp/QP/callbacks",
        "/v1/psp/x/callbacks",
    ] {
        assert_eq!(
            scene.send(path, &word, SECRET, 0).await.problem(),
            (404, "not_found")
        );
    }
    let large = " ".repeat(65 * 1024);
    assert_eq!(
        scene.send(PATH, &large, SECRET, 0).await.problem(),
        (413, "too_large")
    );
    let none = scene.send(PATH, "[]", SECRET, 0).await;
    assert_eq!(none.problem(), (422, "fields_invalid"));
    for (from, to, field) in [
        ("\"paymentId\"", "\"paymentID\"", "paymentId"),
        ("\"250.00\"", "250", "amount"),
        ("\"250.00\"", "\"0.001\"", "amount"),
        ("\"reference\":\"", "\"reference\":\"\\u0000", "reference"),
    ] {
        let body = word.replace(from, to);
        let told = scene.send(PATH, &body, SECRET, 0).await;
        assert_eq!((told.status, told.fields()), (422, vec![field]), "{body}");
    }
    let mut odd: Value = serde_json::from_str(&word).unwrap();
    odd["paidAt"] = json!("-200000-01-01T00:00:00Z");
    let told = scene.send(PATH, &odd.to_string(), SECRET, 0).await;
    assert_eq!((told.status, told.fields()), (422, vec!["paidAt"]));
    let worthless = word.replace("250.00", "0.00").replace("P1", "P9");
    assert_eq!(
        scene.send(PATH, &worthless, SECRET, 0).await.problem(),
        (422, "fields_invalid")
    );
    let contradicting = word.replace("250.00", "251.00");
    assert_eq!(
        scene.send(PATH, &contradicting, SECRET, 0).await.problem(),
        (409, "conflict")
    );
    let unknown = scene
        .send(PATH, &scene.word("nobody", "P2"), SECRET, 0)
        .await;
    assert_eq!(
        (unknown.status, &unknown.body["status"]),
        (200, &json!("unknown"))
    );

    // What the provider signs is never held up; whoever only tries is, after a while.
    let mut refused = 0;
    for _ in 0..80 {
        let forged = scene.send(PATH, &word, "another", 0).await;
        match forged.problem() {
            (401, _) => refused += 1,
            (429, _) => break,
            other => panic!("{other:?}"),
        }
    }
    assert!(refused < 80, "nobody fills the database with them");
    assert_eq!(scene.send(PATH, &word, SECRET, 0).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_came_in_for_nobody_is_listed_and_given_to_a_wallet_by_the_platform() {
    let scene = Box::pin(Scene::set()).await;
    let api = &scene.api;
    let (admin, platform) = (api.admin_of(api.world.alpha).await, api.platform().await);
    // The ledger is all tests'.
    let payment = Uuid::new_v4().to_string();
    let word = scene.word("nobody", &payment);
    let told = scene.send(PATH, &word, SECRET, 0).await;
    let id = told.body["id"].as_str().unwrap();
    let list = "/v1/admin/psp/incoming";
    assert_eq!(
        api.get(list, &admin).await.problem(),
        (403, "role_forbidden")
    );
    let listed = api.get(list, &platform).await;
    let one = &listed.items()[0];
    assert_eq!(
        (&one["id"], &one["amount"], &one["status"]),
        (&json!(id), &json!("250.00"), &json!("unknown"))
    );
    let path = format!("{list}/{id}/assign");
    let wallet = format!("merchant.{}.{}", api.world.alpha, scene.currency);
    let good = json!({ "wallet": wallet, "reason": "by their letter of 5 May" });
    assert_eq!(
        api.post(&path, &admin, good.clone()).await.problem(),
        (403, "role_forbidden")
    );
    for (body, field) in [
        (
            json!({ "wallet": "merchant.99.USD", "reason": "x" }),
            "wallet",
        ),
        (json!({ "wallet": "nothing", "reason": "x" }), "wallet"),
        (json!({ "wallet": wallet, "reason": "" }), "reason"),
        (json!({ "wallet": wallet }), "reason"),
    ] {
        let told = api.post(&path, &platform, body.clone()).await;
        assert_eq!((told.status, told.fields()), (422, vec![field]), "{body}");
    }
    let nobody = format!("{list}/{}/assign", Uuid::new_v4());
    assert_eq!(
        api.post(&nobody, &platform, good.clone()).await.problem(),
        (404, "not_found")
    );
    for _ in 0..2 {
        let given = api.post(&path, &platform, good.clone()).await;
        assert_eq!(
            (given.status, &given.body["status"]),
            (200, &json!("assigned")),
            "{}",
            given.text
        );
    }
    let wallets = api.get("/v1/wallets", &admin).await;
    assert_eq!(wallets.items()[0]["balance"], "250.00");
    assert!(api.get(list, &platform).await.items().is_empty());
}
