//! What a turn comes to: the rules that all drivers keep, so that each states only what its
//! provider's words mean.

use serde_json::{Number, Value};

use super::PspTask;
use super::client::{CallError, Reply};
use crate::domain::money::{CurrencyCode, format_minor};
use crate::domain::payment::PspState;
use crate::domain::payment::outcome::{
    ErrorClass, Facts, PAID_ANOTHER_AMOUNT, Progress, PspOutcome,
};

/// How providers that number their answers call a success.
const SUCCESS: &str = "0000";

/// An error of a provider: its code, what that means for the payment, and our word for it.
pub(super) type Code = (&'static str, ErrorClass, &'static str);

/// A provider's errors, all in one table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Codes(pub(super) &'static [Code]);

impl Codes {
    /// What a code means. One that is not in the table is for a person, who adds it; a success that
    /// says nothing else is no error and no answer either.
    pub(super) fn of(&self, code: &str) -> (ErrorClass, String) {
        let known = self.0.iter().find(|(known, ..)| *known == code);
        match known {
            Some((_, class, reason)) => (*class, (*reason).to_owned()),
            None if code.starts_with("http_2") => {
                (ErrorClass::Retry, "answer_not_understood".to_owned())
            }
            None => (ErrorClass::Review, format!("unlisted_code: {code}")),
        }
    }
}

/// The code of an error that names none: its status.
pub(super) fn code_of(reply: &Reply, pointers: &[&str]) -> String {
    let named = pointers.iter().find_map(|pointer| reply.text(pointer));
    named.unwrap_or_else(|| format!("http_{}", reply.status))
}

/// The code of an answer that names one even where it is a success; that of a success only where the
/// status is one too.
pub(super) fn code_or_success(reply: &Reply, pointer: &str) -> String {
    match code_of(reply, &[pointer]) {
        code if code == SUCCESS && !reply.is_success() => format!("http_{}", reply.status),
        code => code,
    }
}

fn in_progress(progress: Progress, why: Option<String>, facts: Facts) -> PspOutcome {
    PspOutcome::InProgress {
        progress,
        why,
        facts,
    }
}

pub(super) fn looked_up(facts: Facts) -> PspOutcome {
    in_progress(Progress::LookedUp, None, facts)
}

pub(super) fn may_ask(why: Option<String>, facts: Facts) -> PspOutcome {
    in_progress(Progress::MayAsk, why, facts)
}

pub(super) fn in_doubt(why: impl Into<String>, facts: Facts) -> PspOutcome {
    in_progress(Progress::InDoubt, Some(why.into()), facts)
}

pub(super) fn failed(reason: impl Into<String>, facts: Facts) -> PspOutcome {
    let reason = reason.into();
    PspOutcome::Failed { reason, facts }
}

pub(super) fn review(reason: impl Into<String>, facts: Facts) -> PspOutcome {
    let reason = reason.into();
    PspOutcome::ManualReview { reason, facts }
}

/// A call that got no answer. Only what certainly was not sent may be sent again without asking.
pub(super) fn unanswered(state: PspState, error: &CallError, facts: Facts) -> PspOutcome {
    let why = Some(error.to_string());
    let progress = match (state, error) {
        (PspState::ConfirmPending, CallError::NotSent(_) | CallError::TooLate) => Progress::MayAsk,
        (PspState::ConfirmPending, CallError::InDoubt(_)) | (PspState::Inquiring, _) => {
            Progress::InDoubt
        }
        (
            PspState::QueryPending
            | PspState::New
            | PspState::Queried
            | PspState::Confirmed
            | PspState::Failed
            | PspState::ManualReview,
            _,
        ) => Progress::LookUpAgain,
    };
    in_progress(progress, why, facts)
}

/// An error that the provider gave to the lookup or to the request to pay. It is the payment's own.
pub(super) fn refused(codes: Codes, state: PspState, code: &str, facts: Facts) -> PspOutcome {
    let (class, reason) = codes.of(code);
    match class {
        ErrorClass::Terminal => failed(reason, facts),
        ErrorClass::Review => review(reason, facts),
        ErrorClass::Retry => {
            let progress = if state == PspState::QueryPending {
                Progress::LookUpAgain
            } else {
                Progress::InDoubt
            };
            in_progress(progress, Some(reason), facts)
        }
    }
}

/// An error that the provider gave to the question what became of a payment. It says nothing of the
/// payment, so it never fails it.
pub(super) fn unanswerable(codes: Codes, code: &str, facts: Facts) -> PspOutcome {
    let (class, reason) = codes.of(code);
    match class {
        ErrorClass::Retry => in_doubt(reason, facts),
        ErrorClass::Terminal | ErrorClass::Review => review(reason, facts),
    }
}

/// The provider doesn't know the uid. What was sent may be on its way yet, so that is no refusal:
/// only a provider that takes a uid once is asked again.
pub(super) fn unknown(deduplicates: bool, facts: Facts) -> PspOutcome {
    if deduplicates {
        may_ask(Some("unknown_to_provider".to_owned()), facts)
    } else {
        review("unknown_to_provider", facts)
    }
}

/// Paid, where the provider says that of this payment and not of another sum.
pub(super) fn paid(task: &PspTask, said: &Said, facts: Facts) -> PspOutcome {
    if is_sum(task.amount, task.exponent, &task.currency, said) {
        PspOutcome::Confirmed { facts }
    } else {
        review(PAID_ANOTHER_AMOUNT, facts)
    }
}

/// Whether a provider says an amount, in minor units, and its currency.
pub(super) fn is_sum(amount: u64, exponent: u8, currency: &CurrencyCode, said: &Said) -> bool {
    let wanted = plain(&format_minor(amount.into(), exponent));
    said.amount.as_deref().map(plain) == Some(wanted)
        && said.currency.as_deref() == Some(currency.as_str())
}

/// What a provider says was paid.
#[derive(Clone, Debug)]
pub(super) struct Said {
    pub(super) amount: Option<String>,
    pub(super) currency: Option<String>,
}

/// A state that nobody makes a turn in.
pub(super) fn no_turn(state: PspState, facts: Facts) -> PspOutcome {
    review(format!("no turn is made in {state}"), facts)
}

/// The amount in major units, with all decimals.
pub(super) fn amount_of(task: &PspTask) -> String {
    format_minor(task.amount.into(), task.exponent)
}

/// The amount as a JSON number, where that is the same to the last digit; some providers take no
/// other.
pub(super) fn number_of(task: &PspTask) -> Option<Value> {
    let wanted = plain(&amount_of(task));
    let number: Number = wanted.parse().ok()?;
    (plain(&number.to_string()) == wanted).then_some(Value::Number(number))
}

/// A decimal without zeros at its end, so that two of the same worth are the same text.
fn plain(decimal: &str) -> String {
    if decimal.contains('.') {
        let trimmed = decimal.trim_end_matches('0');
        trimmed.trim_end_matches('.').to_owned()
    } else {
        decimal.to_owned()
    }
}

/// A date as `YYYYMMDD`.
pub(super) fn date(text: Option<String>) -> Option<String> {
    text.filter(|text| text.len() == 8 && text.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Hundredths of the currency's unit, of a decimal with at most two decimals.
pub(super) fn hundredths(decimal: &str) -> Option<i32> {
    let text = plain(decimal);
    let (whole, decimals) = text.split_once('.').unwrap_or((&text, ""));
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || decimals.len() > 2 || !digits(whole) || !digits(decimals) {
        return None;
    }
    format!("{whole}{decimals:0<2}").parse().ok()
}

#[cfg(test)]
mod tests;
