//! Taking rounds to their end: recomputed where less is left, and applied.
//!
//! | it dies | what is there | who goes on |
//! |---|---|---|
//! | before the last approval commits | `proposed` | the broker approves again |
//! | before the application commits | `approved`, and nothing settled | a worker |
//! | after it | `applied`, with every reduction | nobody needs to |
//! | before a recomputation commits | `recomputing` | a worker |
//! | after it | a smaller round, `proposed` or `approved` | its parties, or a worker |

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;

use super::reading::not_of_the_root;
use super::rounds::lock;
use super::{NettingError, NettingService, corrupt, retried};
use crate::domain::ids::{BrokerId, NettingRoundId};
use crate::domain::netting::certificate::{Format, Input, Line};
use crate::domain::netting_round::{Round, RoundStatus};
use crate::runtime::failpoint;
use crate::stores::StoreError;
use crate::stores::master::alerts::{self, NewAlert};
use crate::stores::master::netting::lines::RevisionKey;
use crate::stores::master::netting::{due, lines};
use crate::stores::master::{self, MasterTx, settlements};

/// Lines that are read at once.
const PAGE: u32 = 20_000;
/// Steps that one drive takes: recomputed, approved by all, found stale, and so on. The worker
/// goes on after it.
const STEPS: u32 = 8;
/// What nobody has touched for so long has been left behind by whoever had it.
const LEFT_AFTER: chrono::Duration = chrono::Duration::seconds(5);
/// What an admin is told of a round that can't be applied.
pub const STUCK_ALERT: &str = "netting_stuck";

impl NettingService {
    /// Goes on with rounds that were left behind; gives how many there were. One that can't be
    /// gone on with is told of, and holds up no other.
    ///
    /// # Errors
    /// The master's, where it can't be reached.
    pub async fn go_on(&self, limit: u32) -> Result<usize, NettingError> {
        let since = self.clock.now() - LEFT_AFTER;
        let left = due::left_behind(&self.master, since, limit).await?;
        for id in &left {
            match self.drive(*id).await {
                Err(NettingError::Store(error)) if error.is_unavailable() => {
                    return Err(error.into());
                }
                Err(error) if error.passes() => {
                    tracing::info!(%error, round = %id, "is in others' hands");
                }
                Err(error) => self.stuck(*id, &error).await?,
                Ok(()) => {}
            }
        }
        Ok(left.len())
    }

    /// Drives a round in a task of its own, and waits for it for a while.
    pub(super) async fn driven(&self, id: NettingRoundId) {
        let this = self.clone();
        let task = tokio::spawn(async move {
            if let Err(error) = this.drive(id).await {
                tracing::warn!(%error, round = %id, "is left to the worker");
            }
        });
        let wait: Duration = self.rules.wait;
        // Whatever has become of it stands in its row.
        let _ = tokio::time::timeout(wait, task).await;
    }

    /// Takes a round as far as it goes without anybody's answer.
    async fn drive(&self, id: NettingRoundId) -> Result<(), NettingError> {
        for _ in 0..STEPS {
            match self.round(id).await?.status {
                RoundStatus::Recomputing => retried(|| self.recompute(id)).await?,
                RoundStatus::Approved => retried(|| self.apply(id)).await?,
                RoundStatus::Proposed
                | RoundStatus::Applied
                | RoundStatus::Failed
                | RoundStatus::Cancelled
                | RoundStatus::Expired => break,
            }
        }
        Ok(())
    }

