//! `settlenet ids`: the ledger's ids, computed from what they stand for.

use std::process::ExitCode;

use clap::Subcommand;
use serde::Serialize;
use uuid::Uuid;

use super::{Failure, print};
use crate::domain::ledger::{
    AccountName, account_id, account_uuid, transfer_id, transfer_input, transfer_uuid,
};

/// Print the id of a ledger account or transfer
///
/// Needs no server and no configuration: ids are computed from names (UUID
/// version 5), so that an outside auditor finds any record in the ledger alone.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    of: Of,
    /// Print one JSON object (the number, of 128 bits, is a string there)
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Of {
    /// An account, by its name
    Account {
        /// Such as broker.1.position.USD, merchant.7.settlement.THB or system.revenue.THB
        name: AccountName,
    },
    /// A transfer of a saga or intent
    Transfer {
        /// The saga's or intent's uuid
        uuid: Uuid,
        /// Which of its transfers, from 0
        index: u32,
    },
}

#[derive(Serialize)]
struct Derived {
    /// What the id is derived from.
    input: String,
    uuid: Uuid,
    /// The same 128 bits as the ledger's number, in decimal.
    tb_id: String,
}

pub(super) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let derived = match &args.of {
        Of::Account { name } => Derived {
            input: name.to_string(),
            uuid: account_uuid(name),
            tb_id: account_id(name).to_string(),
        },
        Of::Transfer { uuid, index } => Derived {
            input: transfer_input(*uuid, *index),
            uuid: transfer_uuid(*uuid, *index),
            tb_id: transfer_id(*uuid, *index).to_string(),
        },
    };
    if args.json {
        print(&serde_json::to_string(&derived)?);
    } else {
        print(&format!(
            "input  {}\nuuid   {}\ntb_id  {}",
            derived.input, derived.uuid, derived.tb_id
        ));
    }
    Ok(ExitCode::SUCCESS)
}
