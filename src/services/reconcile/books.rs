//! Invariant 2: each book in itself, and its reservations against the promises in the master.

use std::collections::{BTreeMap, BTreeSet};

use futures::{FutureExt as _, StreamExt as _, stream};
use uuid::Uuid;

use super::{
    BETWEEN_LOOKS, BOOKS_AT_ONCE, Finding, InvariantReport, LOOKS, PAGE, Progress, REQUESTS_PAGE,
    Reconcile, ReconcileError,
};
use crate::domain::book::Reservation;
use crate::domain::chain::Verified;
use crate::domain::ids::{AccountId, BrokerId};
use crate::domain::request::Request;
use crate::services::books::walk;
use crate::stores::StoreError;
use crate::stores::book;
use crate::stores::master::{audit, requests};
use crate::stores::pm::intents;
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
            last = page.last().map_or(last, |placed| placed.broker);
            let looks: Vec<_> = page
                .iter()
                .filter(|placed| !placed.provisioning)
                .map(|placed| self.one_book(placed.broker).boxed())
                .collect();
            let mut looks = stream::iter(looks).buffer_unordered(BOOKS_AT_ONCE);
            while let Some(of_book) = looks.next().await {
                report.absorb(of_book);
                report.count(progress);
            }
            drop(looks);
            if page.len() < PAGE as usize {
                return Ok(report);
            }
        }
    }

    async fn one_book(&self, broker: BrokerId) -> InvariantReport {
        let mut report = InvariantReport::new(2, "");
        let mut found = match self.book_in_itself(broker).await {
            Ok(found) => found,
            Err(error) => {
                report.unchecked(Finding::new(subject(broker), error));
                return report;
            }
        };
        match self.lasting_promises(broker).await {
            Ok(lasting) => found.extend(lasting),
            Err(error) => report.unchecked(Finding::new(subject(broker), error)),
        }
        for finding in found {
            report.broken(finding);
        }
        report
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
        let scope = self.systems.router.book(broker).await?;
        let mut read = scope.read().await?;
        let rows = book::reservations_held(&mut read).await?;
        read.end().await?;
        let mut held: BTreeMap<Uuid, Vec<Reservation>> = BTreeMap::new();
        for ((saga_id, _), reservation) in rows {
            held.entry(saga_id).or_default().push(reservation);
        }
        let mut found = Vec::new();
        for request in self.promising(broker).await? {
            let Some(saga_id) = request.reservation_saga_id else {
                continue;
            };
            let id = request.id;
            let reserved = held.remove(&saga_id).unwrap_or_default();
            if request.saga_id.is_some() {
                continue;
            }
            let mut reserved: Vec<(AccountId, u64)> = reserved
                .iter()
                .map(|one| (one.account, one.amount))
                .collect();
            let all = request.promises().into_iter();
            let mut promised: Vec<(AccountId, u64)> = all
                .filter(|(account, _)| account.broker == broker)
                .map(|(account, amount)| (account.id(), amount))
                .collect();
            reserved.sort_unstable();
            promised.sort_unstable();
            if reserved != promised {
                found.push(Finding::new(
                    subject(broker),
                    format!(
                        "{id} promises {}, and {} is reserved for it",
                        in_words(&promised),
                        in_words(&reserved)
                    ),
                ));
            }
        }
        let left: Vec<(Uuid, Vec<Reservation>)> = held.into_iter().collect();
        for page in left.chunks(REQUESTS_PAGE as usize) {
            self.unpromised(broker, page, &mut found).await?;
        }
        Ok(found)
    }

    /// The broker's requests whose reservations stand.
    async fn promising(&self, broker: BrokerId) -> Result<Vec<Request>, StoreError> {
        let master = &self.systems.master;
        let ids = audit::promising(master, broker).await?;
        let mut all = Vec::with_capacity(ids.len());
        for page in ids.chunks(REQUESTS_PAGE as usize) {
            for (_, request) in requests::some(master, page).await? {
                all.push(request?);
            }
        }
        Ok(all)
    }

    /// Of what is held and no request promises, what no running saga may be changing.
    async fn unpromised(
        &self,
        broker: BrokerId,
        held: &[(Uuid, Vec<Reservation>)],
        found: &mut Vec<Finding>,
    ) -> Result<(), StoreError> {
        let subject_of = |reserved: &[Reservation]| {
            let first = reserved.first();
            first.map_or_else(String::new, |one| one.subject.clone())
        };
        let subjects: Vec<String> = held.iter().map(|(_, all)| subject_of(all)).collect();
        let sagas = audit::sagas_of_all(&self.systems.master, &subjects).await?;
        let busy: BTreeSet<String> = sagas
            .into_iter()
            .filter(|(_, saga)| !saga.status.is_terminal())
            .map(|(subject, _)| subject)
            .collect();
        let ids: Vec<Uuid> = held.iter().map(|(id, _)| *id).collect();
        let paying = intents::many(&self.systems.pm, &ids).await?;
        let is_payment = |id: Uuid| {
            let mut paying = paying.iter();
            paying.any(|intent| {
                intent.id == id && intent.broker == broker && !intent.status.is_over()
            })
        };
        for ((saga_id, reserved), of) in held.iter().zip(&subjects) {
            if busy.contains(of) || is_payment(*saga_id) {
                continue;
            }
            let sum: u64 = reserved.iter().map(|one| one.amount).sum();
            found.push(Finding::new(
                subject(broker),
                format!("{sum} is reserved by saga {saga_id} for {of}, which promises nothing"),
            ));
        }
        Ok(())
    }
}

fn in_words(amounts: &[(AccountId, u64)]) -> String {
    let words: Vec<String> = amounts
        .iter()
        .map(|(account, amount)| format!("{amount} on {account}"))
        .collect();
    if words.is_empty() {
        "nothing".to_owned()
    } else {
        words.join(" and ")
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
