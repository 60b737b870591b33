//! Invariant 3: what brokers owe each other in the master is what the ledger says.
//!
//! Two systems can't be read in one moment. So each is read twice, around the other: where
//! nothing has changed in between, all of it is of one moment. A position that never stands
//! still for that long is reported as unchecked, not as a break.

use std::collections::{BTreeMap, BTreeSet};

use super::{BETWEEN_LOOKS, Finding, InvariantReport, PAGE, Progress, Reconcile, ReconcileError};
use crate::domain::ids::BrokerId;
use crate::domain::ledger::{AccountName, Balances, HOLD_INDEX, SETTLE_INDEX, transfer_id};
use crate::domain::money::Currency;
use crate::stores::ledger::{AccountSpec, TransferKind};
use crate::stores::master::audit::{self, InFlight};

/// Tries to read a position while nothing changes it.
const STILL_TRIES: u32 = 20;

type Key = (BrokerId, String);

/// What the master says of some brokers.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Owed {
    nets: BTreeMap<Key, i128>,
    in_flight: Vec<InFlight>,
}

/// What the ledger should show of one broker and currency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Expected {
    posted: i128,
    pending: i128,
}

impl Reconcile {
    /// Checks every broker in every currency.
    ///
    /// # Errors
    /// The master's or the ledger's.
    pub async fn positions(
        &self,
        progress: &(dyn Fn(Progress) + Sync),
    ) -> Result<InvariantReport, ReconcileError> {
        let mut report =
            InvariantReport::new(3, "claims less debts are the position in the ledger");
        let currencies = self.currencies.all().await?;
        let mut last = 0;
        loop {
            let page = audit::placed(&self.systems.master, last, PAGE).await?;
            let brokers: Vec<BrokerId> = page.iter().map(|placed| placed.broker).collect();
            if let (Some(from), Some(to)) = (brokers.first(), brokers.last()) {
                last = *to;
                self.of_brokers(&brokers, (*from, *to), &currencies, &mut report, progress)
                    .await?;
            }
            if brokers.len() < PAGE as usize {
                return Ok(report);
            }
        }
    }

    async fn of_brokers(
        &self,
        brokers: &[BrokerId],
        range: (BrokerId, BrokerId),
        currencies: &[Currency],
        report: &mut InvariantReport,
        progress: &(dyn Fn(Progress) + Sync),
    ) -> Result<(), ReconcileError> {
        let mut open: Vec<(Key, AccountSpec)> = brokers
            .iter()
            .flat_map(|broker| currencies.iter().map(move |currency| (broker, currency)))
            .map(|(broker, currency)| {
                let spec = AccountSpec {
                    name: AccountName::position(*broker, &currency.code),
                    ledger: currency.ledger,
                };
                ((*broker, currency.code.to_string()), spec)
            })
            .collect();
        let known: BTreeSet<String> = currencies.iter().map(|c| c.code.to_string()).collect();
        for tried in 0..STILL_TRIES {
            if tried > 0 {
                tokio::time::sleep(BETWEEN_LOOKS / 4 * tried).await;
            }
            let specs: Vec<AccountSpec> = open.iter().map(|(_, spec)| spec.clone()).collect();
            let owed = self.owed(range).await?;
            let before = self.systems.ledger.balances(&specs).await?;
            let expected = self.expected(&owed).await?;
            let after = self.systems.ledger.balances(&specs).await?;
            let owed_after = self.owed(range).await?;
            if tried == 0 {
                for (broker, code) in owed.nets.keys().filter(|(_, code)| !known.contains(code)) {
                    let what =
                        format!("obligations in {code}, which is no currency of the network");
                    report.broken(Finding::new(format!("broker {broker}"), what));
                }
            }
            let mut moving = Vec::new();
            for (((key, spec), before), after) in open.into_iter().zip(before).zip(after) {
                if before != after || !owed.same_for(&owed_after, &key) {
                    moving.push((key, spec));
                    continue;
                }
                let expected = expected.get(&key).copied().unwrap_or_default();
                compare(&key, expected, &before, report);
                report.count(progress);
            }
            open = moving;
            if open.is_empty() {
                return Ok(());
            }
        }
        for ((broker, code), _) in open {
            let what = format!("the position in {code} does not stand still for long enough");
            report.unchecked(Finding::new(format!("broker {broker}"), what));
        }
        Ok(())
    }

    async fn owed(&self, (from, to): (BrokerId, BrokerId)) -> Result<Owed, ReconcileError> {
        let master = &self.systems.master;
        let nets = audit::nets(master, from, to).await?;
        let in_flight = audit::in_flight(master, from, to).await?;
        Ok(Owed {
            nets: nets
                .into_iter()
                .map(|net| ((net.broker, net.currency_code), i128::from(net.net)))
                .collect(),
            in_flight,
        })
    }

    /// The obligations that stand, and of those in flight what the ledger has of each.
    async fn expected(&self, owed: &Owed) -> Result<BTreeMap<Key, Expected>, ReconcileError> {
        let mut expected: BTreeMap<Key, Expected> = BTreeMap::new();
        for (key, net) in &owed.nets {
            expected.entry(key.clone()).or_default().posted = *net;
        }
        let ids: Vec<_> = owed
            .in_flight
            .iter()
            .flat_map(|one| [HOLD_INDEX, SETTLE_INDEX].map(|index| transfer_id(one.saga_id, index)))
            .collect();
        let transfers = self.systems.ledger.transfers(&ids).await?;
        for (one, found) in owed.in_flight.iter().zip(transfers.chunks(2)) {
            let kind = |index: usize| {
                found
                    .get(index)
                    .and_then(Option::as_ref)
                    .map(|transfer| transfer.kind)
            };
            let amount = i128::from(one.amount);
            let (posted, pending) = match (kind(0), kind(1)) {
                (_, Some(TransferKind::Post(_))) => (amount, 0),
                (Some(TransferKind::Hold), None) => (0, amount),
                // Voided, not held yet, or nothing that a saga makes.
                (_, Some(TransferKind::Void(_) | TransferKind::Hold | TransferKind::Single))
                | (
                    Some(TransferKind::Single | TransferKind::Post(_) | TransferKind::Void(_))
                    | None,
                    None,
                ) => (0, 0),
            };
            for (broker, sign) in [(one.creditor, 1), (one.debtor, -1)] {
                let of = expected
                    .entry((broker, one.currency_code.clone()))
                    .or_default();
                of.posted += sign * posted;
                of.pending += sign * pending;
            }
        }
        Ok(expected)
    }
}

impl Owed {
    /// Whether two readings say the same of one broker and currency.
    fn same_for(&self, other: &Self, key: &Key) -> bool {
        let of = |owed: &Self| -> Vec<InFlight> {
            owed.in_flight
                .iter()
                .filter(|one| one.currency_code == key.1)
                .filter(|one| one.debtor == key.0 || one.creditor == key.0)
                .cloned()
                .collect()
        };
        self.nets.get(key) == other.nets.get(key) && of(self) == of(other)
    }
}

fn compare(
    (broker, code): &Key,
    expected: Expected,
    found: &Balances,
    report: &mut InvariantReport,
) {
    for (what, expected, found) in [
        ("has posted", expected.posted, found.posted()),
        ("holds", expected.pending, found.pending()),
    ] {
        if expected != found {
            let what = format!("{code}: the ledger {what} {found}, the obligations say {expected}");
            report.broken(Finding::new(format!("broker {broker}"), what));
        }
    }
}
