//! The ledger of record, `TigerBeetle`: the one place that names its types.
//!
//! Every call can be repeated: ids are derived from what they stand for (see
//! [`crate::domain::ledger`]), and the ledger itself says of a repeat that it is one. So a call
//! whose answer is unknown is simply made again, and the way forward never needs to know more.
//! The way back does: a hold that timed out may still be on its way, so it is first *burned*.
//!
//! Concurrent calls are batched by the client; collecting them here as well was measured, at 1,
//! 64 and 512 callers, and won nothing.

mod chain;
mod outcome;
mod record;
mod session;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use tigerbeetle_unofficial::error::{
    CreateAccountErrorKind, CreateAccountsError, CreateTransferErrorKind, CreateTransfersError,
};
use tigerbeetle_unofficial::{Account, Transfer, account, transfer};
use uuid::Uuid;

use crate::domain::ids::BrokerId;
use crate::domain::ledger::{
    AccountName, AccountRule, Balances, LedgerAccountId, TransferCode, TransferId, account_id,
    nobody,
};
use crate::domain::money::CurrencyCode;

pub use chain::{ChainOutcome, Leg, Movement};
pub use outcome::{BurnOutcome, HoldOutcome, LedgerError, SettleOutcome};
pub use record::{AccountRecord, TransferKind, TransferRecord};

use outcome::{Settle, SettleAnswer};
use session::Sessions;

/// Events per request: a server started with `--development` takes 253 at most.
const CHUNK: usize = 250;

/// Requests under way for one bulk call.
const CHUNKS_AT_ONCE: usize = 8;

/// How to reach the ledger, and the bounds on its use.
#[derive(Clone, Debug)]
pub struct LedgerConfig {
    pub cluster_id: u128,
    /// Of every replica, in the cluster's order.
    pub addresses: Vec<SocketAddr>,
    /// Deadline of every request; a call makes one, now and then two (bulk ones many). The first
    /// of a process takes about 0.6 s.
    pub timeout: Duration,
    /// Requests under way at once; what comes after waits, within its deadline.
    pub calls_max: usize,
    /// Accounts remembered as existing, so that they aren't created again.
    pub accounts_remembered_max: usize,
}

impl LedgerConfig {
    /// The usual bounds: 5 s per request, 8,192 of them under way, 100,000 accounts remembered.
    #[must_use]
    pub fn new(cluster_id: u128, addresses: Vec<SocketAddr>) -> Self {
        Self {
            cluster_id,
            addresses,
            timeout: Duration::from_secs(5),
            calls_max: 8_192,
            accounts_remembered_max: 100_000,
        }
    }
}

/// An account and the ledger number of its currency.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AccountSpec {
    pub name: AccountName,
    pub ledger: u32,
}

/// A pending transfer: the amount leaves neither account, and neither can spend it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    pub id: TransferId,
    pub debit: AccountName,
    pub credit: AccountName,
    /// Minor units; greater than 0.
    pub amount: u64,
    /// The currency's ledger number.
    pub ledger: u32,
    pub code: TransferCode,
    /// The saga or intent.
    pub operation: Uuid,
}

/// The ledger. Clones share one client: the server allows a process few.
#[derive(Clone, Debug)]
pub struct Ledger {
    sessions: Arc<Sessions>,
    known: Arc<Mutex<HashMap<LedgerAccountId, u32>>>,
    known_max: usize,
}

impl Ledger {
    /// Starts the client. It doesn't wait for the server; [`Ledger::ping`] does.
    ///
    /// # Errors
    /// [`LedgerError::Client`] where it doesn't start.
    pub fn connect(config: &LedgerConfig) -> Result<Self, LedgerError> {
        Ok(Self {
            sessions: Arc::new(Sessions::open(config.clone())?),
            known: Arc::default(),
            known_max: config.accounts_remembered_max,
        })
    }

    /// Asks something that changes nothing, to hear whether the ledger answers.
    ///
    /// # Errors
    /// [`LedgerError::Unknown`] where it doesn't in time.
    pub async fn ping(&self) -> Result<(), LedgerError> {
        self.lookup_accounts(vec![nobody().get()]).await.map(drop)
    }

