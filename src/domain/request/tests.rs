//! The life of a request as tables: every transition in every state by everybody.

mod rules;
mod walk;

use chrono::{DateTime, Duration, Utc};
use serde_json::json;
use uuid::Uuid;

use super::*;
use crate::domain::account::OwnerKind;
use crate::domain::money::Currency;
use crate::domain::proof::{Proof, ProofType};
use crate::domain::terms::ObligationTerm;

pub const AUTHOR: BrokerId = 1;
pub const TARGET: BrokerId = 2;
pub const STRANGER: BrokerId = 3;
const SAGA: Uuid = Uuid::from_u128(0xa1);
const ACCEPT_SAGA: Uuid = Uuid::from_u128(0xa2);
const RELEASE_SAGA: Uuid = Uuid::from_u128(0xa3);
const CONFIRM_WITHIN: Duration = Duration::hours(24);

pub fn usd() -> Currency {
    Currency {
        code: "USD".parse().unwrap(),
        exponent: 2,
        ledger: 1,
    }
}

pub fn start() -> DateTime<Utc> {
    DateTime::from_timestamp(1_767_225_600, 0).unwrap()
}

fn deadline() -> DateTime<Utc> {
    start() + Duration::hours(10)
}

pub fn amount(minor: u64) -> Amount {
    Amount::from_minor(minor).unwrap()
}

pub fn account(broker: BrokerId, owner_kind: OwnerKind) -> AccountRef {
    AccountRef {
        broker,
        owner_kind,
        owner_ref: "one".to_owned(),
        currency: usd().code,
    }
}

pub fn new_request(kind: RequestKind, target: Option<BrokerId>) -> NewRequest {
    NewRequest {
        id: RequestId::from_bits(0xa_5bb4),
        author: AUTHOR,
        target,
        kind,
        currency: usd(),
        amount: amount(1_000_000),
        method: "cash".to_owned(),
        city_code: Some("IST".to_owned()),
        counterpart_uid: None,
        contact: Some("+90".to_owned()),
        note: None,
        terms: Terms {
            obligation: ObligationTerm::AuthorOwes,
            commission: None,
        },
        settles: None,
        auto_confirm: false,
        pickup_hash: None,
        account: None,
        deadline_at: Some(deadline()),
    }
}

pub fn created(new: NewRequest) -> Request {
    new.create(start()).unwrap().request
}

pub fn proofs(value: &str) -> Vec<Proof> {
    vec![Proof {
        kind: ProofType::TxHash,
        url: None,
        value: Some(value.to_owned()),
        note: None,
        sha256: None,
    }]
}

pub fn acceptance(by: BrokerId, account: Option<AccountRef>) -> Acceptance {
    Acceptance {
        by,
        account,
        saga_id: ACCEPT_SAGA,
    }
}

pub fn applied(decision: Result<Decision, Refusal>) -> Change {
    match decision {
        Ok(Decision::Apply(change)) => *change,
        other => panic!("not applied: {other:?}"),
    }
}

/// A week to dispute, three days to answer, a day to appeal.
pub const RULES: DisputeRules = DisputeRules {
    window: Duration::days(7),
    respond_within: Duration::days(3),
    appeal_within: Duration::days(1),
};

impl Request {
    /// Disputed with words alone.
    fn claimed(&self, by: BrokerId, text: &str, now: DateTime<Utc>) -> Result<Decision, Refusal> {
        let statement = Statement { text, proofs: &[] };
        self.dispute(by, &statement, &RULES, now)
    }
}

fn sender_of(request: &Request) -> BrokerId {
    request.broker_of(request.sender()).unwrap()
}

fn receiver_of(request: &Request) -> BrokerId {
    request.broker_of(request.sender().other()).unwrap()
}

/// A request in one of [`STATES`], brought there by the transitions themselves.
fn in_state(kind: RequestKind, state: &str) -> Request {
    let now = start();
    let pending = created(new_request(kind, Some(TARGET)));
    let accept =
        |account| applied(pending.accept(acceptance(TARGET, account), &usd(), now)).request;
    let sent = || {
        let accepted = accept(None);
        let sender = sender_of(&accepted);
        applied(accepted.mark_sent(sender, &proofs("0xabc"), CONFIRM_WITHIN, now)).request
    };
    let confirmed = || {
        let sent = sent();
        let receiver = receiver_of(&sent);
        applied(sent.confirm(receiver, None, SAGA, &usd(), now)).request
    };
    match state {
        "pending" => pending,
        "accepting" => {
            let floored = account(sender_of(&pending), OwnerKind::Partner);
            if kind == RequestKind::Receive {
                accept(Some(floored))
            } else {
                let new = NewRequest {
                    account: Some(floored),
                    ..new_request(kind, Some(TARGET))
                };
                applied(created(new).accept(acceptance(TARGET, None), &usd(), now)).request
            }
        }
        "accepted" => accept(None),
        "sent" => sent(),
        "settling" => confirmed(),
        "completed" => confirmed().completed(&[], &[], now).request,
        "rejected" => applied(pending.reject(TARGET, None, now)).request,
        "cancelled" => applied(pending.cancel(AUTHOR, RELEASE_SAGA, now)).request,
        "expired" => applied(pending.expire(RELEASE_SAGA, deadline())).request,
        "disputed" => applied(sent().claimed(AUTHOR, "nothing came", now)).request,
        other => panic!("no state {other}"),
    }
}

