use futures::future::join_all;
use serde_json::{Value, json};
use settlenet::domain::access::Role;
use settlenet::domain::ids::BrokerId;
use sqlx::Row as _;

use super::Api;

pub const PARTNERS: &str = "/v1/partners";

pub fn offline(name: &str) -> Value {
    json!({"kind": "offline", "display_name": name})
}

/// Puts a broker on a plan, by the platform's word.
pub async fn on_plan(api: &Api, broker: BrokerId, plan: &str) {
    let platform = api.platform().await;
    let path = format!("/v1/admin/brokers/{broker}/plan");
    let answer = api.post(&path, &platform, json!({"plan": plan})).await;
    assert_eq!(
        (answer.status, &answer.body["plan"]),
        (200, &json!(plan)),
        "{answer:?}"
    );
}

/// How many partners take a place, as the book's database says.
pub async fn places_taken(api: &Api, broker: BrokerId) -> i64 {
    let url = api.world.databases.shard_url();
    let pool = sqlx::MySqlPool::connect(url.expose()).await.unwrap();
    let sql = "SELECT COUNT(*) FROM partner WHERE broker_id = ? AND kind = 'offline' AND state = 'active'";
    let row = sqlx::query(sql).bind(broker).fetch_one(&pool).await;
    row.unwrap().get(0)
}

