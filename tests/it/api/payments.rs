//! Payments over REST.

use serde_json::{Value, json};
use settlenet::domain::access::Role;
use settlenet::domain::payment::PspName;
use settlenet::services::payments::PaymentService;

use super::Api;
use crate::payments::{Till, desk};

async fn with_payments(desk: desk::Desk) -> (Api, PaymentService, String) {
    let till = Till::with(desk).await;
    let (payments, currency) = (till.payments.clone(), till.currency.code.to_string());
    let mut world = *till.world;
    world.app.payments = payments.clone();
    (Api::on(world).await, payments, currency)
}

async fn settle(payments: &PaymentService) {
    loop {
        let acted = payments.outbox().serve(50).await.unwrap();
        let rows = payments.engine().pick_up(PspName::Ipps, 10).await.unwrap();
        if acted == 0 && rows.is_empty() {
            return;
        }
        for row in rows {
            payments.engine().serve(row).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wallet_is_opened_funded_and_paid_out_of() {
    let (api, payments, currency) = with_payments(desk::Desk::default()).await;
    let alpha = api.world.alpha;
    let (admin, platform) = (api.admin_of(alpha).await, api.platform().await);
    let opened = api
        .post(
            "/v1/wallets",
            &admin,
            json!({ "currency_code": currency, "ipps_wallet_id": "W-9" }),
        )
        .await;
    assert_eq!(opened.status, 201, "{}", opened.text);
    let wallet = opened.body["wallet"].as_str().unwrap();
    assert_eq!(wallet, format!("merchant.{alpha}.{currency}"));
    let funding = json!({ "wallet": wallet, "currency_code": currency, "amount": "1000.00" });
    // The ledger is all tests', and a key is one funding there.
    let key = &format!("fund-{}", uuid::Uuid::new_v4());
    for _ in 0..2 {
        let funded = api
            .post_as(
                "/v1/admin/wallets/fund",
                &platform,
                Some(key),
                funding.clone(),
            )
            .await;
        assert_eq!(funded.status, 200, "{}", funded.text);
        assert_eq!(
            funded.body["available"], "1000.00",
            "a repeat moves nothing"
        );
    }
    let payout = json!({
        "wallet": wallet, "currency_code": currency, "amount": "400.00", "channel": "IPPS",
        "receiver": { "type": "prompt_pay", "proxy": "0801234567" },
    });
    let created = api.post("/v1/intents", &admin, payout.clone()).await;
    assert_eq!(created.status, 201, "{}", created.text);
    assert_eq!(created.body["status"], "created");
    assert_eq!(created.body["fee"], "6.00");
    let path = format!("/v1/intents/{}", created.body["id"].as_str().unwrap());
    payments.outbox().serve(10).await.unwrap();
    let listed = api.get("/v1/wallets", &admin).await;
    assert_eq!(listed.items()[0]["held"], "406.00");
    assert_eq!(listed.items()[0]["available"], "594.00");
    settle(&payments).await;
    let done = api.get(&path, &admin).await;
    assert_eq!(done.body["status"], "completed");
    assert_eq!(done.body["events"].as_array().unwrap().len(), 6);
    let page = api
        .get("/v1/intents?status=completed&limit=1", &admin)
        .await;
    assert_eq!(page.items()[0]["id"], created.body["id"]);
    let none = api.get("/v1/intents?status=failed", &admin).await;
    assert!(none.items().is_empty());

    // Nobody else's.
    let beta = api.admin_of(api.world.beta).await;
    assert_eq!(api.get(&path, &beta).await.problem(), (404, "not_found"));
    assert!(api.get("/v1/intents", &beta).await.items().is_empty());
    assert!(api.get("/v1/wallets", &beta).await.items().is_empty());
    let foreign = api.post("/v1/intents", &beta, payout.clone()).await;
    assert_eq!((foreign.status, foreign.fields()), (422, vec!["wallet"]));
    let viewer = api.token(Role::BrokerViewer, Some(alpha)).await;
    assert_eq!(api.get(&path, &viewer).await.status, 200);
    assert_eq!(
        api.post("/v1/intents", &viewer, payout).await.problem(),
        (403, "role_forbidden")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_payment_is_told_by_field() {
    let (api, _, currency) = with_payments(desk::Desk::default()).await;
    let alpha = api.world.alpha;
    let admin = api.admin_of(alpha).await;
    let wallet = format!("merchant.{alpha}.{currency}");
    let good = json!({
        "wallet": wallet, "currency_code": currency, "amount": "1.00", "channel": "IPPS",
        "receiver": { "type": "thai_account", "bank_code": "004", "account_no": "0123456789" },
    });
    let with = |field: &str, value: Value| {
        let mut body = good.clone();
        body[field] = value;
        body
    };
    for (body, field) in [
        (with("amount", json!("1.001")), "amount"),
        (with("amount", json!("-1")), "amount"),
        (with("amount", json!(1)), "amount"),
        (with("currency_code", json!("XXX")), "currency_code"),
        (with("channel", json!("SWIFT")), "channel"),
        (with("channel", json!("WISE")), "channel"),
        (with("wallet", json!("user.USD")), "wallet"),
        (with("wallet", json!("system.equity.USD")), "wallet"),
        (with("book_account_id", json!("AC-1")), "book_account_id"),
        (
            with("book_account_id", json!("AC-00000000ffff")),
            "book_account_id",
        ),
        (with("receiver", json!(5)), "receiver"),
        (with("receiver", json!(["prompt_pay"])), "receiver"),
        (with("receiver", json!({ "type": "cash" })), "receiver.type"),
        (
            with("receiver", json!({ "type": "prompt_pay" })),
            "receiver.proxy",
        ),
        (
            with("receiver", json!({ "type": "prompt_pay", "proxy": 801 })),
            "receiver.proxy",
        ),
        (
            with(
                "receiver",
                json!({ "type": "prompt_pay", "proxy": "0801234567", "iban": "X" }),
            ),
            "receiver.iban",
        ),
        (
            with(
                "receiver",
                json!({ "type": "iban", "holder_name": "A", "iban": "DE89370400440532013000" }),
            ),
            "receiver.type",
        ),
        (
            with(
                "receiver",
                json!({ "type": "thai_account", "bank_code": "1", "account_no": "0123456789" }),
            ),
            "receiver.bank_code",
        ),
        (with("extra", json!(1)), "extra"),
    ] {
        let told = api.post("/v1/intents", &admin, body.clone()).await;
        assert_eq!(told.status, 422, "{body}: {}", told.text);
        assert_eq!(told.fields(), [field], "{body}");
        for of_ours in ["struct", "enum", "CreateBody", "Receiver"] {
            assert!(!told.text.contains(of_ours), "{body}: {}", told.text);
        }
    }
    for path in ["/v1/intents?user_id=%00", "/v1/intents?user_id=a%00b"] {
        let told = api.get(path, &admin).await;
        assert_eq!((told.status, told.fields()), (422, vec!["user_id"]));
    }
    let without = api.post_as("/v1/intents", &admin, None, good.clone()).await;
    assert_eq!(without.problem(), (400, "idempotency_key_missing"));
    for body in [
        json!({ "currency_code": currency, "partner_uid": "FO-XYZ" }),
        json!({ "currency_code": currency, "partner_uid": "FO-0a5bb4c3d2e1" }),
    ] {
        let told = api.post("/v1/wallets", &admin, body).await;
        assert_eq!((told.status, told.fields()), (422, vec!["partner_uid"]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wallet_that_can_not_be_used_is_told_of() {
    let (api, _, currency) = with_payments(desk::Desk::default()).await;
    let admin = api.admin_of(api.world.alpha).await;
    // A wallet of one's own, in another currency than the payment.
    let opened = json!({ "currency_code": "USD" });
    let opened = api.post("/v1/wallets", &admin, opened).await;
    assert_eq!(opened.status, 201, "{}", opened.text);
    let payout = json!({
        "wallet": opened.body["wallet"], "currency_code": currency, "amount": "1.00",
        "channel": "IPPS", "receiver": { "type": "prompt_pay", "proxy": "0801234567" },
    });
    let told = api.post("/v1/intents", &admin, payout).await;
    assert_eq!((told.status, told.fields()), (422, vec!["wallet"]));
    assert!(
        told.text.contains("is in USD, and the payment in"),
        "{}",
        told.text
    );
    // What IPPS knows one broker by is nobody else's.
    let beta = api.admin_of(api.world.beta).await;
    let taken = json!({ "currency_code": currency, "ipps_wallet_id": "W-1" });
    let told = api.post("/v1/wallets", &beta, taken).await;
    assert_eq!(told.problem(), (409, "conflict"));
    assert!(told.text.contains("is taken"), "{}", told.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_review_is_listed_shown_and_resolved_by_the_platform() {
    let desk = desk::Desk::with_fates([desk::Fate::Unheard], false);
    let (api, payments, currency) = with_payments(desk).await;
    let alpha = api.world.alpha;
    let (admin, platform) = (api.admin_of(alpha).await, api.platform().await);
    let wallet = format!("merchant.{alpha}.{currency}");
    let funding = json!({ "wallet": wallet, "currency_code": currency, "amount": "1000.00" });
    let funded = api.post("/v1/admin/wallets/fund", &platform, funding).await;
    assert_eq!(funded.status, 200, "{}", funded.text);
    let payout = json!({
        "wallet": wallet, "currency_code": currency, "amount": "400.00", "channel": "IPPS",
        "receiver": { "type": "prompt_pay", "proxy": "0801234567" },
    });
    let created = api.post("/v1/intents", &admin, payout).await;
    let id = created.body["id"].as_str().unwrap().to_owned();
    settle(&payments).await;
    api.world.clock.advance(chrono::Duration::minutes(10));
    settle(&payments).await;
    let listed = api.get("/v1/admin/psp/reviews", &platform).await;
    assert_eq!(
        listed.items()[0]["intent_id"],
        id.as_str(),
        "{}",
        listed.text
    );
    assert_eq!(
        listed.items()[0]["psp"]["last_error"],
        "unknown_to_provider"
    );
    let path = format!("/v1/admin/psp/reviews/{id}");
    let shown = api.get(&path, &platform).await;
    assert_eq!(shown.body["psp"]["confirm_rq_uid"], id.as_str());
    assert_eq!(
        api.get(&path, &admin).await.problem(),
        (403, "role_forbidden")
    );
    let resolve = format!("{path}/resolve");
    let wrong = api
        .post(
            &resolve,
            &platform,
            json!({ "verdict": "PAID", "reason": "x" }),
        )
        .await;
    assert_eq!((wrong.status, wrong.fields()), (422, vec!["verdict"]));
    assert_eq!(shown.body["incoming"], json!([]));
    assert_eq!(shown.body["statement"], json!([]));
    let stuck = "/v1/admin/psp/stuck";
    assert!(api.get(stuck, &platform).await.items().is_empty());
    let verdict = json!({ "verdict": "FAILED", "reason": "they have never had it" });
    let resolved = api.post(&resolve, &platform, verdict).await;
    assert_eq!(resolved.body["psp"]["state"], "FAILED", "{}", resolved.text);
    settle(&payments).await;
    let failed = api.get(&format!("/v1/intents/{id}"), &admin).await;
    assert_eq!(failed.body["status"], "failed");
    let sql = "UPDATE pm.outbox_event SET status = 'stuck', last_error = 'odd'
                   WHERE action = 'void_pending'";
    let pm = &api.world.app.systems.pm;
    sqlx::query(sql).execute(pm).await.unwrap();
    let listed = api.get(stuck, &platform).await;
    let one = &listed.items()[0];
    assert_eq!(
        (&one["intent_id"], &one["action"], &one["error"]),
        (&json!(id), &json!("void_pending"), &json!("odd"))
    );
    assert_eq!(
        api.get(stuck, &admin).await.problem(),
        (403, "role_forbidden")
    );
    let late = json!({ "verdict": "CONFIRMED", "reason": "no" });
    assert_eq!(
        api.post(&resolve, &platform, late).await.problem(),
        (409, "conflict")
    );
    let nobody = format!("/v1/admin/psp/reviews/{}", uuid::Uuid::new_v4());
    assert_eq!(
        api.get(&nobody, &platform).await.problem(),
        (404, "not_found")
    );
}
