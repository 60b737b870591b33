use clap::Subcommand;
use serde_json::json;
use uuid::Uuid;

use super::pause::operator;
use super::payment::{app, failure};
use super::{Failure, Shown};
use crate::cli::table::{facts, table};
use crate::config::Config;
use crate::domain::ledger::AccountName;
use crate::services::payments::Incoming;

#[derive(Debug, Subcommand)]
pub(super) enum What {
    /// List the payments that came in and that nobody has yet, the oldest first
    List {
        /// At most so many
        #[arg(long, default_value_t = 100)]
        limit: u32,
    },
    /// Give one to a wallet; the same again changes nothing
    Assign {
        id: Uuid,
        /// Such as merchant.7.THB
        #[arg(long)]
        wallet: AccountName,
        /// How it was found out whose it is
        #[arg(long)]
        reason: String,
    },
}

pub(super) async fn run(what: &What, config: &Config) -> Result<Shown, Failure> {
    let payments = app(config)?.payments;
    match what {
        What::List { limit } => {
            let found = payments.incoming(None, *limit).await.map_err(failure)?;
            Ok(listed(&found))
        }
        What::Assign { id, wallet, reason } => {
            let assigned = payments.assign(*id, wallet, reason, &operator()).await;
            Ok(shown(&assigned.map_err(failure)?))
        }
    }
}

fn listed(found: &[Incoming]) -> Shown {
    let rows: Vec<_> = found
        .iter()
        .map(|one| {
            [
                one.id.to_string(),
                one.psp.to_string(),
                one.payment_id.clone(),
                one.status.to_string(),
                format!("{} {}", one.amount, one.currency),
                one.paid_at.to_rfc3339(),
            ]
        })
        .collect();
    let columns = ["id", "provider", "payment", "status", "minor units", "paid"];
    Shown {
        text: table(columns, &rows),
        json: found.iter().map(view).collect(),
    }
}

fn shown(one: &Incoming) -> Shown {
    let wallet = one.wallet.as_ref();
    let wallet = wallet.map_or_else(|| "-".to_owned(), ToString::to_string);
    Shown {
        text: facts(&[
            ("payment", one.payment_id.clone()),
            ("status", one.status.to_string()),
            ("wallet", wallet),
        ]),
        json: view(one),
    }
}

pub(super) fn view(one: &Incoming) -> serde_json::Value {
    json!({
        "id": one.id,
        "psp_name": one.psp,
        "payment_id": one.payment_id,
        "reference": one.reference,
        "intent_id": one.intent,
        "currency_code": one.currency,
        "amount_minor": one.amount,
        "status": one.status,
        "wallet": one.wallet.as_ref().map(ToString::to_string),
        "reason": one.reason,
        "disputed_at": one.disputed_at,
        "last_error": one.last_error,
        "paid_at": one.paid_at,
        "received_at": one.received_at,
    })
}
