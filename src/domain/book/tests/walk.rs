//! Random jobs, repeated and in any order, on one page.

use proptest::prelude::*;

use super::*;

/// What sagas do in a book: hold, then debit or credit, each perhaps undone.
#[derive(Clone, Debug)]
enum Act {
    Reserve(u64),
    UndoReserve,
    Debit(u64),
    UndoDebit,
    Credit(u64),
    Release,
    Close,
}

fn acts() -> impl Strategy<Value = (u128, Act)> {
    let act = prop_oneof![
        3 => (1u64..400).prop_map(Act::Reserve),
        1 => Just(Act::UndoReserve),
        3 => (1u64..400).prop_map(Act::Debit),
        2 => Just(Act::UndoDebit),
        6 => (100u64..900).prop_map(Act::Credit),
        1 => Just(Act::Release),
        1 => Just(Act::Close),
    ];
    (1u128..6, act)
}

fn owners() -> [AccountRef; 3] {
    [client(), owner(OwnerKind::Cashier, "till"), main_account()]
}

/// Sagas 1 to 5 reserve under their own number and book under a hundred more.
fn job_of(number: u128, account: &AccountRef, act: &Act) -> Option<Job> {
    let confirm = saga(number + 100);
    let consumes = Some(saga(number));
    Some(match act {
        Act::Reserve(amount) => {
            let work = Work::Reserve {
                account: account.clone(),
                amount: *amount,
            };
            job(saga(number), 2, work)
        }
        Act::UndoReserve => job(saga(number), 2, Work::UndoReserve),
        Act::Debit(amount) => {
            let entries = vec![
                entry(0, account, Side::Debit, *amount),
                entry(1, account, Side::Debit, 1),
            ];
            booking(confirm, 3, entries, consumes)
        }
        Act::UndoDebit => job(confirm, 3, Work::UndoBook { consumes }),
        Act::Credit(amount) => {
            let entries = vec![entry(0, account, Side::Credit, *amount)];
            booking(confirm, 5, entries, None)
        }
        Act::Release => {
            let work = Work::Release {
                reserved_by: saga(number),
            };
            job(saga(number + 200), 1, work)
        }
        Act::Close => return None,
    })
}

/// What is available in each open account that has a floor.
fn available(page: &Page) -> BTreeMap<AccountId, i128> {
    let open = page.accounts.iter().filter(|(_, state)| state.open);
    let available = open.filter_map(|(id, state)| Some((*id, state.balance.available()?)));
    available.map(|(id, sum)| (id, i128::from(sum))).collect()
}

/// Nothing takes more than is available. But a debit that is undone is promised again, all of it,
/// also where it had left some of its reservation and that was promised to others meanwhile: then
/// more is promised than is there, and nothing goes out until that is over.
fn check_available(before: &BTreeMap<AccountId, i128>, page: &Page, undoes_a_debit: bool) {
    for (id, now) in available(page) {
        let floor = before.get(&id).copied().unwrap_or(0).min(0);
        assert!(
            undoes_a_debit || now >= floor,
            "{now} are available, {floor} were"
        );
    }
}

fn check_promises(page: &Page) {
    for (id, state) in &page.accounts {
        let held: u64 = page
            .reservations
            .values()
            .filter(|r| r.account == *id && r.state == ReservationState::Held)
            .map(|r| r.amount)
            .sum();
        assert_eq!(state.balance.reserved, i64::try_from(held).unwrap());
    }
}

fn check_entries(page: &Page) {
    let mut balances: BTreeMap<AccountId, i64> = BTreeMap::new();
    let mut prev = genesis(BROKER);
    for (number, (entry, hash, _)) in (1..).zip(&page.changes.entries) {
        assert_eq!((entry.seq, entry.prev_hash), (number, prev));
        assert_eq!(entry.hash(), *hash);
        prev = *hash;
        let balance = balances.entry(entry.account).or_default();
        match entry.side {
            Side::Debit => *balance -= i64::try_from(entry.amount).unwrap(),
            Side::Credit => *balance += i64::try_from(entry.amount).unwrap(),
        }
        assert_eq!(entry.balance, *balance);
    }
    let head = (page.changes.entries.len() as u64, prev);
    assert_eq!((page.head_seq, page.head_hash.unwrap_or(prev)), head);
    for (id, state) in &page.accounts {
        let balance = balances.get(id).copied().unwrap_or(0);
        assert_eq!(state.balance.balance, balance, "balance = entries");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_jobs(acts in proptest::collection::vec(acts(), 1..80)) {
        let mut page = Page { broker: BROKER, ..Page::default() };
        for owner in &owners()[..2] {
            page.add(owner, 0);
        }
        let mut outcomes: HashMap<(Uuid, u16, bool), JobOutcome> = HashMap::new();
        for (number, act) in acts {
            let account = &owners()[usize::try_from(number % 3).unwrap()];
            let Some(job) = job_of(number, account, &act) else {
                let state = page.accounts.get_mut(&account.id());
                // As the service closes them: not while something is promised.
                if let Some(state) = state.filter(|state| state.balance.reserved == 0) {
                    state.open = false;
                }
                continue;
            };
            let undoes = matches!(job.work, Work::UndoBook { .. } | Work::UndoReserve);
            let before = available(&page);
            let outcome = page.run_twice(&job);
            check_promises(&page);
            check_available(&before, &page, matches!(job.work, Work::UndoBook { .. }));
            // The first outcome stands, until an undo makes it a tombstone.
            let undone = outcomes.contains_key(&(job.saga_id, job.step, true));
            if undone && !undoes {
                prop_assert_eq!(&outcome, &JobOutcome::Tombstone);
            } else {
                let key = (job.saga_id, job.step, undoes);
                let first = outcomes.entry(key).or_insert_with(|| outcome.clone());
                prop_assert_eq!(&outcome, &*first);
            }
        }
        check_entries(&page);
    }
}
