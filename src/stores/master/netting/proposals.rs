//! `netting_proposal`: what two brokers have proposed to each other.

use chrono::{DateTime, Utc};
use sqlx::{FromRow, MySql, QueryBuilder};

use crate::domain::ids::{BrokerId, NettingProposalId};
use crate::domain::netting_proposal::{Proposal, ProposalStatus};
use crate::stores::StoreError;
use crate::stores::error::corrupt;
use crate::stores::master::settlements::Debts;
use crate::stores::master::{MasterTx, failed};
use crate::stores::pool::Pool;
use crate::stores::sql::push_after;

#[derive(FromRow)]
struct Row {
    proposal_id: u64,
    proposer_id: u64,
    counterparty_id: u64,
    currency_code: String,
    most: Option<u64>,
    status: String,
    netted: Option<u64>,
    proposed_by: String,
    created_at: DateTime<Utc>,
    expires_at: DateTime<Utc>,
    ended_by: Option<String>,
    ended_at: Option<DateTime<Utc>>,
}

impl Row {
    fn read(self) -> Result<Proposal, StoreError> {
        let id = NettingProposalId::from_bits(self.proposal_id);
        let bad = |column: &str| corrupt("netting_proposal", format!("{id}: {column}"));
        Ok(Proposal {
            id,
            proposer: self.proposer_id,
            counterparty: self.counterparty_id,
            currency: self
                .currency_code
                .parse()
                .map_err(|_| bad("currency_code"))?,
            most: self.most,
            status: ProposalStatus::parse(&self.status).ok_or_else(|| bad("status"))?,
            netted: self.netted,
            proposed_by: self.proposed_by,
            created_at: self.created_at,
            expires_at: self.expires_at,
            ended_by: self.ended_by,
            ended_at: self.ended_at,
        })
    }
}

macro_rules! columns {
    () => {
        "proposal_id, proposer_id, counterparty_id, currency_code, most, status, netted, \
         proposed_by, created_at, expires_at, ended_by, ended_at"
    };
}

/// # Errors
/// The master's; a duplicate where the id is taken.
pub async fn insert(tx: &mut MasterTx, proposal: &Proposal) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO netting_proposal
             (proposal_id, proposer_id, counterparty_id, currency_code, most, status,
              proposed_by, created_at, expires_at)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(proposal.id.bits())
    .bind(proposal.proposer)
    .bind(proposal.counterparty)
    .bind(proposal.currency.as_str())
    .bind(proposal.most)
    .bind(proposal.status.as_str())
    .bind(&proposal.proposed_by)
    .bind(proposal.created_at)
    .bind(proposal.expires_at)
    .execute(tx)
    .await
    .map_err(failed)?;
    Ok(())
}

/// # Errors
/// The master's, or a row that can't be read.
pub async fn get(master: &Pool, id: NettingProposalId) -> Result<Option<Proposal>, StoreError> {
    let row: Option<Row> = sqlx::query_as(concat!(
        "SELECT ",
        columns!(),
        " FROM netting_proposal WHERE proposal_id = ?"
    ))
    .bind(id.bits())
    .fetch_optional(master)
    .await
    .map_err(failed)?;
    row.map(Row::read).transpose()
}

/// The same, locked until the transaction ends.
///
/// # Errors
/// The master's, or a row that can't be read.
pub async fn lock(
    tx: &mut MasterTx,
    id: NettingProposalId,
) -> Result<Option<Proposal>, StoreError> {
    let row: Option<Row> = sqlx::query_as(concat!(
        "SELECT ",
        columns!(),
        " FROM netting_proposal WHERE proposal_id = ? FOR UPDATE"
    ))
    .bind(id.bits())
    .fetch_optional(tx)
    .await
    .map_err(failed)?;
    row.map(Row::read).transpose()
}

/// Where a page of a list ended: the next begins after it.
pub type After = (DateTime<Utc>, NettingProposalId);

/// What a broker has proposed and what was proposed to it, newest first.
///
/// # Errors
/// The master's, or a row that can't be read.
pub async fn list(
    master: &Pool,
    broker: BrokerId,
    status: Option<ProposalStatus>,
    after: Option<After>,
    limit: u32,
) -> Result<Vec<Proposal>, StoreError> {
    let mut builder = QueryBuilder::<MySql>::new("");
    for (number, side) in ["proposer_id", "counterparty_id"].into_iter().enumerate() {
        builder.push(if number == 0 { "(" } else { " UNION ALL (" });
        builder
            .push(concat!(
                "SELECT ",
                columns!(),
                " FROM netting_proposal WHERE "
            ))
            .push(side)
            .push(" = ")
            .push_bind(broker);
        if let Some(status) = status {
            builder.push(" AND status = ").push_bind(status.as_str());
        }
        if let Some((created_at, id)) = after {
            let last = (created_at, id.bits());
            push_after(&mut builder, ("created_at", "proposal_id"), last);
        }
        builder
            .push(" ORDER BY created_at DESC, proposal_id DESC LIMIT ")
            .push_bind(limit)
            .push(")");
    }
    builder
        .push(" ORDER BY created_at DESC, proposal_id DESC LIMIT ")
        .push_bind(limit);
    let rows: Vec<Row> = builder
        .build_query_as()
        .fetch_all(master)
        .await
        .map_err(failed)?;
    rows.into_iter().map(Row::read).collect()
}

/// Ends a proposal that is locked and open. `netted` is by how much each side's debts have fallen.
///
/// # Errors
/// The master's.
pub async fn end(
    tx: &mut MasterTx,
    id: NettingProposalId,
    status: ProposalStatus,
    netted: Option<u64>,
    by: &str,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    sqlx::query(
        "UPDATE netting_proposal SET status = ?, netted = ?, ended_by = ?, ended_at = ?
         WHERE proposal_id = ? AND status = 'proposed'",
    )
    .bind(status.as_str())
    .bind(netted)
    .bind(by)
    .bind(now)
    .bind(id.bits())
    .execute(tx)
    .await
    .map_err(failed)?;
    Ok(())
}

/// What of a debt is active and nothing has reserved, in minor units.
///
/// # Errors
/// The master's, or a sum that can't be read.
pub async fn free(master: &Pool, debts: &Debts) -> Result<u128, StoreError> {
    let sum: String = sqlx::query_scalar(
        "SELECT CAST(COALESCE(SUM(remaining_amount - reserved_amount), 0) AS CHAR)
         FROM obligation WHERE debtor_broker_id = ? AND creditor_broker_id = ?
           AND currency_code = ? AND status = 'active'",
    )
    .bind(debts.debtor)
    .bind(debts.creditor)
    .bind(debts.currency.as_str())
    .fetch_one(master)
    .await
    .map_err(failed)?;
    super::wide("obligation", &sum)
}