    /// Creates what isn't there yet, with the code and rule of its name.
    ///
    /// # Errors
    /// [`LedgerError::Integrity`] where one exists with another ledger, code or rule; the others
    /// have been created all the same. [`LedgerError::Unknown`] without an answer.
    pub async fn ensure_accounts(&self, specs: &[AccountSpec]) -> Result<(), LedgerError> {
        let wanted: Vec<Account> = specs
            .iter()
            .filter(|spec| !self.is_known(spec))
            .map(account_of)
            .collect();
        for chunk in wanted.chunks(CHUNK) {
            let failed = self.create_accounts(chunk.to_vec()).await?;
            for (index, account) in chunk.iter().enumerate() {
                match failed.get(&index) {
                    None | Some(CreateAccountErrorKind::Exists) => self.remember(account),
                    Some(_) => {}
                }
            }
            let wrong = failed
                .into_iter()
                .find(|(_, kind)| !matches!(kind, CreateAccountErrorKind::Exists));
            if let Some((index, kind)) = wrong {
                let id = chunk.get(index).map_or(0, Account::id);
                return Err(outcome::account_error(id, kind));
            }
        }
        Ok(())
    }

    /// Submits a hold, after its accounts.
    ///
    /// # Errors
    /// [`LedgerError::Unknown`] without an answer: hold again, or burn on the way back.
    /// [`LedgerError::Integrity`] where the id has something else. [`LedgerError::Invalid`] for
    /// an amount of 0, equal accounts and the like.
    pub async fn hold(&self, hold: &Hold) -> Result<HoldOutcome, LedgerError> {
        if hold.amount == 0 {
            return Err(LedgerError::Invalid {
                id: hold.id.get(),
                found: "an amount of 0".to_owned(),
            });
        }
        let accounts = [&hold.debit, &hold.credit].map(|name| AccountSpec {
            name: name.clone(),
            ledger: hold.ledger,
        });
        self.ensure_accounts(&accounts).await?;
        let transfer = pending(hold, account_id(&hold.debit));
        let answer = self.create_transfer("hold", transfer).await?;
        if let Some(
            CreateTransferErrorKind::DebitAccountNotFound
            | CreateTransferErrorKind::CreditAccountNotFound,
        ) = answer
        {
            // Only a ledger restored from a backup lacks what was there a moment ago.
            tracing::error!(id = %hold.id, "an account of this hold has gone from the ledger");
            self.forget(&accounts);
        }
        outcome::hold_outcome(hold.id.get(), answer)
    }

    /// Posts a hold in full. `settle` is the one id that its post and its void share, so that
    /// the ledger makes them exclude each other; [`SettleOutcome::Voided`] says that this post
    /// has lost.
    ///
    /// Only once the hold is known to have landed: a post that comes first spends `settle` for
    /// ever, and a hold that lands afterwards can be neither posted nor voided by it.
    ///
    /// # Errors
    /// [`LedgerError::Unknown`] without an answer. [`LedgerError::Integrity`] where `settle` has
    /// something else, or was spent before the hold landed.
    pub async fn post(
        &self,
        hold: TransferId,
        settle: TransferId,
    ) -> Result<SettleOutcome, LedgerError> {
        self.settle(hold, settle, Settle::Post).await
    }

    /// Gives back what a hold holds. [`SettleOutcome::Posted`] says that the post was first.
    ///
    /// Only once the hold is known to have landed (held, or [`BurnOutcome::Landed`]). It looks
    /// for the hold before it submits anything, so that one that comes too early answers
    /// [`SettleOutcome::HoldMissing`] and spends nothing; but a hold still on its way may land
    /// after that, which only [`Ledger::burn`] rules out.
    ///
    /// # Errors
    /// As [`Ledger::post`].
    pub async fn void(
        &self,
        hold: TransferId,
        settle: TransferId,
    ) -> Result<SettleOutcome, LedgerError> {
        if self.transfer(hold).await?.is_none() {
            return Ok(SettleOutcome::HoldMissing);
        }
        self.settle(hold, settle, Settle::Void).await
    }

    /// Makes sure that a hold whose fate is unknown never lands, by spending its id on a pending
    /// transfer from an account that doesn't exist; or finds that it has landed.
    ///
    /// # Errors
    /// [`LedgerError::Unknown`] without an answer: burn again. [`LedgerError::Integrity`] where
    /// the id has something else than a hold.
    pub async fn burn(&self, hold: &Hold) -> Result<BurnOutcome, LedgerError> {
        let answer = self
            .create_transfer("burn", pending(hold, nobody()))
            .await?;
        outcome::burn_outcome(hold.id.get(), answer)
    }

