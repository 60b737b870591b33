//! Invariant 5, the sums: what has passed through the network's own accounts is what all payments
//! together say, so nothing has passed of which there is no payment.
//!
//! The ledger and the database are not read at one moment. What was certain before the ledger was
//! read must be there, and nothing besides what was certain or under way after it.

use std::collections::BTreeMap;

use super::{Finding, InvariantReport, Reconcile, ReconcileError};
use crate::domain::ledger::{AccountName, AccountOwner, Balances};
use crate::domain::money::{Currency, CurrencyCode};
use crate::domain::payment::PspName;
use crate::domain::payment::transfers::{nostro, transit};
use crate::stores::ledger::AccountSpec;
use crate::stores::pm::audit::{self, AllPassed, Passed};

/// What all payments say of an account, in minor units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sums {
    debits: u128,
    credits: u128,
}

impl Reconcile {
    /// Checks transit, nostro, revenue and suspense of every currency that payments were made in.
    ///
    /// # Errors
    /// The payment manager's database's and the ledger's.
    pub(super) async fn passed(&self, report: &mut InvariantReport) -> Result<(), ReconcileError> {
        let pm = &self.systems.pm;
        let least = sums(&audit::passed(pm, true).await?);
        let mut specs = Vec::new();
        for (name, ledger) in least.keys() {
            let Ok(name) = name.parse::<AccountName>() else {
                continue;
            };
            let currency = self.currencies.get(name.currency()).await?;
            let is_its = |currency: &Currency| i32::try_from(currency.ledger) == Ok(*ledger);
            if let Some(currency) = currency.filter(is_its) {
                let ledger = currency.ledger;
                specs.push(AccountSpec { name, ledger });
            } else {
                let what = format!("payments are on ledger {ledger}, which is not its currency's");
                report.broken(Finding::new(name, what));
            }
        }
        let balances = self.systems.ledger.balances(&specs).await?;
        let most = sums(&audit::passed(pm, false).await?);
        for (spec, found) in specs.iter().zip(balances) {
            let key = (
                spec.name.to_string(),
                i32::try_from(spec.ledger).unwrap_or(0),
            );
            let least = least.get(&key).copied().unwrap_or_default();
            let most = most.get(&key).copied().unwrap_or_default();
            for what in outside(least, most, found) {
                report.broken(Finding::new(&spec.name, what));
            }
        }
        Ok(())
    }
}

fn outside(least: Sums, most: Sums, found: Balances) -> Vec<String> {
    let sides = [
        ("taken from", found.debits_posted, least.debits, most.debits),
        (
            "brought to",
            found.credits_posted,
            least.credits,
            most.credits,
        ),
    ];
    let wrong = sides
        .into_iter()
        .filter(|(_, found, least, most)| !(*least..=*most).contains(found));
    wrong
        .map(|(side, found, least, most)| {
            let said = if least == most {
                least.to_string()
            } else {
                format!("{least} to {most}")
            };
            format!("{found} were {side} it, and all payments together say {said}")
        })
        .collect()
}

/// By the account's name and its ledger number.
fn sums(all: &AllPassed) -> BTreeMap<(String, i32), Sums> {
    let mut by_account: BTreeMap<(String, i32), Sums> = BTreeMap::new();
    for ((currency, ledger, psp), passed) in all {
        let (Ok(currency), Some(psp)) = (currency.parse::<CurrencyCode>(), PspName::parse(psp))
        else {
            continue;
        };
        for (name, more) in accounts(psp, &currency, passed) {
            let sums = by_account.entry((name.to_string(), *ledger)).or_default();
            sums.debits += more.debits;
            sums.credits += more.credits;
        }
    }
    by_account
}

fn accounts(psp: PspName, currency: &CurrencyCode, of: &Passed) -> Vec<(AccountName, Sums)> {
    let sums = |debits, credits| Sums { debits, credits };
    let system = |owner| Some(AccountName::new(owner, currency.clone()));
    let all = [
        (transit(psp, currency).ok(), sums(of.out, of.out)),
        (
            nostro(psp, currency).ok(),
            sums(of.back + of.credited + of.aside, of.out),
        ),
        (system(AccountOwner::Revenue), sums(0, of.fees)),
        (system(AccountOwner::Suspense), sums(of.given, of.aside)),
    ];
    all.into_iter()
        .filter_map(|(name, sums)| Some((name?, sums)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_under_way_may_have_passed_and_no_more() {
        let sums = |debits, credits| Sums { debits, credits };
        let found = |debits_posted, credits_posted| Balances {
            debits_posted,
            credits_posted,
            ..Balances::default()
        };
        let (least, most) = (sums(10, 5), sums(10, 9));
        for (balances, count) in [
            (found(10, 5), 0),
            (found(10, 9), 0),
            (found(10, 4), 1),
            (found(10, 10), 1),
            (found(11, 10), 2),
        ] {
            let wrong = outside(least, most, balances);
            assert_eq!(wrong.len(), count, "{balances:?}: {wrong:?}");
        }
    }
}
