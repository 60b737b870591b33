//! What netting has settled, and the proposals and rounds that say so. An application writes both
//! in one transaction, so whichever is read first, the other is there afterwards.

use std::collections::{BTreeMap, BTreeSet};

use super::failed;
use super::strays::among;
use crate::domain::ids::{BrokerId, NettingProposalId, NettingRoundId, ObligationId};
use crate::stores::StoreError;
use crate::stores::error::corrupt;
use crate::stores::pool::Pool;

/// The subjects that have settled of obligations, or are promised to, after one; each once.
///
/// # Errors
/// The master's.
pub async fn subjects(
    master: &Pool,
    after: Option<&str>,
    limit: u32,
) -> Result<Vec<String>, StoreError> {
    let query = match after {
        None => sqlx::query_scalar(
            "SELECT DISTINCT subject FROM obligation_settlement ORDER BY subject LIMIT ?",
        ),
        Some(after) => sqlx::query_scalar(
            "SELECT DISTINCT subject FROM obligation_settlement WHERE subject > ?
             ORDER BY subject LIMIT ?",
        )
        .bind(after.to_owned()),
    };
    query.bind(limit).fetch_all(master).await.map_err(failed)
}

/// Those of some proposals that are applied.
///
/// # Errors
/// The master's.
pub async fn applied_proposals(
    master: &Pool,
    ids: &[NettingProposalId],
) -> Result<BTreeSet<NettingProposalId>, StoreError> {
    let bits: Vec<u64> = ids.iter().map(|id| id.bits()).collect();
    let rows: Vec<(u64,)> = among(
        master,
        "SELECT proposal_id FROM netting_proposal WHERE status = 'applied' AND proposal_id IN (",
        &bits,
        ")",
    )
    .await?;
    let ids = rows.into_iter();
    Ok(ids.map(|(id,)| NettingProposalId::from_bits(id)).collect())
}

/// Those of some rounds that are applied.
///
/// # Errors
/// The master's.
pub async fn applied_rounds(
    master: &Pool,
    ids: &[NettingRoundId],
) -> Result<BTreeSet<NettingRoundId>, StoreError> {
    let bits: Vec<u64> = ids.iter().map(|id| id.bits()).collect();
    let rows: Vec<(u64,)> = among(
        master,
        "SELECT round_id FROM netting_round WHERE status = 'applied' AND round_id IN (",
        &bits,
        ")",
    )
    .await?;
    let ids = rows.into_iter();
    Ok(ids.map(|(id,)| NettingRoundId::from_bits(id)).collect())
}

/// An applied proposal: by how much the debts of either side have fallen, in minor units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Netted {
    pub id: NettingProposalId,
    pub proposer: BrokerId,
    pub counterparty: BrokerId,
    pub currency_code: String,
    pub netted: Option<u64>,
}

/// Applied proposals after an id.
///
/// # Errors
/// The master's.
pub async fn proposals(
    master: &Pool,
    after: Option<NettingProposalId>,
    limit: u32,
) -> Result<Vec<Netted>, StoreError> {
    let rows: Vec<(u64, u64, u64, String, Option<u64>)> = sqlx::query_as(
        "SELECT proposal_id, proposer_id, counterparty_id, currency_code, netted
         FROM netting_proposal FORCE INDEX (PRIMARY)
         WHERE proposal_id >= ? AND status = 'applied' ORDER BY proposal_id LIMIT ?",
    )
    .bind(after.map_or(0, |after| after.bits() + 1))
    .bind(limit)
    .fetch_all(master)
    .await
    .map_err(failed)?;
    let read = |(id, proposer, counterparty, currency_code, netted)| Netted {
        id: NettingProposalId::from_bits(id),
        proposer,
        counterparty,
        currency_code,
        netted,
    };
    Ok(rows.into_iter().map(read).collect())
}

/// What a subject has settled of one broker's debts to another in a currency. Whose debts they are
/// is not there where the obligations are not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SideSum {
    pub debtor: Option<BrokerId>,
    pub creditor: Option<BrokerId>,
    pub currency_code: Option<String>,
    /// Minor units.
    pub settled: u128,
    /// Rows that are not settled whole, as those of netting are.
    pub partial: i64,
}

