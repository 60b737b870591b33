use clap::Subcommand;
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

use super::{Failure, Shown, no_such};
use crate::app::Stores;
use crate::cli::table::{facts, table};
use crate::config::Config;
use crate::domain::canonical::Hash;
use crate::domain::ids::{BrokerId, InviteId};
use crate::domain::invite::{DEFAULT_DAYS, Terms};
use crate::domain::pause::Hindrance;
use crate::runtime::{Clock, Entropy};
use crate::services::Intention;
use crate::services::invites::{Invite, InviteError, InviteService, Whose};

#[derive(Debug, Subcommand)]
pub(super) enum What {
    /// Invite somebody to become a broker of the network
    ///
    /// Prints the code, this once: only its digest is kept. Whoever has it signs up
    /// at /v1/signup.
    Create {
        /// Brokers that may come by it
        #[arg(long, default_value_t = 1)]
        uses: u32,
        /// Days that it lives
        #[arg(long, default_value_t = DEFAULT_DAYS)]
        days: u32,
        /// The broker that invites, and will have referred whoever comes; none for the platform
        #[arg(long, value_name = "ID")]
        broker: Option<BrokerId>,
        /// For whom it is, in one line
        #[arg(long)]
        note: Option<String>,
    },
    /// List invitations, newest first
    List {
        /// Only those of one broker
        #[arg(long, value_name = "ID")]
        broker: Option<BrokerId>,
        /// At most so many
        #[arg(long, default_value_t = 100)]
        limit: u32,
    },
    /// End an invitation: its code is worth nothing any more
    Revoke { id: InviteId },
}

pub(super) async fn run(what: &What, config: &Config) -> Result<Shown, Failure> {
    let invites = InviteService::new(Stores::open(config)?.master);
    let clock = Clock::from_env();
    let now = clock.now();
    match what {
        What::Create {
            uses,
            days,
            broker,
            note,
        } => {
            let terms = Terms {
                max_uses: *uses,
                days: *days,
                note: note.clone(),
            };
            // The same command again means another invitation: the code of the first is gone.
            let intention = Intention {
                client: "cli".to_owned(),
                key: Entropy::from_env().uuid(now).to_string(),
                fingerprint: Hash::of_bytes(b"invite create"),
            };
            let made = invites.create(*broker, "cli", terms, &intention, now).await;
            let (invite, code) = made.map_err(|error| match (error, broker) {
                (
                    InviteError::NotFound | InviteError::Hindered(Hindrance::NoBroker { .. }),
                    Some(id),
                ) => no_such(format!("broker {id}")),
                (error, _) => error.into(),
            })?;
            let code = code.map(|code| code.expose_secret().to_owned());
            Ok(created(&invite, code.as_deref()))
        }
        What::List { broker, limit } => {
            let whose = broker.map_or(Whose::All, Whose::Broker);
            Ok(listed(&invites.list(whose, None, *limit).await?))
        }
        What::Revoke { id } => {
            let revoked = invites.revoke(Whose::All, *id, now).await;
            let invite = revoked.map_err(|error| match error {
                InviteError::NotFound => no_such(format!("invitation {id}")),
                error => error.into(),
            })?;
            Ok(Shown {
                text: format!("{id} is revoked; {} came by it", invite.uses),
                json: view(&invite),
            })
        }
    }
}

fn created(invite: &Invite, code: Option<&str>) -> Shown {
    let mut json = view(invite);
    json["code"] = json!(code);
    Shown {
        text: facts(&[
            ("id", invite.id.to_string()),
            ("code", code.unwrap_or("-").to_owned()),
            ("uses", invite.max_uses.to_string()),
            ("expires", invite.expires_at.to_rfc3339()),
        ]),
        json,
    }
}

fn listed(found: &[Invite]) -> Shown {
    let none = || "-".to_owned();
    let rows: Vec<_> = found
        .iter()
        .map(|invite| {
            [
                invite.id.to_string(),
                invite.broker_id.map_or_else(none, |id| id.to_string()),
                format!("{} of {}", invite.uses, invite.max_uses),
                invite.expires_at.to_rfc3339(),
                invite.revoked_at.map_or_else(none, |at| at.to_rfc3339()),
                invite.note.clone().unwrap_or_default(),
            ]
        })
        .collect();
    Shown {
        text: table(
            ["id", "broker", "used", "expires", "revoked", "note"],
            &rows,
        ),
        json: found.iter().map(view).collect(),
    }
}

fn view(invite: &Invite) -> Value {
    json!({
        "id": invite.id,
        "broker_id": invite.broker_id,
        "note": invite.note,
        "max_uses": invite.max_uses,
        "uses": invite.uses,
        "expires_at": invite.expires_at,
        "revoked_at": invite.revoked_at,
        "created_by": invite.created_by,
        "created_at": invite.created_at,
    })
}
