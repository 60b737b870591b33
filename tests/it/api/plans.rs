use futures::future::{join, join_all};
use serde_json::{Value, json};
use settlenet::domain::access::Role;
use settlenet::domain::broker::BrokerPlan;
use settlenet::domain::ids::BrokerId;
use settlenet::services::plans::{AskedBy, PlanError};

use super::partners::{PARTNERS, offline, on_plan, places_taken};
use super::{Api, PASSWORD};
use crate::harness::{Child, MovedClock, World};

const OWN: &str = "/v1/broker/plan";

/// Plan, what is wanted beside it, and the number of the last change.
async fn plan_of(world: &World, broker: BrokerId) -> (String, Option<String>, u64) {
    sqlx::query_as("SELECT plan, plan_wanted, plan_number FROM broker WHERE broker_id = ?")
        .bind(broker)
        .fetch_one(&world.app.systems.master)
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_changes_at_once_and_the_book_moves_later() {
    let api = Api::new().await;
    let broker = api.world.gamma;
    let gamma = api.admin_of(broker).await;
    on_plan(&api, broker, "starter").await;
    for (plan, times) in [("growth", 2), ("pro", 2), ("starter", 1)] {
        for _ in 0..times {
            let answer = api.post_as(OWN, &gamma, None, json!({"plan": plan})).await;
            assert_eq!(answer.status, 200, "{answer:?}");
            assert_eq!(answer.body["plan"], plan);
            assert_eq!(answer.body["plan_wanted"], Value::Null);
            assert_eq!(answer.body["broker_mode"], "SOLO", "until it has moved");
        }
    }
    assert_eq!(
        plan_of(&api.world, broker).await.2,
        4,
        "a repeat is no change"
    );
    let sql = "SELECT kind, CAST(payload AS CHAR) FROM feed_event WHERE broker_id = ? ORDER BY id";
    let of = async |feed: BrokerId| -> Vec<(String, Value)> {
        let rows: Vec<(String, String)> = sqlx::query_as(sql)
            .bind(feed)
            .fetch_all(&api.world.app.systems.master)
            .await
            .unwrap();
        let rows = rows.into_iter();
        rows.map(|(kind, payload)| (kind, serde_json::from_str(&payload).unwrap()))
            .collect()
    };
    let told = of(broker).await;
    let steps = [
        ("pro", "starter"),
        ("starter", "growth"),
        ("growth", "pro"),
        ("pro", "starter"),
    ];
    assert_eq!(told.len(), steps.len());
    for ((kind, payload), (from, to)) in told.iter().zip(steps) {
        assert_eq!(kind, "broker.plan_changed");
        assert_eq!(payload, &json!({"from": from, "to": to}));
    }
    // It is where the last plan has it; what the others wanted is over.
    let wanted: Option<String> =
        sqlx::query_scalar("SELECT mode_wanted FROM broker WHERE broker_id = ?")
            .bind(api.world.gamma)
            .fetch_one(&api.world.app.systems.master)
            .await
            .unwrap();
    assert_eq!(wanted, None);

    for (path, token, body, expected) in [
        (
            OWN,
            &gamma,
            json!({"plan": "gold"}),
            (422, "fields_invalid"),
        ),
        (OWN, &gamma, json!({}), (422, "fields_invalid")),
        (
            "/v1/admin/brokers/7/plan",
            &api.platform().await,
            json!({"plan": "pro"}),
            (404, "not_found"),
        ),
        (
            OWN,
            &api.platform().await,
            json!({"plan": "pro"}),
            (403, "role_forbidden"),
        ),
    ] {
        let answer = api.post(path, token, body.clone()).await;
        assert_eq!(answer.problem(), expected, "{path} {body}");
    }
    let operator = api.token(Role::BrokerOperator, Some(api.world.alpha)).await;
    let refused = api.post(OWN, &operator, json!({"plan": "pro"})).await;
    assert_eq!(refused.problem(), (403, "role_forbidden"));
}

#[tokio::test(flavor = "multi_thread")]
async fn people_are_bounded_by_the_plan() {
    let api = Api::new().await;
    let broker = api.world.gamma;
    let gamma = api.admin_of(broker).await;
    on_plan(&api, broker, "growth").await;
    let person =
        |login: &str| json!({"login": login, "password": PASSWORD, "role": "broker_viewer"});
    let users = "/v1/team/users";
    let refused = api.post_as(users, &gamma, Some("k"), person("anna")).await;
    assert_eq!(refused.problem(), (403, "plan_limit"), "{refused:?}");
    assert_eq!(refused.body["limit"], "team_members");
    assert_eq!(
        (&refused.body["there"], &refused.body["lifted_by"]),
        (&json!(1), &json!("pro"))
    );
    // Programs of one's own are no people.
    let bot = json!({"name": "bot", "role": "broker_viewer"});
    assert_eq!(api.post("/v1/team/clients", &gamma, bot).await.status, 201);

    on_plan(&api, broker, "pro").await;
    let anna = api.post_as(users, &gamma, Some("k"), person("anna")).await;
    assert_eq!(anna.status, 201, "a refusal uses up no key: {anna:?}");
    // Whoever is disabled takes no place.
    let back = api.post(OWN, &gamma, json!({"plan": "growth"})).await;
    assert_eq!(back.problem(), (409, "plan_too_small"));
    let path = format!("{users}/{}/disable", anna.body["id"].as_str().unwrap());
    assert_eq!(api.post(&path, &gamma, json!({})).await.status, 200);
    assert_eq!(
        api.post(OWN, &gamma, json!({"plan": "growth"}))
            .await
            .status,
        200
    );

    // Twenty at once on a plan for one, whose only person has gone.
    let disabled = "UPDATE user SET state = 'disabled' WHERE broker_id = ?";
    let master = &api.world.app.systems.master;
    sqlx::query(disabled)
        .bind(api.world.delta)
        .execute(master)
        .await
        .unwrap();
    on_plan(&api, api.world.delta, "starter").await;
    let made = join_all((0..20).map(|number| {
        let team = api.state.team.clone();
        let seat = settlenet::domain::access::TeamSeat {
            broker_id: Some(api.world.delta),
        };
        let new = settlenet::services::team::NewUser {
            login: format!("delta-{number}"),
            password: PASSWORD.into(),
            role: Role::BrokerAdmin,
        };
        async move {
            let by = settlenet::services::team::By::Operator;
            team.create_user(seat, new, by, &World::intention())
                .await
                .is_ok()
        }
    }))
    .await;
    assert_eq!(made.into_iter().filter(|made| *made).count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_is_too_small_says_what_to_remove() {
    let api = Api::new().await;
    let broker = api.world.gamma;
    let gamma = api.admin_of(broker).await;
    let operator = api.token(Role::BrokerOperator, Some(broker)).await;
    let mut ids = Vec::new();
    for number in 0..5 {
        let made = api
            .post(PARTNERS, &gamma, offline(&format!("Client {number}")))
            .await;
        ids.push(made.body["id"].as_str().unwrap().to_owned());
    }
    api.world
        .app
        .domains
        .claim(broker, "desk.example")
        .await
        .unwrap();
    let down = async || api.post(OWN, &gamma, json!({"plan": "starter"})).await;
    let refused = down().await;
    assert_eq!(refused.problem(), (409, "plan_too_small"), "{refused:?}");
    assert_eq!(
        refused.body["detail"],
        "for the plan starter: archive 2 offline partners (5 of 3), disable 1 team member (2 of \
         1), release the domain desk.example"
    );
    let remove = refused.body["remove"].as_array().unwrap();
    assert_eq!(remove[0]["limit"], "offline_partners");
    assert_eq!(
        (&remove[0]["there"], &remove[0]["most"]),
        (&json!(5), &json!(3))
    );
    assert_eq!(plan_of(&api.world, broker).await, ("pro".into(), None, 0));

    for gone in &ids[..2] {
        let path = format!("{PARTNERS}/{gone}/archive");
        assert_eq!(api.post(&path, &operator, json!({})).await.status, 200);
    }
    assert_eq!(down().await.body["remove"].as_array().unwrap().len(), 2);
    api.world.app.domains.release(broker).await.unwrap();
    let users = api.get("/v1/team/users", &gamma).await;
    let second = users
        .items()
        .iter()
        .find(|user| user["role"] == "broker_operator")
        .unwrap();
    let path = format!("/v1/team/users/{}/disable", second["id"].as_str().unwrap());
    assert_eq!(api.post(&path, &gamma, json!({})).await.status, 200);
    let done = down().await;
    assert_eq!(
        (done.status, &done.body["plan"]),
        (200, &json!("starter")),
        "{done:?}"
    );
}

/// Whoever wins, nobody ends up with more than their plan holds.
#[tokio::test(flavor = "multi_thread")]
async fn a_lesser_plan_and_new_partners_race() {
    let api = Api::new().await;
    let broker = api.world.gamma;
    let gamma = api.admin_of(broker).await;
    on_plan(&api, broker, "growth").await;
    let mut seen = [0, 0];
    for round in 0..8 {
        // Two are there; three more and the change come at once.
        let here = api.get(&format!("{PARTNERS}?state=active"), &gamma).await;
        for item in here.items() {
            let path = format!("{PARTNERS}/{}/archive", item["id"].as_str().unwrap());
            assert_eq!(api.post(&path, &gamma, json!({})).await.status, 200);
        }
        on_plan(&api, broker, "growth").await;
        for name in ["a", "b"] {
            assert_eq!(api.post(PARTNERS, &gamma, offline(name)).await.status, 201);
        }
        let created = join_all((0..3).map(|number| {
            let name = format!("late {round} {number}");
            let (api, gamma) = (&api, &gamma);
            async move { api.post(PARTNERS, gamma, offline(&name)).await }
        }));
        let (down, _) = join(api.post(OWN, &gamma, json!({"plan": "starter"})), created).await;
        let there = places_taken(&api, broker).await;
        let (plan, wanted, _) = plan_of(&api.world, broker).await;
        assert_eq!(wanted, None);
        if plan == "starter" {
            assert_eq!(down.status, 200, "{down:?}");
            assert!(there <= 3, "{there} on starter");
            seen[0] += 1;
        } else {
            assert_eq!(down.problem(), (409, "plan_too_small"));
            assert!(there > 3, "refused with {there}");
            seen[1] += 1;
        }
    }
    println!(
        "the plan won {} times, the partners {} times",
        seen[0], seen[1]
    );
}

/// Kills the change of a plan at a place.
async fn killed(world: &World, clock: &MovedClock, plan: &str, place: &str) {
    let broker = world.gamma.to_string();
    let args = ["admin", "broker", "plan", &broker, plan];
    let mut child = Child::program(world, clock, &args, &format!("{place}=kill"));
    child.killed(place).await;
}

/// A change that dies between any two of its side effects is finished by the same command, by a
/// worker, and by whoever finds no room; meanwhile the stricter of two plans holds.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_dies_is_finished() {
    let clock = MovedClock::new();
    let world = World::with_clock(clock.clock(chrono::Duration::zero())).await;
    let api = Api::on(world).await;
    let (world, broker) = (&api.world, api.world.gamma);
    let gamma = api.admin_of(broker).await;
    let now = || world.clock.now();
    let plans = &world.app.plans;
    on_plan(&api, broker, "starter").await;
    for name in ["a", "b", "c"] {
        assert_eq!(api.post(PARTNERS, &gamma, offline(name)).await.status, 201);
    }
    for place in ["plan.recorded", "plan.bounded"] {
        // To more: in force at once. Whoever finds no room finishes it.
        killed(world, &clock, "growth", place).await;
        let (plan, wanted, _) = plan_of(world, broker).await;
        assert_eq!(
            (plan.as_str(), wanted.as_deref()),
            ("growth", Some("growth")),
            "{place}"
        );
        let fourth = api.post(PARTNERS, &gamma, offline("d")).await;
        assert_eq!(fourth.status, 201, "{place} {fourth:?}");
        plans.see_all_through(now()).await.unwrap();
        assert_eq!(plan_of(world, broker).await.1, None, "{place}");

        // To less, with too many there: nothing is recorded.
        let refused = plans
            .change(broker, BrokerPlan::Starter, AskedBy::Broker, now())
            .await;
        assert!(
            matches!(refused, Err(PlanError::DoesNotFit { .. })),
            "{refused:?}"
        );
        let path = format!("{PARTNERS}/{}/archive", fourth.body["id"].as_str().unwrap());
        assert_eq!(api.post(&path, &gamma, json!({})).await.status, 200);

        // To less: the plan as before, but nothing comes that the lesser would not hold.
        killed(world, &clock, "starter", place).await;
        let (plan, wanted, number) = plan_of(world, broker).await;
        assert_eq!(
            (plan.as_str(), wanted.as_deref()),
            ("growth", Some("starter")),
            "{place}"
        );
        assert!(
            world
                .app
                .domains
                .claim(broker, "desk.example")
                .await
                .is_err()
        );
        if place == "plan.bounded" {
            let full = api.post(PARTNERS, &gamma, offline("e")).await;
            assert_eq!(full.problem(), (403, "plan_limit"), "{full:?}");
        }
        let same = plans
            .change(broker, BrokerPlan::Starter, AskedBy::Broker, now())
            .await;
        assert_eq!(same.unwrap().plan, BrokerPlan::Starter, "{place}");
        assert_eq!(
            plan_of(world, broker).await,
            ("starter".into(), None, number),
            "the same change"
        );
        let full = api.post(PARTNERS, &gamma, offline("f")).await;
        assert_eq!(full.problem(), (403, "plan_limit"), "{place}");
    }
}

/// Another change finishes the one that is under way, and a book's refusal stands, whoever asks.
#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_by_the_book_is_the_end_of_a_change() {
    let clock = MovedClock::new();
    let api = Api::on(World::with_clock(clock.clock(chrono::Duration::zero())).await).await;
    let (world, broker) = (&api.world, api.world.gamma);
    let gamma = api.admin_of(broker).await;
    on_plan(&api, broker, "growth").await;
    for name in ["a", "b", "c"] {
        assert_eq!(api.post(PARTNERS, &gamma, offline(name)).await.status, 201);
    }
    killed(world, &clock, "starter", "plan.recorded").await;
    // The book knows nothing of it yet, and lets one more in.
    let fourth = api.post(PARTNERS, &gamma, offline("d")).await;
    assert_eq!(fourth.status, 201, "{fourth:?}");
    // The book refuses; whoever asked dies before the master knows.
    killed(world, &clock, "starter", "plan.bounded").await;
    let path = format!("{PARTNERS}/{}/archive", fourth.body["id"].as_str().unwrap());
    assert_eq!(api.post(&path, &gamma, json!({})).await.status, 200);
    let stands = api.post(OWN, &gamma, json!({"plan": "starter"})).await;
    assert_eq!(
        stands.problem(),
        (409, "plan_too_small"),
        "it was decided: {stands:?}"
    );
    assert_eq!(plan_of(world, broker).await.0, "growth");
    assert_eq!(
        api.post(OWN, &gamma, json!({"plan": "starter"}))
            .await
            .status,
        200,
        "a new change"
    );

    killed(world, &clock, "growth", "plan.recorded").await;
    let other = api.post(OWN, &gamma, json!({"plan": "pro"})).await;
    assert_eq!(
        (other.status, &other.body["plan"]),
        (200, &json!("pro")),
        "{other:?}"
    );
    for name in ["e", "f"] {
        assert_eq!(api.post(PARTNERS, &gamma, offline(name)).await.status, 201);
    }
    assert_eq!(plan_of(world, broker).await.1, None);
}

/// Changes that come at once end one after the other, and the book is held to the last.
#[tokio::test(flavor = "multi_thread")]
async fn changes_that_race_leave_book_and_master_of_one_mind() {
    let api = Api::new().await;
    let broker = api.world.gamma;
    let gamma = api.admin_of(broker).await;
    for _ in 0..5 {
        let plans = ["starter", "growth", "pro", "starter", "growth", "pro"];
        let answers = join_all(plans.map(|plan| {
            let (api, gamma) = (&api, &gamma);
            async move { api.post(OWN, gamma, json!({"plan": plan})).await }
        }))
        .await;
        for answer in answers {
            assert!([200, 409].contains(&answer.status), "{answer:?}");
        }
        let (plan, wanted, number) = plan_of(&api.world, broker).await;
        assert_eq!(wanted, None);
        let url = api.world.databases.shard_url();
        let pool = sqlx::MySqlPool::connect(url.expose()).await.unwrap();
        let bound: (Option<u32>, u64) = sqlx::query_as(
            "SELECT offline_partners, plan_number FROM book_limit WHERE broker_id = ?",
        )
        .bind(broker)
        .fetch_one(&pool)
        .await
        .unwrap();
        let most = match plan.as_str() {
            "starter" => Some(3),
            "growth" => Some(50),
            _ => None,
        };
        assert_eq!(bound, (most, number));
    }
}