const STATES: [&str; 10] = [
    "pending",
    "accepting",
    "accepted",
    "sent",
    "settling",
    "completed",
    "rejected",
    "cancelled",
    "expired",
    "disputed",
];

/// What came of a transition, in one word: the new status, or why not.
fn word(decision: Result<Decision, Refusal>) -> String {
    match decision {
        Ok(Decision::Already) => "again".to_owned(),
        Ok(Decision::Apply(change)) => change.request.status.to_string(),
        Err(Refusal::NotFound) => "404".to_owned(),
        Err(Refusal::NotYourMove { .. }) => "theirs".to_owned(),
        Err(Refusal::WrongStatus { .. }) => "wrong".to_owned(),
        Err(Refusal::InSaga { .. }) => "saga".to_owned(),
        Err(Refusal::DeadlinePassed) => "late".to_owned(),
        Err(Refusal::Taken) => "taken".to_owned(),
        Err(Refusal::ProofWithdrawn { .. }) => "withdrawn".to_owned(),
        Err(Refusal::Decided) => "decided".to_owned(),
        Err(Refusal::TooOften { .. }) => "often".to_owned(),
        Err(Refusal::Invalid { field, .. }) => field.to_owned(),
    }
}

/// Runs a transition in every state and compares with a row of words, one for each of [`STATES`].
fn row(
    kind: RequestKind,
    expected: &str,
    transition: impl Fn(&Request) -> Result<Decision, Refusal>,
) {
    let expected: Vec<&str> = expected.split_whitespace().collect();
    assert_eq!(expected.len(), STATES.len());
    for (state, expected) in STATES.into_iter().zip(expected) {
        let request = in_state(kind, state);
        let decision = transition(&request);
        if let Ok(Decision::Apply(change)) = &decision {
            assert_eq!(change.request.version, request.version + 1, "{state}");
        }
        assert_eq!(word(decision), expected, "{kind} in {state}");
    }
}

const NOBODY: &str = "404 404 404 404 404 404 404 404 404 404";
const THEIRS: &str = "theirs theirs theirs theirs theirs theirs theirs theirs theirs theirs";

/// The row of a transition that only one party makes, from both parties' view.
fn by_party(
    kind: RequestKind,
    author: &str,
    counterparty: &str,
    transition: impl Fn(&Request, BrokerId) -> Result<Decision, Refusal>,
) {
    row(kind, author, |request| transition(request, AUTHOR));
    row(kind, counterparty, |request| transition(request, TARGET));
    row(kind, NOBODY, |request| transition(request, STRANGER));
}

const KINDS: [RequestKind; 2] = [RequestKind::Send, RequestKind::Receive];

// The rows below are read under these heads:
// pending accepting accepted sent settling completed rejected cancelled expired disputed

#[test]
fn accept() {
    for kind in KINDS {
        by_party(
            kind,
            THEIRS,
            "accepted again again again again again wrong wrong wrong again",
            |request, by| request.accept(acceptance(by, None), &usd(), start()),
        );
    }
}

#[test]
fn reject() {
    for kind in KINDS {
        by_party(
            kind,
            THEIRS,
            "rejected saga wrong wrong saga wrong again wrong wrong wrong",
            |request, by| request.reject(by, None, start()),
        );
    }
}

#[test]
fn cancel() {
    for kind in KINDS {
        by_party(
            kind,
            "cancelled saga accepted sent saga wrong wrong again wrong wrong",
            "theirs saga accepted sent saga wrong wrong wrong wrong wrong",
            |request, by| request.cancel(by, RELEASE_SAGA, start()),
        );
    }
}

#[test]
fn resend() {
    let either = "wrong saga wrong sent saga wrong wrong wrong wrong wrong";
    for kind in KINDS {
        by_party(kind, either, either, |request, by| {
            request.resend(by, start())
        });
    }
}

