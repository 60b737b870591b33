//! The ledger's outcomes on the real server, every one that a saga decides by.

use std::collections::HashSet;
use std::sync::OnceLock;
use std::time::Duration;

use settlenet::domain::ledger::{
    AccountName, AccountOwner, Balances, HOLD_INDEX, NamePart, SETTLE_INDEX, TransferCode,
    TransferId, account_id, transfer_id,
};
use settlenet::domain::money::CurrencyCode;
use settlenet::stack::ServerName;
use settlenet::stores::ledger::{
    AccountSpec, BurnOutcome, Hold, HoldOutcome, Ledger, LedgerConfig, LedgerError, SettleOutcome,
    TransferKind,
};
use uuid::Uuid;

use crate::harness::{self, Stack, broker_ids, private_stack, stack, until};

/// One client for all tests of this process: the server has room for few.
fn shared() -> Ledger {
    static LEDGER: OnceLock<Ledger> = OnceLock::new();
    let connect = || Ledger::connect(&config(stack())).unwrap();
    LEDGER.get_or_init(connect).clone()
}

fn config(stack: &Stack) -> LedgerConfig {
    let tigerbeetle = stack.config().tigerbeetle;
    let mut config = LedgerConfig::new(tigerbeetle.cluster_id.0, tigerbeetle.addresses);
    config.timeout = Duration::from_secs(30);
    config
}

fn currency() -> CurrencyCode {
    "USD".parse().unwrap()
}

/// A hold between two brokers that no other test has.
fn hold() -> Hold {
    let operation = Uuid::new_v4();
    let mut brokers = broker_ids(2);
    let mut position = || AccountName::position(brokers.next().unwrap(), &currency());
    Hold {
        id: transfer_id(operation, HOLD_INDEX),
        debit: position(),
        credit: position(),
        amount: 700_000,
        ledger: harness::ledger(),
        code: TransferCode::Obligation,
        operation,
    }
}

fn settle_id(hold: &Hold) -> TransferId {
    transfer_id(hold.operation, SETTLE_INDEX)
}

/// What both accounts of a hold have: (posted, pending), debit first.
async fn sums(ledger: &Ledger, hold: &Hold) -> [(i128, i128); 2] {
    let specs = [&hold.debit, &hold.credit].map(|name| AccountSpec {
        name: name.clone(),
        ledger: hold.ledger,
    });
    let balances = ledger.balances(&specs).await.unwrap();
    [0, 1].map(|index| (balances[index].posted(), balances[index].pending()))
}

fn is_integrity<T: std::fmt::Debug>(result: &Result<T, LedgerError>, part: &str) -> bool {
    match result {
        Err(LedgerError::Integrity { found, .. }) => found.contains(part),
        _ => false,
    }
}

const HELD: [(i128, i128); 2] = [(0, -700_000), (0, 700_000)];
const POSTED: [(i128, i128); 2] = [(-700_000, 0), (700_000, 0)];
const NOTHING: [(i128, i128); 2] = [(0, 0), (0, 0)];

#[tokio::test]
async fn a_hold_is_posted_once_however_often_it_is_asked_for() {
    let (ledger, hold) = (shared(), hold());
    assert_eq!(sums(&ledger, &hold).await, NOTHING);
    for _ in 0..2 {
        assert_eq!(ledger.hold(&hold).await.unwrap(), HoldOutcome::Held);
        assert_eq!(sums(&ledger, &hold).await, HELD);
    }
    for _ in 0..2 {
        let posted = ledger.post(hold.id, settle_id(&hold)).await.unwrap();
        assert_eq!(posted, SettleOutcome::Posted);
        assert_eq!(sums(&ledger, &hold).await, POSTED);
    }
    // Both of its later tries are told what has become of it.
    let voided = ledger.void(hold.id, settle_id(&hold)).await.unwrap();
    assert_eq!(voided, SettleOutcome::Posted);
    assert_eq!(ledger.hold(&hold).await.unwrap(), HoldOutcome::Held);
    assert_eq!(ledger.burn(&hold).await.unwrap(), BurnOutcome::Landed);
    assert_eq!(sums(&ledger, &hold).await, POSTED);
}

#[tokio::test]
async fn a_void_gives_all_of_it_back_and_the_post_has_lost() {
    let (ledger, hold) = (shared(), hold());
    ledger.hold(&hold).await.unwrap();
    for _ in 0..2 {
        let voided = ledger.void(hold.id, settle_id(&hold)).await.unwrap();
        assert_eq!(voided, SettleOutcome::Voided);
        let posted = ledger.post(hold.id, settle_id(&hold)).await.unwrap();
        assert_eq!(posted, SettleOutcome::Voided);
        assert_eq!(sums(&ledger, &hold).await, NOTHING);
    }
}

