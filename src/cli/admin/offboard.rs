use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use serde_json::{Value, json};

use super::pause::operator;
use super::{Failure, Shown, book_file, no_such};
use crate::cli::table::facts;
use crate::config::Config;
use crate::domain::broker::BrokerState;
use crate::domain::ids::BrokerId;
use crate::runtime::{Clock, failpoint};
use crate::services::book_files::{BookFiles, Exported};
use crate::services::offboarding::{Exit, ExitError, Offboarding, Outstanding, Section};

/// Ends a process that found what must be settled first.
pub(super) const OUTSTANDING: u8 = 5;

/// Goes as far as it can be gone: to `leaving`, and with a file to `archived`.
pub(super) async fn run(
    id: BrokerId,
    out: Option<&Path>,
    cancel: bool,
    config: &Config,
) -> Result<(Shown, ExitCode), Failure> {
    let app = super::payment::app(config)?;
    let exits = app.offboarding.clone();
    let (by, now) = (operator(), Clock::from_env().now());
    if cancel {
        exits.stay(id, &by, now).await.map_err(failure)?;
        let exit = exits.look(id).await.map_err(failure)?;
        return Ok((shown(&exit), ExitCode::SUCCESS));
    }
    let exit = exits.begin(id, &by, now).await.map_err(failure)?;
    let exit = match (exit.broker.state, out) {
        (BrokerState::Leaving, Some(out)) if exit.outstanding.is_nothing() => {
            match exits.freeze(id, now).await {
                Ok(number) => {
                    let systems = &app.systems;
                    let files = BookFiles::new(systems.master.clone(), Arc::clone(&systems.router));
                    let exported = file_of(&files, &exits, id, out).await?;
                    failpoint::at("offboard.exported");
                    let archived = exits.archive(id, number, &exported, &by, now).await;
                    archived.map_err(failure)?
                }
                Err(ExitError::Outstanding) => exits.look(id).await.map_err(failure)?,
                Err(error) => return Err(failure(error)),
            }
        }
        (
            BrokerState::Provisioning
            | BrokerState::Active
            | BrokerState::Suspended
            | BrokerState::Leaving
            | BrokerState::Archived,
            _,
        ) => exit,
    };
    let code = if exit.outstanding.is_nothing() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(OUTSTANDING)
    };
    Ok((shown(&exit), code))
}

/// The export of the frozen book: what an earlier try has written is taken where it is whole and
/// of this very book.
async fn file_of(
    files: &BookFiles,
    exits: &Offboarding,
    id: BrokerId,
    out: &Path,
) -> Result<Exported, Failure> {
    if !out.exists() {
        return book_file::export_to(files, id, out).await;
    }
    let named = || out.display().to_string();
    let file = File::open(out).with_context(named)?;
    let there = BookFiles::verify(BufReader::new(file), &|_, _, _| {});
    let there = there.with_context(named)?;
    let same = exits.is_export(id, &there.header).await;
    same.with_context(|| format!("{} is there already, and is another", named()))?;
    Ok(there)
}

fn failure(error: ExitError) -> Failure {
    match error {
        ExitError::NoSuchBroker { id } => no_such(format!("broker {id}")),
        error => error.into(),
    }
}

fn shown(exit: &Exit) -> Shown {
    let id = exit.broker.id;
    let mut rows = vec![
        ("broker", id.to_string()),
        ("state", exit.broker.state.to_string()),
    ];
    if let Some(kept) = &exit.archived {
        rows.push(("archived", kept.at.to_rfc3339()));
        rows.push(("by", kept.by.clone()));
        rows.push(("head", kept.head.to_string()));
        rows.push(("digest", kept.export_digest.to_string()));
    }
    let mut text = facts(&rows);
    let lines = lines(&exit.outstanding);
    if !lines.is_empty() {
        text.push_str("\nTo be settled first:\n");
        text.push_str(&lines.join("\n"));
    } else if exit.broker.state == BrokerState::Leaving {
        text.push_str("\nNothing is outstanding: say it again with --out FILE to archive it.");
    }
    Shown {
        text,
        json: json!({
            "broker_id": id,
            "state": exit.broker.state,
            "settled": exit.outstanding.is_nothing(),
            "outstanding": view(&exit.outstanding),
            "archived": exit.archived.as_ref().map(|kept| json!({
                "export_digest": kept.export_digest,
                "head": { "seq": kept.head.seq.to_string(), "hash": kept.head.hash },
                "archived_by": kept.by,
                "archived_at": kept.at,
            })),
        }),
    }
}

