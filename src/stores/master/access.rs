//! The tables of who may log in, all in the master.

pub mod api_client;
pub mod refresh;
pub mod signing_key;
pub mod throttle;
pub mod user;

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use sqlx::types::Json;

use super::failed;
use crate::domain::access::{Role, Scope};
use crate::stores::StoreError;
use crate::stores::error::corrupt;

/// Whether somebody may log in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginState {
    Active,
    Disabled,
}

impl LoginState {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Disabled => "disabled",
        }
    }

    fn read(text: &str) -> Result<Self, StoreError> {
        match text {
            "active" => Ok(Self::Active),
            "disabled" => Ok(Self::Disabled),
            _ => Err(corrupt("user, api_client", format!("state {text}"))),
        }
    }
}

/// The place after which a list goes on, newest first.
pub type After = Option<(DateTime<Utc>, u64)>;

fn read_role(text: &str) -> Result<Role, StoreError> {
    Role::parse(text).ok_or_else(|| corrupt("user, api_client", format!("role {text}")))
}

/// Scopes that this version doesn't know are left out: they grant nothing here.
fn read_scopes(names: &Json<Vec<String>>) -> BTreeSet<Scope> {
    names
        .0
        .iter()
        .filter_map(|name| Scope::parse(name))
        .collect()
}

fn write_scopes(scopes: &BTreeSet<Scope>) -> Json<Vec<&'static str>> {
    Json(scopes.iter().map(|scope| scope.as_str()).collect())
}