/// What some subjects have settled, by debtor, creditor and currency.
///
/// # Errors
/// The master's, or a sum that can't be read.
pub async fn side_sums(
    master: &Pool,
    subjects: &[String],
) -> Result<BTreeMap<String, Vec<SideSum>>, StoreError> {
    type Row = (
        String,
        Option<u64>,
        Option<u64>,
        Option<String>,
        String,
        i64,
    );
    let rows: Vec<Row> = among(
        master,
        "SELECT s.subject, o.debtor_broker_id, o.creditor_broker_id, o.currency_code,
                CAST(SUM(s.settled_amount) AS CHAR),
                CAST(SUM(s.status <> 'settled' OR s.settled_amount <> s.amount) AS SIGNED)
         FROM obligation_settlement s LEFT JOIN obligation o ON o.obligation_id = s.obligation_id
         WHERE s.subject IN (",
        subjects,
        ") GROUP BY s.subject, o.debtor_broker_id, o.creditor_broker_id, o.currency_code",
    )
    .await?;
    let mut sums: BTreeMap<String, Vec<SideSum>> = BTreeMap::new();
    for (subject, debtor, creditor, currency_code, settled, partial) in rows {
        let bad = |_| corrupt("obligation_settlement", format!("{subject}: {settled}"));
        let sum = SideSum {
            debtor,
            creditor,
            currency_code,
            settled: settled.parse().map_err(bad)?,
            partial,
        };
        sums.entry(subject).or_default().push(sum);
    }
    Ok(sums)
}

/// An applied round, and what its revision clears in minor units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cleared {
    pub id: NettingRoundId,
    pub revision: u32,
    pub cleared: Option<u128>,
}

/// Applied rounds after an id.
///
/// # Errors
/// The master's, or a sum that can't be read.
pub async fn rounds(
    master: &Pool,
    after: Option<NettingRoundId>,
    limit: u32,
) -> Result<Vec<Cleared>, StoreError> {
    let rows: Vec<(u64, u32, Option<String>)> = sqlx::query_as(
        "SELECT r.round_id, r.revision, CAST(v.cleared AS CHAR)
         FROM netting_round r FORCE INDEX (PRIMARY)
         LEFT JOIN netting_revision v ON v.round_id = r.round_id AND v.revision = r.revision
         WHERE r.round_id >= ? AND r.status = 'applied' ORDER BY r.round_id LIMIT ?",
    )
    .bind(after.map_or(0, |after| after.bits() + 1))
    .bind(limit)
    .fetch_all(master)
    .await
    .map_err(failed)?;
    rows.into_iter()
        .map(|(id, revision, cleared)| {
            let id = NettingRoundId::from_bits(id);
            let cleared = cleared.map(|text| text.parse()).transpose();
            Ok(Cleared {
                id,
                revision,
                cleared: cleared.map_err(|_| corrupt("netting_revision", format!("{id}")))?,
            })
        })
        .collect()
}

/// An obligation, and what is taken off it in minor units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Taken {
    pub obligation: ObligationId,
    pub amount: u64,
}

fn taken((id, amount): (u64, u64)) -> Taken {
    Taken {
        obligation: ObligationId::from_bits(id),
        amount,
    }
}

/// What a round's lines reduce, by obligation, after one.
///
/// # Errors
/// The master's.
pub async fn reduced(
    master: &Pool,
    round: &Cleared,
    after: Option<ObligationId>,
    limit: u32,
) -> Result<Vec<Taken>, StoreError> {
    let rows: Vec<(u64, u64)> = sqlx::query_as(
        "SELECT obligation_id, reduction FROM netting_line FORCE INDEX (PRIMARY)
         WHERE round_id = ? AND revision = ? AND obligation_id >= ? AND reduction > 0
         ORDER BY obligation_id LIMIT ?",
    )
    .bind(round.id.bits())
    .bind(round.revision)
    .bind(after.map_or(0, |after| after.bits() + 1))
    .bind(limit)
    .fetch_all(master)
    .await
    .map_err(failed)?;
    Ok(rows.into_iter().map(taken).collect())
}

/// What a subject has settled, by obligation, after one and up to another: nothing of a row that
/// is not settled whole.
///
/// # Errors
/// The master's.
pub async fn settled(
    master: &Pool,
    subject: &str,
    after: Option<ObligationId>,
    to: Option<ObligationId>,
    limit: u32,
) -> Result<Vec<Taken>, StoreError> {
    let rows: Vec<(u64, u64)> = sqlx::query_as(
        "SELECT obligation_id,
                CAST(IF(status = 'settled' AND amount = settled_amount, amount, 0) AS UNSIGNED)
         FROM obligation_settlement
         WHERE subject = ? AND obligation_id >= ? AND obligation_id <= ?
         ORDER BY obligation_id LIMIT ?",
    )
    .bind(subject)
    .bind(after.map_or(0, |after| after.bits() + 1))
    .bind(to.map_or(u64::MAX, ObligationId::bits))
    .bind(limit)
    .fetch_all(master)
    .await
    .map_err(failed)?;
    Ok(rows.into_iter().map(taken).collect())
}