#[tokio::test]
async fn a_burned_hold_never_lands() {
    let (ledger, hold) = (shared(), hold());
    for _ in 0..2 {
        assert_eq!(ledger.burn(&hold).await.unwrap(), BurnOutcome::Burned);
        assert_eq!(ledger.hold(&hold).await.unwrap(), HoldOutcome::NeverLands);
    }
    let voided = ledger.void(hold.id, settle_id(&hold)).await.unwrap();
    assert_eq!(voided, SettleOutcome::HoldMissing);
    assert_eq!(sums(&ledger, &hold).await, NOTHING);
}

#[tokio::test]
async fn a_landed_hold_is_not_burned_and_can_be_voided() {
    let (ledger, hold) = (shared(), hold());
    ledger.hold(&hold).await.unwrap();
    for _ in 0..2 {
        assert_eq!(ledger.burn(&hold).await.unwrap(), BurnOutcome::Landed);
    }
    assert_eq!(sums(&ledger, &hold).await, HELD);
    let voided = ledger.void(hold.id, settle_id(&hold)).await.unwrap();
    assert_eq!(voided, SettleOutcome::Voided);
}

#[tokio::test]
async fn a_void_that_comes_too_early_spends_nothing() {
    let (ledger, hold) = (shared(), hold());
    for _ in 0..2 {
        let voided = ledger.void(hold.id, settle_id(&hold)).await.unwrap();
        assert_eq!(voided, SettleOutcome::HoldMissing);
    }
    assert_eq!(ledger.hold(&hold).await.unwrap(), HoldOutcome::Held);
    let posted = ledger.post(hold.id, settle_id(&hold)).await.unwrap();
    assert_eq!(posted, SettleOutcome::Posted);
}

#[tokio::test]
async fn a_post_that_came_before_its_hold_is_reported_for_what_it_did() {
    let (ledger, hold) = (shared(), hold());
    for _ in 0..2 {
        let posted = ledger.post(hold.id, settle_id(&hold)).await.unwrap();
        assert_eq!(posted, SettleOutcome::HoldMissing);
    }
    ledger.hold(&hold).await.unwrap();
    for settled in [
        ledger.post(hold.id, settle_id(&hold)).await,
        ledger.void(hold.id, settle_id(&hold)).await,
    ] {
        assert!(is_integrity(&settled, "stays pending"), "{settled:?}");
    }
}

#[tokio::test]
async fn of_a_post_and_a_void_exactly_one_wins_and_both_know_which() {
    let ledger = shared();
    let mut seen = HashSet::new();
    for round in 0..40 {
        let hold = hold();
        ledger.hold(&hold).await.unwrap();
        let settle = settle_id(&hold);
        let post = tokio::spawn({
            let ledger = ledger.clone();
            async move { ledger.post(hold.id, settle).await.unwrap() }
        });
        let void = tokio::spawn({
            let ledger = ledger.clone();
            async move { ledger.void(hold.id, settle).await.unwrap() }
        });
        // The void looks for its hold first; now and then the post must come later still.
        if round % 2 == 0 {
            tokio::task::yield_now().await;
        }
        let (posted, voided) = (post.await.unwrap(), void.await.unwrap());
        assert_eq!(posted, voided);
        let expected = match posted {
            SettleOutcome::Posted => POSTED,
            SettleOutcome::Voided => NOTHING,
            SettleOutcome::HoldMissing => panic!("the hold has landed"),
        };
        assert_eq!(sums(&ledger, &hold).await, expected);
        seen.insert(posted == SettleOutcome::Posted);
    }
    assert!(seen.contains(&true), "the post is a round trip ahead");
}

#[tokio::test]
async fn of_a_hold_and_its_burn_exactly_one_wins_and_both_know_which() {
    let ledger = shared();
    for round in 0..40 {
        let hold = hold();
        let landing = {
            let (ledger, hold) = (ledger.clone(), hold.clone());
            async move { ledger.hold(&hold).await.unwrap() }
        };
        let burning = {
            let (ledger, hold) = (ledger.clone(), hold.clone());
            async move { ledger.burn(&hold).await.unwrap() }
        };
        let (landing, burning) = if round % 2 == 0 {
            (tokio::spawn(landing), tokio::spawn(burning))
        } else {
            let burning = tokio::spawn(burning);
            (tokio::spawn(landing), burning)
        };
        let expected = match (landing.await.unwrap(), burning.await.unwrap()) {
            (HoldOutcome::Held, BurnOutcome::Landed) => HELD,
            (HoldOutcome::NeverLands, BurnOutcome::Burned) => NOTHING,
            other => panic!("{other:?}"),
        };
        assert_eq!(sums(&ledger, &hold).await, expected);
    }
}

