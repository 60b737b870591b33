use super::*;
use crate::domain::account::OwnerKind;
use crate::domain::request::tests::{
    AUTHOR, TARGET, acceptance, account, amount, applied, created, new_request, proofs, start, usd,
};
use crate::domain::request::{Execution, NewRequest, Pickup, RequestKind, Settles};
use crate::domain::terms::{Commission, CommissionSize, ObligationTerm, Terms};

const SAGA: Uuid = Uuid::from_u128(0xc0);

/// A request that may be confirmed, and the plan of its confirmation.
fn confirmed(kind: RequestKind, terms: Terms, received: u64) -> (Request, Plan) {
    let pending = created(NewRequest {
        account: Some(account(AUTHOR, OwnerKind::Partner)),
        terms,
        ..new_request(kind, Some(TARGET))
    });
    let accept = acceptance(TARGET, Some(account(TARGET, OwnerKind::Cashier)));
    let accepting = applied(pending.accept(accept, &usd(), start())).request;
    let accepted = accepting.accept_settled(start()).request;
    let sender = accepted.broker_of(accepted.sender()).unwrap();
    let within = chrono::Duration::hours(1);
    let sent = applied(accepted.mark_sent(sender, &proofs("1"), within, start())).request;
    let plan = confirm(&sent, SAGA, amount(received), &usd()).unwrap();
    (sent, plan)
}

/// Kind, terms and received amount of every sort.
fn cases() -> Vec<(RequestKind, Terms, u64)> {
    let obligations = [
        ObligationTerm::AuthorOwes,
        ObligationTerm::CounterpartyOwes,
        ObligationTerm::None,
    ];
    let mut cases = Vec::new();
    for kind in [RequestKind::Send, RequestKind::Receive] {
        for obligation in obligations {
            for payer in [None, Some(Party::Author), Some(Party::Counterparty)] {
                for size in [
                    CommissionSize::Amount(amount(500)),
                    CommissionSize::BasisPoints(125),
                ] {
                    let commission = payer.map(|payer| Commission { payer, size });
                    for received in [1_000_000, 999_001] {
                        let terms = Terms {
                            obligation,
                            commission,
                        };
                        cases.push((kind, terms, received));
                    }
                }
            }
        }
    }
    cases
}

/// A book step: number, book, entries, digest, whose reservations it consumes.
type BookStep<'a> = (u16, BrokerId, &'a Vec<PlannedEntry>, Hash, Option<Uuid>);

fn books(plan: &Plan) -> Vec<BookStep<'_>> {
    plan.steps
        .iter()
        .filter_map(|step| match &step.action {
            Action::Book {
                book,
                entries,
                op_digest,
                consumes,
            } => Some((step.number, *book, entries, *op_digest, *consumes)),
            _ => None,
        })
        .collect()
}

#[test]
fn debits_before_the_pivot_credits_after_it_one_step_per_book() {
    for (kind, terms, received) in cases() {
        let (request, plan) = confirmed(kind, terms, received);
        let pivot = plan.pivot().unwrap().number;
        let mut seen = Vec::new();
        for (number, book, entries, _, consumes) in books(&plan) {
            let side = if number < pivot {
                Side::Debit
            } else {
                Side::Credit
            };
            assert!(!entries.is_empty());
            for entry in entries {
                assert_eq!((entry.side, entry.account.broker), (side, book));
            }
            let reserved = (side == Side::Debit).then_some(request.reservation_saga_id);
            assert_eq!(consumes, reserved.flatten());
            assert!(!seen.contains(&(book, side)), "one step per book and side");
            seen.push((book, side));
        }
    }
}

