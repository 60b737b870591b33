//! The book, its chain, the network's members and reconciliation, through the real router on real
//! servers.

mod accounts;
mod alerts;
mod brokers;
mod callbacks;
mod chain;
mod checkpoints;
mod disputes;
mod domains;
mod lists;
mod metrics;
mod moves;
mod netting;
mod orders;
mod partners;
mod pauses;
mod payments;
mod plans;
mod reconcile;
mod requests;
mod signup;

use std::path::{Path, PathBuf};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request};
use secrecy::ExposeSecret;
use serde_json::Value;
use settlenet::domain::access::{Role, TeamSeat};
use settlenet::domain::ids::BrokerId;
use settlenet::http::{self, AppState, HttpConfig, Services, TokenRate};
use settlenet::runtime::{Entropy, Lifecycle};
use settlenet::services::auth::{AuthConfig, AuthService, keys};
use settlenet::services::team::{By, NewUser, TeamService};
use tower::ServiceExt;
use uuid::Uuid;

use crate::harness::World;

pub const PASSWORD: &str = "correct horse battery";

/// A [`World`] behind the real router, with people to call it.
pub struct Api {
    pub world: World,
    pub router: Router,
    pub state: AppState,
    keys: PathBuf,
}

/// What was answered.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Value,
    pub text: String,
}

impl Answer {
    /// The status and the `code` of a problem.
    pub fn problem(&self) -> (u16, &str) {
        (self.status, self.body["code"].as_str().unwrap_or_default())
    }

    /// The fields that a problem names.
    pub fn fields(&self) -> Vec<&str> {
        let errors = self.body["errors"].as_array();
        let fields = errors.into_iter().flatten();
        fields
            .map(|error| error["field"].as_str().unwrap_or_default())
            .collect()
    }

    pub fn items(&self) -> &[Value] {
        self.body["items"].as_array().unwrap()
    }
}

impl Drop for Api {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.keys);
    }
}

impl Api {
    pub async fn new() -> Self {
        Self::on(World::new().await).await
    }

    pub async fn on(world: World) -> Self {
        let name = format!("api-keys-{}", Uuid::new_v4());
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&folder).unwrap();
        keys::generate(&folder).unwrap();
        let config = AuthConfig {
            signing_keys: folder.clone(),
            hash_wait: std::time::Duration::from_mins(1),
            ..AuthConfig::default()
        };
        let (clock, entropy) = (world.clock.clone(), Entropy::seeded(7));
        let master = world.app.systems.master.clone();
        let auth = AuthService::open(config, master.clone(), clock.clone(), entropy.clone())
            .await
            .unwrap();
        let config = HttpConfig::default();
        let state = AppState::new(Services {
            token_rate: TokenRate::new(&config, clock.clone()),
            callback_rate: TokenRate::new(&config, clock.clone()),
            config,
            lifecycle: Lifecycle::default(),
            ready: Vec::new(),
            team: TeamService::new(master, clock.clone(), auth.passwords()),
            auth,
            app: world.app.clone(),
            clock,
            entropy,
        });
        Self {
            router: http::app(state.clone()),
            world,
            state,
            keys: folder,
        }
    }

    /// The token of somebody with a role, for a broker or for the platform.
    pub async fn token(&self, role: Role, broker_id: Option<BrokerId>) -> String {
        let login = format!("{role}-{}", Uuid::new_v4().simple());
        let new = NewUser {
            login: login.clone(),
            password: PASSWORD.into(),
            role,
        };
        let seat = TeamSeat { broker_id };
        let team = &self.state.team;
        team.create_user(seat, new, By::Operator, &World::intention())
            .await
            .unwrap();
        self.log_in(&login).await
    }

    pub async fn log_in(&self, login: &str) -> String {
        let address = std::net::Ipv4Addr::LOCALHOST.into();
        let granted = self
            .state
            .auth
            .log_in(login, PASSWORD.into(), None, address);
        let granted = granted.await.unwrap();
        granted.access_token.expose_secret().to_owned()
    }

    pub async fn admin_of(&self, broker: BrokerId) -> String {
        self.token(Role::BrokerAdmin, Some(broker)).await
    }

    pub async fn platform(&self) -> String {
        self.token(Role::PlatformAdmin, None).await
    }

    pub async fn send(&self, request: Request<Body>) -> Answer {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (head, body) = response.into_parts();
        let bytes = to_bytes(body, 8 << 20).await.unwrap();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        Answer {
            status: head.status.as_u16(),
            headers: head.headers,
            body: serde_json::from_str(&text).unwrap_or_default(),
            text,
        }
    }

    pub async fn get(&self, path: &str, token: &str) -> Answer {
        let request = Request::get(path).header("authorization", format!("Bearer {token}"));
        self.send(request.body(Body::empty()).unwrap()).await
    }

    pub async fn put(&self, path: &str, token: &str, body: Value) -> Answer {
        let request = Request::put(path)
            .header("authorization", format!("Bearer {token}"))
            .header("content-type", "application/json");
        self.send(request.body(Body::from(body.to_string())).unwrap())
            .await
    }

    /// With a new Idempotency-Key.
    pub async fn post(&self, path: &str, token: &str, body: Value) -> Answer {
        let key = Uuid::new_v4().to_string();
        self.post_as(path, token, Some(&key), body).await
    }

    pub async fn post_as(&self, path: &str, token: &str, key: Option<&str>, body: Value) -> Answer {
        let mut request = Request::post(path)
            .header("authorization", format!("Bearer {token}"))
            .header("content-type", "application/json");
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        self.send(request.body(Body::from(body.to_string())).unwrap())
            .await
    }
}