fn id(answer: &super::Answer) -> String {
    answer.body["id"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partner_is_recorded_found_changed_and_archived() {
    let api = Api::new().await;
    let gamma = api.admin_of(api.world.gamma).await;
    let mut body = offline(" Анна Иванова ");
    body["phone"] = json!("+971 50 123");
    body["note"] = json!("brother of Ivan");
    let made = api.post_as(PARTNERS, &gamma, Some("k"), body.clone()).await;
    assert_eq!(made.status, 201, "{made:?}");
    let anna = id(&made);
    assert!(anna.starts_with("FO-") && anna.len() == 15);
    assert_eq!(made.body["display_name"], "Анна Иванова");
    assert_eq!(made.body["contacts"], Value::Null);
    let again = api.post_as(PARTNERS, &gamma, Some("k"), body.clone()).await;
    assert_eq!((again.status, &again.body), (201, &made.body));
    body["note"] = json!("sister of Ivan");
    let other = api.post_as(PARTNERS, &gamma, Some("k"), body).await;
    assert_eq!(other.problem(), (422, "idempotency_key_reused"));

    // Its accounts are those of its uid.
    let account = json!({"owner_kind": "partner", "owner_ref": anna,
                         "currency_code": api.world.currency});
    let account = api.post("/v1/accounts", &gamma, account).await;
    let path = format!("{PARTNERS}/{anna}");
    let read = api.get(&path, &gamma).await;
    assert_eq!(read.body["partner"], made.body);
    assert_eq!(read.body["accounts"], json!([account.body]));

    // What is erased is gone; what isn't said stays.
    api.world.clock.advance(chrono::Duration::seconds(1));
    let edit = json!({"phone": null, "display_name": "Anna"});
    let changed = api.post_as(&path, &gamma, None, edit.clone()).await;
    assert_eq!(changed.status, 200, "{changed:?}");
    assert_eq!(
        (&changed.body["phone"], &changed.body["note"]),
        (&Value::Null, &json!("brother of Ivan"))
    );
    assert_ne!(changed.body["updated_at"], made.body["updated_at"]);
    api.world.clock.advance(chrono::Duration::seconds(1));
    let same = api.post_as(&path, &gamma, None, edit).await;
    assert_eq!(same.body, changed.body, "nothing has changed");

    // A partner with open accounts is not put away, and one that was gets none.
    let archive = format!("{path}/archive");
    let refused = api.post(&archive, &gamma, json!({})).await;
    assert_eq!(refused.problem(), (409, "conflict"));
    let open = account.body["id"].as_str().unwrap();
    assert!(refused.body["detail"].as_str().unwrap().contains(open));
    let close = format!("/v1/accounts/{open}/close");
    assert_eq!(api.post(&close, &gamma, json!({})).await.status, 200);
    for _ in 0..2 {
        let put_away = api.post_as(&archive, &gamma, None, json!({})).await;
        assert_eq!(put_away.body["state"], "archived", "{put_away:?}");
    }
    let another = json!({"owner_kind": "partner", "owner_ref": anna,
                          "currency_code": api.world.currency});
    let refused = api.post("/v1/accounts", &gamma, another.clone()).await;
    assert_eq!(refused.problem(), (409, "conflict"));
    let restore = format!("{path}/restore");
    let back = api.post_as(&restore, &gamma, None, json!({})).await;
    assert_eq!(back.body["state"], "active");
    let opened = api.post("/v1/accounts", &gamma, another).await;
    assert_eq!(opened.body["state"], "open", "{opened:?}");

    // The feed says what happened and to whom, and nothing of who that is.
    let url = api.world.databases.shard_url();
    let pool = sqlx::MySqlPool::connect(url.expose()).await.unwrap();
    let sql = "SELECT kind, CAST(payload AS CHAR) FROM feed_event
               WHERE broker_id = ? AND subject = ? ORDER BY position";
    let events: Vec<(String, String)> = sqlx::query_as(sql)
        .bind(api.world.gamma)
        .bind(&anna)
        .fetch_all(&pool)
        .await
        .unwrap();
    let kinds: Vec<&str> = events.iter().map(|(kind, _)| kind.as_str()).collect();
    let expected = ["created", "changed", "archived", "restored"];
    assert_eq!(kinds, expected.map(|verb| format!("partner.{verb}")));
    for (_, payload) in events {
        assert!(
            !payload.contains("Ann") && !payload.contains("Анна"),
            "{payload}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn partners_are_searched_by_the_beginning_of_name_or_uid_and_paged() {
    let api = Api::new().await;
    let gamma = api.admin_of(api.world.gamma).await;
    let mut made = Vec::new();
    for (number, name) in ["Анна", "анатолий", "Борис", "100%", "Ann_a"]
        .iter()
        .enumerate()
    {
        // Two in one moment, so that their ids decide.
        if number != 1 {
            api.world.clock.advance(chrono::Duration::seconds(1));
        }
        let answer = api.post(PARTNERS, &gamma, offline(name)).await;
        assert_eq!(answer.status, 201, "{answer:?}");
        made.push(id(&answer));
    }
    let online =
        json!({"kind": "online", "display_name": "Beta", "platform_broker_id": api.world.beta});
    let online = id(&api.post(PARTNERS, &gamma, online).await);
    let found = async |query: &str| -> Vec<String> {
        let query = query.replace('%', "%25");
        let answer = api.get(&format!("{PARTNERS}?{query}"), &gamma).await;
        assert_eq!(answer.status, 200, "{query} {answer:?}");
        let names = answer.items().iter();
        let mut names: Vec<String> = names
            .map(|item| item["display_name"].as_str().unwrap().to_owned())
            .collect();
        names.sort();
        names
    };
    assert_eq!(found("q=АН").await, ["Анна", "анатолий"]);
    assert_eq!(found("q=анна").await, ["Анна"]);
    assert_eq!(found("q=нна").await, Vec::<String>::new(), "the beginning");
    assert_eq!(found("q=1").await, ["100%"]);
    assert_eq!(found("q=%").await, Vec::<String>::new(), "no wildcard");
    assert_eq!(found("q=ann_").await, ["Ann_a"]);
    assert_eq!(found(&format!("q={}", made[2])).await, ["Борис"]);
    assert_eq!(found(&format!("q={}", &made[2][..9])).await, ["Борис"]);
    assert_eq!(found("kind=online").await, ["Beta"]);
    assert_eq!(found("kind=offline&q=б").await, ["Борис"]);
    let path = format!("{PARTNERS}/{}/archive", made[2]);
    assert_eq!(api.post(&path, &gamma, json!({})).await.status, 200);
    assert_eq!(found("state=archived").await, ["Борис"]);
    assert_eq!(found("state=active&q=б").await, Vec::<String>::new());

    let whole = api.get(PARTNERS, &gamma).await;
    let ids = |answer: &super::Answer| -> Vec<String> {
        let items = answer.items().iter();
        items
            .map(|item| item["id"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(whole.items().len(), 6);
    assert!(ids(&whole).contains(&online));
    for filter in ["", "&q=FO-", "&state=active", "&q=ан"] {
        let mut walked = Vec::new();
        let mut path = format!("{PARTNERS}?limit=1{filter}");
        loop {
            let page = api.get(&path, &gamma).await;
            walked.extend(ids(&page));
            match page.body["next_cursor"].as_str() {
                Some(cursor) => path = format!("{PARTNERS}?limit=1{filter}&cursor={cursor}"),
                None => break,
            }
        }
        let whole = api
            .get(&format!("{PARTNERS}?limit=200{filter}"), &gamma)
            .await;
        assert_eq!(walked, ids(&whole), "{filter}");
    }

    // Nobody else's, by no route.
    let delta = api.admin_of(api.world.delta).await;
    assert_eq!(api.get(PARTNERS, &delta).await.items().len(), 0);
    let one = format!("{PARTNERS}/{}", made[0]);
    assert_eq!(api.get(&one, &delta).await.problem(), (404, "not_found"));
    for verb in ["", "/archive", "/restore"] {
        let answer = api.post(&format!("{one}{verb}"), &delta, json!({})).await;
        assert_eq!(answer.problem(), (404, "not_found"), "{verb}");
    }
    let viewer = api.token(Role::BrokerViewer, Some(api.world.gamma)).await;
    assert_eq!(api.get(PARTNERS, &viewer).await.status, 200);
    let refused = api.post(PARTNERS, &viewer, offline("x")).await;
    assert_eq!(refused.problem(), (403, "role_forbidden"));
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_partners_are_refused_by_field() {
    let api = Api::new().await;
    let (world, gamma) = (&api.world, api.admin_of(api.world.gamma).await);
    let online = |broker: Value| json!({"kind": "online", "display_name": "B", "platform_broker_id": broker});
    let with = |field: &str, value: Value| {
        let mut body = offline("Anna");
        body[field] = value;
        body
    };
    for (body, field) in [
        (offline(""), "display_name"),
        (offline("a\nb"), "display_name"),
        (offline(&"я".repeat(121)), "display_name"),
        (with("kind", json!("both")), "kind"),
        (with("phone", json!("1".repeat(33))), "phone"),
        (with("contacts", json!("\u{0}")), "contacts"),
        (with("note", json!("x".repeat(1001))), "note"),
        (with("state", json!("archived")), "state"),
        (
            with("platform_broker_id", json!(world.beta)),
            "platform_broker_id",
        ),
        (online(Value::Null), "platform_broker_id"),
        (online(json!(world.gamma)), "platform_broker_id"),
        (online(json!(7)), "platform_broker_id"),
    ] {
        let answer = api.post(PARTNERS, &gamma, body.clone()).await;
        assert_eq!(
            (answer.status, answer.fields()),
            (422, vec![field]),
            "{body}"
        );
    }
    for (query, field) in [
        ("q=", "q"),
        ("q=%0a", "q"),
        ("kind=x", "kind"),
        ("sort=a", "sort"),
    ] {
        let answer = api.get(&format!("{PARTNERS}?{query}"), &gamma).await;
        assert_eq!(
            (answer.status, answer.fields()),
            (422, vec![field]),
            "{query}"
        );
    }
    let missing = api.post_as(PARTNERS, &gamma, None, offline("Anna")).await;
    assert_eq!(missing.problem(), (400, "idempotency_key_missing"));

    // A broker is a partner once, whether it was recorded so or has turned out to be.
    let beta = api.post(PARTNERS, &gamma, online(json!(world.beta))).await;
    assert_eq!(beta.status, 201, "{beta:?}");
    let twice = api.post(PARTNERS, &gamma, online(json!(world.beta))).await;
    assert_eq!(twice.problem(), (409, "partner_known"));
    assert_eq!(twice.body["partner_id"], beta.body["id"]);
    let anna = api.post(PARTNERS, &gamma, offline("Anna")).await;
    let path = format!("{PARTNERS}/{}", id(&anna));
    let edit = |broker: u64| json!({"platform_broker_id": broker});
    let known = api.post_as(&path, &gamma, None, edit(world.beta)).await;
    assert_eq!(known.problem(), (409, "partner_known"));
    let joined = api.post_as(&path, &gamma, None, edit(world.delta)).await;
    assert_eq!(
        (joined.status, &joined.body["kind"]),
        (200, &json!("online"))
    );
}

/// Fifty at once leave as many as the plan holds, and say what would hold more.
#[tokio::test(flavor = "multi_thread")]
async fn racing_creations_stay_within_the_plan() {
    let api = Api::new().await;
    let broker = api.world.gamma;
    let gamma = api.admin_of(broker).await;
    on_plan(&api, broker, "starter").await;
    let names: Vec<String> = (0..50).map(|number| format!("Client {number}")).collect();
    let answers = join_all(
        names
            .iter()
            .map(|name| api.post(PARTNERS, &gamma, offline(name))),
    )
    .await;
    let made = answers.iter().filter(|answer| answer.status == 201).count();
    assert_eq!(made, 3);
    for answer in answers.iter().filter(|answer| answer.status != 201) {
        assert_eq!(answer.problem(), (403, "plan_limit"), "{answer:?}");
        assert_eq!(answer.body["limit"], "offline_partners");
        assert_eq!(
            (&answer.body["most"], &answer.body["there"]),
            (&json!(3), &json!(3))
        );
        assert_eq!(
            (&answer.body["plan"], &answer.body["lifted_by"]),
            (&json!("starter"), &json!("growth"))
        );
    }
    assert_eq!(places_taken(&api, broker).await, 3);

    // Online ones are not counted; who is archived makes room, and needs it to come back.
    let beta =
        json!({"kind": "online", "display_name": "Beta", "platform_broker_id": api.world.beta});
    assert_eq!(api.post(PARTNERS, &gamma, beta).await.status, 201);
    let first = answers.iter().find(|answer| answer.status == 201).unwrap();
    let path = format!("{PARTNERS}/{}", id(first));
    let [archive, restore] = ["archive", "restore"].map(|verb| format!("{path}/{verb}"));
    assert_eq!(api.post(&archive, &gamma, json!({})).await.status, 200);
    assert_eq!(
        api.post(PARTNERS, &gamma, offline("Fourth")).await.status,
        201
    );
    let full = api.post(&restore, &gamma, json!({})).await;
    assert_eq!(full.problem(), (403, "plan_limit"));
    // A refusal uses up no key.
    let key = Some("later");
    let full = api.post_as(PARTNERS, &gamma, key, offline("Fifth")).await;
    assert_eq!(full.problem(), (403, "plan_limit"));
    let own = api
        .post("/v1/broker/plan", &gamma, json!({"plan": "growth"}))
        .await;
    assert_eq!(
        (own.status, &own.body["plan"]),
        (200, &json!("growth")),
        "{own:?}"
    );
    assert_eq!(
        api.post_as(PARTNERS, &gamma, key, offline("Fifth"))
            .await
            .status,
        201
    );
    assert_eq!(api.post(&restore, &gamma, json!({})).await.status, 200);
    assert_eq!(places_taken(&api, broker).await, 5);

    // A suspended broker starts nothing new, and still puts away.
    let platform = api.platform().await;
    let suspend = format!("/v1/admin/brokers/{broker}/suspend");
    assert_eq!(
        api.post(&suspend, &platform, json!({ "reason": "an audit" }))
            .await
            .status,
        200
    );
    let refused = api.post(PARTNERS, &gamma, offline("Sixth")).await;
    assert_eq!(refused.problem(), (409, "paused"));
    assert_eq!(api.post(&archive, &gamma, json!({})).await.status, 200);
    let refused = api.post(&restore, &gamma, json!({})).await;
    assert_eq!(refused.problem(), (409, "paused"));
    let refused = api
        .post("/v1/broker/plan", &gamma, json!({"plan": "pro"}))
        .await;
    assert_eq!(refused.problem(), (409, "paused"));
}