#[test]
fn what_one_loses_another_gains() {
    for (kind, terms, received) in cases() {
        let (request, plan) = confirmed(kind, terms, received);
        let fee = terms.commission.map_or(0, |c| c.on(amount(received)));
        let entries: Vec<_> = books(&plan).into_iter().flat_map(|step| step.2).collect();
        let sum = |side| -> u64 {
            let of_side = entries.iter().filter(|entry| entry.side == side);
            of_side.map(|entry| entry.amount).sum()
        };
        assert_eq!(sum(Side::Debit), received + fee);
        assert_eq!(sum(Side::Credit), received + fee);

        let net = |party: Party| -> i128 {
            let broker = request.broker_of(party);
            let of_party = entries.iter().filter(|e| Some(e.account.broker) == broker);
            of_party
                .map(|entry| match entry.side {
                    Side::Debit => -i128::from(entry.amount),
                    Side::Credit => i128::from(entry.amount),
                })
                .sum()
        };
        let sender = request.sender();
        let paid_by_sender = match terms.commission {
            Some(commission) if commission.payer == sender => i128::from(fee),
            Some(_) => -i128::from(fee),
            None => 0,
        };
        assert_eq!(net(sender), -i128::from(received) - paid_by_sender);
        assert_eq!(net(sender.other()), i128::from(received) + paid_by_sender);
    }
}

/// No more is debited from the sender's account than was reserved on it.
#[test]
fn a_reservation_covers_the_debit() {
    for (kind, terms, received) in cases() {
        let (request, plan) = confirmed(kind, terms, received);
        let account = request.account_of(request.sender()).unwrap();
        let [(promised, most)] = request.promises().try_into().unwrap();
        assert_eq!(promised, *account);
        let debited: u64 = books(&plan)
            .into_iter()
            .flat_map(|step| step.2)
            .filter(|entry| entry.side == Side::Debit && entry.account == *account)
            .map(|entry| entry.amount)
            .sum();
        assert!(debited <= most);
        if received == request.amount.minor() {
            assert_eq!(debited, most);
        }
        let floored = books(&plan)
            .into_iter()
            .flat_map(|step| step.2)
            .filter(|entry| entry.side == Side::Debit && entry.account.has_floor());
        for entry in floored {
            assert_eq!(entry.account, *account, "nothing else can be refused");
        }
    }
}

#[test]
fn the_digest_is_of_the_whole_operation() {
    let mut digests = Vec::new();
    for (kind, terms, received) in cases() {
        let (request, plan) = confirmed(kind, terms, received);
        let all = books(&plan);
        let expected = chain::op_digest(
            SAGA,
            &request.id.to_string(),
            all.iter()
                .flat_map(|step| step.2.iter().map(|entry| (step.0, entry))),
        );
        assert!(all.iter().all(|step| step.3 == expected));
        digests.push(expected);
    }
    let (request, plan) = confirmed(RequestKind::Send, cases()[0].1, 1_000_000);
    let other = confirm(&request, Uuid::from_u128(0xc1), amount(1_000_000), &usd()).unwrap();
    assert_ne!(books(&plan)[0].3, books(&other)[0].3, "another try");
}

#[test]
fn the_debt_is_the_terms() {
    for (kind, terms, received) in cases() {
        let (_, plan) = confirmed(kind, terms, received);
        let fee = terms.commission.map_or(0, |c| c.on(amount(received)));
        let Some(debtor) = terms.obligation.debtor() else {
            assert_eq!(plan.debt(), None);
            assert_eq!(plan.steps[0].action, Action::Claim);
            assert_eq!(plan.pivot().unwrap().action, Action::Decide);
            continue;
        };
        let owes_fee = terms.commission.is_some_and(|c| c.payer == debtor);
        let expected = if owes_fee {
            received + fee
        } else {
            received - fee
        };
        let debt = plan.debt().unwrap();
        assert_eq!(debt.amount, expected);
        let brokers = match debtor {
            Party::Author => (AUTHOR, TARGET),
            Party::Counterparty => (TARGET, AUTHOR),
        };
        assert_eq!((debt.debtor, debt.creditor), brokers);
        assert_eq!(plan.steps[0].action, Action::OpenObligation(debt.clone()));
        assert_eq!(plan.steps[1].action, Action::Hold(debt.clone()));
        assert_eq!(plan.pivot().unwrap().action, Action::Post(debt.clone()));
    }
}

