//! The rules that a table of states does not show.

use super::*;
use crate::domain::account::HousePurpose;
use crate::domain::plan::Action;
use crate::domain::request_event::{Event, EventKind};
use crate::domain::saga::SagaKind;
use crate::domain::terms::{Commission, CommissionSize};

fn kind_of(change: &Change) -> EventKind {
    change.event.kind
}

#[test]
fn one_proposes_the_other_agrees() {
    for (first, second) in [(AUTHOR, TARGET), (TARGET, AUTHOR)] {
        for state in ["accepted", "sent"] {
            let request = in_state(RequestKind::Send, state);
            let proposed = applied(request.cancel(first, RELEASE_SAGA, start()));
            assert_eq!(kind_of(&proposed), EventKind::CancelProposed);
            assert_eq!(word(proposed.request.cancel(first, SAGA, start())), "again");
            let agreed = applied(proposed.request.cancel(second, RELEASE_SAGA, start()));
            assert_eq!(agreed.request.status, RequestStatus::Cancelled);
            assert_eq!(agreed.request.closed_at, Some(start()));
            assert_eq!(agreed.plan, None, "nothing was reserved");
        }
        let sent = in_state(RequestKind::Receive, "sent");
        let proposed = applied(sent.resend(first, start()));
        assert_eq!(kind_of(&proposed), EventKind::ResendProposed);
        assert_eq!(word(proposed.request.resend(first, start())), "again");
        let agreed = applied(proposed.request.resend(second, start())).request;
        assert_eq!(agreed.status, RequestStatus::Accepted);
        assert_eq!((agreed.proof_digest, agreed.confirm_by), (None, None));
    }
}

#[test]
fn a_proposal_lapses_with_whatever_happens_next() {
    let sent = in_state(RequestKind::Send, "sent");
    let cancel = applied(sent.cancel(AUTHOR, RELEASE_SAGA, start())).request;
    let resend = applied(cancel.resend(TARGET, start())).request;
    assert_eq!(
        resend.proposal,
        Some(Proposal {
            kind: ProposalKind::Resend,
            by: TARGET
        })
    );
    let cancel_again = applied(resend.cancel(TARGET, RELEASE_SAGA, start())).request;
    assert_eq!(cancel_again.status, RequestStatus::Sent, "proposed anew");
    let confirmed = applied(cancel_again.confirm(TARGET, None, SAGA, &usd(), start())).request;
    assert_eq!(confirmed.proposal, None);
}

#[test]
fn what_was_sent_once_never_expires() {
    let sent = in_state(RequestKind::Send, "sent");
    let proposed = applied(sent.resend(AUTHOR, deadline())).request;
    let accepted = applied(proposed.resend(TARGET, deadline())).request;
    assert_eq!(accepted.status, RequestStatus::Accepted);
    assert_eq!(word(accepted.expire(RELEASE_SAGA, deadline())), "wrong");
    let again = accepted.mark_sent(AUTHOR, &proofs("0xdef"), CONFIRM_WITHIN, deadline());
    assert_eq!(word(again), "sent", "nor is it too late to send again");
}

#[test]
fn a_deadline_ends_at_its_microsecond() {
    let just_before = deadline() - Duration::microseconds(1);
    for kind in KINDS {
        let pending = in_state(kind, "pending");
        let accept = |now| pending.accept(acceptance(TARGET, None), &usd(), now);
        assert_eq!(word(accept(just_before)), "accepted");
        assert_eq!(word(accept(deadline())), "late");
        let accepted = in_state(kind, "accepted");
        let sender = sender_of(&accepted);
        let send = |now| accepted.mark_sent(sender, &proofs("0xabc"), CONFIRM_WITHIN, now);
        assert_eq!(word(send(just_before)), "sent");
        assert_eq!(word(send(deadline())), "late");
    }
    let timeless = created(NewRequest {
        deadline_at: None,
        ..new_request(RequestKind::Send, Some(TARGET))
    });
    let late = start() + Duration::days(10_000);
    assert_eq!(word(timeless.expire(RELEASE_SAGA, late)), "wrong");
    assert_eq!(
        word(timeless.accept(acceptance(TARGET, None), &usd(), late)),
        "accepted"
    );
}

