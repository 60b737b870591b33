use clap::Subcommand;
use serde_json::{Value, json};
use uuid::Uuid;

use super::incoming;
use super::pause::operator;
use super::{Failure, Shown, no_such, usage};
use crate::app::App;
use crate::cli::table::{facts, table};
use crate::config::Config;
use crate::domain::idempotency::{KEY_MAX, is_key};
use crate::domain::ledger::AccountName;
use crate::domain::money::{Amount, format_minor};
use crate::runtime::{Clock, Entropy};
use crate::services::payments::{
    Evidence, Finding, Intent, PaymentError, PspTx, StatementLine, Stuck, Verdict, WalletBalance,
};

#[derive(Debug, Subcommand)]
pub(super) enum Review {
    /// List the payments that wait for a person, the oldest first
    List {
        /// At most so many
        #[arg(long, default_value_t = 100)]
        limit: u32,
    },
    /// List what is stuck of payments (the alert payment_stuck), the oldest first
    Stuck {
        /// At most so many
        #[arg(long, default_value_t = 100)]
        limit: u32,
    },
    /// Show all that is known of a payment: its history, the newest calls to the provider, what came
    /// in for it and what statements say
    Show { intent: Uuid },
    /// Try again what is stuck of a payment (the alert payment_stuck), once what was wrong is mended
    Retry { intent: Uuid },
    /// Say what was found out at the provider: the money is posted or given back by that
    Resolve {
        intent: Uuid,
        /// CONFIRMED: it has paid; FAILED: it has not, and will not
        #[arg(long, value_name = "VERDICT")]
        verdict: Verdict,
        /// What was found out, and where
        #[arg(long)]
        reason: String,
        /// With CONFIRMED, the provider's name for the payment where it is known: a payment that
        /// comes back is known again by it
        #[arg(long, value_name = "ID")]
        payment_id: Option<String>,
    },
}

#[derive(Debug, Subcommand)]
pub(super) enum Wallet {
    /// Fund a wallet from the network's own money (system.equity), for a pilot
    Fund {
        /// Such as merchant.7.THB
        wallet: AccountName,
        /// In major units, as 100000.00
        #[arg(long)]
        amount: String,
        /// The same key again moves nothing, whoever says it and over REST too
        #[arg(long, value_parser = idempotency_key)]
        key: String,
    },
}

fn idempotency_key(text: &str) -> Result<String, String> {
    let key = is_key(text).then(|| text.to_owned());
    key.ok_or_else(|| format!("1 to {KEY_MAX} visible characters of ASCII, without spaces"))
}

pub(super) fn app(config: &Config) -> Result<App, Failure> {
    Ok(App::assemble(
        config,
        Clock::from_env(),
        Entropy::from_env(),
    )?)
}

pub(super) async fn review(what: &Review, config: &Config) -> Result<Shown, Failure> {
    let payments = app(config)?.payments;
    match what {
        Review::List { limit } => {
            let found = payments.reviews(None, *limit).await.map_err(failure)?;
            Ok(listed(&found))
        }
        Review::Stuck { limit } => {
            let found = payments.stuck(None, *limit).await.map_err(failure)?;
            Ok(stuck(&found))
        }
        Review::Show { intent } => {
            let found = payments.evidence(*intent).await.map_err(failure)?;
            Ok(shown(&found))
        }
        Review::Retry { intent } => {
            let retried = payments.retry(*intent, &operator()).await;
            let intent = retried.map_err(failure)?.intent;
            Ok(Shown {
                text: facts(&[
                    ("intent", intent.id.to_string()),
                    ("status", intent.status.to_string()),
                ]),
                json: json!({ "intent_id": intent.id, "status": intent.status }),
            })
        }
        Review::Resolve {
            intent,
            verdict,
            reason,
            payment_id,
        } => {
            let finding = Finding {
                verdict: *verdict,
                payment_id: payment_id.as_deref(),
                reason,
                by: &operator(),
            };
            let resolved = payments.resolve(*intent, &finding).await;
            Ok(shown(&resolved.map_err(failure)?))
        }
    }
}

pub(super) async fn wallet(what: &Wallet, config: &Config) -> Result<Shown, Failure> {
    let app = app(config)?;
    let Wallet::Fund {
        wallet,
        amount,
        key,
    } = what;
    let currency = app.currencies.get(wallet.currency()).await?;
    let currency = currency.ok_or_else(|| no_such(format!("currency {}", wallet.currency())))?;
    let minor = Amount::parse(amount, &currency).map_err(|error| usage("--amount", &error))?;
    let funded = app
        .payments
        .fund(wallet, minor, key, &operator())
        .await
        .map_err(failure)?;
    Ok(funded_shown(&funded, currency.exponent))
}

pub(super) fn failure(error: PaymentError) -> Failure {
    match error {
        PaymentError::NoSuchIntent | PaymentError::NoSuchIncoming => no_such("payment"),
        PaymentError::NoSuchWallet => no_such("wallet"),
        error => error.into(),
    }
}

fn listed(found: &[(PspTx, Option<Intent>)]) -> Shown {
    let rows: Vec<_> = found
        .iter()
        .map(|(psp, intent)| {
            let broker = intent
                .as_ref()
                .map_or_else(|| "-".to_owned(), |i| i.broker.to_string());
            [
                psp.intent.to_string(),
                broker,
                psp.psp.to_string(),
                psp.last_error.clone().unwrap_or_else(|| "-".to_owned()),
                psp.updated_at.to_rfc3339(),
            ]
        })
        .collect();
    Shown {
        text: table(["intent", "broker", "provider", "why", "since"], &rows),
        json: found
            .iter()
            .map(|(psp, intent)| {
                json!({
                    "intent_id": psp.intent,
                    "broker_id": intent.as_ref().map(|intent| intent.broker),
                    "psp": psp_view(psp),
                })
            })
            .collect(),
    }
}

