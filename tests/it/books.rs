//! A broker's own book through its service, on real servers.

use settlenet::domain::account::{AccountRef, OwnerKind, Side};
use settlenet::domain::book::{Job, JobOutcome, Work};
use settlenet::domain::canonical::Hash;
use settlenet::domain::chain::Verifier;
use settlenet::domain::ids::{AccountId, BrokerId};
use settlenet::domain::money::Amount;
use settlenet::services::books::{BooksError, BooksService, EntryInput, NewAccount, OwnEntryKind};
use settlenet::stores::StoreError;
use settlenet::stores::book;
use settlenet::stores::master::idempotency::Intention;
use sqlx::AssertSqlSafe;
use uuid::Uuid;

use crate::harness::{World, start};

fn service(world: &World) -> BooksService {
    BooksService::new(world.app.systems.router.clone())
}

fn entry(account: AccountId, side: Side, minor: u64) -> EntryInput {
    EntryInput {
        account,
        kind: OwnEntryKind::Opening,
        side,
        amount: Amount::from_minor(minor).unwrap(),
        note: Some("counted by two".to_owned()),
    }
}

fn named(world: &World, name: &str) -> NewAccount {
    NewAccount {
        owner_kind: OwnerKind::Partner,
        owner_ref: name.to_owned(),
        currency: world.currency.clone(),
    }
}

