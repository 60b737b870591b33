mod walk;

use super::*;
use crate::domain::chain::genesis;

const BROKER: BrokerId = 7;

fn now() -> DateTime<Utc> {
    DateTime::from_timestamp(1_767_225_600, 0).unwrap()
}

fn usd() -> CurrencyCode {
    "USD".parse().unwrap()
}

fn owner(owner_kind: OwnerKind, owner_ref: &str) -> AccountRef {
    AccountRef {
        broker: BROKER,
        owner_kind,
        owner_ref: owner_ref.to_owned(),
        currency: usd(),
    }
}

fn client() -> AccountRef {
    owner(OwnerKind::Partner, "FO-1")
}

fn main_account() -> AccountRef {
    AccountRef::house(BROKER, HousePurpose::Main, &usd())
}

fn saga(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

/// A page with one client's account.
fn page(balance: i64) -> Page {
    let mut page = Page {
        broker: BROKER,
        ..Page::default()
    };
    page.add(&client(), balance);
    page
}

impl Page {
    fn add(&mut self, owner: &AccountRef, balance: i64) {
        let state = AccountState {
            owner: owner.clone(),
            open: true,
            balance: Balance {
                balance,
                ..Balance::empty(owner.owner_kind)
            },
            created_at: now(),
        };
        self.accounts.insert(owner.id(), state);
    }

    fn balance(&self, owner: &AccountRef) -> i64 {
        self.accounts[&owner.id()].balance.balance
    }

    fn reserved(&self, owner: &AccountRef) -> i64 {
        self.accounts[&owner.id()].balance.reserved
    }

    fn close(&mut self, owner: &AccountRef) {
        self.accounts.get_mut(&owner.id()).unwrap().open = false;
    }

    fn run(&mut self, job: &Job) -> JobOutcome {
        self.apply(job, now())
    }

    /// Applies a job and asserts that once more changes nothing and says the same.
    fn run_twice(&mut self, job: &Job) -> JobOutcome {
        let first = self.run(job);
        let (accounts, reservations) = (self.accounts.clone(), self.reservations.clone());
        let (head, steps) = (self.head_hash, self.steps.clone());
        assert_eq!(self.run(job), first);
        assert_eq!(self.accounts, accounts);
        assert_eq!(self.reservations, reservations);
        assert_eq!((self.head_hash, &self.steps), (head, &steps));
        first
    }

    fn state_of(&self, saga_id: Uuid) -> ReservationState {
        self.reservations[&(saga_id, 0)].state
    }
}

fn entry(leg: u16, account: &AccountRef, side: Side, amount: u64) -> PlannedEntry {
    PlannedEntry {
        leg,
        account: account.clone(),
        side,
        amount,
        kind: EntryKind::RequestPrincipal,
    }
}

fn job(saga_id: Uuid, step: u16, work: Work) -> Job {
    Job {
        saga_id,
        step,
        subject: "NR-000000000001".to_owned(),
        work,
    }
}

fn booking(saga_id: Uuid, step: u16, entries: Vec<PlannedEntry>, consumes: Option<Uuid>) -> Job {
    let work = Work::Book {
        entries,
        op_digest: Hash([9; 32]),
        consumes,
        private: None,
    };
    job(saga_id, step, work)
}

fn debit(number: u128, amount: u64) -> Job {
    let entries = vec![entry(0, &client(), Side::Debit, amount)];
    booking(saga(number), 3, entries, None)
}

fn credit(number: u128, account: &AccountRef, amount: u64) -> Job {
    let entries = vec![entry(0, account, Side::Credit, amount)];
    booking(saga(number), 5, entries, None)
}

fn undo(job_of: &Job) -> Job {
    let work = match &job_of.work {
        Work::Book { consumes, .. } => Work::UndoBook {
            consumes: *consumes,
        },
        Work::Reserve { .. } => Work::UndoReserve,
        other => panic!("{other:?} has no undo"),
    };
    job(job_of.saga_id, job_of.step, work)
}

fn reserve(number: u128, amount: u64) -> Job {
    let work = Work::Reserve {
        account: client(),
        amount,
    };
    job(saga(number), 2, work)
}

fn seqs(outcome: &JobOutcome) -> Vec<u64> {
    match outcome {
        JobOutcome::Done { booked, .. } => booked.iter().map(|entry| entry.seq).collect(),
        other => panic!("{other:?}"),
    }
}

fn code(outcome: &JobOutcome) -> &str {
    match outcome {
        JobOutcome::Refused(reason) => reason["code"].as_str().unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_job_twice_is_the_same_as_once() {
    let mut page = page(1_000);
    let held = reserve(1, 300);
    page.run_twice(&held);
    let mut booked = debit(2, 300);
    if let Work::Book { consumes, .. } = &mut booked.work {
        *consumes = Some(saga(1));
    }
    assert_eq!(seqs(&page.run_twice(&booked)), [1]);
    assert_eq!(seqs(&page.run_twice(&credit(2, &main_account(), 300))), [2]);
    assert_eq!(seqs(&page.run_twice(&undo(&booked))), [3]);
    page.run_twice(&undo(&held));
    page.run_twice(&reserve(3, 10));
    let release = Work::Release {
        reserved_by: saga(3),
    };
    page.run_twice(&job(saga(4), 1, release));
    assert_eq!(
        code(&page.run_twice(&debit(5, 5_000))),
        "insufficient_funds"
    );
    assert_eq!(
        (page.balance(&client()), page.reserved(&client())),
        (1_000, 0)
    );
}

#[test]
fn an_undo_before_its_action_forbids_it() {
    for action in [debit(1, 100), reserve(1, 100)] {
        let mut page = page(1_000);
        assert_eq!(seqs(&page.run_twice(&undo(&action))), [] as [u64; 0]);
        assert_eq!(page.run_twice(&action), JobOutcome::Tombstone);
        assert_eq!(
            (page.balance(&client()), page.reserved(&client())),
            (1_000, 0)
        );
        assert_eq!(page.head_seq, 0);
    }
}

/// What was done and undone answers like what was never done: forward is over.
#[test]
fn an_action_that_was_undone_does_not_come_back() {
    let mut page = page(1_000);
    page.run(&debit(1, 100));
    page.run(&undo(&debit(1, 100)));
    assert_eq!(page.run_twice(&debit(1, 100)), JobOutcome::Tombstone);
    assert_eq!((page.balance(&client()), page.head_seq), (1_000, 2));
}

#[test]
fn a_refusal_stands_even_if_funds_arrive_later() {
    let mut page = page(100);
    let refused = page.run(&debit(1, 101));
    assert_eq!(code(&refused), "insufficient_funds");
    page.run(&credit(2, &client(), 1_000));
    assert_eq!(page.run_twice(&debit(1, 101)), refused);
    assert_eq!(page.balance(&client()), 1_100);
    assert!(
        matches!(page.run(&debit(3, 101)), JobOutcome::Done { .. }),
        "a new try"
    );
    assert_eq!(seqs(&page.run_twice(&undo(&debit(1, 101)))), [] as [u64; 0]);
}

#[test]
fn a_refusal_says_what_was_there() {
    let mut page = page(1_000);
    page.run(&reserve(1, 400));
    let JobOutcome::Refused(reason) = page.run(&debit(2, 601)) else {
        panic!("refused")
    };
    assert_eq!(reason["needed"], "601");
    assert_eq!(reason["available"], "600");
    assert_eq!(reason["account"], client().id().to_string());
}

#[test]
fn a_reservation_is_held_consumed_and_held_again() {
    let mut page = page(1_000);
    page.run(&reserve(1, 600));
    assert_eq!(page.reserved(&client()), 600);
    assert_eq!(
        code(&page.run(&debit(9, 401))),
        "insufficient_funds",
        "promised"
    );

    // Less than was promised has arrived: all of the promise ends with the debit.
    let entries = vec![entry(0, &client(), Side::Debit, 590)];
    let action = booking(saga(2), 3, entries, Some(saga(1)));
    page.run(&action);
    assert_eq!(page.state_of(saga(1)), ReservationState::Consumed);
    assert_eq!(
        (page.balance(&client()), page.reserved(&client())),
        (410, 0)
    );

    page.run(&undo(&action));
    assert_eq!(page.state_of(saga(1)), ReservationState::Held);
    assert_eq!(
        (page.balance(&client()), page.reserved(&client())),
        (1_000, 600)
    );

    let release = Work::Release {
        reserved_by: saga(1),
    };
    page.run(&job(saga(3), 1, release));
    assert_eq!(page.state_of(saga(1)), ReservationState::Released);
    assert_eq!(
        (page.balance(&client()), page.reserved(&client())),
        (1_000, 0)
    );
}

#[test]
fn a_reservation_is_its_own_debits_only() {
    let mut page = page(1_000);
    page.run(&reserve(1, 1_000));
    let with = |number, consumes| {
        let entries = vec![entry(0, &client(), Side::Debit, 1_000)];
        booking(saga(number), 3, entries, consumes)
    };
    assert_eq!(code(&page.run(&with(2, None))), "insufficient_funds");
    assert_eq!(
        code(&page.run(&with(3, Some(saga(99))))),
        "insufficient_funds"
    );
    assert!(matches!(
        page.run(&with(4, Some(saga(1)))),
        JobOutcome::Done { .. }
    ));
    assert_eq!(page.balance(&client()), 0);
}

#[test]
fn undoing_a_refused_booking_leaves_the_reservation_alone() {
    let mut page = page(1_000);
    page.run(&reserve(1, 100));
    let entries = vec![entry(0, &client(), Side::Debit, 2_000)];
    let action = booking(saga(2), 3, entries, Some(saga(1)));
    assert_eq!(code(&page.run(&action)), "insufficient_funds");
    page.run(&undo(&action));
    assert_eq!(page.state_of(saga(1)), ReservationState::Held);
    assert_eq!(page.reserved(&client()), 100);
}

#[test]
fn a_credit_to_a_closed_account_waits_in_suspense() {
    let suspense = suspense(&client());
    let mut page = page(0);
    page.close(&client());
    let done = page.run_twice(&credit(1, &client(), 50));
    assert!(matches!(done, JobOutcome::Done { diverted: true, .. }));
    assert_eq!((page.balance(&client()), page.balance(&suspense)), (0, 50));
    let (booked, _) = &page.entries[&(saga(1), 5)][0];
    assert_eq!(booked.diverted_from, Some(client().id()));
    assert_eq!(booked.account, suspense.id());
    assert_eq!(page.changes.diverted, [(1, client().id())]);
    assert_eq!(page.changes.opened, [suspense.id()]);

    assert_eq!(code(&page.run(&debit(2, 1))), "account_closed");
    let unknown = owner(OwnerKind::Partner, "FO-nobody");
    assert!(matches!(
        page.run(&credit(3, &unknown, 5)),
        JobOutcome::Done { diverted: true, .. }
    ));
    let entries = vec![entry(0, &unknown, Side::Debit, 1)];
    assert_eq!(
        code(&page.run(&booking(saga(4), 3, entries, None))),
        "no_such_account"
    );
}

#[test]
fn a_credit_that_does_not_fit_waits_in_suspense() {
    let mut page = page(i64::MAX - 10);
    let both = vec![
        entry(0, &client(), Side::Credit, 10),
        entry(1, &client(), Side::Credit, 1),
    ];
    let done = page.run(&booking(saga(1), 5, both, None));
    assert!(matches!(done, JobOutcome::Done { diverted: true, .. }));
    assert_eq!(page.balance(&client()), i64::MAX);
    assert_eq!(page.balance(&suspense(&client())), 1);
}

#[test]
fn a_debit_that_does_not_fit_is_refused_even_of_the_house() {
    let mut page = page(0);
    page.add(&main_account(), i64::MIN + 10);
    let of_house = |number, amount| {
        let entries = vec![entry(0, &main_account(), Side::Debit, amount)];
        booking(saga(number), 3, entries, None)
    };
    assert_eq!(code(&page.run(&of_house(1, 11))), "insufficient_funds");
    assert!(matches!(
        page.run(&of_house(2, 10)),
        JobOutcome::Done { .. }
    ));
    page.accounts.remove(&main_account().id());
    assert_eq!(
        code(&page.run(&of_house(3, u64::MAX))),
        "insufficient_funds"
    );
    assert_eq!(page.head_seq, 1);
}

#[test]
fn debits_of_one_account_in_one_step_count_together() {
    let mut page = page(100);
    let both = |number, first, second| {
        let entries = vec![
            entry(0, &client(), Side::Debit, first),
            entry(1, &client(), Side::Debit, second),
        ];
        booking(saga(number), 3, entries, None)
    };
    assert_eq!(code(&page.run(&both(1, 60, 41))), "insufficient_funds");
    assert_eq!(
        (page.balance(&client()), page.head_seq),
        (100, 0),
        "all or nothing"
    );
    assert_eq!(seqs(&page.run(&both(2, 60, 40))), [1, 2]);
    assert_eq!(page.balance(&client()), 0);
}

#[test]
fn a_reversal_stands_against_its_entry() {
    let mut page = page(100);
    let action = debit(1, 30);
    page.run(&action);
    page.run(&undo(&action));
    let (original, _) = &page.entries[&(saga(1), 3)][0];
    let (reversal, _) = &page.entries[&(saga(1), 3 + UNDO_STEP)][0];
    assert_eq!(reversal.reverses_seq, Some(original.seq));
    assert_eq!(reversal.side, Side::Credit);
    assert_eq!(
        (reversal.amount, reversal.leg, reversal.op_digest),
        (original.amount, original.leg, original.op_digest)
    );
    assert_eq!(page.balance(&client()), 100);
}

#[test]
fn a_reversal_into_a_closed_account_waits_in_suspense() {
    let mut page = page(100);
    let action = debit(1, 30);
    page.run(&action);
    page.close(&client());
    page.run_twice(&undo(&action));
    assert_eq!(page.balance(&client()), 70);
    assert_eq!(page.balance(&suspense(&client())), 30);
}

/// The promise is held again, so that whoever releases it finds it, though the closed account
/// has nothing left to keep it with: a debit is refused there anyway.
#[test]
fn a_promise_on_an_account_that_was_closed_meanwhile() {
    let mut page = page(100);
    page.run(&reserve(1, 100));
    let entries = vec![entry(0, &client(), Side::Debit, 100)];
    let action = booking(saga(2), 3, entries.clone(), Some(saga(1)));
    page.run(&action);
    page.close(&client());
    page.run_twice(&undo(&action));
    assert_eq!(page.state_of(saga(1)), ReservationState::Held);
    assert_eq!(page.balance(&suspense(&client())), 100);
    let again = booking(saga(3), 3, entries, Some(saga(1)));
    assert_eq!(code(&page.run_twice(&again)), "account_closed");
    let release = Work::Release {
        reserved_by: saga(1),
    };
    page.run_twice(&job(saga(4), 1, release));
    assert_eq!((page.balance(&client()), page.reserved(&client())), (0, 0));
}

#[test]
fn house_accounts_open_when_first_booked_on() {
    let mut page = page(0);
    page.run(&credit(1, &main_account(), 10));
    assert_eq!(page.changes.opened, [main_account().id()]);
    page.run(&credit(2, &main_account(), 10));
    assert_eq!(page.changes.opened.len(), 1);
    assert_eq!(page.balance(&main_account()), 20);
    let commission = AccountRef::house(BROKER, HousePurpose::Commission, &usd());
    let entries = vec![entry(0, &commission, Side::Debit, 10)];
    page.run(&booking(saga(3), 3, entries, None));
    assert_eq!(page.balance(&commission), -10, "no floor");
}

#[test]
fn free_text_is_beside_the_entry_with_its_digest_in_it() {
    let mut page = page(100);
    let text = json!({ "note": "for the taxi" });
    let mut action = debit(1, 30);
    if let Work::Book { private, .. } = &mut action.work {
        *private = Some(text.clone());
    }
    page.run(&action);
    let (entry, hash, private) = &page.changes.entries[0];
    assert_eq!(private.as_ref(), Some(&text));
    assert_eq!(entry.private_digest, Some(Hash::of_json(&text)));
    assert_eq!(entry.hash(), *hash);
}

#[test]
fn the_chain_goes_on_from_the_head() {
    let mut page = Page {
        head_seq: 41,
        head_hash: Some(Hash([3; 32])),
        ..page(100)
    };
    page.run(&debit(1, 1));
    let (first, hash) = &page.entries[&(saga(1), 3)][0];
    assert_eq!((first.seq, first.prev_hash), (42, Hash([3; 32])));
    assert_eq!((page.head_seq, page.head_hash), (42, Some(*hash)));
    let mut fresh = self::page(100);
    fresh.run(&debit(1, 1));
    assert_eq!(fresh.entries[&(saga(1), 3)][0].0.prev_hash, genesis(BROKER));
}