fn stuck(found: &[Stuck]) -> Shown {
    let rows: Vec<_> = found
        .iter()
        .map(|one| {
            [
                one.intent.to_string(),
                one.action.to_string(),
                one.updated_at.to_rfc3339(),
                one.error.clone().unwrap_or_else(|| "-".to_owned()),
            ]
        })
        .collect();
    let view = |one: &Stuck| {
        json!({
            "intent_id": one.intent,
            "action": one.action,
            "error": one.error,
            "created_at": one.created_at,
            "stuck_since": one.updated_at,
        })
    };
    Shown {
        text: table(["intent", "action", "since", "why"], &rows),
        json: found.iter().map(view).collect(),
    }
}

fn shown(found: &Evidence) -> Shown {
    let (intent, psp) = (found.intent.as_ref(), &found.psp);
    let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    let of_intent = |fact: &dyn Fn(&Intent) -> String| {
        intent.map_or_else(|| "its row is missing here".to_owned(), fact)
    };
    let known = facts(&[
        ("intent", psp.intent.to_string()),
        ("broker", of_intent(&|intent| intent.broker.to_string())),
        ("status", of_intent(&|intent| intent.status.to_string())),
        ("wallet", of_intent(&|intent| intent.wallet.to_string())),
        (
            "amount (minor units)",
            of_intent(&|intent| intent.amount.to_string()),
        ),
        (
            "fee (minor units)",
            of_intent(&|intent| intent.fee.to_string()),
        ),
        ("provider", psp.psp.to_string()),
        ("state", psp.state.to_string()),
        ("why", or_none(&psp.last_error)),
        ("lookup uid", or_none(&psp.query_rq_uid)),
        ("payment uid", or_none(&psp.confirm_rq_uid)),
        ("lookup", or_none(&psp.facts.lookup_ref)),
        ("receiver", or_none(&psp.facts.receiver_name_en)),
        ("provider's answer", or_none(&psp.facts.response_id)),
    ]);
    let events = found.events.iter().map(|event| {
        let from = event.status_from.as_deref().unwrap_or("-");
        let why = event.reason.as_deref().unwrap_or("");
        let at = event.created_at.to_rfc3339();
        format!("{at}  {from} -> {}  {why}", event.status_to)
    });
    let calls = found.calls.iter().map(|call| {
        let answer = match (&call.error, call.http_status) {
            (Some(error), _) => error.clone(),
            (None, Some(status)) => status.to_string(),
            (None, None) => "-".to_owned(),
        };
        let (at, operation) = (call.called_at.to_rfc3339(), &call.operation);
        format!("{at}  {operation}  {answer}")
    });
    let came_in = found.incoming.iter().map(|one| {
        let (at, amount) = (one.paid_at.to_rfc3339(), one.amount);
        let (id, currency, status) = (&one.payment_id, &one.currency, one.status);
        format!("{at}  came in: {id}, {amount} {currency} (minor units), {status}")
    });
    let listed = found.lines.iter().map(|line| {
        let (at, amount) = (line.paid_at.to_rfc3339(), line.amount);
        let (id, currency, status) = (&line.response_id, &line.currency, line.status);
        format!("{at}  statement: {id}, {amount} {currency} (minor units), {status}")
    });
    let all = std::iter::once(known).chain(events).chain(calls);
    let lines: Vec<String> = all.chain(came_in).chain(listed).collect();
    let events = found.events.iter().map(|event| {
        json!({
            "status_from": event.status_from,
            "status_to": event.status_to,
            "reason": event.reason,
            "payload": event.payload,
            "at": event.created_at,
        })
    });
    let calls = found.calls.iter().map(|call| {
        json!({
            "operation": call.operation,
            "rq_uid": call.rq_uid,
            "request": call.request,
            "http_status": call.http_status,
            "response": call.response,
            "error": call.error,
            "took_us": call.took_us,
            "at": call.called_at,
        })
    });
    Shown {
        text: lines.join("\n"),
        json: json!({
            "intent_id": psp.intent,
            "broker_id": intent.map(|intent| intent.broker),
            "status": intent.map(|intent| intent.status),
            "psp": psp_view(psp),
            "events": events.collect::<Value>(),
            "calls": calls.collect::<Value>(),
            "incoming": found.incoming.iter().map(incoming::view).collect::<Value>(),
            "statement": found.lines.iter().map(line_view).collect::<Value>(),
        }),
    }
}

fn line_view(line: &StatementLine) -> Value {
    json!({
        "uid": line.uid,
        "payment_id": line.response_id,
        "currency_code": line.currency,
        "amount_minor": line.amount,
        "paid_at": line.paid_at,
        "status": line.status,
    })
}

fn psp_view(psp: &PspTx) -> Value {
    json!({
        "psp_name": psp.psp,
        "state": psp.state,
        "query_rq_uid": psp.query_rq_uid,
        "confirm_rq_uid": psp.confirm_rq_uid,
        "facts": psp.facts,
        "retry_count": psp.retry_count,
        "last_error": psp.last_error,
        "updated_at": psp.updated_at,
    })
}

fn funded_shown(found: &WalletBalance, exponent: u8) -> Shown {
    let balance = format_minor(found.balances.posted(), exponent);
    let available = format_minor(found.available(), exponent);
    Shown {
        text: facts(&[
            ("wallet", found.wallet.name.to_string()),
            ("balance", balance.clone()),
            ("available", available.clone()),
        ]),
        json: json!({
            "wallet": found.wallet.name.to_string(),
            "balance": balance,
            "available": available,
        }),
    }
}
