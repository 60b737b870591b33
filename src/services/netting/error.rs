use crate::domain::ids::{BrokerId, NettingRoundId};
use crate::domain::money::{Currency, format_minor};
use crate::domain::pause::Hindrance;
use crate::domain::{netting_proposal, netting_round};
use crate::services::network::FieldError;
use crate::stores::StoreError;

/// Why a netting came to nothing. Nothing is half done.
#[derive(Debug, thiserror::Error)]
pub enum NettingError {
    #[error(transparent)]
    Field(#[from] FieldError),
    /// Nothing new starts: something is paused, or a broker is not active.
    #[error(transparent)]
    Hindered(#[from] Hindrance),
    #[error(transparent)]
    Proposal(#[from] netting_proposal::Refusal),
    #[error(transparent)]
    Round(#[from] netting_round::Refusal),
    #[error("there is no such round")]
    NoRound,
    #[error("the round has no such revision")]
    NoRevision,
    /// Two brokers don't owe each other anything that nothing has reserved. Minor units.
    #[error(
        "there is nothing to net: broker {one} owes broker {other} {}, broker {other} owes broker \
         {one} {}, as far as nothing has reserved it",
        written(.free[0], currency), written(.free[1], currency)
    )]
    NothingBetween {
        one: BrokerId,
        other: BrokerId,
        /// What one owes the other, and what that owes it.
        free: [u128; 2],
        currency: Currency,
    },
    /// No debts go round. Minor units.
    #[error(
        "no round would clear anything: of {} that is owed and that nothing has reserved, nothing \
         goes round",
        written(*.total, currency)
    )]
    NothingClears { total: u128, currency: Currency },
    #[error("rounds are offered once {needed} brokers are active; {active} are")]
    TooFewBrokers { active: u64, needed: u64 },
    #[error("the round {id} is open in this currency: one at a time")]
    RoundOpen { id: NettingRoundId },
    /// The Idempotency-Key stood for another request.
    #[error("this Idempotency-Key was used for another request")]
    KeyReused,
    /// Others were faster.
    #[error("others have just changed it; try again")]
    Overtaken,
    /// Previews of others are being worked out.
    #[error("other previews are being worked out; try again in a moment")]
    PreviewsBusy,
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The task that did the work ended without an answer: it may have been done.
    #[error("the work ended without an answer; ask for its state")]
    Lost,
}

fn written(minor: u128, currency: &Currency) -> String {
    let amount = i128::try_from(minor).unwrap_or(i128::MAX);
    format!(
        "{} {}",
        format_minor(amount, currency.exponent),
        currency.code
    )
}

impl NettingError {
    /// Whether the same may succeed in a moment.
    pub(super) const fn passes(&self) -> bool {
        matches!(self, Self::Overtaken | Self::Store(StoreError::Busy { .. }))
    }
}