async fn open(world: &World, broker: BrokerId, name: &str) -> AccountId {
    let state = service(world)
        .open_account(broker, &World::intention(), named(world, name), start())
        .await
        .unwrap();
    state.owner.id()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_own_entry_is_booked_once_and_chained() {
    let world = World::new().await;
    let books = service(&world);
    // A FULL broker's own database and a shared shard are the same here.
    for broker in [world.alpha, world.gamma] {
        let account = open(&world, broker, "FO-1").await;
        let intention = World::intention();
        let input = entry(account, Side::Credit, 5_000);
        let first = books
            .book_entry(broker, &intention, input.clone(), start())
            .await
            .unwrap();
        assert_eq!((first.entry.seq, first.entry.balance), (1, 5_000));
        assert_eq!(first.entry.hash(), first.tx_hash);
        assert_eq!(first.private.as_ref().unwrap()["note"], "counted by two");
        let later = start() + chrono::Duration::hours(1);
        let again = books
            .book_entry(broker, &intention, input.clone(), later)
            .await;
        assert_eq!(again.unwrap(), first);

        let other = Intention {
            fingerprint: Hash::of_bytes(b"something else"),
            ..intention.clone()
        };
        let reused = books.book_entry(broker, &other, input, start()).await;
        assert!(matches!(reused, Err(BooksError::KeyReused)));

        let head = books.head(broker).await.unwrap();
        assert_eq!((head.seq, head.hash), (1, first.tx_hash));
        let state = books.account(broker, account).await.unwrap();
        assert_eq!(state.balance.balance, 5_000);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_entry_stays_refused_for_its_key() {
    let world = World::new().await;
    let books = service(&world);
    let account = open(&world, world.gamma, "FO-1").await;
    let (refused, intention) = (entry(account, Side::Debit, 100), World::intention());
    for _ in 0..2 {
        let outcome = books
            .book_entry(world.gamma, &intention, refused.clone(), start())
            .await;
        match outcome {
            Err(BooksError::Refused { reason }) => {
                assert_eq!(reason["code"], "insufficient_funds");
            }
            other => panic!("{other:?}"),
        }
        let funds = entry(account, Side::Credit, 100);
        books
            .book_entry(world.gamma, &World::intention(), funds, start())
            .await
            .unwrap();
    }
    let new_try = books
        .book_entry(world.gamma, &World::intention(), refused, start())
        .await;
    assert_eq!(new_try.unwrap().entry.balance, 100);
    let nobodys = entry(AccountId::from_bits(1), Side::Credit, 1);
    let outcome = books
        .book_entry(world.gamma, &World::intention(), nobodys, start())
        .await;
    assert!(matches!(outcome, Err(BooksError::NoSuchAccount)));
}

#[tokio::test(flavor = "multi_thread")]
async fn accounts_open_close_and_open_again() {
    let world = World::new().await;
    let (books, broker) = (service(&world), world.delta);
    let account = open(&world, broker, "FO-1").await;
    assert_eq!(open(&world, broker, "FO-1").await, account);
    for (owner_kind, owner_ref) in [(OwnerKind::Cashier, "a b"), (OwnerKind::House, "other")] {
        let new = NewAccount {
            owner_kind,
            ..named(&world, owner_ref)
        };
        let bad = books
            .open_account(broker, &World::intention(), new, start())
            .await;
        assert!(matches!(
            bad,
            Err(BooksError::Invalid {
                field: "owner_ref",
                ..
            })
        ));
    }

    let scope = world.app.systems.router.book(broker).await.unwrap();
    let owner = world.client(broker, "FO-1");
    books
        .book_entry(
            broker,
            &World::intention(),
            entry(account, Side::Credit, 700),
            start(),
        )
        .await
        .unwrap();
    let reserve = Job {
        saga_id: Uuid::new_v4(),
        step: 2,
        subject: "NR-000000000001".to_owned(),
        work: Work::Reserve {
            account: owner.clone(),
            amount: 300,
        },
    };
    book::append(&scope, std::slice::from_ref(&reserve), start())
        .await
        .unwrap();
    let promised = books.close_account(broker, account, start()).await;
    assert!(matches!(
        promised,
        Err(BooksError::Promised { reserved: 300 })
    ));
    let undo = Job {
        work: Work::UndoReserve,
        ..reserve
    };
    book::append(&scope, &[undo], start()).await.unwrap();
    for _ in 0..2 {
        let closed = books.close_account(broker, account, start()).await.unwrap();
        assert!(!closed.open && closed.balance.balance == 700);
    }
    let outcome = books
        .book_entry(
            broker,
            &World::intention(),
            entry(account, Side::Debit, 1),
            start(),
        )
        .await;
    assert!(matches!(outcome, Err(BooksError::Refused { .. })));
    assert_eq!(open(&world, broker, "FO-1").await, account);
    assert!(books.account(broker, account).await.unwrap().open);

    let house = AccountRef::house(
        broker,
        settlenet::domain::account::HousePurpose::Main,
        &world.currency,
    );
    let main = NewAccount {
        owner_kind: OwnerKind::House,
        ..named(&world, "main")
    };
    books
        .open_account(broker, &World::intention(), main, start())
        .await
        .unwrap();
    let kept = books.close_account(broker, house.id(), start()).await;
    assert!(matches!(kept, Err(BooksError::HouseAccount)));
    let unknown = books
        .close_account(broker, AccountId::from_bits(1), start())
        .await;
    assert!(matches!(unknown, Err(BooksError::NoSuchAccount)));
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_a_book() {
    let world = World::new().await;
    let (books, broker) = (service(&world), world.alpha);
    let mut accounts = [
        open(&world, broker, "FO-1").await,
        open(&world, broker, "FO-2").await,
        open(&world, broker, "FO-3").await,
    ];
    for (number, account) in accounts.iter().cycle().take(7).enumerate() {
        let input = entry(*account, Side::Credit, number as u64 + 1);
        books
            .book_entry(broker, &World::intention(), input, start())
            .await
            .unwrap();
    }
    // Made at the same time: the order is that of their ids.
    accounts.sort_by(|a, b| b.cmp(a));
    let first = books.accounts(broker, None, None, 2).await.unwrap();
    let after = Some((start(), first[1].0));
    let rest = books.accounts(broker, None, after, 2).await.unwrap();
    let named = books
        .accounts(broker, Some("FO-2".to_owned()), None, 9)
        .await;
    assert_eq!(named.unwrap().len(), 1);
    let ids: Vec<_> = first.iter().chain(&rest).map(|(id, _)| *id).collect();
    assert_eq!(ids, accounts);

    let seqs = |page: Vec<book::StoredEntry>| -> Vec<u64> {
        page.iter().map(|stored| stored.entry.seq).collect()
    };
    let page = |account, before| books.transactions(broker, account, before, 3);
    assert_eq!(seqs(page(None, None).await.unwrap()), [7, 6, 5]);
    assert_eq!(seqs(page(None, Some(2)).await.unwrap()), [1]);
    let account = open(&world, broker, "FO-1").await;
    assert_eq!(seqs(page(Some(account), Some(7)).await.unwrap()), [4, 1]);
    let unknown = page(Some(AccountId::from_bits(1)), None).await;
    assert!(matches!(unknown, Err(BooksError::NoSuchAccount)));
    let (head, entries) = books.entries_after(broker, 5, 10).await.unwrap();
    assert_eq!((head.seq, seqs(entries)), (7, vec![6, 7]));
    let empty = books.transactions(world.beta, None, None, 3).await.unwrap();
    assert!(empty.is_empty(), "another broker's book");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exported_chain_verifies_and_its_head_is_the_books() {
    let world = World::new().await;
    let (books, broker) = (service(&world), world.gamma);
    let account = open(&world, broker, "FO-1").await;
    for minor in 1..=5 {
        let input = entry(account, Side::Credit, minor);
        books
            .book_entry(broker, &World::intention(), input, start())
            .await
            .unwrap();
    }
    let mut lines: Vec<Vec<u8>> = Vec::new();
    let head = books
        .export(broker, |line| {
            lines.push(line.to_vec());
            Ok(())
        })
        .await
        .unwrap();
    assert_eq!((head, lines.len()), (books.head(broker).await.unwrap(), 5));
    let mut walk = Verifier::from_genesis(broker).ending_at(head);
    for line in &lines {
        walk.line(line).unwrap();
    }
    let found = walk.finish().unwrap();
    assert_eq!(found.balances[&account].1, 15);
    let text = String::from_utf8(lines[0].clone()).unwrap();
    assert!(
        text.contains(r#""private":{"note":"counted by two""#),
        "{text}"
    );

    let walked = books.verify(broker, Some(head), &|_, _| {}).await.unwrap();
    assert_eq!((walked.head, walked.holds_to), (head, head));
    assert_eq!(walked.result, Ok(found));
}

/// A repeat that arrives late must not undo what came after the first.
#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_opening_does_not_open_what_was_closed_since() {
    let world = World::new().await;
    let (books, broker) = (service(&world), world.gamma);
    let intention = World::intention();
    let ask = |intention: Intention, name: &'static str| {
        let (books, new) = (books.clone(), named(&world, name));
        async move { books.open_account(broker, &intention, new, start()).await }
    };
    let account = ask(intention.clone(), "FO-1").await.unwrap().owner.id();
    books.close_account(broker, account, start()).await.unwrap();
    let again = ask(intention.clone(), "FO-1").await.unwrap();
    assert!(!again.open);
    assert!(!books.account(broker, account).await.unwrap().open);
    let other = Intention {
        fingerprint: Hash::of_bytes(b"other"),
        ..intention
    };
    let reused = ask(other, "FO-2").await;
    assert!(matches!(reused, Err(BooksError::KeyReused)));
}

/// Many at once on one book, some of them twice: each is there once, and the chain holds.
#[tokio::test(flavor = "multi_thread")]
async fn entries_at_once() {
    let world = World::new().await;
    let broker = world.gamma;
    let account = open(&world, broker, "FO-1").await;
    let tasks = (0..20).map(|number| {
        let books = service(&world);
        let intention = Intention {
            client: "test".to_owned(),
            key: format!("key-{}", number / 2),
            fingerprint: Hash::of_bytes(b"same"),
        };
        tokio::spawn(async move {
            let input = entry(account, Side::Credit, 10);
            books.book_entry(broker, &intention, input, start()).await
        })
    });
    for outcome in futures::future::join_all(tasks).await {
        outcome.unwrap().unwrap();
    }
    let books = service(&world);
    assert_eq!(books.head(broker).await.unwrap().seq, 10);
    let state = books.account(broker, account).await.unwrap();
    assert_eq!(state.balance.balance, 100);
}

/// Whoever asks may go away in the middle: the book is as before or the entry is there, and
/// nothing stays open.
#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_goes_away_leaves_nothing_open() {
    let world = World::new().await;
    let broker = world.gamma;
    let account = open(&world, broker, "FO-1").await;
    for micros in (0..4_000).step_by(200) {
        let books = service(&world);
        let input = entry(account, Side::Credit, 1);
        let intention = World::intention();
        let asked = books.book_entry(broker, &intention, input, start());
        let bound = std::time::Duration::from_micros(micros);
        drop(tokio::time::timeout(bound, asked).await);
    }
    let books = service(&world);
    let last = books
        .book_entry(
            broker,
            &World::intention(),
            entry(account, Side::Credit, 1),
            start(),
        )
        .await
        .unwrap();
    let (head, entries) = books.entries_after(broker, 0, 100).await.unwrap();
    assert_eq!(entries.len() as u64, head.seq);
    assert!(last.entry.seq <= head.seq);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_fence_is_waited_for_and_then_told() {
    let world = World::new().await;
    let (books, broker) = (service(&world), world.gamma);
    let account = open(&world, broker, "FO-1").await;
    let shard = sqlx::MySqlPool::connect(world.databases.shard_url().expose())
        .await
        .unwrap();
    let fence = |state: &'static str| {
        let sql = format!("UPDATE book_fence SET state = '{state}' WHERE broker_id = {broker}");
        let shard = shard.clone();
        async move {
            sqlx::query(AssertSqlSafe(sql))
                .execute(&shard)
                .await
                .unwrap();
        }
    };
    fence("closed").await;
    let input = entry(account, Side::Credit, 1);
    let intention = World::intention();
    let told = books
        .book_entry(broker, &intention, input.clone(), start())
        .await;
    assert!(matches!(
        told,
        Err(BooksError::Store(StoreError::Moving { .. }))
    ));
    let waiting = {
        let (books, intention) = (books.clone(), intention.clone());
        tokio::spawn(async move { books.book_entry(broker, &intention, input, start()).await })
    };
    fence("open").await;
    assert_eq!(waiting.await.unwrap().unwrap().entry.seq, 1);
}

/// The page's outcomes are the store's too: a job twice, and an undo before its action.
#[tokio::test(flavor = "multi_thread")]
async fn outcomes_survive_in_the_database() {
    let world = World::new().await;
    let broker = world.alpha;
    open(&world, broker, "FO-1").await;
    let scope = world.app.systems.router.book(broker).await.unwrap();
    let owner = world.client(broker, "FO-1");
    let planned = |side| settlenet::domain::chain::PlannedEntry {
        leg: 0,
        account: owner.clone(),
        side,
        amount: 40,
        kind: settlenet::domain::chain::EntryKind::RequestPrincipal,
    };
    let job = |number, side| Job {
        saga_id: Uuid::from_u128(number),
        step: 3,
        subject: "NR-000000000001".to_owned(),
        work: Work::Book {
            entries: vec![planned(side)],
            op_digest: Hash([1; 32]),
            consumes: None,
            private: None,
        },
    };
    let undo = |number| Job {
        work: Work::UndoBook { consumes: None },
        ..job(number, Side::Debit)
    };
    let run = async |jobs: &[Job]| book::append(&scope, jobs, start()).await.unwrap();
    let first = run(&[job(1, Side::Credit), job(2, Side::Debit), undo(2), undo(3)]).await;
    assert!(first.iter().all(|o| matches!(o, JobOutcome::Done { .. })));
    let second = run(&[job(1, Side::Credit), job(2, Side::Debit), undo(2), undo(3)]).await;
    assert_eq!(second[0], first[0]);
    assert_eq!(second[1], JobOutcome::Tombstone, "undone");
    assert_eq!(second[2..], first[2..]);
    assert_eq!(run(&[job(3, Side::Debit)]).await, [JobOutcome::Tombstone]);
    let books = service(&world);
    assert_eq!(books.head(broker).await.unwrap().seq, 3);
    let state = books.account(broker, owner.id()).await.unwrap();
    assert_eq!(state.balance.balance, 40);
}