    /// What a broker is owed less what it owes in the network is [`Balances::posted`] of this,
    /// in minor units; what is held on top of it is [`Balances::pending`].
    ///
    /// # Errors
    /// As [`Ledger::balances`].
    pub async fn position(
        &self,
        broker: BrokerId,
        currency: &CurrencyCode,
        ledger: u32,
    ) -> Result<Balances, LedgerError> {
        let name = AccountName::position(broker, currency);
        let balances = self.balances(&[AccountSpec { name, ledger }]).await?;
        Ok(balances.into_iter().next().unwrap_or_default())
    }

    /// The balances of many accounts, in their order; zeros for one that was never created.
    ///
    /// # Errors
    /// [`LedgerError::Integrity`] where one has another ledger or code than its name says.
    /// [`LedgerError::Unknown`] without an answer.
    pub async fn balances(&self, specs: &[AccountSpec]) -> Result<Vec<Balances>, LedgerError> {
        let ids: Vec<u128> = specs
            .iter()
            .map(|spec| account_id(&spec.name).get())
            .collect();
        let chunks: Vec<Vec<u128>> = ids.chunks(CHUNK).map(<[u128]>::to_vec).collect();
        let found: Vec<Vec<Account>> = stream::iter(chunks)
            .map(|chunk| self.lookup_accounts(chunk))
            .buffered(CHUNKS_AT_ONCE)
            .try_collect()
            .await?;
        let found: HashMap<u128, Account> = found
            .into_iter()
            .flatten()
            .map(|account| (account.id(), account))
            .collect();
        let balances_of = |spec| match found.get(&account_id_of(spec)) {
            None => Ok(Balances::default()),
            Some(account) => record::balances(account, &account_of(spec)),
        };
        specs.iter().map(balances_of).collect()
    }

    /// An account as it stands, where there is one.
    ///
    /// # Errors
    /// [`LedgerError::Unknown`] without an answer.
    pub async fn account(&self, id: LedgerAccountId) -> Result<Option<AccountRecord>, LedgerError> {
        let found = self.lookup_accounts(vec![id.get()]).await?;
        found.first().map(record::account).transpose()
    }

    /// A transfer, where there is one.
    ///
    /// # Errors
    /// [`LedgerError::Unknown`] without an answer.
    pub async fn transfer(&self, id: TransferId) -> Result<Option<TransferRecord>, LedgerError> {
        Ok(self.transfers(&[id]).await?.into_iter().next().flatten())
    }

    /// Many transfers, in the order of their ids; none where there is none.
    ///
    /// # Errors
    /// [`LedgerError::Unknown`] without an answer.
    pub async fn transfers(
        &self,
        ids: &[TransferId],
    ) -> Result<Vec<Option<TransferRecord>>, LedgerError> {
        let chunks: Vec<Vec<u128>> = ids
            .chunks(CHUNK)
            .map(|chunk| chunk.iter().map(|id| id.get()).collect())
            .collect();
        let found: Vec<Vec<Transfer>> = stream::iter(chunks)
            .map(|chunk| self.lookup_transfers(chunk))
            .buffered(CHUNKS_AT_ONCE)
            .try_collect()
            .await?;
        let found: HashMap<u128, Transfer> = found
            .into_iter()
            .flatten()
            .map(|transfer| (transfer.id(), transfer))
            .collect();
        let record_of = |id: &TransferId| found.get(&id.get()).map(record::transfer).transpose();
        ids.iter().map(record_of).collect()
    }

    async fn settle(
        &self,
        hold: TransferId,
        settle: TransferId,
        way: Settle,
    ) -> Result<SettleOutcome, LedgerError> {
        let transfer = Transfer::new(settle.get()).with_pending_id(hold.get());
        let (call, transfer) = match way {
            // The greatest amount posts all of it.
            Settle::Post => {
                let flags = transfer::Flags::POST_PENDING_TRANSFER;
                ("post", transfer.with_amount(u128::MAX).with_flags(flags))
            }
            Settle::Void => {
                let flags = transfer::Flags::VOID_PENDING_TRANSFER;
                ("void", transfer.with_flags(flags))
            }
        };
        let answer = self.create_transfer(call, transfer).await?;
        match outcome::settle_answer(settle.get(), way, answer)? {
            SettleAnswer::Known(outcome) => Ok(outcome),
            SettleAnswer::Elsewhere(outcome) => {
                tracing::error!(%hold, %settle, ?outcome, "this hold was settled under another id");
                Ok(outcome)
            }
            SettleAnswer::OtherKind => self.settled_as(hold, settle).await,
            SettleAnswer::Spent => match self.transfer(hold).await? {
                None => Ok(SettleOutcome::HoldMissing),
                Some(_) => Err(LedgerError::Integrity {
                    id: settle.get(),
                    found: format!("spent before its hold {hold} landed, which stays pending"),
                }),
            },
        }
    }

