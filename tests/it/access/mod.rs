//! Logging in, tokens, teams and the edge of the API, through the real router on a real master.
mod edge;
mod keys;
mod login;
mod team;
mod tokens;
mod walk;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request};
use chrono::{DateTime, Utc};
use serde_json::{Value, json};
use settlenet::app::App;
use settlenet::domain::access::{Role, TeamSeat};
use settlenet::domain::canonical::Hash;
use settlenet::http::{self, AppState, HttpConfig, ReadyCheck, Services, TokenRate};
use settlenet::runtime::{Clock, Entropy, Lifecycle};
use settlenet::services::Intention;
use settlenet::services::auth::{AuthConfig, AuthService, keys as signing};
use settlenet::services::team::{By, Member, NewUser, TeamService};
use settlenet::stores::migrate::{Kind, migrate};
use settlenet::stores::pool::{Pool, PoolBounds};
use tower::ServiceExt;

use crate::harness::{Databases, World};

pub const PASSWORD: &str = "correct horse battery";

/// A master of its own, a clock that stands still, and the application on both.
pub struct Access {
    pub app: Router,
    pub state: AppState,
    pub clock: Clock,
    pub pool: Pool,
    pub keys: PathBuf,
    _databases: Databases,
}

/// What was answered.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Value,
}

impl Answer {
    /// The `code` of a problem.
    pub fn code(&self) -> &str {
        self.body["code"].as_str().unwrap_or_default()
    }

    /// The fields that a problem names.
    pub fn fields(&self) -> Vec<&str> {
        let errors = self.body["errors"].as_array();
        let fields = errors
            .into_iter()
            .flatten()
            .map(|error| error["field"].as_str());
        fields.map(Option::unwrap_or_default).collect()
    }
}

pub fn start() -> DateTime<Utc> {
    DateTime::from_timestamp(1_800_000_000, 0).unwrap()
}

/// A new folder that goes with the build.
pub fn folder() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("keys-{}-{number}", std::process::id());
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&path).unwrap();
    path
}

impl Access {
    pub async fn new() -> Self {
        Self::with(|_| {}, HttpConfig::default(), Vec::new()).await
    }

    pub async fn with(
        change: impl FnOnce(&mut AuthConfig),
        config: HttpConfig,
        ready: Vec<ReadyCheck>,
    ) -> Self {
        let databases = Databases::new().await;
        migrate(databases.master_url(), Kind::Master).await.unwrap();
        let url = databases.master_url().expose().parse().unwrap();
        let pool = Pool::new(url, PoolBounds::default());
        let keys = folder();
        signing::generate(&keys).unwrap();
        let clock = Clock::manual(start());
        let mut auth = AuthConfig {
            signing_keys: keys.clone(),
            hash_wait: std::time::Duration::from_mins(1),
            ..AuthConfig::default()
        };
        change(&mut auth);
        let entropy = Entropy::seeded(7);
        let auth = AuthService::open(auth, pool.clone(), clock.clone(), entropy.clone())
            .await
            .unwrap();
        let state = AppState::new(Services {
            token_rate: TokenRate::new(&config, clock.clone()),
            callback_rate: TokenRate::new(&config, clock.clone()),
            config,
            clock: clock.clone(),
            entropy,
            lifecycle: Lifecycle::default(),
            ready,
            app: App::on_ledger(
                &databases.config(),
                World::shared_ledger().await,
                clock.clone(),
                Entropy::seeded(8),
            )
            .unwrap(),
            team: TeamService::new(pool.clone(), clock.clone(), auth.passwords()),
            auth,
        });
        Self {
            app: http::app(state.clone()),
            state,
            clock,
            pool,
            keys,
            _databases: databases,
        }
    }

    /// A broker whose plan allows a team, where there is none of this number yet; without a book.
    async fn broker(&self, id: u64) {
        let sql =
            "INSERT IGNORE INTO broker (broker_id, name, broker_mode, plan, state, created_at)
                   VALUES (?, ?, 'FULL', 'pro', 'active', ?)";
        let row = sqlx::query(sql).bind(id).bind(format!("Broker {id}"));
        row.bind(start()).execute(&self.pool).await.unwrap();
    }

    /// A person with [`PASSWORD`].
    pub async fn user(&self, login: &str, role: Role, broker_id: Option<u64>) -> Member {
        let new = NewUser {
            login: login.into(),
            password: PASSWORD.into(),
            role,
        };
        let intention = Intention {
            client: "test".into(),
            key: login.into(),
            fingerprint: Hash::of_bytes(login.as_bytes()),
        };
        let team = TeamSeat { broker_id };
        if let Some(id) = broker_id {
            self.broker(id).await;
        }
        self.state
            .team
            .create_user(team, new, By::Operator, &intention)
            .await
            .unwrap()
    }

    pub async fn send(&self, request: Request<Body>) -> Answer {
        let response = self.app.clone().oneshot(request).await.unwrap();
        let (head, body) = response.into_parts();
        let bytes = to_bytes(body, 8 << 20).await.unwrap();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        Answer {
            status: head.status.as_u16(),
            headers: head.headers,
            body: serde_json::from_slice(&bytes).unwrap_or(Value::String(text)),
        }
    }

    pub async fn get(&self, path: &str, token: Option<&str>) -> Answer {
        let mut request = Request::get(path);
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        self.send(request.body(Body::empty()).unwrap()).await
    }

    pub async fn post(
        &self,
        path: &str,
        token: Option<&str>,
        key: Option<&str>,
        body: Value,
    ) -> Answer {
        let mut request = Request::post(path).header("content-type", "application/json");
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        self.send(request.body(Body::from(body.to_string())).unwrap())
            .await
    }

    pub async fn log_in(&self, login: &str, password: &str) -> Answer {
        let body = json!({"grant_type": "password", "login": login, "password": password});
        self.post("/v1/auth/token", None, None, body).await
    }

    /// The access token of a person made by [`user`](Self::user).
    pub async fn token(&self, login: &str) -> String {
        let answer = self.log_in(login, PASSWORD).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.body["access_token"].as_str().unwrap().to_owned()
    }

    pub async fn refresh(&self, token: &str) -> Answer {
        let body = json!({"refresh_token": token});
        self.post("/v1/auth/refresh", None, None, body).await
    }
}