    /// Applies a round that all have approved, in one transaction: whoever reads sees all of its
    /// reductions or none. Where less is left of an obligation than is to be cleared of it, the
    /// round is to be recomputed instead.
    async fn apply(&self, id: NettingRoundId) -> Result<(), NettingError> {
        failpoint::at("netting.apply.before");
        let mut tx = master::begin(&self.master.patient()).await?;
        let mut round = lock(&mut tx, id).await?;
        if round.status != RoundStatus::Approved {
            return Ok(());
        }
        let now = self.clock.now();
        let key = (id, round.revision);
        let reduced = check_root(&mut tx, &round).await?;
        let found = lines::lock_reduced(&mut tx, key, &round.currency).await?;
        failpoint::at("netting.apply.locked");
        let whole = found
            .iter()
            .all(|line| line.stands && line.free >= line.reduction);
        if !whole || found.len() as u64 != reduced {
            let to = RoundStatus::Recomputing;
            self.change(&mut tx, &mut round, to, "", now).await?;
            master::commit(tx).await?;
            failpoint::at("netting.stale.after");
            return Ok(());
        }
        let settled = lines::settle(&mut tx, key, now).await?;
        failpoint::at("netting.apply.settled");
        let lowered = lines::reduce(&mut tx, key).await?;
        failpoint::at("netting.apply.reduced");
        if (settled, lowered) != (reduced, reduced) {
            let what = format!("{id}: {reduced} lines, {settled} settled, {lowered} lowered");
            return Err(corrupt(what).into());
        }
        settlements::end_settled(&mut tx, &id.to_string()).await?;
        let to = RoundStatus::Applied;
        self.change(&mut tx, &mut round, to, "applying", now)
            .await?;
        alerts::resolve(&mut tx, STUCK_ALERT, &id.to_string(), now).await?;
        failpoint::at("netting.apply.commit");
        master::commit(tx).await?;
        failpoint::at("netting.apply.after");
        Ok(())
    }

    /// A person has to look: the round waits, and is tried again later.
    async fn stuck(&self, id: NettingRoundId, error: &NettingError) -> Result<(), NettingError> {
        tracing::error!(%error, round = %id, "can't be gone on with");
        let now = self.clock.now();
        let mut tx = master::begin(&self.master).await?;
        due::put_off(&mut tx, id, now).await?;
        let alert = NewAlert {
            kind: STUCK_ALERT,
            subject: id.to_string(),
            message: format!("the netting round {id} can't be gone on with: {error}"),
            details: json!({ "error": error.to_string() }),
        };
        alerts::raise(&mut tx, &alert, now).await?;
        Ok(master::commit(tx).await?)
    }
}

/// Checks that the lines of a round are those of its root, that their reductions move nobody's net
/// position and are what the round clears, a page at a time; gives how many are reduced.
async fn check_root(tx: &mut MasterTx, round: &Round) -> Result<u64, StoreError> {
    let key = (round.id, round.revision);
    let mut input = Input::new(Format::NEW);
    let mut reduced = 0;
    let mut cleared = 0_u128;
    let mut moved: BTreeMap<BrokerId, i128> = BTreeMap::new();
    each_line(tx, key, |line| {
        input.push(line);
        reduced += u64::from(line.reduction > 0);
        cleared += u128::from(line.reduction);
        *moved.entry(line.debtor).or_default() += i128::from(line.reduction);
        *moved.entry(line.creditor).or_default() -= i128::from(line.reduction);
    })
    .await?;
    if input.root() != round.sums.root {
        // Proposed before there was the new format.
        let mut input = Input::new(Format::V1);
        each_line(tx, key, |line| input.push(line)).await?;
        if input.root() != round.sums.root {
            return Err(not_of_the_root(round.id));
        }
    }
    if cleared != round.sums.cleared || moved.values().any(|moved| *moved != 0) {
        let id = round.id;
        let what = format!("the reductions of {id} move net positions, or are not what it clears");
        return Err(corrupt(what));
    }
    Ok(reduced)
}

async fn each_line(
    tx: &mut MasterTx,
    key: RevisionKey,
    mut work: impl FnMut(&Line),
) -> Result<(), StoreError> {
    let mut after = None;
    loop {
        let page = lines::page(tx, key, after, PAGE).await?;
        let Some(last) = page.last() else {
            return Ok(());
        };
        after = Some(last.id);
        page.iter().for_each(&mut work);
    }
}
