use super::*;
use crate::psp::testing::{task, thai_account};

const CODES: Codes = Codes(&[
    ("T", ErrorClass::Terminal, "terminal"),
    ("R", ErrorClass::Review, "review"),
    ("A", ErrorClass::Retry, "again"),
]);
const TURNS: [PspState; 3] = [
    PspState::QueryPending,
    PspState::ConfirmPending,
    PspState::Inquiring,
];

fn next(outcome: &PspOutcome, state: PspState) -> PspState {
    outcome.state_after(state).unwrap()
}

#[test]
fn a_call_without_an_answer_fails_nothing() {
    use PspState as S;
    let not_sent = CallError::NotSent("refused".to_owned());
    let in_doubt = CallError::InDoubt("timeout".to_owned());
    for (state, error, expected) in [
        (S::QueryPending, &not_sent, S::QueryPending),
        (S::QueryPending, &CallError::TooLate, S::QueryPending),
        (S::QueryPending, &in_doubt, S::QueryPending),
        (S::ConfirmPending, &not_sent, S::Queried),
        (S::ConfirmPending, &CallError::TooLate, S::Queried),
        (S::ConfirmPending, &in_doubt, S::Inquiring),
        // That the question was not sent says nothing of the payment.
        (S::Inquiring, &not_sent, S::Inquiring),
        (S::Inquiring, &in_doubt, S::Inquiring),
    ] {
        let outcome = unanswered(state, error, Facts::default());
        assert_eq!(next(&outcome, state), expected, "{state} {error}");
    }
}

#[test]
fn a_refusal_counts_by_its_class() {
    use PspState as S;
    for state in TURNS {
        let of = |code| next(&refused(CODES, state, code, Facts::default()), state);
        assert_eq!(of("T"), S::Failed);
        assert_eq!(of("R"), S::ManualReview);
        assert_eq!(of("never seen"), S::ManualReview);
        let again = if state == S::QueryPending {
            state
        } else {
            S::Inquiring
        };
        assert_eq!(of("A"), again);
        // A success without a code is an answer that says nothing.
        assert_eq!(of("http_200"), again);
    }
}

#[test]
fn an_error_of_the_question_is_none_of_the_payment() {
    use PspState as S;
    let of = |code| next(&unanswerable(CODES, code, Facts::default()), S::Inquiring);
    assert_eq!(of("T"), S::ManualReview);
    assert_eq!(of("R"), S::ManualReview);
    assert_eq!(of("A"), S::Inquiring);
}

#[test]
fn what_is_unknown_is_asked_for_again_only_where_that_is_safe() {
    let again = unknown(true, Facts::default());
    assert_eq!(next(&again, PspState::Inquiring), PspState::Queried);
    let person = unknown(false, Facts::default());
    assert_eq!(next(&person, PspState::Inquiring), PspState::ManualReview);
    assert_eq!(person.reason(), Some("unknown_to_provider"));
}

#[test]
fn paid_is_the_same_sum() {
    let task = task(PspState::Inquiring, thai_account());
    let of = |amount: Option<&str>, currency: Option<&str>| {
        let said = Said {
            amount: amount.map(str::to_owned),
            currency: currency.map(str::to_owned),
        };
        next(&paid(&task, &said, Facts::default()), PspState::Inquiring)
    };
    for same in ["1234.50", "1234.5", "1234.500"] {
        assert_eq!(of(Some(same), Some("THB")), PspState::Confirmed, "{same}");
    }
    for (amount, currency) in [
        (Some("1234.51"), Some("THB")),
        (Some("12345"), Some("THB")),
        (Some("1234"), Some("THB")),
        (Some("1234.50"), Some("USD")),
        (Some("1234.50"), None),
        (None, Some("THB")),
    ] {
        assert_eq!(of(amount, currency), PspState::ManualReview, "{amount:?}");
    }
}

#[test]
fn amounts_are_stated_to_the_last_digit_or_not_at_all() {
    let mut task = task(PspState::ConfirmPending, thai_account());
    for (minor, exponent, number) in [
        (123_450, 2, Some("1234.5")),
        (100, 2, Some("1")),
        (1, 2, Some("0.01")),
        (999_999_999_999_999, 2, Some("9999999999999.99")),
        (1_000_000_000_000_000, 2, Some("10000000000000")),
        (1, 8, None),
        (12_345, 8, Some("0.00012345")),
        (5, 0, Some("5")),
    ] {
        (task.amount, task.exponent) = (minor, exponent);
        let stated = number_of(&task).map(|value| plain(&value.to_string()));
        assert_eq!(stated.as_deref(), number, "{minor}");
    }
}

#[test]
fn fees_are_hundredths() {
    for (text, expected) in [
        ("2.50", Some(250)),
        ("2.5", Some(250)),
        ("2", Some(200)),
        ("0", Some(0)),
        ("2.500", Some(250)),
        ("2.505", None),
        ("-1", None),
        ("1e3", None),
        ("", None),
        ("99999999999", None),
    ] {
        assert_eq!(hundredths(text), expected, "{text}");
    }
}