#[tokio::test]
async fn a_wallet_never_goes_negative() {
    let ledger = shared();
    let mut payout = hold();
    let user = NamePart::new(&payout.operation.to_string()).unwrap();
    payout.debit = AccountName::new(AccountOwner::User(user), currency());
    assert_eq!(
        ledger.hold(&payout).await.unwrap(),
        HoldOutcome::InsufficientFunds
    );
    // The refusal is for ever, whatever comes in afterwards.
    assert_eq!(ledger.hold(&payout).await.unwrap(), HoldOutcome::NeverLands);
    assert_eq!(ledger.burn(&payout).await.unwrap(), BurnOutcome::Burned);
}

#[tokio::test]
async fn an_id_with_something_else_behind_it_is_an_integrity_error() {
    let (ledger, first) = (shared(), hold());
    ledger.hold(&first).await.unwrap();
    let mut other = first.clone();
    other.amount += 1;
    assert!(is_integrity(&ledger.hold(&other).await, "Amount"));
    let mut other = first.clone();
    other.credit = hold().credit;
    assert!(is_integrity(&ledger.hold(&other).await, "CreditAccountId"));
    let mut other = first.clone();
    other.operation = Uuid::new_v4();
    assert!(is_integrity(&ledger.hold(&other).await, "UserData128"));
    let mut other = first.clone();
    other.code = TransferCode::Settlement;
    assert!(is_integrity(&ledger.hold(&other).await, "Code"));

    // A settle id that is a hold's, and one that settled another hold.
    let second = hold();
    ledger.hold(&second).await.unwrap();
    let settled = ledger.post(first.id, second.id).await;
    assert!(
        is_integrity(&settled, "neither post nor void"),
        "{settled:?}"
    );
    ledger.post(second.id, settle_id(&second)).await.unwrap();
    for settled in [
        ledger.post(first.id, settle_id(&second)).await,
        ledger.void(first.id, settle_id(&second)).await,
    ] {
        assert!(settled.is_err(), "{settled:?}");
    }
    assert_eq!(sums(&ledger, &first).await, HELD);
}

#[tokio::test]
async fn a_hold_that_was_settled_under_another_id_is_told_as_it_is() {
    let (ledger, hold) = (shared(), hold());
    ledger.hold(&hold).await.unwrap();
    let repair = transfer_id(hold.operation, 99);
    let posted = ledger.post(hold.id, repair).await.unwrap();
    assert_eq!(posted, SettleOutcome::Posted);
    let voided = ledger.void(hold.id, settle_id(&hold)).await.unwrap();
    assert_eq!(voided, SettleOutcome::Posted);
}

#[tokio::test]
async fn a_request_that_can_never_be_right_is_refused() {
    let ledger = shared();
    let mut nothing = hold();
    nothing.amount = 0;
    let mut itself = hold();
    itself.credit = itself.debit.clone();
    let mut nowhere = hold();
    nowhere.ledger = 0;
    for wrong in [nothing, itself, nowhere] {
        let refused = ledger.hold(&wrong).await;
        assert!(
            matches!(refused, Err(LedgerError::Invalid { .. })),
            "{refused:?}"
        );
    }
}

#[tokio::test]
async fn accounts_are_created_once_and_stay_what_they_are() {
    let mut config = config(stack());
    config.accounts_remembered_max = 100;
    let ledger = Ledger::connect(&config).unwrap();
    let number = harness::ledger();
    let specs: Vec<AccountSpec> = broker_ids(600)
        .map(|broker| AccountSpec {
            name: AccountName::position(broker, &currency()),
            ledger: number,
        })
        .collect();
    // Some are there already, the memory holds a sixth of them, and two do it at once.
    ledger.ensure_accounts(&specs[100..110]).await.unwrap();
    let (one, two) = tokio::join!(
        ledger.ensure_accounts(&specs),
        ledger.ensure_accounts(&specs)
    );
    one.unwrap();
    two.unwrap();
    assert_eq!(
        ledger.balances(&specs).await.unwrap(),
        vec![Balances::default(); 600]
    );

    let mut moved = specs[3].clone();
    moved.ledger += 1;
    let again = ledger.ensure_accounts(std::slice::from_ref(&moved)).await;
    assert!(is_integrity(&again, "Ledger"), "{again:?}");
    let read = ledger.balances(&[moved]).await;
    assert!(is_integrity(&read, "ledger"), "{read:?}");
}

