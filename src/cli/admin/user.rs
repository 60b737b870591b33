use std::io::{BufRead as _, IsTerminal as _};
use std::time::Duration;

use anyhow::Context as _;
use clap::Subcommand;
use secrecy::SecretString;
use serde_json::json;

use super::{Failure, Shown, broker};
use crate::app::Stores;
use crate::cli::table::facts;
use crate::config::Config;
use crate::domain::access::{Role, TeamSeat};
use crate::domain::canonical::Hash;
use crate::domain::ids::BrokerId;
use crate::runtime::{Clock, Entropy};
use crate::services::Intention;
use crate::services::auth::password::Passwords;
use crate::services::team::{By, NewUser, TeamService};

/// Where the password is where standard input is for something else.
const PASSWORD: &str = "SETTLENET_PASSWORD";

#[derive(Debug, Subcommand)]
pub(super) enum What {
    /// Create a person who can log in
    ///
    /// The password, of at least 12 characters, is SETTLENET_PASSWORD, or else the
    /// first line of standard input; never an argument, which others could see.
    Create {
        /// 3 to 120 characters of a-z, 0-9 and . _ @ + -
        login: String,
        /// platform_admin or arbiter; of a broker broker_admin, broker_operator or broker_viewer
        #[arg(long)]
        role: Role,
        /// Whose person it is; none for the platform's
        #[arg(long, value_name = "ID")]
        broker: Option<BrokerId>,
    },
}

pub(super) async fn run(what: &What, config: &Config) -> Result<Shown, Failure> {
    let What::Create {
        login,
        role,
        broker: whose,
    } = what;
    let stores = Stores::open(config)?;
    if let Some(id) = whose {
        let found = stores.provisioning(config).broker(*id).await;
        found.map_err(broker::failure)?;
    }
    let new = NewUser {
        login: login.clone(),
        password: password()?,
        role: *role,
    };
    let clock = Clock::from_env();
    // One password: it has its turn at once.
    let passwords = Passwords::new(1, Duration::from_secs(1))?;
    let team = TeamService::new(stores.master, clock.clone(), passwords);
    // Nothing says that the same command again means the same: its password may be another.
    let intention = Intention {
        client: "cli".to_owned(),
        key: Entropy::from_env().uuid(clock.now()).to_string(),
        fingerprint: Hash::of_bytes(b"user create"),
    };
    let seat = TeamSeat { broker_id: *whose };
    let member = team
        .create_user(seat, new, By::Operator, &intention)
        .await?;
    let of = member
        .broker_id
        .map_or_else(|| "-".to_owned(), |id| id.to_string());
    Ok(Shown {
        text: facts(&[
            ("id", member.user_id.to_string()),
            ("login", member.login.clone()),
            ("role", member.role.to_string()),
            ("broker", of),
        ]),
        json: json!({
            "id": member.user_id,
            "login": member.login,
            "role": member.role,
            "broker_id": member.broker_id,
            "created_at": member.created_at,
        }),
    })
}

fn password() -> anyhow::Result<SecretString> {
    if let Some(password) = std::env::var_os(PASSWORD) {
        let password = password.into_string();
        let password = password.map_err(|_| anyhow::anyhow!("{PASSWORD} is not UTF-8"))?;
        return Ok(password.into());
    }
    let mut input = std::io::stdin().lock();
    if input.is_terminal() {
        eprint!("Password (it is shown as you type; or set {PASSWORD}): ");
    }
    let mut line = String::new();
    input
        .read_line(&mut line)
        .context("the password can't be read from standard input")?;
    let password = line.strip_suffix('\n').unwrap_or(&line);
    let password = password.strip_suffix('\r').unwrap_or(password);
    anyhow::ensure!(
        !password.is_empty(),
        "give the password as the first line of standard input, or as {PASSWORD}"
    );
    Ok(password.into())
}
