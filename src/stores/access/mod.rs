//! The tables of who may log in, all in the master.

pub mod api_client;
pub mod refresh;
pub mod signing_key;
pub mod throttle;
pub mod user;

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use sqlx::types::Json;

use super::StoreError;
use crate::domain::access::{Role, Scope};

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
            _ => Err(StoreError::Corrupt("a login's state")),
        }
    }
}

/// The place after which a list goes on, newest first.
pub type After = Option<(DateTime<Utc>, u64)>;

fn read_role(text: &str) -> Result<Role, StoreError> {
    text.parse().map_err(|_| StoreError::Corrupt("a role"))
}

/// Scopes that this version doesn't know are left out: they grant nothing here.
fn read_scopes(names: &Json<Vec<String>>) -> BTreeSet<Scope> {
    names
        .0
        .iter()
        .filter_map(|name| name.parse().ok())
        .collect()
}

fn write_scopes(scopes: &BTreeSet<Scope>) -> Json<Vec<&'static str>> {
    Json(scopes.iter().map(|scope| scope.as_str()).collect())
}
