use std::path::PathBuf;

use anyhow::Context as _;
use chrono::{DateTime, Utc};
use clap::Subcommand;
use serde_json::{Value, json};

use super::pause::operator;
use super::{Failure, Shown, no_such};
use crate::app::Stores;
use crate::cli::table::{facts, table};
use crate::config::Config;
use crate::domain::ids::{BrokerId, NettingRoundId};
use crate::domain::moment::Moment;
use crate::domain::money::{Currency, CurrencyCode, format_minor};
use crate::domain::netting_round::{Round, Sums};
use crate::runtime::{Clock, Entropy};
use crate::services::netting::{Counted, Joining, NettingError, NettingService, Preview};

#[derive(Debug, Subcommand)]
pub(super) enum What {
    /// Propose a round: the largest that the network's debts in a currency allow
    ///
    /// Each broker that it touches is asked, and nothing changes before all have
    /// approved. Nobody's net position moves.
    Propose {
        #[arg(long)]
        currency: CurrencyCode,
        /// When the time to answer ends, as 2026-12-31T12:00:00Z [default:
        /// netting.round_expiry_s from now]
        #[arg(long, value_parser = moment)]
        expires_at: Option<DateTime<Utc>>,
    },
    /// List rounds, newest first
    List {
        /// At most so many
        #[arg(long, default_value_t = 100)]
        limit: u32,
    },
    /// Show a round, and what its brokers have answered
    Show { id: NettingRoundId },
    /// End a round that has not been applied
    Cancel { id: NettingRoundId },
    /// Write a round's certificate, for settlenet verify netting
    Certificate {
        id: NettingRoundId,
        /// Where to; without it, to standard output
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
        /// An earlier revision than the present one
        #[arg(long)]
        revision: Option<u32>,
    },
    /// Say what a round would clear, if one were made now
    Preview {
        #[arg(long)]
        currency: CurrencyCode,
        /// Say how much less it would be without a broker
        #[arg(long, value_name = "BROKER")]
        without: Option<BrokerId>,
    },
}

fn moment(text: &str) -> Result<DateTime<Utc>, String> {
    let moment = Moment::parse(text);
    moment.map(Moment::at).map_err(|error| error.to_string())
}

pub(super) async fn run(what: &What, config: &Config) -> Result<Shown, Failure> {
    let service = Stores::open(config)?.netting(config, Clock::from_env(), Entropy::from_env());
    match what {
        What::Propose {
            currency,
            expires_at,
        } => {
            let code = currency.as_str();
            let by = operator();
            let proposed = service.propose_round(None, code, *expires_at, &by).await;
            let round = proposed.map_err(failure)?;
            shown(&service, round.id).await
        }
        What::List { limit } => {
            let found = service.rounds(None, *limit).await?;
            listed(&service, &found).await
        }
        What::Show { id } => shown(&service, *id).await,
        What::Cancel { id } => {
            let cancelled = service.cancel_round(*id, &operator()).await;
            cancelled.map_err(failure)?;
            shown(&service, *id).await
        }
        What::Certificate { id, out, revision } => {
            let bytes = service.certificate(*id, *revision).await;
            let bytes = bytes.map_err(failure)?;
            certificate(*id, out.as_ref(), bytes)
        }
        What::Preview { currency, without } => {
            let found = service.preview(currency.as_str(), *without).await;
            let (preview, joining) = found.map_err(failure)?;
            Ok(previewed(&preview, joining))
        }
    }
}

fn failure(error: NettingError) -> Failure {
    match error {
        NettingError::NoRound => no_such("round of that id"),
        NettingError::NoRevision => no_such("revision of that number"),
        error => error.into(),
    }
}

fn certificate(
    id: NettingRoundId,
    out: Option<&PathBuf>,
    bytes: Vec<u8>,
) -> Result<Shown, Failure> {
    let Some(out) = out else {
        let text = String::from_utf8(bytes)?;
        let lines = text.lines().map(serde_json::from_str::<Value>);
        let json = lines.collect::<Result<Vec<Value>, _>>()?.into();
        return Ok(Shown { text, json });
    };
    std::fs::write(out, bytes).with_context(|| out.display().to_string())?;
    let file = out.display().to_string();
    Ok(Shown {
        text: format!("{file} is the certificate of {id}: settlenet verify netting {file}"),
        json: json!({ "id": id, "file": file }),
    })
}

fn amount(minor: u128, currency: &Currency) -> String {
    let minor = i128::try_from(minor).unwrap_or(i128::MAX);
    format_minor(minor, currency.exponent)
}

