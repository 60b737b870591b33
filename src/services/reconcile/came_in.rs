//! Invariant 5, money that came in: each payment is where its row says, and nothing of payments
//! stands without its intent.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::payments::differs;
use super::{
    BETWEEN_LOOKS, Finding, InvariantReport, LOOKS, PAGE, Progress, Reconcile, ReconcileError,
};
use crate::domain::ledger::{TransferId, incoming_index, transfer_id};
use crate::domain::payment::PspState;
use crate::domain::payment::incoming::IncomingStatus;
use crate::domain::payment::transfers;
use crate::stores::ledger::TransferRecord;
use crate::stores::pm::audit::{self, Trace};
use crate::stores::pm::incoming::{self, Beside};

/// Transfer indexes of a payment that came in.
const INDEXES: u32 = 2;

impl Reconcile {
    /// Reports rows that name an intent which is not there: an intent is never deleted.
    ///
    /// # Errors
    /// The payment manager's database's.
    pub(super) async fn payment_strays(
        &self,
        report: &mut InvariantReport,
    ) -> Result<(), ReconcileError> {
        for of in Trace::ALL {
            let mut last = Uuid::nil();
            loop {
                let page = audit::strays(&self.systems.pm, of, last, PAGE).await?;
                let Some(end) = page.last() else { break };
                last = *end;
                for id in page {
                    let what = format!("{} is of it, and there is no such intent", of.table());
                    report.broken(Finding::new(format!("intent {id}"), what));
                }
            }
        }
        Ok(())
    }

    /// Checks every payment that came in.
    ///
    /// # Errors
    /// The payment manager's database's and the ledger's.
    pub(super) async fn came_in(
        &self,
        progress: &(dyn Fn(Progress) + Sync),
    ) -> Result<InvariantReport, ReconcileError> {
        let mut report = InvariantReport::new(5, "what came in is where it is said to be");
        let pm = &self.systems.pm;
        let mut last = Uuid::nil();
        loop {
            let page = incoming::audited(pm, last, None, PAGE).await?;
            let Some(end) = page.last() else {
                return Ok(report);
            };
            last = end.incoming.id;
            let mut wrong = self.wrong_incoming(&page).await?;
            // What is read of two systems is not of one moment.
            for _ in 1..LOOKS {
                if wrong.is_empty() {
                    break;
                }
                tokio::time::sleep(BETWEEN_LOOKS).await;
                let again: Vec<Uuid> = wrong.keys().copied().collect();
                let again = incoming::audited(pm, Uuid::nil(), Some(&again), PAGE).await?;
                let next = self.wrong_incoming(&again).await?;
                wrong.retain(|id, what| next.get(id) == Some(what));
            }
            for (id, what) in wrong {
                for what in what {
                    report.broken(Finding::new(format!("incoming {id}"), what));
                }
            }
            for _ in &page {
                report.count(progress);
            }
        }
    }

    async fn wrong_incoming(
        &self,
        page: &[Beside],
    ) -> Result<BTreeMap<Uuid, Vec<String>>, ReconcileError> {
        let ids = |one: &Beside| {
            let id = one.incoming.id;
            (0..INDEXES).map(move |index| transfer_id(id, index))
        };
        let wanted: Vec<TransferId> = page.iter().flat_map(ids).collect();
        let there = self.systems.ledger.transfers(&wanted).await?;
        let mut wrong = BTreeMap::new();
        for (one, there) in page.iter().zip(there.chunks(INDEXES as usize)) {
            let what = breaks(one, there);
            if !what.is_empty() {
                wrong.insert(one.incoming.id, what);
            }
        }
        Ok(wrong)
    }
}

fn breaks(one: &Beside, there: &[Option<TransferRecord>]) -> Vec<String> {
    let payment = &one.incoming;
    let mut found = Vec::new();
    let mut wrong = |is: bool, what: &str| {
        if is {
            found.push(what.to_owned());
        }
    };
    let has = |index: u32| there.get(index as usize).is_some_and(Option::is_some);
    let (aside, out) = (has(incoming_index::SUSPENSE), has(incoming_index::OUT));
    let given = payment.wallet.is_some();
    wrong(
        out && !given,
        "it was given to a wallet, and nobody has said to whom",
    );
    match payment.status {
        IncomingStatus::Waiting => wrong(
            payment.disputed_at.is_some(),
            "what the provider says of it is not what was credited for it",
        ),
        IncomingStatus::Unknown => wrong(aside && !given, "it was put aside, and its row says not"),
        IncomingStatus::Credited => {
            let by = one.by.as_deref() == Some(payment.payment_id.as_str());
            wrong(
                one.state != Some(PspState::Confirmed) || !by,
                "it is said to be credited, and no top-up was confirmed by it",
            );
            wrong(
                one.wanted != Some(payment.amount),
                "it is said to be credited, and its top-up is of another amount",
            );
            wrong(aside, "it was credited and put aside");
        }
        IncomingStatus::Suspense => wrong(!aside, "it is said to be put aside, and is not"),
        IncomingStatus::Assigned => {
            wrong(!aside, "it was given to a wallet, and never put aside");
            wrong(
                !out,
                "it is said to be given to a wallet, and nothing was moved",
            );
        }
    }
    let expected = transfers::came_in(
        payment.psp,
        &payment.currency,
        payment.amount,
        payment.wallet.as_ref(),
    );
    match expected {
        Err(error) => found.push(error.to_string()),
        Ok(expected) => found.extend((0..).zip(expected).zip(there).filter_map(
            |((index, expected), record)| {
                let record = record.as_ref()?;
                // That there is one at all is said above.
                expected?;
                differs(payment.id, index, payment.ledger, expected, record)
            },
        )),
    }
    found
}