#[test]
fn mark_sent() {
    let sender = "wrong saga sent again again again wrong wrong wrong again";
    let transition =
        |request: &Request, by| request.mark_sent(by, &proofs("0xabc"), CONFIRM_WITHIN, start());
    by_party(RequestKind::Send, sender, THEIRS, transition);
    by_party(RequestKind::Receive, THEIRS, sender, transition);
}

#[test]
fn other_proofs_than_those_recorded_are_not_merged() {
    for state in ["sent", "settling", "completed", "disputed"] {
        let request = in_state(RequestKind::Send, state);
        let other = request.mark_sent(AUTHOR, &proofs("0xdef"), CONFIRM_WITHIN, start());
        assert!(matches!(word(other).as_str(), "wrong" | "saga"), "{state}");
    }
}

#[test]
fn confirm() {
    let sender = "wrong saga wrong theirs saga wrong wrong wrong wrong wrong";
    let receiver = "wrong saga wrong sent again again wrong wrong wrong wrong";
    let transition = |request: &Request, by| request.confirm(by, None, SAGA, &usd(), start());
    by_party(RequestKind::Send, sender, receiver, transition);
    by_party(RequestKind::Receive, receiver, sender, transition);
}

#[test]
fn dispute() {
    let first = "wrong saga wrong disputed saga disputed wrong wrong wrong again";
    let other = "wrong saga wrong disputed saga disputed wrong wrong wrong wrong";
    for kind in KINDS {
        by_party(kind, first, other, |request, by| {
            request.claimed(by, "nothing came", start())
        });
    }
}

#[test]
fn expire() {
    for kind in KINDS {
        row(
            kind,
            "expired saga expired wrong saga wrong wrong wrong again wrong",
            |request| request.expire(RELEASE_SAGA, deadline()),
        );
        row(
            kind,
            "wrong saga wrong wrong saga wrong wrong wrong again wrong",
            |request| request.expire(RELEASE_SAGA, deadline() - Duration::microseconds(1)),
        );
    }
}

#[test]
fn a_saga_that_owns_the_request_lets_nothing_else_happen() {
    for (kind, state) in KINDS
        .into_iter()
        .flat_map(|kind| STATES.map(|state| (kind, state)))
    {
        let owned = Request {
            saga_id: Some(SAGA),
            received_amount: Some(amount(999_000)),
            proposal: Some(Proposal {
                kind: ProposalKind::Cancel,
                by: TARGET,
            }),
            ..in_state(kind, state)
        };
        for by in [AUTHOR, TARGET] {
            for decision in [
                owned.accept(acceptance(by, None), &usd(), start()),
                owned.reject(by, None, start()),
                owned.cancel(by, RELEASE_SAGA, start()),
                owned.resend(by, start()),
                owned.mark_sent(by, &proofs("0xdef"), CONFIRM_WITHIN, start()),
                owned.confirm(by, None, SAGA, &usd(), start()),
                owned.confirm(by, Some(amount(999_000)), SAGA, &usd(), start()),
                owned.claimed(by, "nothing came", start()),
                owned.expire(RELEASE_SAGA, deadline()),
            ] {
                assert!(
                    !matches!(decision, Ok(Decision::Apply(_))),
                    "{kind} in {state} by {by}: {decision:?}"
                );
            }
        }
    }
}

#[test]
fn the_sagas_own_moves() {
    for kind in KINDS {
        let accepting = in_state(kind, "accepting");
        let accepted = accepting.accept_settled(start()).request;
        assert_eq!(accepted.status, RequestStatus::Accepted);
        assert_eq!(accepted.reservation_saga_id, Some(ACCEPT_SAGA));
        assert_eq!(
            (accepted.saga_id, accepted.accepted_at),
            (None, Some(start()))
        );

        let back = accepting.accept_failed(&json!({ "code": "no" }), start());
        assert_eq!(back.request.status, RequestStatus::Pending);
        assert_eq!(back.request.target, Some(TARGET));
        assert_eq!(back.request.counterparty_account, None);
        assert_eq!(back.event.payload["reason"]["code"], "no");
        let again = back
            .request
            .accept(acceptance(TARGET, None), &usd(), start());
        assert!(matches!(again, Ok(Decision::Apply(_))));

        let settling = in_state(kind, "settling");
        let failed = settling.confirm_failed(&json!({ "code": "no" }), start());
        assert_eq!(failed.request.status, RequestStatus::Sent);
        assert_eq!(failed.request.saga_id, None);
        let receiver = receiver_of(&settling);
        let again = applied(
            failed
                .request
                .confirm(receiver, None, RELEASE_SAGA, &usd(), start()),
        );
        assert_eq!(again.request.saga_id, Some(RELEASE_SAGA), "a new saga");
    }
}
