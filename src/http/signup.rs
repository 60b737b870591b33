//! `/v1/signup`: joining the network by oneself.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use chrono::{DateTime, Utc};
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use super::guard::Public;
use super::idempotency::IdempotencyKey;
use super::json::StrictJson;
use super::problem::{Code, FieldError, Problem};
use super::rate::RateLimited;
use super::routes::Routes;
use super::state::{AppState, ClientAddr};
use crate::domain::access::login;
use crate::domain::broker::{BrokerPlan, BrokerState};
use crate::domain::canonical::Hash;
use crate::domain::ids::BrokerId;
use crate::route;
use crate::services::provisioning::ProvisioningError;
use crate::services::signup::{NewMember, SignupError};

pub fn routes() -> Routes {
    Routes::new().with(route!(sign_up))
}

#[derive(Deserialize, Serialize, utoipa::ToSchema)]
struct SignupBody {
    /// One line of 1 to 120 characters; no other broker has it.
    name: String,
    /// Of the broker's first person, its `broker_admin`: 3 to 120 characters of a-z, 0-9 and
    /// . _ @ + -; upper case is taken as lower.
    login: String,
    /// 12 characters or more. It has no part in the fingerprint of the idempotency key.
    #[serde(skip_serializing)]
    #[schema(value_type = String, format = Password)]
    password: SecretString,
    /// Of an invitation, where the network asks for one. Where it does not, whoever invited is
    /// recorded all the same.
    #[serde(skip_serializing)]
    #[schema(value_type = Option<String>, format = Password)]
    invite_code: Option<SecretString>,
}

#[derive(Serialize, utoipa::ToSchema)]
struct JoinedView {
    broker_id: BrokerId,
    name: String,
    /// `starter`: `/v1/broker/plan` changes it
    #[schema(value_type = String)]
    plan: BrokerPlan,
    /// `active`, `suspended`
    #[schema(value_type = String)]
    state: BrokerState,
    /// What to log in with, at `/v1/auth/token`.
    login: String,
    #[schema(required)]
    referred_by_broker_id: Option<BrokerId>,
    created_at: DateTime<Utc>,
}

/// Join the network as a broker.
///
/// The broker is SOLO, on the plan `starter`, and works at once: log in and go on. Whether an
/// invitation is needed, or the network takes anybody or nobody, is its operator's choice. An
/// invitation that can't be used is a 403 `not_invited` that does not say why. After a 503 the
/// same request goes on where it was broken off.
#[utoipa::path(post, path = "/v1/signup", tag = "auth", operation_id = "signup",
    params(("Idempotency-Key" = String, Header, description = "One per intended operation; hard to guess.")),
    request_body = SignupBody, responses((status = 201, body = JoinedView)))]
async fn sign_up(
    _: Public,
    _: RateLimited,
    State(state): State<AppState>,
    ClientAddr(address): ClientAddr,
    key: IdempotencyKey,
    StrictJson(body): StrictJson<SignupBody>,
) -> Result<(StatusCode, Json<JoinedView>), Problem> {
    let shown = login(&body.login).unwrap_or_default();
    // Strangers have no name of their own for their keys but the login that they want.
    let client = format!("signup:{}", Hash::of_bytes(shown.as_bytes()).to_hex());
    let intention = key.intention(&client, &body);
    let new = NewMember {
        name: body.name,
        login: body.login,
        password: body.password,
        code: body.invite_code,
    };
    let here = state.clone();
    let work = async move {
        here.auth.charge_stranger(address).await?;
        let now = here.clock.now();
        let joined = here.app.signup.sign_up(&here.team, new, &intention, now);
        joined.await.map_err(Problem::from)
    };
    let broker = state.lifecycle.detached(work).await??;
    let joined = JoinedView {
        broker_id: broker.id,
        name: broker.name,
        plan: broker.plan,
        state: broker.state,
        login: shown,
        referred_by_broker_id: broker.referred_by,
        created_at: broker.created_at,
    };
    Ok((StatusCode::CREATED, Json(joined)))
}

impl From<SignupError> for Problem {
    fn from(error: SignupError) -> Self {
        let detail = error.to_string();
        match error {
            SignupError::Closed => Self::new(Code::SignupClosed).detail(detail),
            SignupError::CodeMissing => {
                Self::fields(vec![FieldError::new("invite_code", "missing", detail)])
            }
            SignupError::NotInvited => Self::new(Code::NotInvited).detail(detail),
            // Who has the name is not a stranger's to know.
            SignupError::Broker(ProvisioningError::NameTaken { .. }) => Self::new(Code::NameTaken),
            SignupError::Broker(error) => error.into(),
            SignupError::User(error) => error.into(),
            SignupError::Store(error) => error.into(),
        }
    }
}