#[tokio::test]
async fn what_is_written_is_found_again() {
    let (ledger, hold) = (shared(), hold());
    ledger.hold(&hold).await.unwrap();
    ledger.post(hold.id, settle_id(&hold)).await.unwrap();
    let absent = transfer_id(hold.operation, 7);
    let found = ledger
        .transfers(&[settle_id(&hold), absent, hold.id])
        .await
        .unwrap();
    assert_eq!(found[1], None);
    let (post, landed) = (found[0].clone().unwrap(), found[2].clone().unwrap());
    assert_eq!(landed.kind, TransferKind::Hold);
    assert_eq!(post.kind, TransferKind::Post(hold.id));
    for record in [&landed, &post] {
        assert_eq!(record.debit, account_id(&hold.debit));
        assert_eq!(record.credit, account_id(&hold.credit));
        assert_eq!(record.amount, u128::from(hold.amount));
        assert_eq!(record.operation, hold.operation);
        assert_eq!(record.code, TransferCode::Obligation.number());
        assert_eq!(record.ledger, hold.ledger);
    }
    assert!(landed.at < post.at);

    let broker = |name: &AccountName| match name.owner() {
        AccountOwner::Position(id) => id.as_str().parse::<u64>().unwrap(),
        _ => panic!("{name}"),
    };
    let position = ledger
        .position(broker(&hold.debit), &currency(), hold.ledger)
        .await
        .unwrap();
    assert_eq!(position.posted(), -700_000);
}

#[tokio::test]
async fn no_answer_in_time_is_unknown_and_the_same_call_finds_out() {
    let stack = private_stack().await;
    let mut config = config(&stack);
    let ledger = Ledger::connect(&config).unwrap();
    ledger.ping().await.unwrap();
    config.timeout = Duration::from_millis(200);
    let hasty = Ledger::connect(&config).unwrap();
    let patient = ledger;

    for (away, back) in [("pause", "resume"), ("kill", "start")] {
        // The accounts are there, so that only the hold itself is lost sight of.
        let hold = hold();
        let accounts = [&hold.debit, &hold.credit].map(|name| AccountSpec {
            name: name.clone(),
            ledger: hold.ledger,
        });
        until(
            "the accounts are there",
            Duration::from_secs(30),
            async || hasty.ensure_accounts(&accounts).await.is_ok(),
        )
        .await;
        stack
            .order(format!("{away} {}", ServerName::Tigerbeetle))
            .await;
        let unknown = |result: Result<(), LedgerError>| match result {
            Err(error @ LedgerError::Unknown { .. }) => error.is_transient(),
            _ => false,
        };
        assert!(unknown(hasty.ping().await));
        assert!(unknown(hasty.hold(&hold).await.map(drop)));
        assert!(unknown(
            hasty.post(hold.id, settle_id(&hold)).await.map(drop)
        ));
        assert!(unknown(
            hasty.void(hold.id, settle_id(&hold)).await.map(drop)
        ));
        assert!(unknown(hasty.burn(&hold).await.map(drop)));
        stack
            .order(format!("{back} {}", ServerName::Tigerbeetle))
            .await;
        // All of it was on its way and arrives now, in its order; each call may be made again.
        assert_eq!(patient.hold(&hold).await.unwrap(), HoldOutcome::Held);
        let posted = patient.post(hold.id, settle_id(&hold)).await.unwrap();
        assert_eq!(posted, SettleOutcome::Posted);
        assert_eq!(sums(&patient, &hold).await, POSTED);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_evicted_client_begins_a_new_session_unnoticed() {
    let stack = private_stack().await;
    let config = config(&stack);
    let ledger = Ledger::connect(&config).unwrap();
    let first = hold();
    ledger.hold(&first).await.unwrap();
    // The server keeps 64 sessions and lets go of the one that was silent longest.
    for _ in 0..10 {
        let others: Vec<Ledger> = (0..8).map(|_| Ledger::connect(&config).unwrap()).collect();
        for other in &others {
            other.ping().await.unwrap();
        }
    }
    for _ in 0..2 {
        let posted = ledger.post(first.id, settle_id(&first)).await.unwrap();
        assert_eq!(posted, SettleOutcome::Posted);
    }
}
