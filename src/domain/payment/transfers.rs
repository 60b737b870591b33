//! What the ledger must have of a payment, by index: from whom to whom, and how much.

use super::{IntentKind, PspName};
use crate::domain::ledger::{
    AccountName, AccountOwner, LedgerAccountId, NameError, NamePart, TransferCode, account_id,
};
use crate::domain::money::CurrencyCode;

/// A transfer as it must be, where there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    pub debit: LedgerAccountId,
    pub credit: LedgerAccountId,
    /// Minor units.
    pub amount: u64,
    pub code: TransferCode,
}

/// What is known of an intent's money.
#[derive(Clone, Copy, Debug)]
pub struct Money<'a> {
    pub kind: IntentKind,
    pub channel: PspName,
    pub wallet: &'a AccountName,
    pub currency: &'a CurrencyCode,
    /// Minor units.
    pub amount: u64,
    pub fee: u64,
}

/// The provider's account: what is paid through it.
///
/// # Errors
/// Never of the names that there are.
pub fn nostro(psp: PspName, currency: &CurrencyCode) -> Result<AccountName, NameError> {
    let owner = AccountOwner::Nostro(NamePart::new(psp.nostro())?);
    Ok(AccountName::new(owner, currency.clone()))
}

/// The channel's account: what is on its way.
///
/// # Errors
/// Never of the names that there are.
pub fn transit(psp: PspName, currency: &CurrencyCode) -> Result<AccountName, NameError> {
    let owner = AccountOwner::Transit(NamePart::new(psp.as_str())?);
    Ok(AccountName::new(owner, currency.clone()))
}

impl Money<'_> {
    /// Each transfer that an intent may have, by its index; none where there is never one.
    ///
    /// # Errors
    /// Never of the names that there are.
    pub fn transfers(&self) -> Result<[Option<Expected>; 6], NameError> {
        let revenue = AccountName::new(AccountOwner::Revenue, self.currency.clone());
        let [wallet, revenue, nostro, transit] = [
            account_id(self.wallet),
            account_id(&revenue),
            account_id(&nostro(self.channel, self.currency)?),
            account_id(&transit(self.channel, self.currency)?),
        ];
        let moves = |debit, credit, amount, code| {
            (amount > 0).then_some(Expected {
                debit,
                credit,
                amount,
                code,
            })
        };
        let (amount, fee) = (self.amount, self.fee);
        Ok(match self.kind {
            IntentKind::Payout => {
                let held = moves(wallet, transit, amount, TransferCode::PayoutAmount);
                let fee = moves(wallet, revenue, fee, TransferCode::PayoutFee);
                let out = moves(transit, nostro, amount, TransferCode::PayoutOut);
                let back = moves(nostro, wallet, amount, TransferCode::PayoutReturn);
                [held, fee, held, fee, out, back]
            }
            IntentKind::TopUp => {
                let credit = amount.saturating_sub(fee);
                let credit = moves(nostro, wallet, credit, TransferCode::TopUp);
                let fee = moves(nostro, revenue, fee, TransferCode::TopUp);
                [credit, fee, None, None, None, None]
            }
        })
    }
}

/// Each transfer that a payment which came in may have, by its index: to suspense, and from there to
/// the wallet that a person has given it to.
///
/// # Errors
/// Never of the names that there are.
pub fn came_in(
    psp: PspName,
    currency: &CurrencyCode,
    amount: u64,
    wallet: Option<&AccountName>,
) -> Result<[Option<Expected>; 2], NameError> {
    let suspense = AccountName::new(AccountOwner::Suspense, currency.clone());
    let suspense = account_id(&suspense);
    let aside = Expected {
        debit: account_id(&nostro(psp, currency)?),
        credit: suspense,
        amount,
        code: TransferCode::Suspense,
    };
    let out = wallet.map(|wallet| Expected {
        debit: suspense,
        credit: account_id(wallet),
        amount,
        code: TransferCode::SuspenseOut,
    });
    Ok([Some(aside), out])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leaves_and_what_comes_back_are_the_amount_and_the_fee_stays() {
        let (wallet, currency) = (
            "merchant.7.THB".parse().unwrap(),
            "THB".parse::<CurrencyCode>().unwrap(),
        );
        let money = Money {
            kind: IntentKind::Payout,
            channel: PspName::Ipps,
            wallet: &wallet,
            currency: &currency,
            amount: 100,
            fee: 5,
        };
        let all = money.transfers().unwrap();
        let amounts = all.map(|one| one.map(|one| one.amount));
        assert_eq!(
            amounts,
            [Some(100), Some(5), Some(100), Some(5), Some(100), Some(100)]
        );
        let id = |name: &str| account_id(&name.parse().unwrap());
        let ways = |one: Option<Expected>| one.map(|one| (one.debit, one.credit)).unwrap();
        let (transit, nostro) = (id("system.transit.IPPS.THB"), id("system.nostro.ipps.THB"));
        assert_eq!(ways(all[0]), (account_id(&wallet), transit));
        assert_eq!(ways(all[4]), (transit, nostro));
        assert_eq!(ways(all[5]), (nostro, account_id(&wallet)));
        let free = Money { fee: 0, ..money };
        let free = free.transfers().unwrap();
        assert!(free[1].is_none() && free[3].is_none());
        let top_up = Money {
            kind: IntentKind::TopUp,
            channel: PspName::Qp,
            ..money
        };
        let top_up = top_up.transfers().unwrap();
        assert_eq!(
            top_up.map(|one| one.map(|one| one.amount))[..2],
            [Some(95), Some(5)]
        );
    }
}