#[test]
fn sent_says_by_when_to_confirm_and_keeps_the_files_hashes() {
    let accepted = in_state(RequestKind::Send, "accepted");
    let file = Hash::of_bytes(b"photo");
    let mut photo = proofs("0xabc");
    photo[0].sha256 = Some(file);
    let sent = applied(accepted.mark_sent(AUTHOR, &photo, CONFIRM_WITHIN, start()));
    assert_eq!(sent.request.confirm_by, Some(start() + CONFIRM_WITHIN));
    assert_eq!(sent.event.payload["files_sha256"][0], file.to_hex());
    assert_eq!(
        word(accepted.mark_sent(AUTHOR, &[], CONFIRM_WITHIN, start())),
        "proof"
    );
}

#[test]
fn less_has_arrived() {
    let sent = in_state(RequestKind::Send, "sent");
    let (claimed, other) = (amount(999_000), amount(998_000));
    let confirm =
        |request: &Request, by, received| request.confirm(by, received, SAGA, &usd(), start());

    let claim = applied(confirm(&sent, TARGET, Some(claimed)));
    assert_eq!(kind_of(&claim), EventKind::ReceivedClaimed);
    assert_eq!(claim.request.received_amount, Some(claimed));
    assert_eq!(
        (claim.request.status, claim.plan),
        (RequestStatus::Sent, None)
    );
    let claim = claim.request;

    assert_eq!(word(confirm(&claim, TARGET, Some(claimed))), "again");
    assert_eq!(word(confirm(&claim, AUTHOR, None)), "received_amount");
    assert_eq!(
        word(confirm(&claim, AUTHOR, Some(other))),
        "received_amount"
    );
    assert_eq!(word(confirm(&claim, STRANGER, Some(claimed))), "404");
    assert_eq!(
        word(claim.claimed(AUTHOR, "it was all there", start())),
        "disputed"
    );

    let agreed = applied(confirm(&claim, AUTHOR, Some(claimed)));
    assert_eq!(agreed.request.settled_amount(), claimed);
    assert_eq!(agreed.plan.unwrap().debt().unwrap().amount, 999_000);
    let done = agreed.request.completed(&[], &[], start()).request;
    for request in [&agreed.request, &done] {
        assert_eq!(word(confirm(request, TARGET, Some(claimed))), "again");
        assert_ne!(
            word(confirm(request, TARGET, None)),
            "again",
            "another amount"
        );
    }

    let corrected = applied(confirm(&claim, TARGET, Some(other))).request;
    assert_eq!(corrected.received_amount, Some(other));
    let after_all = applied(confirm(&claim, TARGET, None));
    assert_eq!(after_all.request.received_amount, None);
    assert_eq!(after_all.plan.unwrap().debt().unwrap().amount, 1_000_000);
}

#[test]
fn an_amount_that_cannot_have_arrived() {
    let sent = in_state(RequestKind::Send, "sent");
    let more = sent.confirm(TARGET, Some(amount(1_000_001)), SAGA, &usd(), start());
    assert_eq!(word(more), "received_amount");
    let with_fee = Request {
        terms: Terms {
            commission: Some(Commission {
                payer: Party::Author,
                size: CommissionSize::Amount(amount(500)),
            }),
            ..sent.terms
        },
        ..sent
    };
    let no_room = with_fee.confirm(TARGET, Some(amount(500)), SAGA, &usd(), start());
    assert_eq!(
        word(no_room),
        "received_amount",
        "all of it would be commission"
    );
}

