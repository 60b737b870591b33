//! Chains of transfers: all of one land, or none does.

use tigerbeetle_unofficial::error::{CreateTransferErrorKind, CreateTransfersError};
use tigerbeetle_unofficial::{Transfer, transfer};
use uuid::Uuid;

use super::outcome::{LedgerError, SettleOutcome, transfer_error};
use super::record::TransferKind;
use super::{AccountSpec, Hold, Ledger, account_id, pending};
use crate::domain::ledger::{AccountName, TransferCode, TransferId};

/// A transfer that moves an amount at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Movement {
    pub id: TransferId,
    pub debit: AccountName,
    pub credit: AccountName,
    /// Minor units; greater than 0.
    pub amount: u64,
    /// The currency's ledger number.
    pub ledger: u32,
    pub code: TransferCode,
    /// The intent.
    pub operation: Uuid,
}

/// One transfer of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leg {
    Hold(Hold),
    /// Posts a hold in full. `settle` is the id that its post and its void share.
    Post {
        hold: TransferId,
        settle: TransferId,
    },
    /// Gives back what a hold holds.
    Void {
        hold: TransferId,
        settle: TransferId,
    },
    Move(Movement),
}

/// What became of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChainOutcome {
    /// All of it has landed, now or in an earlier try.
    Landed,
    /// An account hasn't got the amount; nothing has landed.
    InsufficientFunds,
    /// An id of it was refused before: this chain can never land.
    NeverLands,
    /// A hold of it was settled the other way, by whoever was first.
    Settled(SettleOutcome),
}

impl Leg {
    const fn id(&self) -> TransferId {
        match self {
            Self::Hold(hold) => hold.id,
            Self::Post { settle, .. } | Self::Void { settle, .. } => *settle,
            Self::Move(movement) => movement.id,
        }
    }

    fn accounts(&self) -> Vec<AccountSpec> {
        let both = |debit: &AccountName, credit: &AccountName, ledger| {
            let spec = |name: &AccountName| AccountSpec {
                name: name.clone(),
                ledger,
            };
            vec![spec(debit), spec(credit)]
        };
        match self {
            Self::Hold(hold) => both(&hold.debit, &hold.credit, hold.ledger),
            Self::Move(movement) => both(&movement.debit, &movement.credit, movement.ledger),
            Self::Post { .. } | Self::Void { .. } => Vec::new(),
        }
    }

    fn transfer(&self) -> Transfer {
        match self {
            Self::Hold(hold) => pending(hold, account_id(&hold.debit)),
            Self::Post { hold, settle } => Transfer::new(settle.get())
                .with_pending_id(hold.get())
                .with_amount(u128::MAX)
                .with_flags(transfer::Flags::POST_PENDING_TRANSFER),
            Self::Void { hold, settle } => Transfer::new(settle.get())
                .with_pending_id(hold.get())
                .with_flags(transfer::Flags::VOID_PENDING_TRANSFER),
            Self::Move(movement) => Transfer::new(movement.id.get())
                .with_debit_account_id(account_id(&movement.debit).get())
                .with_credit_account_id(account_id(&movement.credit).get())
                .with_amount(movement.amount.into())
                .with_user_data_128(movement.operation.as_u128())
                .with_ledger(movement.ledger)
                .with_code(movement.code.number()),
        }
    }
}

impl Ledger {
    /// Submits a chain, after its accounts. A repeat of one that has landed says so.
    ///
    /// # Errors
    /// [`LedgerError::Unknown`] without an answer: the same chain again is always safe.
    /// [`LedgerError::Integrity`] where an id has something else, or a part of the chain has
    /// landed without the rest. [`LedgerError::Invalid`] for an amount of 0, equal accounts and
    /// the like.
    pub async fn chain(&self, legs: &[Leg]) -> Result<ChainOutcome, LedgerError> {
        let accounts: Vec<_> = legs.iter().flat_map(Leg::accounts).collect();
        self.ensure_accounts(&accounts).await?;
        let last = legs.len().saturating_sub(1);
        let linked = |(at, leg): (usize, &Leg)| {
            let transfer = leg.transfer();
            if at == last {
                return transfer;
            }
            let flags = transfer.flags() | transfer::Flags::LINKED;
            transfer.with_flags(flags)
        };
        let transfers: Vec<Transfer> = legs.iter().enumerate().map(linked).collect();
        let Some((at, kind)) = self.first_refusal(transfers).await? else {
            return Ok(ChainOutcome::Landed);
        };
        let leg = legs.get(at).ok_or_else(|| LedgerError::Invalid {
            id: 0,
            found: format!("an answer for transfer {at} of {}", legs.len()),
        })?;
        self.refused(legs, leg, kind).await
    }

