use clap::Subcommand;
use serde_json::json;

use super::{Failure, Shown, no_such};
use crate::app::Stores;
use crate::cli::table::table;
use crate::config::Config;
use crate::runtime::Clock;
use crate::services::alerts::{Alert, AlertService, Resolved};

#[derive(Debug, Subcommand)]
pub(super) enum What {
    /// List alerts, newest first
    List {
        /// Also those that are resolved
        #[arg(long)]
        all: bool,
        /// At most so many
        #[arg(long, default_value_t = 100)]
        limit: u32,
    },
    /// Say that an alert has been dealt with
    ///
    /// It comes back where what it warns of is still so.
    Resolve { id: u64 },
}

pub(super) async fn run(what: &What, config: &Config) -> Result<Shown, Failure> {
    let alerts = AlertService::new(Stores::open(config)?.master, Clock::from_env());
    match what {
        What::List { all, limit } => Ok(listed(&alerts.list(!all, None, *limit).await?)),
        What::Resolve { id } => {
            let (text, resolved) = match alerts.resolve(*id).await? {
                Resolved::Now => ("resolved", true),
                Resolved::Before => ("was resolved before", false),
                Resolved::NoSuchAlert => return Err(no_such(format!("alert {id}"))),
            };
            Ok(Shown {
                text: format!("alert {id} {text}"),
                json: json!({"id": id, "resolved": resolved}),
            })
        }
    }
}

fn listed(found: &[Alert]) -> Shown {
    let rows: Vec<_> = found
        .iter()
        .map(|alert| {
            [
                alert.alert_id.to_string(),
                alert.kind.clone(),
                alert.subject.clone(),
                alert.created_at.to_rfc3339(),
                alert
                    .resolved_at
                    .map_or_else(|| "-".to_owned(), |at| at.to_rfc3339()),
                alert.message.clone(),
            ]
        })
        .collect();
    let view = |alert: &Alert| {
        json!({
            "id": alert.alert_id,
            "kind": alert.kind,
            "subject": alert.subject,
            "message": alert.message,
            "details": alert.details,
            "created_at": alert.created_at,
            "resolved_at": alert.resolved_at,
        })
    };
    Shown {
        text: table(
            ["id", "kind", "subject", "raised", "resolved", "message"],
            &rows,
        ),
        json: found.iter().map(view).collect(),
    }
}