#[test]
fn a_broadcast_is_the_first_ones() {
    let broadcast = created(new_request(RequestKind::Receive, None));
    assert!(broadcast.visible_to(STRANGER) && !broadcast.shows_contact_to(STRANGER));
    assert_eq!(word(broadcast.reject(TARGET, None, start())), "404");
    assert_eq!(
        word(broadcast.accept(acceptance(AUTHOR, None), &usd(), start())),
        "theirs"
    );

    let won = applied(broadcast.accept(acceptance(TARGET, None), &usd(), start())).request;
    assert_eq!(won.target, Some(TARGET));
    assert!(won.shows_contact_to(TARGET) && !won.visible_to(STRANGER));
    assert_eq!(
        word(won.accept(acceptance(STRANGER, None), &usd(), start())),
        "taken"
    );
    assert_eq!(word(won.reject(TARGET, None, start())), "theirs");

    let floored = account(TARGET, OwnerKind::Cashier);
    let accept = acceptance(TARGET, Some(floored));
    let accepting = applied(broadcast.accept(accept, &usd(), start())).request;
    let rival = accepting.accept(acceptance(STRANGER, None), &usd(), start());
    assert_eq!(word(rival), "taken");
    let reopened = accepting.accept_failed(&json!({}), start()).request;
    assert_eq!(
        (reopened.target, reopened.status),
        (None, RequestStatus::Pending)
    );
    assert!(reopened.visible_to(STRANGER));
    let rival = reopened.accept(acceptance(STRANGER, None), &usd(), start());
    assert_eq!(applied(rival).request.target, Some(STRANGER));
}

#[test]
fn a_direct_request_is_nobody_elses() {
    for state in STATES {
        let request = in_state(RequestKind::Send, state);
        assert!(!request.visible_to(STRANGER), "{state}");
        assert!(
            request.visible_to(AUTHOR) && request.visible_to(TARGET),
            "{state}"
        );
    }
}

