//! Invariant 1, as far as debts are netted: whatever settles of obligations is a request, or an
//! applied proposal or round, and these have settled exactly what they say.

use std::collections::BTreeSet;

use super::{
    BETWEEN_LOOKS, Finding, InvariantReport, LOOKS, REQUESTS_PAGE, Reconcile, ReconcileError,
};
use crate::domain::ids::{NettingProposalId, NettingRoundId};
use crate::stores::master::audit::netting::{self as audit, Cleared, Netted, SideSum, Taken};

/// Lines of a round that are looked at together.
const LINES_PAGE: u32 = 5_000;

/// What is looked at together, and looked at again where something seems wrong.
enum Page {
    Subjects(Vec<String>),
    Proposals(Vec<Netted>),
    Rounds(Vec<Cleared>),
}

impl Reconcile {
    /// Reports settlements that nothing stands for, and nettings that have not settled what they
    /// say.
    ///
    /// # Errors
    /// The master's.
    pub(super) async fn netted(&self, report: &mut InvariantReport) -> Result<(), ReconcileError> {
        let (master, limit) = (&self.systems.master, REQUESTS_PAGE);
        let is_full = |count: usize| count == limit as usize;
        let mut last: Option<String> = None;
        loop {
            let page = audit::subjects(master, last.as_deref(), limit).await?;
            let full = is_full(page.len());
            last = page.last().cloned();
            self.look_at(Page::Subjects(page), report).await?;
            if !full {
                break;
            }
        }
        let mut last = None;
        loop {
            let page = audit::proposals(master, last, limit).await?;
            let full = is_full(page.len());
            last = page.last().map(|one| one.id);
            self.look_at(Page::Proposals(page), report).await?;
            if !full {
                break;
            }
        }
        let mut last = None;
        loop {
            let page = audit::rounds(master, last, limit).await?;
            let full = is_full(page.len());
            last = page.last().map(|one| one.id);
            self.look_at(Page::Rounds(page), report).await?;
            if !full {
                return Ok(());
            }
        }
    }

    /// Reports what is wrong of a page at every look.
    async fn look_at(
        &self,
        page: Page,
        report: &mut InvariantReport,
    ) -> Result<(), ReconcileError> {
        let mut found = self.faults_of(&page).await?;
        for _ in 1..LOOKS {
            if found.is_empty() {
                break;
            }
            tokio::time::sleep(BETWEEN_LOOKS).await;
            let again = self.faults_of(&page).await?;
            found.retain(|one| again.contains(one));
        }
        for finding in found {
            report.broken(finding);
        }
        Ok(())
    }

    async fn faults_of(&self, page: &Page) -> Result<Vec<Finding>, ReconcileError> {
        match page {
            Page::Subjects(subjects) => self.stray_subjects(subjects).await,
            Page::Proposals(proposals) => self.proposal_faults(proposals).await,
            Page::Rounds(rounds) => self.round_faults(rounds).await,
        }
    }

    /// Those of some subjects of settlements that are neither requests that are there nor nettings
    /// that were applied.
    async fn stray_subjects(&self, subjects: &[String]) -> Result<Vec<Finding>, ReconcileError> {
        let master = &self.systems.master;
        let proposals: Vec<NettingProposalId> = parsed(subjects);
        let rounds: Vec<NettingRoundId> = parsed(subjects);
        let mut stand = self.there(subjects.iter().map(String::as_str)).await?;
        let applied = audit::applied_proposals(master, &proposals).await?;
        stand.extend(applied.iter().map(NettingProposalId::to_string));
        let applied = audit::applied_rounds(master, &rounds).await?;
        stand.extend(applied.iter().map(NettingRoundId::to_string));
        let strays = subjects.iter().filter(|subject| !stand.contains(*subject));
        let found = strays.map(|subject| {
            let what = match subject.get(..3) {
                Some("NP-" | "MN-") => "has settled debts, and was not applied",
                Some("NR-" | "OR-") => "has settled debts, and there is no such request",
                _ => "has settled debts, and is neither a request nor a netting",
            };
            Finding::new(subject, what)
        });
        Ok(found.collect())
    }