fn assert_partitioned(plan: &Plan) {
    let riding = plan.steps.iter().filter(|step| step.action.rides());
    let finish = plan.steps.last();
    assert_eq!(finish.unwrap().action, Action::Finish);
    let parts: Vec<u16> = riding
        .chain(plan.before_pivot())
        .chain(plan.pivot())
        .chain(plan.after_pivot())
        .chain(finish)
        .map(|step| step.number)
        .collect();
    let all: Vec<u16> = (1..).take(plan.steps.len()).collect();
    assert_eq!(parts, all, "each step once, in order");
    assert_eq!(
        plan.first_step(),
        parts[plan.steps.iter().filter(|s| s.action.rides()).count()]
    );
}

#[test]
fn every_step_is_before_at_or_after_the_pivot() {
    for (kind, terms, received) in cases() {
        assert_partitioned(&confirmed(kind, terms, received).1);
    }
    let request = RequestId::from_bits(1);
    let promises = vec![
        (account(1, OwnerKind::Partner), 5),
        (account(2, OwnerKind::Cashier), 5),
    ];
    assert_partitioned(&accept(request, SAGA, promises));
    assert_partitioned(&release(request, SAGA, vec![1, 2], Uuid::from_u128(2)));
}

#[test]
fn acceptance_reserves_in_the_senders_book() {
    let client = account(7, OwnerKind::Partner);
    let plan = accept(RequestId::from_bits(1), SAGA, vec![(client.clone(), 5)]);
    assert_eq!(plan.pivot(), None, "its last step decides");
    let reserve = plan.before_pivot().next().unwrap();
    assert_eq!(reserve.number, plan.first_step());
    assert_eq!(reserve.action.target(), "tenant_7");
    assert_eq!(
        reserve.action,
        Action::Reserve {
            account: client,
            amount: 5
        }
    );
    assert_eq!(plan.debt(), None);
}

#[test]
fn release_names_the_saga_that_reserved() {
    let reserved_by = Uuid::from_u128(2);
    let plan = release(RequestId::from_bits(1), SAGA, vec![7], reserved_by);
    assert_eq!(
        plan.steps[0].action,
        Action::Release {
            book: 7,
            reserved_by
        }
    );
    assert_eq!(plan.first_step(), 1);
}

/// The payload of a step outlives the program that wrote it.
#[test]
fn a_step_is_read_as_it_was_written() {
    for (kind, terms, received) in cases() {
        for step in confirmed(kind, terms, received).1.steps {
            let payload = serde_json::to_value(&step.action).unwrap();
            let read: Action = serde_json::from_value(payload).unwrap();
            assert_eq!(read, step.action);
        }
    }
}

#[test]
fn a_commission_that_rounds_to_nothing_has_no_entries() {
    let terms = Terms {
        obligation: ObligationTerm::AuthorOwes,
        commission: Some(Commission {
            payer: Party::Author,
            size: CommissionSize::BasisPoints(1),
        }),
    };
    let (_, plan) = confirmed(RequestKind::Send, terms, 1);
    let legs: usize = books(&plan).into_iter().map(|step| step.2.len()).sum();
    assert_eq!(legs, 2);
    assert_eq!(plan.debt().unwrap().amount, 1);
}

/// An order that may be confirmed, and the plan of its confirmation.
fn ordered(kind: RequestKind, payer: Option<Party>) -> (Request, Plan) {
    let commission = payer.map(|payer| Commission {
        payer,
        size: CommissionSize::BasisPoints(100),
    });
    let pending = created(NewRequest {
        account: Some(account(AUTHOR, OwnerKind::Partner)),
        terms: Terms {
            obligation: ObligationTerm::AuthorOwes,
            commission,
        },
        ..new_request(kind, Some(TARGET))
    });
    let accept = acceptance(TARGET, Some(account(TARGET, OwnerKind::Cashier)));
    let accepting = applied(pending.accept(accept, &usd(), start())).request;
    let accepted = match accepting.saga_id {
        Some(_) => accepting.accept_settled(start()).request,
        None => accepting,
    };
    let within = chrono::Duration::hours(1);
    let execution = Execution {
        by: TARGET,
        proofs: &proofs("1"),
        pickup: Pickup::Missing,
        saga_id: SAGA,
        confirm_within: within,
    };
    let executed = applied(accepted.execute(&execution, &usd(), start())).request;
    let plan = confirm(&executed, SAGA, executed.amount, &usd()).unwrap();
    (executed, plan)
}

