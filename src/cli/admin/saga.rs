use clap::Subcommand;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{Failure, Shown, no_such};
use crate::app::{App, Stores};
use crate::cli::table::{facts, table};
use crate::config::Config;
use crate::domain::saga::SagaStatus;
use crate::runtime::{Clock, Entropy};
use crate::services::saga::{Explanation, SagaRecord, SagaRecords};

#[derive(Debug, Subcommand)]
pub(super) enum What {
    /// List sagas, those that changed last first
    List {
        /// Only those that are running, completed, compensating, compensated or stuck
        #[arg(long)]
        status: Option<SagaStatus>,
        /// At most so many
        #[arg(long, default_value_t = 100)]
        limit: u32,
    },
    /// Show what a saga has done, system by system, and what could be done about it
    Show { id: Uuid },
    /// Put a stuck saga back before the workers, and show it
    ///
    /// They do every step again that has no outcome yet. Nothing is ever done
    /// twice. One that is not stuck goes on as it is.
    Retry { id: Uuid },
    /// Ask a saga to go back, and show it
    ///
    /// It is a request, not an order: where the ledger has posted the transfer the
    /// saga completes all the same. `show` says which it would be.
    Compensate { id: Uuid },
}

pub(super) async fn run(what: &What, config: &Config) -> Result<Shown, Failure> {
    let id = match what {
        What::List { status, limit } => {
            let sagas = SagaRecords::new(Stores::open(config)?.master);
            return Ok(listed(&sagas.list(*status, None, *limit).await?));
        }
        What::Show { id } | What::Retry { id } | What::Compensate { id } => *id,
    };
    let app = App::assemble(config, Clock::from_env(), Entropy::from_env())?;
    match what {
        What::List { .. } | What::Show { .. } => {}
        What::Retry { .. } => {
            if !app.engine.retry(id).await? {
                eprintln!("it was not stuck: nothing has changed");
            }
        }
        What::Compensate { .. } => {
            if !app.engine.compensate(id).await? {
                eprintln!("it has ended: nothing has changed");
            }
        }
    }
    let explanation = app.engine.explain(id).await?;
    let explanation = explanation.ok_or_else(|| no_such(format!("saga {id}")))?;
    Ok(Shown {
        text: told(&explanation),
        json: serde_json::to_value(&explanation)?,
    })
}

fn listed(found: &[SagaRecord]) -> Shown {
    let rows: Vec<_> = found
        .iter()
        .map(|saga| {
            [
                saga.saga_id.to_string(),
                saga.kind.to_string(),
                saga.subject.to_string(),
                saga.status.to_string(),
                saga.direction.to_string(),
                saga.updated_at.to_rfc3339(),
            ]
        })
        .collect();
    let view = |saga: &SagaRecord| {
        json!({
            "id": saga.saga_id,
            "kind": saga.kind,
            "subject": saga.subject,
            "direction": saga.direction,
            "status": saga.status,
            "reason": saga.reason,
            "compensation_requested": saga.compensation_requested,
            "created_at": saga.created_at,
            "updated_at": saga.updated_at,
        })
    };
    let heading = ["id", "kind", "subject", "status", "direction", "changed"];
    Shown {
        text: table(heading, &rows),
        json: found.iter().map(view).collect(),
    }
}

fn told(saga: &Explanation) -> String {
    let reason = saga
        .reason
        .as_ref()
        .map_or_else(|| "-".to_owned(), Value::to_string);
    let head = facts(&[
        ("saga", saga.saga_id.to_string()),
        ("kind", saga.kind.clone()),
        ("subject", saga.subject.clone()),
        ("status", saga.status.clone()),
        ("direction", saga.direction.clone()),
        ("reason", reason),
    ]);
    let rows: Vec<_> = saga
        .steps
        .iter()
        .map(|step| {
            [
                step.step.to_string(),
                step.name.clone(),
                step.target_db.clone(),
                step.recorded.clone(),
                step.retries.to_string(),
                step.shows.to_string(),
                step.error_message.clone().unwrap_or_default(),
            ]
        })
        .collect();
    let heading = [
        "step",
        "does",
        "in",
        "recorded",
        "retries",
        "shows now",
        "last error",
    ];
    format!(
        "{head}\n{}\nretry would       {}\ncompensate would  {}\n",
        table(heading, &rows),
        saga.retry_would,
        saga.compensate_would
    )
}
