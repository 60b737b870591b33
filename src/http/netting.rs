//! `/v1/netting` and `/v1/admin/netting`: netting of two brokers, and rounds over the network.

mod admin;
mod proposals;
mod rounds;

use serde_json::json;

use super::money::exponent_of;
use super::problem::{Code, Problem};
use super::routes::Routes;
use super::state::AppState;
use crate::domain::money::{CurrencyCode, format_minor};
use crate::domain::netting_proposal::Refusal as ProposalRefusal;
use crate::domain::netting_round::Refusal as RoundRefusal;
use crate::services::netting::NettingError;

pub fn routes() -> Routes {
    Routes::new()
        .merge(proposals::routes())
        .merge(rounds::routes())
        .merge(admin::routes())
}

/// Writes amounts of one currency.
struct Money {
    exponent: u8,
    code: CurrencyCode,
}

impl Money {
    async fn of(state: &AppState, code: &CurrencyCode) -> Result<Self, Problem> {
        Ok(Self {
            exponent: exponent_of(state, code.as_str()).await?,
            code: code.clone(),
        })
    }

    fn signed(&self, minor: i128) -> String {
        format_minor(minor, self.exponent)
    }

    fn amount(&self, minor: u128) -> String {
        self.signed(i128::try_from(minor).unwrap_or(i128::MAX))
    }

    /// For sentences.
    fn words(&self, minor: i128) -> String {
        format!("{} {}", self.signed(minor), self.code)
    }

    fn amount_words(&self, minor: u128) -> String {
        self.words(i128::try_from(minor).unwrap_or(i128::MAX))
    }
}

impl From<NettingError> for Problem {
    fn from(error: NettingError) -> Self {
        let detail = error.to_string();
        match error {
            NettingError::Field(field) => Self::invalid(field.field, field.rule),
            NettingError::Hindered(hindrance) => hindrance.into(),
            NettingError::Proposal(refusal) => refusal.into(),
            NettingError::Round(refusal) => refusal.into(),
            NettingError::NoRound | NettingError::NoRevision => {
                Self::new(Code::NotFound).detail(detail)
            }
            NettingError::NothingBetween {
                one,
                other,
                free: [there, back],
                currency,
            } => {
                let money = Money {
                    exponent: currency.exponent,
                    code: currency.code,
                };
                let owes =
                    [(one, other, there), (other, one, back)].map(|(debtor, creditor, sum)| {
                        json!({ "debtor_broker_id": debtor, "creditor_broker_id": creditor,
                            "amount": money.amount(sum) })
                    });
                Self::new(Code::NothingToNet)
                    .detail(detail)
                    .with("owes", json!(owes))
            }
            NettingError::NothingClears { .. } => Self::new(Code::NothingToNet).detail(detail),
            NettingError::TooFewBrokers { active, needed } => Self::new(Code::TooFewBrokers)
                .detail(detail)
                .with("there", active)
                .with("needed", needed),
            NettingError::RoundOpen { id } => Self::new(Code::RoundOpen)
                .detail(detail)
                .with("round_id", id.to_string()),
            NettingError::KeyReused => Self::new(Code::KeyReused),
            NettingError::Overtaken | NettingError::PreviewsBusy => {
                Self::new(Code::Contended).detail(detail).retry_after(1)
            }
            NettingError::Store(error) => error.into(),
            NettingError::Lost => Self::internal(&error),
        }
    }
}

impl From<ProposalRefusal> for Problem {
    fn from(refusal: ProposalRefusal) -> Self {
        let detail = refusal.to_string();
        match refusal {
            ProposalRefusal::NoParty => Self::new(Code::NotFound),
            ProposalRefusal::NotYourMove => Self::new(Code::NotYourMove).detail(detail),
            ProposalRefusal::Status { status } => Self::new(Code::WrongStatus)
                .detail(detail)
                .with("request_status", status.as_str()),
        }
    }
}

impl From<RoundRefusal> for Problem {
    fn from(refusal: RoundRefusal) -> Self {
        let detail = refusal.to_string();
        let status = match refusal {
            RoundRefusal::Status { status } => status.as_str(),
            RoundRefusal::Answered { state } => state.as_str(),
            RoundRefusal::Dropped => "dropped",
        };
        Self::new(Code::WrongStatus)
            .detail(detail)
            .with("request_status", status)
    }
}