/// A collect credits the client and the cashier, a payout debits both; the commission goes between
/// the houses, and into the debt.
#[test]
fn an_order_moves_client_and_cashier_the_same_way() {
    for (kind, side) in [
        (RequestKind::Collect, Side::Credit),
        (RequestKind::Payout, Side::Debit),
    ] {
        for payer in [None, Some(Party::Author), Some(Party::Counterparty)] {
            let (order, plan) = ordered(kind, payer);
            assert_partitioned(&plan);
            let entries: Vec<_> = books(&plan).into_iter().flat_map(|step| step.2).collect();
            let principal = entries.iter().filter(|entry| entry.leg == 0);
            let principal: Vec<_> = principal
                .map(|entry| (entry.account.clone(), entry.side, entry.amount))
                .collect();
            let client = account(AUTHOR, OwnerKind::Partner);
            let cashier = account(TARGET, OwnerKind::Cashier);
            assert_eq!(principal.len(), 2);
            assert!(principal.contains(&(client.clone(), side, 1_000_000)));
            assert!(principal.contains(&(cashier.clone(), side, 1_000_000)));
            let fees = entries.iter().filter(|entry| entry.leg == 1);
            assert!(fees.clone().all(|entry| !entry.account.has_floor()));
            assert_eq!(fees.count(), if payer.is_some() { 2 } else { 0 });
            let owed = match payer {
                None => 1_000_000,
                Some(Party::Author) => 1_010_000,
                Some(Party::Counterparty) => 990_000,
            };
            assert_eq!(plan.opens().unwrap().amount, owed);
            assert_eq!(plan.opens().unwrap().debtor, AUTHOR);
            let promised = match kind {
                RequestKind::Payout => vec![(client, 1_000_000), (cashier, 1_000_000)],
                _ => Vec::new(),
            };
            assert_eq!(order.promises(), promised);
        }
    }
}

/// A settlement opens no debt and moves the ledger back, whichever side asks for it.
#[test]
fn a_settlement_moves_the_ledger_from_the_creditor_to_the_debtor() {
    for (debtor, pays, gets) in [
        (Party::Author, AUTHOR, TARGET),
        (Party::Counterparty, TARGET, AUTHOR),
    ] {
        let pending = created(NewRequest {
            settles: Some(Settles {
                debtor,
                obligation: None,
            }),
            terms: Terms::NONE,
            ..new_request(RequestKind::Settlement, Some(TARGET))
        });
        let accepted = applied(pending.accept(acceptance(TARGET, None), &usd(), start())).request;
        let within = chrono::Duration::hours(1);
        let sent = applied(accepted.mark_sent(pays, &proofs("1"), within, start())).request;
        let plan = confirm(&sent, SAGA, amount(999_000), &usd()).unwrap();
        assert_partitioned(&plan);
        assert_eq!(plan.opens(), None);
        assert_eq!(plan.steps[0].action, Action::Claim);
        let debt = plan.debt().unwrap();
        assert_eq!(
            (debt.debtor, debt.creditor, debt.amount),
            (gets, pays, 999_000)
        );
        let moves: Vec<_> = books(&plan)
            .into_iter()
            .flat_map(|step| step.2)
            .map(|entry| (entry.account.broker, entry.side, entry.amount))
            .collect();
        assert_eq!(
            moves,
            [(pays, Side::Debit, 999_000), (gets, Side::Credit, 999_000)]
        );
        assert_eq!(sent.credit_hold(), None);
    }
}
