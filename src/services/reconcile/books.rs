//! Invariant 2: each book in itself, and its reservations against the promises in the master.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::{
    BETWEEN_LOOKS, Finding, InvariantReport, LOOKS, PAGE, Progress, Reconcile, ReconcileError,
};
use crate::domain::account::AccountRef;
use crate::domain::book::Reservation;
use crate::domain::chain::Verified;
use crate::domain::ids::{AccountId, BrokerId};
use crate::services::books::walk;
use crate::stores::StoreError;
use crate::stores::book;
use crate::stores::master::{audit, requests};
use crate::stores::router::BookRead;

impl Reconcile {
    /// Checks every broker's book.
    ///
    /// # Errors
    /// The master's.
    pub async fn books(
        &self,
        progress: &(dyn Fn(Progress) + Sync),
    ) -> Result<InvariantReport, ReconcileError> {
        let mut report = InvariantReport::new(
            2,
            "each book is a whole chain that its balances follow from",
        );
        let mut last = 0;
        loop {
            let page = audit::placed(&self.systems.master, last, PAGE).await?;
            for placed in &page {
                last = placed.broker;
                if placed.provisioning {
                    continue;
                }
                self.one_book(placed.broker, &mut report).await;
                report.count(progress);
            }
            if page.len() < PAGE as usize {
                return Ok(report);
            }
        }
    }

    async fn one_book(&self, broker: BrokerId, report: &mut InvariantReport) {
        let mut found = match self.book_in_itself(broker).await {
            Ok(found) => found,
            Err(error) => return report.unchecked(Finding::new(subject(broker), error)),
        };
        match self.lasting_promises(broker).await {
            Ok(lasting) => found.extend(lasting),
            Err(error) => report.unchecked(Finding::new(subject(broker), error)),
        }
        for finding in found {
            report.broken(finding);
        }
    }

    /// All that the book says of itself, as of one moment.
    async fn book_in_itself(&self, broker: BrokerId) -> Result<Vec<Finding>, StoreError> {
        let scope = self.systems.router.book(broker).await?;
        let mut read = scope.read().await?;
        let mut found = Vec::new();
        let chain = match walk(&mut read, None, &|_, _| {}).await?.result {
            Ok(verified) => Some(verified),
            Err(fault) => {
                found.push(Finding::new(subject(broker), fault));
                None
            }
        };
        let held = held(&mut read).await?;
        accounts(&mut read, chain, &held, &mut found).await?;
        read.end().await?;
        Ok(found)
    }

    /// What of [`Self::promises`] is still there at every further look.
    async fn lasting_promises(&self, broker: BrokerId) -> Result<Vec<Finding>, StoreError> {
        let mut found = self.promises(broker).await?;
        for _ in 1..LOOKS {
            if found.is_empty() {
                break;
            }
            tokio::time::sleep(BETWEEN_LOOKS).await;
            let next = self.promises(broker).await?;
            found.retain(|finding| next.contains(finding));
        }
        Ok(found)
    }

    /// Reservations that nothing promises, and promises that nothing is reserved for. What a
    /// running saga may be changing is left out.
    async fn promises(&self, broker: BrokerId) -> Result<Vec<Finding>, StoreError> {
        let master = &self.systems.master;
        let scope = self.systems.router.book(broker).await?;
        let mut read = scope.read().await?;
        let rows = book::reservations_held(&mut read).await?;
        read.end().await?;
        let mut held: BTreeMap<Uuid, Vec<Reservation>> = BTreeMap::new();
        for ((saga_id, _), reservation) in rows {
            held.entry(saga_id).or_default().push(reservation);
        }
        let mut found = Vec::new();
        for id in audit::promising(master, broker).await? {
            let Some(request) = requests::get(master, id).await? else {
                continue;
            };
            let Some(saga_id) = request.reservation_saga_id else {
                continue;
            };
            let reserved = held.remove(&saga_id).unwrap_or_default();
            if request.saga_id.is_some() {
                continue;
            }
            let sum: u64 = reserved.iter().map(|one| one.amount).sum();
            let account = request.account_of(request.sender()).map(AccountRef::id);
            let there = reserved.iter().all(|one| Some(one.account) == account);
            if sum != request.debit_amount() || !there {
                found.push(Finding::new(
                    subject(broker),
                    format!(
                        "{id} promises {} on {}, and {sum} is reserved for it",
                        request.debit_amount(),
                        account.map_or_else(String::new, |id| id.to_string()),
                    ),
                ));
            }
        }
        for (saga_id, reserved) in held {
            let of = reserved
                .first()
                .map_or("", |reservation| &reservation.subject);
            let sagas = audit::sagas_of(master, of).await?;
            if sagas.iter().any(|saga| !saga.status.is_terminal()) {
                continue;
            }
            let sum: u64 = reserved.iter().map(|one| one.amount).sum();
            found.push(Finding::new(
                subject(broker),
                format!("{sum} is reserved by saga {saga_id} for {of}, which promises nothing"),
            ));
        }
        Ok(found)
    }
}

fn subject(broker: BrokerId) -> String {
    format!("broker {broker}")
}

/// What is held on each account.
async fn held(read: &mut BookRead) -> Result<BTreeMap<AccountId, i128>, StoreError> {
    let mut held: BTreeMap<AccountId, i128> = BTreeMap::new();
    for (_, reservation) in book::reservations_held(read).await? {
        *held.entry(reservation.account).or_default() += i128::from(reservation.amount);
    }
    Ok(held)
}

/// Compares every account with the entries (where the chain is whole) and the reservations.
async fn accounts(
    read: &mut BookRead,
    chain: Option<Verified>,
    held: &BTreeMap<AccountId, i128>,
    found: &mut Vec<Finding>,
) -> Result<(), StoreError> {
    let broker = read.broker();
    let mut without_account = held.clone();
    let mut not_seen = chain.map(|chain| chain.balances);
    let mut last = None;
    loop {
        let page = book::accounts(read, last, PAGE).await?;
        for (id, state) in &page {
            last = Some(*id);
            let reserved = without_account.remove(id).unwrap_or(0);
            if i128::from(state.balance.reserved) != reserved {
                let says = state.balance.reserved;
                let what = format!("account {id} has reserved {says}, its reservations {reserved}");
                found.push(Finding::new(subject(broker), what));
            }
            if let Some(balances) = &mut not_seen {
                let sum = balances.remove(id).map_or(0, |(_, sum)| sum);
                if state.balance.balance != sum {
                    let says = state.balance.balance;
                    let what = format!("account {id} has a balance of {says}, its entries {sum}");
                    found.push(Finding::new(subject(broker), what));
                }
            }
        }
        if page.len() < PAGE as usize {
            break;
        }
    }
    let missing = without_account
        .into_keys()
        .chain(not_seen.unwrap_or_default().into_keys());
    for id in missing {
        let what = format!("account {id} has entries or reservations and does not exist");
        found.push(Finding::new(subject(broker), what));
    }
    Ok(())
}
