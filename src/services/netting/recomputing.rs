//! Working out rounds, and working out smaller ones when less may be cleared than before.

use crate::domain::ids::NettingRoundId;
use crate::domain::netting::certificate::{Format, root};
use crate::domain::netting::measure::measure;
use crate::domain::netting::{Claim, Clearing, clear};
use crate::domain::netting_round::{PartyState, RoundStatus, Sums};
use crate::runtime::failpoint;
use crate::stores::master;
use crate::stores::master::netting::{lines, parties, rounds};

use super::rounds::lock;
use super::{NettingError, NettingService};

/// What claims come to, with the proof.
pub(super) struct Solved {
    pub(super) clearing: Clearing,
    pub(super) sums: Sums,
}

/// Clears the most of some claims. May take a while, so it has a thread of its own.
pub(super) async fn solve(claims: Vec<Claim>) -> Result<Solved, NettingError> {
    let work = tokio::task::spawn_blocking(move || {
        let measure = measure(&claims);
        let clearing = clear(&claims);
        let sums = Sums {
            obligations: clearing.lines.len() as u64,
            total: measure.total,
            cleared: clearing.cleared(),
            bilateral: measure.bilateral,
            bound: measure.bound,
            root: root(Format::NEW, &clearing.lines),
        };
        Solved { clearing, sums }
    });
    work.await.map_err(|_| NettingError::Lost)
}

impl NettingService {
    /// Works out the next revision of a round: of each obligation at most what was to be cleared
    /// of it and what is free now, without whoever has declined. So approvals stand.
    pub(super) async fn recompute(&self, id: NettingRoundId) -> Result<(), NettingError> {
        let round = self.round(id).await?;
        if round.status != RoundStatus::Recomputing {
            return Ok(());
        }
        let patient = self.master.patient();
        let counts = parties::counts(&patient, id).await?;
        let mut declined = counts.iter();
        let declined = declined.find(|(state, _)| *state == PartyState::Declined);
        let declined = declined.map_or(0, |(_, count)| *count);
        let claims = lines::capped(&patient, (id, round.revision)).await?;
        let solved = solve(claims).await?;

        let now = self.clock.now();
        let mut tx = master::begin(&patient).await?;
        let mut locked = lock(&mut tx, id).await?;
        if locked.status != RoundStatus::Recomputing {
            return Ok(());
        }
        let declined_now = parties::count(&mut tx, id, PartyState::Declined).await?;
        if locked.revision != round.revision || declined_now != declined {
            return Err(NettingError::Overtaken);
        }
        if solved.sums.cleared == 0 {
            let to = RoundStatus::Failed;
            self.change(&mut tx, &mut locked, to, "recomputing", now)
                .await?;
        } else {
            locked.revision += 1;
            let key = (id, locked.revision);
            lines::insert(&mut tx, key, &solved.clearing).await?;
            rounds::insert_revision(&mut tx, key, &solved.sums, now).await?;
            rounds::set_revision(&mut tx, key).await?;
            parties::lower(&mut tx, key).await?;
            self.settle_status(&mut tx, &mut locked, now).await?;
        }
        failpoint::at("netting.recompute.commit");
        master::commit(tx).await?;
        failpoint::at("netting.recompute.after");
        Ok(())
    }
}
