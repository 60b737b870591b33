//! Invariant 1, as far as debts are netted: what was settled without money has a proposal or a round
//! that was applied, and is just what that says.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    BETWEEN_LOOKS, Finding, InvariantReport, LOOKS, REQUESTS_PAGE, Reconcile, ReconcileError,
};
use crate::domain::ids::{BrokerId, NettingProposalId, NettingRoundId};
use crate::domain::netting_proposal::ProposalStatus;
use crate::domain::netting_round::RoundStatus;
use crate::stores::master::audit;
use crate::stores::master::netting::{proposals, rounds};

/// What a subject has settled, by debtor and creditor.
type Sides = BTreeMap<(BrokerId, BrokerId), u64>;

impl Reconcile {
    /// Checks everything that was netted.
    ///
    /// # Errors
    /// The master's.
    pub(super) async fn netted(&self, report: &mut InvariantReport) -> Result<(), ReconcileError> {
        let master = &self.systems.master;
        let mut last = String::new();
        loop {
            let page = audit::netting_subjects(master, &last, REQUESTS_PAGE).await?;
            let mut found = self.netting_faults(&page).await?;
            for _ in 1..LOOKS {
                if found.is_empty() {
                    break;
                }
                tokio::time::sleep(BETWEEN_LOOKS).await;
                let again = self.netting_faults(&page).await?;
                found.retain(|finding| again.contains(finding));
            }
            for finding in found {
                report.broken(finding);
            }
            let full = page.len() == REQUESTS_PAGE as usize;
            match page.into_iter().next_back() {
                Some(subject) if full => last = subject,
                _ => break,
            }
        }
        for subject in audit::applied_without_settling(master, REQUESTS_PAGE).await? {
            report.broken(Finding::new(
                subject,
                "was applied, and has settled nothing",
            ));
        }
        Ok(())
    }

    async fn netting_faults(
        &self,
        subjects: &[String],
    ) -> Result<BTreeSet<Finding>, ReconcileError> {
        let master = &self.systems.master;
        let mut sides: BTreeMap<String, Sides> = BTreeMap::new();
        for (subject, debtor, creditor, settled) in audit::netted_sides(master, subjects).await? {
            let of = sides.entry(subject).or_default();
            of.insert((debtor, creditor), settled);
        }
        let mut found = BTreeSet::new();
        for subject in subjects {
            let of = sides.remove(subject).unwrap_or_default();
            if let Some(what) = self.netting_fault(subject, &of).await? {
                found.insert(Finding::new(subject, what));
            }
        }
        Ok(found)
    }

    async fn netting_fault(
        &self,
        subject: &str,
        sides: &Sides,
    ) -> Result<Option<String>, ReconcileError> {
        let master = &self.systems.master;
        if let Ok(id) = subject.parse::<NettingProposalId>() {
            let proposal = proposals::get(master, id).await?;
            let applied = proposal.filter(|one| one.status == ProposalStatus::Applied);
            let Some(proposal) = applied else {
                return Ok(Some("has settled debts, and was not applied".to_owned()));
            };
            let netted = proposal.netted.unwrap_or(0);
            let pair = (proposal.proposer, proposal.counterparty);
            let right = Sides::from([(pair, netted), ((pair.1, pair.0), netted)]);
            let what = format!("has settled {sides:?}, and not {netted} of each side");
            return Ok((*sides != right).then_some(what));
        }
        if let Ok(id) = subject.parse::<NettingRoundId>() {
            let round = rounds::get(master, id).await?;
            let applied = round.filter(|one| one.status == RoundStatus::Applied);
            let Some(round) = applied else {
                return Ok(Some("has settled debts, and was not applied".to_owned()));
            };
            let odd = audit::unlike_lines(master, subject, (id.bits(), round.revision)).await?;
            let what = format!("{odd} of its lines and of what it has settled are not alike");
            return Ok((odd > 0).then_some(what));
        }
        Ok(Some(
            "has settled debts, and is neither a request nor a netting".to_owned(),
        ))
    }
}