    /// What a refusal of one of its transfers means for the chain.
    async fn refused(
        &self,
        legs: &[Leg],
        leg: &Leg,
        kind: CreateTransferErrorKind,
    ) -> Result<ChainOutcome, LedgerError> {
        use CreateTransferErrorKind as K;
        let id = leg.id();
        match kind {
            // The first of a chain that has landed; the others are not even looked at then.
            K::Exists => self.all_landed(legs).await,
            K::ExceedsCredits | K::ExceedsDebits => Ok(ChainOutcome::InsufficientFunds),
            K::IdAlreadyFailed
            | K::DebitAccountNotFound
            | K::CreditAccountNotFound
            | K::DebitAccountAlreadyClosed
            | K::CreditAccountAlreadyClosed => Ok(ChainOutcome::NeverLands),
            K::ExistsWithDifferentFlags if matches!(leg, Leg::Post { .. } | Leg::Void { .. }) => {
                let settled = match self.transfer(id).await?.map(|record| record.kind) {
                    Some(TransferKind::Post(_)) => SettleOutcome::Posted,
                    Some(TransferKind::Void(_)) => SettleOutcome::Voided,
                    other => {
                        let found = format!("{other:?}, neither post nor void");
                        return Err(LedgerError::Integrity {
                            id: id.get(),
                            found,
                        });
                    }
                };
                Ok(ChainOutcome::Settled(settled))
            }
            K::PendingTransferNotFound => Ok(ChainOutcome::Settled(SettleOutcome::HoldMissing)),
            K::PendingTransferAlreadyPosted => Ok(ChainOutcome::Settled(SettleOutcome::Posted)),
            K::PendingTransferAlreadyVoided => Ok(ChainOutcome::Settled(SettleOutcome::Voided)),
            other => Err(transfer_error(id.get(), other)),
        }
    }

    async fn all_landed(&self, legs: &[Leg]) -> Result<ChainOutcome, LedgerError> {
        let ids: Vec<TransferId> = legs.iter().map(Leg::id).collect();
        let found = self.transfers(&ids).await?;
        let missing = ids.iter().zip(&found).find(|(_, found)| found.is_none());
        match missing {
            None => Ok(ChainOutcome::Landed),
            Some((id, _)) => Err(LedgerError::Integrity {
                id: id.get(),
                found: "missing, though another of its chain is there".to_owned(),
            }),
        }
    }

    /// The transfer that a chain was refused for, and why; `None` where it has landed.
    async fn first_refusal(
        &self,
        transfers: Vec<Transfer>,
    ) -> Result<Option<(usize, CreateTransferErrorKind)>, LedgerError> {
        self.sessions
            .call("chain", |client| {
                let transfers = transfers.clone();
                async move {
                    match client.create_transfers(transfers).await {
                        Ok(()) => Ok(None),
                        Err(CreateTransfersError::Send(error)) => Err(error.into()),
                        Err(CreateTransfersError::Api(errors)) => {
                            let told = errors.as_slice().iter();
                            let mut told = told.map(|error| (error.index() as usize, error.kind()));
                            let of_others =
                                |kind| matches!(kind, CreateTransferErrorKind::LinkedEventFailed);
                            Ok(told.find(|(_, kind)| !of_others(*kind)))
                        }
                        Err(other) => Err(other.to_string().into()),
                    }
                }
            })
            .await
    }
}