#[test]
fn a_request_that_cannot_be() {
    let refused = |change: fn(&mut NewRequest)| {
        let mut new = new_request(RequestKind::Send, Some(TARGET));
        change(&mut new);
        match new.create(start()) {
            Err(Refusal::Invalid { field, .. }) => field,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(refused(|new| new.target = Some(AUTHOR)), "target_broker_id");
    for deadline in [start(), start() + Duration::days(5 * 366)] {
        let mut new = new_request(RequestKind::Send, Some(TARGET));
        new.deadline_at = Some(deadline);
        assert!(matches!(
            new.create(start()),
            Err(Refusal::Invalid {
                field: "deadline_at",
                ..
            })
        ));
    }
    assert_eq!(
        refused(|new| {
            new.terms.commission = Some(Commission {
                payer: Party::Author,
                size: CommissionSize::BasisPoints(10_000),
            });
        }),
        "terms.commission"
    );
    assert_eq!(
        refused(|new| new.account = Some(account(TARGET, OwnerKind::Partner))),
        "account_id"
    );
    assert_eq!(
        refused(|new| {
            let euro = AccountRef {
                currency: "EUR".parse().unwrap(),
                ..account(AUTHOR, OwnerKind::Partner)
            };
            new.account = Some(euro);
        }),
        "account_id"
    );
}

#[test]
fn an_acceptance_brings_an_account_of_its_own_book_and_currency() {
    let pending = in_state(RequestKind::Receive, "pending");
    let foreign = account(AUTHOR, OwnerKind::Partner);
    let euro = AccountRef {
        currency: "EUR".parse().unwrap(),
        ..account(TARGET, OwnerKind::Partner)
    };
    for account in [foreign, euro] {
        let accept = pending.accept(acceptance(TARGET, Some(account)), &usd(), start());
        assert_eq!(word(accept), "account_id");
    }
    let accepted = applied(pending.accept(acceptance(TARGET, None), &usd(), start())).request;
    assert_eq!(
        accepted.counterparty_account,
        Some(AccountRef::house(TARGET, HousePurpose::Main, &usd().code))
    );
}

/// Reserved is what the sender's account will lose, where it can lack it: with the commission
/// if the sender pays it.
#[test]
fn what_can_be_refused_is_reserved_at_accept() {
    let commission = |payer| Commission {
        payer,
        size: CommissionSize::Amount(amount(500)),
    };
    let house = |broker| AccountRef::house(broker, HousePurpose::Main, &usd().code);
    for (kind, sender, sender_party) in [
        (RequestKind::Send, AUTHOR, Party::Author),
        (RequestKind::Receive, TARGET, Party::Counterparty),
    ] {
        for owner_kind in [OwnerKind::House, OwnerKind::Cashier, OwnerKind::Partner] {
            for (payer, needed) in [
                (None, 1_000_000),
                (Some(sender_party), 1_000_500),
                (Some(sender_party.other()), 1_000_000),
            ] {
                let mut new = new_request(kind, Some(TARGET));
                new.terms.commission = payer.map(commission);
                let of_sender = match owner_kind {
                    OwnerKind::House => house(sender),
                    OwnerKind::Cashier | OwnerKind::Partner => account(sender, owner_kind),
                };
                // The receiver's account has a floor too, and is not reserved on.
                let of_receiver = account(AUTHOR + TARGET - sender, OwnerKind::Partner);
                let (mine, theirs) = match sender_party {
                    Party::Author => (of_sender.clone(), of_receiver),
                    Party::Counterparty => (of_receiver, of_sender.clone()),
                };
                new.account = Some(mine);
                let accept = acceptance(TARGET, Some(theirs));
                let change = applied(created(new).accept(accept, &usd(), start()));
                let reserve = change.plan.map(|plan| {
                    assert_eq!(plan.kind, SagaKind::Accept);
                    plan.before_pivot().next().unwrap().action.clone()
                });
                let expected = match owner_kind {
                    OwnerKind::House => None,
                    OwnerKind::Cashier | OwnerKind::Partner => Some(Action::Reserve {
                        account: of_sender,
                        amount: needed,
                    }),
                };
                assert_eq!(reserve, expected);
                let status = change.request.status;
                assert_eq!(
                    status == RequestStatus::Accepting,
                    expected.is_some(),
                    "{kind} {owner_kind:?}"
                );
            }
        }
    }
}

#[test]
fn an_end_without_completion_gives_reservations_back() {
    for kind in KINDS {
        let accepted = in_state(kind, "accepting").accept_settled(start()).request;
        let sender = sender_of(&accepted);
        let proposed = applied(accepted.cancel(AUTHOR, RELEASE_SAGA, start())).request;
        for change in [
            applied(proposed.cancel(TARGET, RELEASE_SAGA, start())),
            applied(accepted.expire(RELEASE_SAGA, deadline())),
        ] {
            let plan = change.plan.unwrap();
            assert_eq!((plan.kind, plan.saga_id), (SagaKind::Release, RELEASE_SAGA));
            assert_eq!(
                plan.steps[0].action,
                Action::Release {
                    book: sender,
                    reserved_by: ACCEPT_SAGA
                }
            );
            assert_eq!(change.request.reservation_saga_id, None);
            assert_eq!(
                change.request.saga_id, None,
                "ended already, whatever is released"
            );
        }
    }
}

/// A confirm that went back keeps its reservation for the next.
#[test]
fn a_reservation_outlives_a_failed_confirm() {
    let accepted = in_state(RequestKind::Send, "accepting")
        .accept_settled(start())
        .request;
    let sent = applied(accepted.mark_sent(AUTHOR, &proofs("1"), CONFIRM_WITHIN, start())).request;
    let settling = applied(sent.confirm(TARGET, None, SAGA, &usd(), start())).request;
    let failed = settling.confirm_failed(&json!({}), start()).request;
    assert_eq!(failed.reservation_saga_id, Some(ACCEPT_SAGA));
    let completed = settling.completed(&[], &[], start()).request;
    assert_eq!(completed.reservation_saga_id, None, "consumed");
}

#[test]
fn personal_data_is_beside_the_chain() {
    let new = NewRequest {
        counterpart_uid: Some("FO-000000000001".to_owned()),
        ..new_request(RequestKind::Send, Some(TARGET))
    };
    let change = new.create(start()).unwrap();
    let payload = serde_json::to_string(&change.event.payload).unwrap();
    assert!(!payload.contains("+90") && !payload.contains("FO-"));
    assert_eq!(change.event.private.unwrap()["contact"], "+90");
    let sent = in_state(RequestKind::Send, "sent");
    let disputed = applied(sent.claimed(TARGET, "a claim", start())).event;
    let payload = serde_json::to_string(&disputed.payload).unwrap();
    assert!(!payload.contains("a claim"));
    assert_eq!(disputed.private.unwrap()["claim"], "a claim");
}

#[test]
fn completion_names_both_books_entries() {
    let booked = [AUTHOR, TARGET].map(|book| Booked {
        book,
        seq: book + 10,
        tx_hash: Hash([u8::try_from(book).unwrap(); 32]),
    });
    let settling = in_state(RequestKind::Send, "settling");
    let event = settling.completed(&booked, &[], start()).event;
    assert_eq!(event.payload["saga"], SAGA.to_string());
    assert_eq!(event.payload["entries"][1]["book"], "2");
    assert_eq!(event.payload["entries"][1]["seq"], "12");
    assert_eq!(event.payload["entries"][1]["tx_hash"], "02".repeat(32));
}

/// A repeat is by the same party and of the same content; anything else is told so.
#[test]
fn what_another_did_is_no_repeat() {
    let sent = in_state(RequestKind::Send, "sent");
    let disputed = applied(sent.claimed(AUTHOR, "it was all there", start())).request;
    let dispute = |by, claim| word(disputed.claimed(by, claim, start()));
    assert_eq!(dispute(AUTHOR, "it was all there"), "again");
    assert_eq!(dispute(AUTHOR, "and a second claim"), "wrong");
    assert_eq!(dispute(TARGET, "nothing came"), "wrong");

    let pending = in_state(RequestKind::Send, "pending");
    let rejected = applied(pending.reject(TARGET, Some("no cash"), start())).request;
    let reject = |reason| word(rejected.reject(TARGET, reason, start()));
    assert_eq!(reject(Some("no cash")), "again");
    assert_eq!(reject(None), "again");
    assert_eq!(reject(Some("no time")), "wrong");
    let without = applied(pending.reject(TARGET, None, start())).request;
    assert_eq!(word(without.reject(TARGET, None, start())), "again");
    assert_eq!(
        word(without.reject(TARGET, Some("no cash"), start())),
        "wrong"
    );

    let accept = |request: &Request, account| {
        word(request.accept(acceptance(TARGET, account), &usd(), start()))
    };
    let house = AccountRef::house(TARGET, HousePurpose::Main, &usd().code);
    let accepted = in_state(RequestKind::Send, "accepted");
    assert_eq!(accept(&accepted, None), "again");
    assert_eq!(accept(&accepted, Some(house)), "again");
    let other = account(TARGET, OwnerKind::Partner);
    assert_eq!(accept(&accepted, Some(other)), "account_id");

    let proposed = applied(accepted.cancel(AUTHOR, RELEASE_SAGA, start())).request;
    let cancelled = applied(proposed.cancel(TARGET, RELEASE_SAGA, start())).request;
    for by in [AUTHOR, TARGET] {
        assert_eq!(
            word(cancelled.cancel(by, SAGA, start())),
            "again",
            "both did"
        );
    }
}

#[test]
fn a_proof_that_was_taken_back_does_not_come_again() {
    let sent = in_state(RequestKind::Send, "sent");
    let proposed = applied(sent.resend(TARGET, start())).request;
    let accepted = applied(proposed.resend(AUTHOR, start())).request;
    for by in [AUTHOR, TARGET] {
        assert_eq!(word(accepted.resend(by, start())), "again", "both agreed");
    }
    let mark = |request: &Request, value| {
        word(request.mark_sent(AUTHOR, &proofs(value), CONFIRM_WITHIN, start()))
    };
    assert_eq!(mark(&accepted, "0xabc"), "withdrawn");
    assert_eq!(mark(&accepted, "0xdef"), "sent");
}

#[test]
fn nobody_goes_on_without_end() {
    let mut request = in_state(RequestKind::Send, "sent");
    let state = |request: &Request, minor| {
        request.confirm(TARGET, Some(amount(minor)), SAGA, &usd(), start())
    };
    for claim in 0..MAX_CLAIMS {
        request = applied(state(&request, 900_000 + u64::from(claim % 2))).request;
    }
    assert_eq!(word(state(&request, 800_000)), "often");
    assert_eq!(
        word(state(&request, 1_000_000)),
        "sent",
        "all of it still may"
    );
    let agreed = request.confirm(AUTHOR, request.received_amount, SAGA, &usd(), start());
    assert_eq!(word(agreed), "sent");

    let mut request = in_state(RequestKind::Send, "sent");
    for number in 0..MAX_PROPOSALS {
        request = applied(match number % 2 {
            0 => request.cancel(AUTHOR, RELEASE_SAGA, start()),
            _ => request.resend(AUTHOR, start()),
        })
        .request;
    }
    assert_eq!(word(request.cancel(AUTHOR, RELEASE_SAGA, start())), "often");
    assert_eq!(word(request.cancel(TARGET, RELEASE_SAGA, start())), "sent");
    assert_eq!(word(request.resend(TARGET, start())), "accepted", "agrees");

    let mut broadcast = created(new_request(RequestKind::Receive, None));
    let accept = |request: &Request, by| {
        let purse = account(by, OwnerKind::Cashier);
        request.accept(acceptance(by, Some(purse)), &usd(), start())
    };
    for _ in 0..MAX_FAILED_ACCEPTS {
        let accepting = applied(accept(&broadcast, STRANGER)).request;
        broadcast = accepting.accept_failed(&json!({}), start()).request;
    }
    assert_eq!(word(accept(&broadcast, STRANGER)), "often");
    assert_eq!(word(accept(&broadcast, TARGET)), "accepting", "others may");
}

#[test]
fn the_client_that_the_author_names_gets_it() {
    let uid = "FO-000000000001";
    for target in [Some(TARGET), None] {
        let pending = created(NewRequest {
            counterpart_uid: Some(uid.to_owned()),
            ..new_request(RequestKind::Send, target)
        });
        let of = |owner_kind, owner_ref: &str| AccountRef {
            owner_ref: owner_ref.to_owned(),
            ..account(TARGET, owner_kind)
        };
        let accept = |account| word(pending.accept(acceptance(TARGET, account), &usd(), start()));
        for other in [
            None,
            Some(of(OwnerKind::Partner, "FO-000000000002")),
            Some(of(OwnerKind::Cashier, uid)),
        ] {
            assert_eq!(accept(other), "account_id");
        }
        assert_eq!(accept(Some(of(OwnerKind::Partner, uid))), "accepted");
    }
}

/// What a book tells when it refuses is its broker's alone.
#[test]
fn a_refusal_tells_the_other_side_no_balance() {
    let reason = json!({
        "account": "AC-1", "available": "40", "book": "1", "code": "insufficient_funds",
        "currency": "USD", "needed": "60",
    });
    let shown = json!({ "book": "1", "code": "insufficient_funds" });
    for change in [
        in_state(RequestKind::Send, "accepting").accept_failed(&reason, start()),
        in_state(RequestKind::Send, "settling").confirm_failed(&reason, start()),
    ] {
        let id = change.request.id;
        let event = change.event.salted(SAGA);
        assert_eq!(event.payload["reason"], shown);
        let event = Event::seal(event, id, 1, Hash([0; 32]), "saga", start());
        assert_eq!(event.private_for(TARGET), None);
        assert_eq!(event.reason_for(TARGET), shown);
        assert_eq!(event.reason_for(AUTHOR), reason);
        let digest = Hash::of_json(event.private_for(AUTHOR).unwrap()).to_hex();
        assert_eq!(event.payload["private_digest"], digest);
    }
    let given_up = in_state(RequestKind::Send, "settling")
        .confirm_failed(&json!({ "code": "given_up" }), start());
    assert_eq!(given_up.event.payload["reason"]["code"], "given_up");
    assert_eq!(given_up.event.private, None);
}

/// Until a debt stands, all that it may come to counts against a credit line; afterwards nothing.
#[test]
fn what_is_accepted_counts_until_it_ends() {
    let held = |state| in_state(RequestKind::Send, state).credit_hold();
    for state in ["accepting", "accepted", "sent", "settling", "disputed"] {
        let owing = held(state).unwrap();
        let sides = (owing.debtor, owing.creditor, owing.amount);
        assert_eq!(sides, (AUTHOR, TARGET, 1_000_000), "{state}");
    }
    for state in ["pending", "completed", "rejected", "cancelled", "expired"] {
        assert_eq!(held(state), None, "{state}");
    }
    let claimed = applied(in_state(RequestKind::Send, "sent").confirm(
        TARGET,
        Some(amount(5)),
        SAGA,
        &usd(),
        start(),
    ));
    assert_eq!(claimed.request.credit_hold().unwrap().amount, 1_000_000);
}
