//! Wallets: the ledger accounts that payments go out of and come into.

use serde_json::json;
use uuid::Uuid;

use super::{PaymentError, PaymentService};
use crate::domain::canonical::Hash;
use crate::domain::idempotency::{KEY_MAX, is_key};
use crate::domain::ids::{BrokerId, is_partner_uid};
use crate::domain::ledger::{
    AccountName, AccountOwner, Balances, NamePart, TransferCode, transfer_id,
};
use crate::domain::money::{Amount, Currency};
use crate::domain::partner::{Partner, PartnerState};
use crate::stores::ledger::{AccountSpec, ChainOutcome, Leg, Movement};
use crate::stores::master::idempotency::{Intention, Known};
use crate::stores::pm::wallets::{self, Wallet};
use crate::stores::pm::{self, idempotency};

/// Names the funding of a client's key; never changes.
const FUNDING_NS: Uuid = Uuid::from_u128(0x9c20_51ce_7e0d_5d8f_a1b4_3f6d_28e7_0c95);
/// The client of all fundings, since any operator may repeat another's.
const FUNDINGS: &str = "fundings";
/// The longest name that a provider knows a sender by.
const MAX_WALLET_ID: usize = 64;

/// A wallet that is to be.
#[derive(Clone, Debug)]
pub struct NewWallet {
    /// One of the broker's partners; `None` for the broker's own.
    pub partner: Option<String>,
    pub currency: Currency,
    pub ipps_wallet_id: Option<String>,
}

/// A wallet and what is on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalletBalance {
    pub wallet: Wallet,
    pub balances: Balances,
}

impl WalletBalance {
    /// What can be paid out: what is on it less what is held.
    #[must_use]
    pub fn available(&self) -> i128 {
        let held = i128::try_from(self.balances.debits_pending).unwrap_or(i128::MAX);
        self.balances.posted().saturating_sub(held)
    }

    /// Whether there is nothing on it, and nothing is on its way.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let pending = (self.balances.debits_pending, self.balances.credits_pending);
        self.balances.posted() == 0 && pending == (0, 0)
    }
}

/// The account of a broker's own wallet, or of one of its partners'.
///
/// # Errors
/// A partner's uid that is none.
pub fn wallet_name(
    broker: BrokerId,
    partner: Option<&str>,
    currency: &Currency,
) -> Result<AccountName, PaymentError> {
    let owner = match partner {
        None => AccountOwner::Merchant(broker.into()),
        Some(uid) if is_partner_uid(uid) => {
            // A partner's uid is unique within its broker's book only.
            let part = NamePart::new(&format!("{broker}-{uid}"));
            AccountOwner::User(part.map_err(|_| no_uid())?)
        }
        Some(_) => return Err(no_uid()),
    };
    Ok(AccountName::new(owner, currency.code.clone()))
}

fn no_uid() -> PaymentError {
    let rule = "is FO- and 12 hex digits in lower case".to_owned();
    PaymentError::Invalid {
        field: "partner_uid",
        rule,
    }
}

impl PaymentService {
    /// Opens a wallet, or gives the one that there is. Repeating it changes nothing but what the
    /// provider knows the sender by, where that is said.
    ///
    /// # Errors
    /// A partner that the book hasn't got; [`PaymentError::SenderTaken`]; see [`PaymentError`].
    pub async fn open_wallet(
        &self,
        broker: BrokerId,
        new: NewWallet,
    ) -> Result<WalletBalance, PaymentError> {
        let name = wallet_name(broker, new.partner.as_deref(), &new.currency)?;
        if let Some(id) = &new.ipps_wallet_id {
            let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
            if id.is_empty() || id.len() > MAX_WALLET_ID || !id.bytes().all(allowed) {
                let rule = "is 1 to 64 of letters, digits, '-', '_' and '.'".to_owned();
                return Err(PaymentError::Invalid {
                    field: "ipps_wallet_id",
                    rule,
                });
            }
        }
        if let Some(uid) = &new.partner {
            let id = uid.parse().map_err(|_| no_uid())?;
            let partner = self.0.books.partner(broker, id).await?;
            let active = |(partner, _): &(Partner, _)| partner.state == PartnerState::Active;
            if !partner.as_ref().is_some_and(active) {
                let rule = "names no partner of this broker".to_owned();
                return Err(PaymentError::Invalid {
                    field: "partner_uid",
                    rule,
                });
            }
        }
        let spec = AccountSpec {
            name: name.clone(),
            ledger: new.currency.ledger,
        };
        self.0
            .ledger
            .ensure_accounts(std::slice::from_ref(&spec))
            .await?;
        let wallet = Wallet {
            user: match name.owner() {
                AccountOwner::User(part) | AccountOwner::Merchant(part) => part.to_string(),
                _ => broker.to_string(),
            },
            name: name.clone(),
            ledger: new.currency.ledger,
            broker,
            currency: new.currency.code,
            ipps_wallet_id: new.ipps_wallet_id,
            created_at: self.0.clock.now(),
        };
        let mut tx = pm::begin(&self.0.pm).await?;
        if let Some(id) = &wallet.ipps_wallet_id
            && wallets::is_anothers(&mut tx, broker, id).await?
        {
            return Err(PaymentError::SenderTaken { id: id.clone() });
        }
        wallets::put(&mut tx, &wallet).await?;
        pm::commit(tx).await?;
        self.wallet(broker, &name).await
    }

