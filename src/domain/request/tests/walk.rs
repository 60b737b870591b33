//! Random walks through a request's life.

use proptest::prelude::*;

use super::*;
use crate::domain::plan::{Action, Plan};
use crate::domain::request_event::{Event, EventDraft};
use crate::domain::saga::SagaKind;

#[derive(Clone, Debug)]
enum Move {
    Accept { floored: bool },
    Reject,
    Cancel,
    Resend,
    Sent { proof: u8 },
    Confirm { received: Option<u64> },
    Dispute,
    Expire,
    SagaDone,
    SagaFailed,
}

fn moves() -> impl Strategy<Value = (Move, BrokerId, i64)> {
    let kind = prop_oneof![
        3 => any::<bool>().prop_map(|floored| Move::Accept { floored }),
        1 => Just(Move::Reject),
        1 => Just(Move::Cancel),
        2 => Just(Move::Resend),
        4 => (0u8..2).prop_map(|proof| Move::Sent { proof }),
        4 => prop_oneof![
            Just(None),
            Just(Some(990_000)),
            (1u64..1_000_100).prop_map(Some)
        ]
        .prop_map(|received| Move::Confirm { received }),
        1 => Just(Move::Dispute),
        1 => Just(Move::Expire),
        3 => Just(Move::SagaDone),
        2 => Just(Move::SagaFailed),
    ];
    (kind, AUTHOR..=STRANGER, 0i64..40)
}

fn try_move(
    request: &Request,
    what: &Move,
    by: BrokerId,
    saga_id: Uuid,
    now: DateTime<Utc>,
) -> Result<Decision, Refusal> {
    let own = |change| Ok(Decision::Apply(Box::new(change)));
    match what {
        Move::Accept { floored } => {
            let account = floored.then(|| account(by, OwnerKind::Partner));
            let acceptance = Acceptance {
                by,
                account,
                saga_id,
            };
            request.accept(acceptance, &usd(), now)
        }
        Move::Reject => request.reject(by, None, now),
        Move::Cancel => request.cancel(by, saga_id, now),
        Move::Resend => request.resend(by, now),
        Move::Sent { proof } => {
            request.mark_sent(by, &proofs(&proof.to_string()), CONFIRM_WITHIN, now)
        }
        Move::Confirm { received } => {
            request.confirm(by, received.map(amount), saga_id, &usd(), now)
        }
        Move::Dispute => request.claimed(by, "claim", now),
        Move::Expire => request.expire(saga_id, now),
        Move::SagaDone | Move::SagaFailed if request.saga_id.is_none() => Ok(Decision::Already),
        Move::SagaDone if request.status == RequestStatus::Accepting => {
            own(request.accept_settled(now))
        }
        Move::SagaDone => own(request.completed(&[], &[], now)),
        Move::SagaFailed if request.status == RequestStatus::Accepting => {
            own(request.accept_failed(&json!({}), now))
        }
        Move::SagaFailed => own(request.confirm_failed(&json!({}), now)),
    }
}

fn is_final(status: RequestStatus) -> bool {
    match status {
        RequestStatus::Completed
        | RequestStatus::Rejected
        | RequestStatus::Cancelled
        | RequestStatus::Expired
        | RequestStatus::Disputed => true,
        RequestStatus::Pending
        | RequestStatus::Accepting
        | RequestStatus::Accepted
        | RequestStatus::Sent => false,
    }
}

/// What must be true of any request.
fn check_state(request: &Request) {
    let in_saga = request.saga_id.is_some();
    match request.status {
        RequestStatus::Accepting => assert!(in_saga),
        RequestStatus::Sent => {}
        _ => assert!(!in_saga, "only accepting and sent are a saga's"),
    }
    if request.reservation_saga_id.is_some() {
        assert!(matches!(
            request.status,
            RequestStatus::Accepted | RequestStatus::Sent | RequestStatus::Disputed
        ));
    }
    assert_eq!(
        is_final(request.status) && request.status != RequestStatus::Disputed,
        request.closed_at.is_some()
    );
    assert_ne!(request.target, Some(request.author));
    if request.status == RequestStatus::Sent {
        assert!(request.proof_digest.is_some() && request.confirm_by.is_some());
    }
    assert!(request.settled_amount() <= request.amount);
}

fn sealed(event: EventDraft, request: &Request, now: DateTime<Utc>) -> Event {
    Event::seal(event, request.id, 1, request.event_hash, "somebody", now)
}

fn check_plan(request: &Request, plan: &Plan) {
    match plan.kind {
        SagaKind::Accept | SagaKind::Confirm | SagaKind::Correct => {
            assert_eq!(request.saga_id, Some(plan.saga_id));
        }
        SagaKind::Release => assert_eq!(request.saga_id, None),
    }
    let (mut debits, mut credits) = (0, 0);
    for step in &plan.steps {
        if let Action::Book { entries, .. } = &step.action {
            for entry in entries {
                match entry.side {
                    crate::domain::account::Side::Debit => debits += entry.amount,
                    crate::domain::account::Side::Credit => credits += entry.amount,
                }
            }
        }
    }
    assert_eq!(debits, credits);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_walk(
        send in any::<bool>(),
        direct in any::<bool>(),
        floored in any::<bool>(),
        steps in proptest::collection::vec(moves(), 1..40),
    ) {
        let kind = if send { RequestKind::Send } else { RequestKind::Receive };
        let mut now = start();
        let new = NewRequest {
            account: floored.then(|| account(AUTHOR, OwnerKind::Partner)),
            ..new_request(kind, direct.then_some(TARGET))
        };
        let made = new.create(now).unwrap();
        let mut request = made.request;
        let mut events = vec![sealed(made.event, &request, now)];
        let mut once_sent = false;
        for (number, (what, by, minutes)) in steps.into_iter().enumerate() {
            now += Duration::minutes(minutes);
            let saga_id = Uuid::from_u128(number as u128 + 1);
            let before = request.clone();
            match try_move(&before, &what, by, saga_id, now) {
                Ok(Decision::Apply(change)) => {
                    let Change { request: next, event, plan } = *change;
                    prop_assert_eq!(next.version, before.version + 1);
                    let reopened = before.status == RequestStatus::Completed
                        && next.status == RequestStatus::Disputed;
                    prop_assert!(
                        !is_final(before.status) || reopened,
                        "{} is final",
                        before.status
                    );
                    let of_saga = matches!(what, Move::SagaDone | Move::SagaFailed);
                    prop_assert!(before.saga_id.is_none() || of_saga);
                    prop_assert!(event.actor_broker.is_none_or(|by| next.party(by).is_some()));
                    once_sent |= next.status == RequestStatus::Sent;
                    prop_assert!(!once_sent || next.status != RequestStatus::Expired);
                    check_state(&next);
                    events.push(sealed(event, &next, now));
                    prop_assert_eq!(&*next.past, &Past::of(&events));
                    let events: Vec<&Event> = events.iter().collect();
                    prop_assert_eq!(next.unlike_events(&events), [] as [&str; 0]);
                    if let Some(plan) = &plan {
                        check_plan(&next, plan);
                    }
                    // The same again, by the same party, at once: nothing new happens.
                    if !of_saga {
                        let again = try_move(&next, &what, by, saga_id, now);
                        prop_assert!(!matches!(again, Ok(Decision::Apply(_))), "{what:?} twice");
                    }
                    request = next;
                }
                Ok(Decision::Already) | Err(_) => {}
            }
        }
    }
}
