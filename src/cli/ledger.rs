//! `settlenet ledger`: what stands in the ledger, read by nothing but names and ids.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::str::FromStr;

use clap::Subcommand;
use serde_json::{Value, json};
use uuid::Uuid;

use super::table::facts;
use super::{ConfigFile, Failure, print};
use crate::app::ledger_config;
use crate::domain::ledger::{AccountName, TransferCode, TransferId, account_id, transfer_id};
use crate::services::auditor::{Audited, Auditor, LedgerConfig, TransferKind, TransferRecord};

/// Ends a process that was asked about something that there is not.
const NO_SUCH_THING: u8 = 4;

/// Read an account or a transfer in TigerBeetle
///
/// An auditor's view: needs the ledger's address and no database, because ids are computed from
/// names. Amounts are in minor units.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes: 0 it is there; 1 failed, the reason on standard error; 2 the command line or the \
configuration is wrong; 4 there is no such account or transfer; 5 the account is not what its name \
says it must be.")]
pub(super) struct Args {
    #[command(subcommand)]
    of: Of,
    /// IP:PORT of a replica, instead of the configuration's; said once for each
    #[arg(long, global = true, value_name = "IP:PORT")]
    address: Vec<SocketAddr>,
    /// The cluster's number, with --address
    #[arg(long, global = true, value_name = "N", default_value_t = 0)]
    cluster: u128,
    #[command(flatten)]
    file: ConfigFile,
    /// Print JSON (numbers of 128 bits are strings there)
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Of {
    /// An account and its four sums
    Account {
        /// Such as broker.1.position.USD, merchant.7.THB or system.nostro.ipps.THB
        name: AccountName,
    },
    /// A transfer, by its id or by what it is of
    Transfer {
        /// Its id, in decimal or as a uuid; with an INDEX the uuid of the saga or intent
        id: TransferRef,
        /// Which of the saga's or intent's transfers, from 0
        index: Option<u32>,
    },
}

/// A number of 128 bits, in decimal or as a uuid.
#[derive(Clone, Copy, Debug)]
struct TransferRef(u128);

impl FromStr for TransferRef {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let uuid = || Uuid::parse_str(text).map(|uuid| uuid.as_u128());
        let number = text.parse().or_else(|_| uuid());
        number
            .map(Self)
            .map_err(|_| format!("{text:?} is neither a number nor a uuid"))
    }
}

pub(super) async fn run(args: &Args) -> Result<ExitCode, Failure> {
    let config = if args.address.is_empty() {
        ledger_config(&args.file.load()?)
    } else {
        LedgerConfig::new(args.cluster, args.address.clone())
    };
    let ledger = Auditor::connect(&config)?;
    match &args.of {
        Of::Account { name } => {
            let Some(found) = ledger.account(name).await? else {
                return Ok(missing(&format!("account {name} ({})", account_id(name))));
            };
            show(
                args.json,
                &account(name, &found),
                &account_json(name, &found),
            )?;
            if let Some(wrong) = found.wrong {
                eprintln!("settlenet: {wrong}");
                return Ok(ExitCode::from(5));
            }
        }
        Of::Transfer { id, index } => {
            let id = match index {
                Some(index) => transfer_id(Uuid::from_u128(id.0), *index),
                None => TransferId::try_from(id.0).map_err(|error| Failure {
                    code: ExitCode::from(2),
                    error: error.into(),
                })?,
            };
            let Some(found) = ledger.transfer(id).await? else {
                return Ok(missing(&format!("transfer {id}")));
            };
            show(args.json, &transfer(&found), &transfer_json(&found))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn show(json: bool, rows: &[(&'static str, String)], value: &Value) -> Result<(), Failure> {
    if json {
        print(&serde_json::to_string(value)?);
    } else {
        print(&facts(rows));
    }
    Ok(())
}

fn missing(what: &str) -> ExitCode {
    eprintln!("settlenet: there is no {what}");
    ExitCode::from(NO_SUCH_THING)
}

fn account(name: &AccountName, audited: &Audited) -> Vec<(&'static str, String)> {
    let (found, sums) = (&audited.account, &audited.account.balances);
    vec![
        ("account", name.to_string()),
        ("id", found.id.to_string()),
        ("ledger", found.ledger.to_string()),
        ("code", found.code.to_string()),
        ("never negative", found.never_negative.to_string()),
        ("debits posted", sums.debits_posted.to_string()),
        ("credits posted", sums.credits_posted.to_string()),
        ("debits pending", sums.debits_pending.to_string()),
        ("credits pending", sums.credits_pending.to_string()),
        ("balance", sums.posted().to_string()),
        ("created", found.at.to_rfc3339()),
        (
            "as its name says",
            audited.wrong.unwrap_or("yes").to_owned(),
        ),
    ]
}

fn account_json(name: &AccountName, audited: &Audited) -> Value {
    let (found, sums) = (&audited.account, &audited.account.balances);
    json!({
        "account": name.to_string(),
        "id": found.id.to_string(),
        "ledger": found.ledger,
        "code": found.code,
        "never_negative": found.never_negative,
        "history": found.history,
        "debits_posted": sums.debits_posted.to_string(),
        "credits_posted": sums.credits_posted.to_string(),
        "debits_pending": sums.debits_pending.to_string(),
        "credits_pending": sums.credits_pending.to_string(),
        "balance": sums.posted().to_string(),
        "created_at": found.at,
        "wrong": audited.wrong,
    })
}

fn transfer(found: &TransferRecord) -> Vec<(&'static str, String)> {
    let (kind, of) = kind(found.kind);
    vec![
        ("transfer", found.id.to_string()),
        ("kind", kind.to_owned()),
        ("of", of.map_or_else(|| "-".to_owned(), |of| of.to_string())),
        ("debit", found.debit.to_string()),
        ("credit", found.credit.to_string()),
        ("amount", found.amount.to_string()),
        ("ledger", found.ledger.to_string()),
        ("code", code(found.code)),
        ("operation", found.operation.to_string()),
        ("at", found.at.to_rfc3339()),
    ]
}

fn transfer_json(found: &TransferRecord) -> Value {
    let (kind, of) = kind(found.kind);
    json!({
        "id": found.id.to_string(),
        "kind": kind,
        "of": of.map(|of| of.to_string()),
        "debit_account_id": found.debit.to_string(),
        "credit_account_id": found.credit.to_string(),
        "amount": found.amount.to_string(),
        "ledger": found.ledger,
        "code": found.code,
        "operation": found.operation,
        "at": found.at,
    })
}

const fn kind(kind: TransferKind) -> (&'static str, Option<TransferId>) {
    match kind {
        TransferKind::Single => ("moved", None),
        TransferKind::Hold => ("hold", None),
        TransferKind::Post(of) => ("post", Some(of)),
        TransferKind::Void(of) => ("void", Some(of)),
    }
}

fn code(number: u16) -> String {
    match TransferCode::from_number(number) {
        Some(code) => format!("{number} {code:?}"),
        None => format!("{number}, which is none of ours"),
    }
}