/// What is cleared, beside what there is to compare it with.
fn sums_of(sums: &Sums, currency: &Currency) -> [(&'static str, String); 6] {
    let amount = |minor| format!("{} {}", amount(minor, currency), currency.code);
    [
        ("obligations", sums.obligations.to_string()),
        ("total", amount(sums.total)),
        ("cleared", amount(sums.cleared)),
        ("bilateral alone", amount(sums.bilateral)),
        ("at most", amount(sums.bound)),
        ("root", sums.root.to_string()),
    ]
}

fn sums_view(sums: &Sums, currency: &Currency) -> Value {
    json!({
        "obligations": sums.obligations,
        "total": amount(sums.total, currency),
        "cleared": amount(sums.cleared, currency),
        "bilateral": amount(sums.bilateral, currency),
        "bound": amount(sums.bound, currency),
        "root": sums.root,
    })
}

fn view(round: &Round, currency: &Currency) -> Value {
    json!({
        "id": round.id,
        "currency_code": round.currency,
        "status": round.status,
        "revision": round.revision,
        "clearing": sums_view(&round.sums, currency),
        "proposed_by": round.proposed_by,
        "created_at": round.created_at,
        "expires_at": round.expires_at,
        "ended_by": round.ended_by,
        "ended_at": round.ended_at,
    })
}

async fn shown(service: &NettingService, id: NettingRoundId) -> Result<Shown, Failure> {
    let (round, counts): Counted = service.round_counted(id).await.map_err(failure)?;
    let currency = service.currency(round.currency.as_str()).await?;
    let answers: Vec<String> = counts
        .iter()
        .map(|(state, count)| format!("{count} {state}"))
        .collect();
    let mut rows = vec![
        ("id", round.id.to_string()),
        ("status", round.status.to_string()),
        ("revision", round.revision.to_string()),
        ("answers", answers.join(", ")),
    ];
    rows.extend(sums_of(&round.sums, &currency));
    rows.extend([
        ("proposed by", round.proposed_by.clone()),
        ("since", round.created_at.to_rfc3339()),
        ("expires", round.expires_at.to_rfc3339()),
    ]);
    if let Some((by, at)) = round.ended_by.as_ref().zip(round.ended_at) {
        rows.extend([("ended by", by.clone()), ("ended", at.to_rfc3339())]);
    }
    let mut json = view(&round, &currency);
    json["answers"] = counts
        .iter()
        .map(|(state, count)| (state.to_string(), json!(count)))
        .collect();
    Ok(Shown {
        text: facts(&rows),
        json,
    })
}

async fn listed(service: &NettingService, found: &[Round]) -> Result<Shown, Failure> {
    let (mut rows, mut views) = (Vec::new(), Vec::new());
    for round in found {
        let currency = service.currency(round.currency.as_str()).await?;
        rows.push([
            round.id.to_string(),
            round.currency.to_string(),
            round.status.to_string(),
            amount(round.sums.cleared, &currency),
            amount(round.sums.total, &currency),
            round.created_at.to_rfc3339(),
        ]);
        views.push(view(round, &currency));
    }
    Ok(Shown {
        text: table(
            ["id", "currency", "status", "cleared", "of", "since"],
            &rows,
        ),
        json: views.into(),
    })
}

fn previewed(preview: &Preview, joining: Option<Joining>) -> Shown {
    let currency = &preview.currency;
    let mut rows = sums_of(&preview.sums, currency).to_vec();
    rows.push(("brokers touched", preview.falls.len().to_string()));
    let (active, needed) = (preview.active, preview.needed);
    let offered = active >= needed;
    rows.push((
        "offered",
        if offered {
            format!("yes: {active} brokers are active")
        } else {
            format!("no: {active} brokers are active, {needed} must be")
        },
    ));
    let mut json = json!({
        "currency_code": currency.code,
        "clearing": sums_view(&preview.sums, currency),
        "touched_brokers": preview.falls.len(),
        "active_brokers": active,
        "needed_brokers": needed,
        "offered": offered,
    });
    if let Some(joining) = joining {
        let (without, adds) = (
            amount(joining.cleared_without, currency),
            amount(joining.adds, currency),
        );
        rows.push(("without it", format!("{without} {}", currency.code)));
        rows.push((
            "it adds",
            format!("{adds} {} (broker {})", currency.code, joining.broker),
        ));
        json["without"] = json!({ "broker_id": joining.broker, "cleared": without, "adds": adds });
    }
    Shown {
        text: facts(&rows),
        json,
    }
}