    /// How a hold was settled, told by the transfer that has the shared id.
    async fn settled_as(
        &self,
        hold: TransferId,
        settle: TransferId,
    ) -> Result<SettleOutcome, LedgerError> {
        match self.transfer(settle).await?.map(|record| record.kind) {
            Some(TransferKind::Post(of)) if of == hold => Ok(SettleOutcome::Posted),
            Some(TransferKind::Void(of)) if of == hold => Ok(SettleOutcome::Voided),
            other => Err(LedgerError::Integrity {
                id: settle.get(),
                found: format!("{other:?}, neither post nor void of {hold}"),
            }),
        }
    }

    async fn create_transfer(
        &self,
        call: &'static str,
        transfer: Transfer,
    ) -> Result<Option<CreateTransferErrorKind>, LedgerError> {
        self.sessions
            .call(call, |client| async move {
                match client.create_transfers(vec![transfer]).await {
                    Ok(()) => Ok(None),
                    Err(CreateTransfersError::Send(error)) => Err(error.into()),
                    Err(CreateTransfersError::Api(errors)) => Ok(errors.as_slice().first().map(
                        tigerbeetle_unofficial::error::CreateTransfersIndividualApiError::kind,
                    )),
                    Err(other) => Err(other.to_string().into()),
                }
            })
            .await
    }

    /// What failed, by its place in the request.
    async fn create_accounts(
        &self,
        accounts: Vec<Account>,
    ) -> Result<HashMap<usize, CreateAccountErrorKind>, LedgerError> {
        self.sessions
            .call("create accounts", |client| {
                let accounts = accounts.clone();
                async move {
                    match client.create_accounts(accounts).await {
                        Ok(()) => Ok(HashMap::new()),
                        Err(CreateAccountsError::Send(error)) => Err(error.into()),
                        Err(CreateAccountsError::Api(errors)) => Ok(errors
                            .as_slice()
                            .iter()
                            .map(|error| (error.index() as usize, error.kind()))
                            .collect()),
                        Err(other) => Err(other.to_string().into()),
                    }
                }
            })
            .await
    }

    async fn lookup_accounts(&self, ids: Vec<u128>) -> Result<Vec<Account>, LedgerError> {
        self.sessions
            .call("look up accounts", |client| {
                let ids = ids.clone();
                async move { Ok(client.lookup_accounts(ids).await?) }
            })
            .await
    }

    async fn lookup_transfers(&self, ids: Vec<u128>) -> Result<Vec<Transfer>, LedgerError> {
        self.sessions
            .call("look up transfers", |client| {
                let ids = ids.clone();
                async move { Ok(client.lookup_transfers(ids).await?) }
            })
            .await
    }

    fn is_known(&self, spec: &AccountSpec) -> bool {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&account_id(&spec.name)) == Some(&spec.ledger)
    }

    fn remember(&self, account: &Account) {
        let Ok(id) = LedgerAccountId::try_from(account.id()) else {
            return;
        };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= self.known_max {
            // To forget costs a round trip per account, nothing else.
            known.clear();
        }
        known.insert(id, account.ledger());
    }

    fn forget(&self, specs: &[AccountSpec]) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        for spec in specs {
            known.remove(&account_id(&spec.name));
        }
    }
}

fn account_id_of(spec: &AccountSpec) -> u128 {
    account_id(&spec.name).get()
}

fn account_of(spec: &AccountSpec) -> Account {
    let flags = match spec.name.owner().rule() {
        AccountRule::Free => account::Flags::HISTORY,
        AccountRule::NeverNegative => {
            account::Flags::HISTORY | account::Flags::DEBITS_MUST_NOT_EXCEED_CREDITS
        }
    };
    let code = spec.name.owner().code();
    let mut account = Account::new(account_id_of(spec), 1, code).with_flags(flags);
    // Not through the constructor, which panics at 0: that is for the server to refuse.
    account.as_raw_mut().ledger = spec.ledger;
    account
}

/// A hold as the ledger takes it. It has no timeout: one that passed could be neither posted
/// nor voided.
fn pending(hold: &Hold, debit: LedgerAccountId) -> Transfer {
    Transfer::new(hold.id.get())
        .with_debit_account_id(debit.get())
        .with_credit_account_id(account_id(&hold.credit).get())
        .with_amount(hold.amount.into())
        .with_user_data_128(hold.operation.as_u128())
        .with_ledger(hold.ledger)
        .with_code(hold.code.number())
        .with_flags(transfer::Flags::PENDING)
}
