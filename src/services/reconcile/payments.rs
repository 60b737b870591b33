//! Invariant 5: intents, their rows at the provider and the ledger say the same.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::{
    BETWEEN_LOOKS, Finding, InvariantReport, LOOKS, PAGE, Progress, Reconcile, ReconcileError,
};
use crate::domain::ledger::{TransferId, transfer_id};
use crate::domain::payment::evidence::{Standing, Transfer};
use crate::stores::ledger::TransferKind;
use crate::stores::pm::{audit, intents};

/// Transfer indexes of an intent.
const INDEXES: u32 = 6;

impl Reconcile {
    /// Checks every intent.
    ///
    /// # Errors
    /// The payment manager's database's and the ledger's.
    pub async fn payments(
        &self,
        progress: &(dyn Fn(Progress) + Sync),
    ) -> Result<InvariantReport, ReconcileError> {
        let name = "intents, providers' rows and the ledger say the same";
        let mut report = InvariantReport::new(5, name);
        let mut last = Uuid::nil();
        loop {
            let ids = audit::page(&self.systems.pm, last, PAGE).await?;
            let Some(end) = ids.last() else {
                return Ok(report);
            };
            last = *end;
            let mut wrong = self.wrong_payments(&ids).await?;
            // What is read of three systems is not of one moment.
            for _ in 1..LOOKS {
                if wrong.is_empty() {
                    break;
                }
                tokio::time::sleep(BETWEEN_LOOKS).await;
                let again: Vec<Uuid> = wrong.keys().copied().collect();
                let next = self.wrong_payments(&again).await?;
                wrong.retain(|id, what| next.get(id) == Some(what));
            }
            for (id, what) in wrong {
                for what in what {
                    report.broken(Finding::new(format!("intent {id}"), what));
                }
            }
            for _ in &ids {
                report.count(progress);
            }
        }
    }

    /// What is wrong with intents, as far as it looks so now.
    async fn wrong_payments(
        &self,
        ids: &[Uuid],
    ) -> Result<BTreeMap<Uuid, Vec<&'static str>>, ReconcileError> {
        let pm = &self.systems.pm;
        let found = intents::many(pm, ids).await?;
        let states = audit::states(pm, ids).await?;
        let pending = audit::pending(pm, ids).await?;
        let transfers = |id: Uuid| (0..INDEXES).map(move |index| transfer_id(id, index));
        let wanted: Vec<TransferId> = found.iter().flat_map(|one| transfers(one.id)).collect();
        let there = self.systems.ledger.transfers(&wanted).await?;
        let mut wrong = BTreeMap::new();
        for (intent, there) in found.iter().zip(there.chunks(INDEXES as usize)) {
            let mut seen = [None; INDEXES as usize];
            for (slot, record) in seen.iter_mut().zip(there) {
                *slot = record.as_ref().map(|record| match record.kind {
                    TransferKind::Hold => Transfer::Hold,
                    TransferKind::Post(_) => Transfer::Posted,
                    TransferKind::Void(_) => Transfer::Voided,
                    TransferKind::Single => Transfer::Moved,
                });
            }
            let standing = Standing {
                kind: intent.kind,
                status: intent.status,
                has_fee: intent.fee > 0,
                psp: states.get(&intent.id).copied(),
                pending: pending.get(&intent.id).cloned().unwrap_or_default(),
                transfers: seen,
            };
            let what = standing.breaks();
            if !what.is_empty() {
                wrong.insert(intent.id, what);
            }
        }
        Ok(wrong)
    }
}