fn lines(found: &Outstanding) -> Vec<String> {
    let mut lines = Vec::new();
    section(&mut lines, "request", &found.requests, |open| {
        format!("{} is {}", open.id, open.status)
    });
    section(&mut lines, "saga", &found.sagas, |open| {
        format!(
            "{} ({} of {}) is {}",
            open.id, open.kind, open.subject, open.status
        )
    });
    section(&mut lines, "obligation", &found.obligations, |position| {
        format!(
            "with broker {} in {}: owed {}, owing {} (minor units)",
            position.counterparty, position.currency_code, position.owed, position.owing
        )
    });
    section(&mut lines, "reservation", &found.reservations, |held| {
        format!(
            "{} of {} for {} (minor units)",
            held.amount, held.account, held.subject
        )
    });
    section(&mut lines, "balance", &found.balances, |open| {
        let owner = &open.owner;
        format!(
            "{} {} {} in {}: {} (minor units)",
            owner.id(),
            owner.owner_kind,
            owner.owner_ref,
            owner.currency,
            open.balance
        )
    });
    section(&mut lines, "payment", &found.intents, |intent| {
        format!(
            "{} through {} is {}",
            intent.id, intent.channel, intent.status
        )
    });
    section(&mut lines, "wallet", &found.wallets, |wallet| {
        format!(
            "{}: {}, of that {} can be paid out (minor units)",
            wallet.wallet.name,
            wallet.balances.posted(),
            wallet.available()
        )
    });
    section(&mut lines, "payment that came in", &found.incoming, |one| {
        format!("{} through {} is {}", one.id, one.psp, one.status)
    });
    lines.extend(
        found
            .moving
            .map(|id| format!("move {id} of its book goes on")),
    );
    lines
}

fn section<T>(lines: &mut Vec<String>, what: &str, of: &Section<T>, line: impl Fn(&T) -> String) {
    lines.extend(of.first.iter().map(|one| format!("{what} {}", line(one))));
    let more = of.count.saturating_sub(of.first.len() as u64);
    if more > 0 {
        lines.push(format!("and {more} more of this kind"));
    }
}

/// Amounts are minor units, as strings.
fn view(found: &Outstanding) -> Value {
    fn of<T>(section: &Section<T>, line: impl Fn(&T) -> Value) -> Value {
        let items: Vec<Value> = section.first.iter().map(line).collect();
        json!({ "count": section.count, "items": items })
    }
    json!({
        "requests": of(&found.requests, |open| json!({ "id": open.id, "status": open.status })),
        "sagas": of(&found.sagas, |open| json!({
            "id": open.id, "kind": open.kind, "subject": open.subject, "status": open.status,
        })),
        "obligations": of(&found.obligations, |position| json!({
            "counterparty_broker_id": position.counterparty,
            "currency_code": position.currency_code,
            "owed_minor": position.owed.to_string(),
            "owing_minor": position.owing.to_string(),
        })),
        "reservations": of(&found.reservations, |held| json!({
            "account_id": held.account,
            "subject": held.subject,
            "amount_minor": held.amount.to_string(),
        })),
        "balances": of(&found.balances, |open| json!({
            "account_id": open.owner.id(),
            "owner_kind": open.owner.owner_kind,
            "owner_ref": open.owner.owner_ref,
            "currency_code": open.owner.currency,
            "balance_minor": open.balance.to_string(),
        })),
        "intents": of(&found.intents, |intent| json!({
            "id": intent.id, "channel": intent.channel, "status": intent.status,
        })),
        "wallets": of(&found.wallets, |wallet| json!({
            "wallet": wallet.wallet.name.to_string(),
            "balance_minor": wallet.balances.posted().to_string(),
            "available_minor": wallet.available().to_string(),
        })),
        "incoming": of(&found.incoming, |one| json!({
            "id": one.id, "psp_name": one.psp, "status": one.status,
            "amount_minor": one.amount.to_string(),
        })),
        "move_id": found.moving,
    })
}