    /// A broker's wallet and what is on it.
    ///
    /// # Errors
    /// [`PaymentError::NoSuchWallet`], also for another broker's.
    pub async fn wallet(
        &self,
        broker: BrokerId,
        name: &AccountName,
    ) -> Result<WalletBalance, PaymentError> {
        let wallet = wallets::get(&self.0.pm, name).await?;
        let wallet = wallet.filter(|wallet| wallet.broker == broker);
        let wallet = wallet.ok_or(PaymentError::NoSuchWallet)?;
        let mut all = self.with_balances(vec![wallet]).await?;
        all.pop().ok_or(PaymentError::NoSuchWallet)
    }

    /// A broker's wallets, by name; `after` is the last of the page before.
    ///
    /// # Errors
    /// The database's and the ledger's.
    pub async fn wallets(
        &self,
        broker: BrokerId,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<WalletBalance>, PaymentError> {
        let found = wallets::list(&self.0.pm, broker, after, limit).await?;
        self.with_balances(found).await
    }

    async fn with_balances(&self, found: Vec<Wallet>) -> Result<Vec<WalletBalance>, PaymentError> {
        let spec = |wallet: &Wallet| AccountSpec {
            name: wallet.name.clone(),
            ledger: wallet.ledger,
        };
        let specs: Vec<AccountSpec> = found.iter().map(spec).collect();
        let balances = self.0.ledger.balances(&specs).await?;
        let both = found.into_iter().zip(balances);
        Ok(both
            .map(|(wallet, balances)| WalletBalance { wallet, balances })
            .collect())
    }

    /// Funds a wallet from the network's own money, for a pilot: `system.equity` to the wallet. A key
    /// is one funding, whoever of the operators says it and from where: the same again moves nothing.
    ///
    /// # Errors
    /// [`PaymentError::KeyReused`] for another wallet or amount under the key;
    /// [`PaymentError::NoSuchWallet`]; [`PaymentError::HasLeft`]; see [`PaymentError`].
    pub async fn fund(
        &self,
        name: &AccountName,
        amount: Amount,
        key: &str,
        by: &str,
    ) -> Result<WalletBalance, PaymentError> {
        if !is_key(key) {
            let rule = format!("is 1 to {KEY_MAX} visible characters of ASCII, without spaces");
            return Err(PaymentError::Invalid { field: "key", rule });
        }
        let meant = json!({ "fund": name.to_string(), "amount_minor": amount.minor() });
        let intention = &Intention {
            client: FUNDINGS.to_owned(),
            key: key.to_owned(),
            fingerprint: Hash::of_json(&meant),
        };
        let wallet = wallets::get(&self.0.pm, name).await?;
        let wallet = wallet.ok_or(PaymentError::NoSuchWallet)?;
        self.0.is_here(wallet.broker).await?;
        let now = self.0.clock.now();
        let key = format!("{}\0{}", intention.client, intention.key);
        let funding = Uuid::new_v5(&FUNDING_NS, key.as_bytes());
        match idempotency::find(&self.0.pm, intention).await? {
            Some(Known::Other) => return Err(PaymentError::KeyReused),
            Some(Known::Same { .. }) => {}
            None => {
                // Before it moves: whoever repeats it after a crash moves the same.
                let mut tx = pm::begin(&self.0.pm).await?;
                let subject = funding.to_string();
                match idempotency::insert(&mut tx, intention, &subject, Some(by), now).await {
                    Ok(()) => pm::commit(tx).await?,
                    Err(error) if error.is_duplicate() => {
                        drop(tx);
                        let known = idempotency::find(&self.0.pm, intention).await?;
                        if known == Some(Known::Other) {
                            return Err(PaymentError::KeyReused);
                        }
                    }
                    Err(error) => return Err(error.into()),
                }
            }
        }
        let equity = AccountName::new(AccountOwner::Equity, wallet.currency.clone());
        let movement = Movement {
            id: transfer_id(funding, 0),
            debit: equity,
            credit: wallet.name.clone(),
            amount: amount.minor(),
            ledger: wallet.ledger,
            code: TransferCode::Funding,
            operation: funding,
        };
        match self.0.ledger.chain(&[Leg::Move(movement)]).await? {
            ChainOutcome::Landed => self.wallet(wallet.broker, name).await,
            ChainOutcome::InsufficientFunds
            | ChainOutcome::NeverLands
            | ChainOutcome::Settled(_) => Err(PaymentError::FundingRefused),
        }
    }
}