    /// Whether proposals have settled what they say of either side, and nothing else.
    async fn proposal_faults(&self, proposals: &[Netted]) -> Result<Vec<Finding>, ReconcileError> {
        let subjects: Vec<String> = proposals.iter().map(|one| one.id.to_string()).collect();
        let sums = audit::side_sums(&self.systems.master, &subjects).await?;
        let mut found = Vec::new();
        for (one, subject) in proposals.iter().zip(&subjects) {
            let sums = sums.get(subject).map_or(&[][..], Vec::as_slice);
            if let Some(what) = proposal_fault(one, sums) {
                found.push(Finding::new(subject, what));
            }
        }
        Ok(found)
    }

    async fn round_faults(&self, rounds: &[Cleared]) -> Result<Vec<Finding>, ReconcileError> {
        let mut found = Vec::new();
        for round in rounds {
            if let Some(what) = self.round_fault(round).await? {
                found.push(Finding::new(round.id, what));
            }
        }
        Ok(found)
    }

    /// The first obligation of which a round has not settled what its lines reduce.
    async fn round_fault(&self, round: &Cleared) -> Result<Option<String>, ReconcileError> {
        let master = &self.systems.master;
        let (subject, revision) = (round.id.to_string(), round.revision);
        let mut cleared = 0;
        let mut last = None;
        loop {
            let lines = audit::reduced(master, round, last, LINES_PAGE).await?;
            let full = lines.len() == LINES_PAGE as usize;
            let to = lines.last().map(|line| line.obligation);
            let to = to.filter(|_| full);
            // One more than may be there, so that one too many is seen.
            let rows = audit::settled(master, &subject, last, to, LINES_PAGE + 1).await?;
            let not_in = |one: &&Taken, others: &[Taken]| others.binary_search(one).is_err();
            if let Some(line) = lines.iter().find(|line| not_in(line, &rows)) {
                let Taken { obligation, amount } = line;
                return Ok(Some(format!(
                    "revision {revision} takes {amount} off {obligation}, and it has not settled so"
                )));
            }
            if let Some(row) = rows.iter().find(|row| not_in(row, &lines)) {
                let id = row.obligation;
                return Ok(Some(format!(
                    "it settles {id}, of which revision {revision} takes nothing"
                )));
            }
            cleared += lines
                .iter()
                .map(|line| u128::from(line.amount))
                .sum::<u128>();
            if !full {
                break;
            }
            last = to;
        }
        if round.cleared == Some(cleared) {
            return Ok(None);
        }
        let stated = round
            .cleared
            .map_or_else(|| "nothing".to_owned(), |sum| sum.to_string());
        Ok(Some(format!(
            "it has settled {cleared}; revision {revision} clears {stated}"
        )))
    }
}

/// Those of some subjects that are ids of a kind.
fn parsed<Id: std::str::FromStr + Ord>(subjects: &[String]) -> Vec<Id> {
    let ids: BTreeSet<Id> = subjects
        .iter()
        .filter_map(|text| text.parse().ok())
        .collect();
    ids.into_iter().collect()
}

/// What is wrong of what a proposal has settled, if anything is.
fn proposal_fault(one: &Netted, sums: &[SideSum]) -> Option<String> {
    if sums.iter().any(|sum| sum.partial > 0) {
        return Some("it has settled in part only, or not at all".to_owned());
    }
    let between = |debtor, creditor| {
        let sum = sums.iter().find(|sum| {
            sum.debtor == Some(debtor)
                && sum.creditor == Some(creditor)
                && sum.currency_code.as_deref() == Some(one.currency_code.as_str())
        });
        sum.map_or(0, |sum| sum.settled)
    };
    let sides = [
        between(one.proposer, one.counterparty),
        between(one.counterparty, one.proposer),
    ];
    let netted = u128::from(one.netted.unwrap_or_default());
    if sums.len() > 2 || netted == 0 || sides != [netted; 2] {
        let [here, there] = sides;
        let all: u128 = sums.iter().map(|sum| sum.settled).sum();
        let others = all - here - there;
        return Some(format!(
            "has settled {here} of the proposer's debts, {there} of the other's and {others} of others, and not {netted} of each side"
        ));
    }
    None
}
