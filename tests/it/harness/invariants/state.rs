//! All of a [`World`] that its invariants speak about, read at one moment.

use std::collections::BTreeMap;

use settlenet::domain::book::Reservation;
use settlenet::domain::ids::{BrokerId, RequestId};
use settlenet::domain::ledger::{
    AccountName, Balances, HOLD_INDEX, SETTLE_INDEX, TransferId, transfer_id,
};
use settlenet::domain::request::Request;
use settlenet::stores::book::{self, StoredEntry};
use settlenet::stores::ledger::{AccountSpec, TransferRecord};
use settlenet::stores::master::obligations::{self, Obligation};
use settlenet::stores::master::requests;
use settlenet::stores::master::sagas::{self, SagaRecord};
use settlenet::stores::master::settlements::{self, Settlement};
use settlenet::stores::pool::Pool;
use uuid::Uuid;

use crate::harness::World;

pub(super) struct Book {
    pub(super) broker: BrokerId,
    pub(super) head: (u64, settlenet::domain::canonical::Hash),
    pub(super) entries: Vec<StoredEntry>,
    pub(super) accounts: Vec<book::AccountRow>,
    pub(super) held: Vec<((Uuid, u16), Reservation)>,
}

/// The rows of the outbox of one saga that could still be run.
#[derive(Clone, Copy)]
pub(super) struct Cursors {
    pub(super) pending: i64,
    pub(super) waiting: i64,
    pub(super) failed: i64,
}

pub(super) struct State {
    pub(super) books: Vec<Book>,
    pub(super) requests: BTreeMap<String, Request>,
    pub(super) sagas: Vec<(SagaRecord, Cursors)>,
    pub(super) obligations: Vec<Obligation>,
    pub(super) parts: Vec<Settlement>,
    pub(super) transfers: BTreeMap<TransferId, TransferRecord>,
    pub(super) positions: BTreeMap<BrokerId, Balances>,
}

impl State {
    pub(super) async fn load(world: &World) -> Self {
        let master = &world.app.systems.master;
        let brokers = ids(master, "SELECT broker_id FROM broker").await;
        let mut books = Vec::new();
        for broker in &brokers {
            books.push(load_book(world, *broker).await);
        }
        let mut loaded = BTreeMap::new();
        for id in ids(master, "SELECT request_id FROM network_request").await {
            let request = requests::get(master, RequestId::from_bits(id)).await;
            let request = request.expect("reads").expect("is there");
            loaded.insert(request.id.to_string(), request);
        }
        let (sagas, obligations) = load_sagas(master).await;
        let mut parts = Vec::new();
        for owed in &obligations {
            let of = settlements::of_obligation(master, owed.id, 10_000).await;
            parts.extend(of.expect("reads"));
        }
        let ledger = &world.app.systems.ledger;
        let wanted: Vec<TransferId> = sagas
            .iter()
            .flat_map(|(saga, _)| [HOLD_INDEX, SETTLE_INDEX].map(|i| transfer_id(saga.saga_id, i)))
            .collect();
        let found = ledger.transfers(&wanted).await.expect("the ledger answers");
        let specs: Vec<AccountSpec> = brokers
            .iter()
            .map(|broker| AccountSpec {
                name: AccountName::position(*broker, &world.currency),
                ledger: world.ledger,
            })
            .collect();
        let balances = ledger.balances(&specs).await.expect("the ledger answers");
        Self {
            books,
            requests: loaded,
            sagas,
            obligations,
            parts,
            transfers: wanted
                .into_iter()
                .zip(found)
                .filter_map(|(id, found)| found.map(|found| (id, found)))
                .collect(),
            positions: brokers.into_iter().zip(balances).collect(),
        }
    }

    pub(super) fn book(&self, broker: BrokerId) -> Option<&Book> {
        self.books.iter().find(|book| book.broker == broker)
    }

    pub(super) fn entries_of(&self, saga: Uuid) -> Vec<&StoredEntry> {
        let all = self.books.iter().flat_map(|book| &book.entries);
        all.filter(|stored| stored.entry.saga_id == saga).collect()
    }

    /// How the ledger stands to a saga: its hold, and what settled it.
    pub(super) fn transfers_of(&self, saga: Uuid) -> [Option<&TransferRecord>; 2] {
        [HOLD_INDEX, SETTLE_INDEX].map(|index| self.transfers.get(&transfer_id(saga, index)))
    }

    pub(super) fn sagas_of<'a>(
        &'a self,
        request: &Request,
    ) -> impl Iterator<Item = &'a SagaRecord> {
        let id = request.id;
        self.sagas
            .iter()
            .map(|(saga, _)| saga)
            .filter(move |saga| saga.subject == id)
    }
}

async fn ids(master: &Pool, sql: &'static str) -> Vec<u64> {
    sqlx::query_scalar(sql)
        .fetch_all(master)
        .await
        .expect("reads")
}

async fn load_book(world: &World, broker: BrokerId) -> Book {
    let scope = world.app.systems.router.book(broker).await.expect("a book");
    let mut moment = scope.read().await.expect("reads");
    let newest = book::head(&mut moment).await.expect("reads");
    let mut entries = Vec::new();
    loop {
        let from = entries.len() as u64;
        let page = book::entries_after(&mut moment, from, 500).await;
        let page = page.expect("entries read");
        let more = page.len() == 500;
        entries.extend(page);
        if !more {
            break;
        }
    }
    let accounts = book::accounts(&mut moment, None, 10_000).await;
    let held = book::reservations_held(&mut moment).await;
    moment.end().await.expect("ends");
    Book {
        broker,
        head: (newest.seq, newest.hash),
        entries,
        accounts: accounts.expect("accounts read"),
        held: held.expect("reservations read"),
    }
}

async fn load_sagas(master: &Pool) -> (Vec<(SagaRecord, Cursors)>, Vec<Obligation>) {
    let rows: Vec<(Uuid, i64, i64, i64)> = sqlx::query_as(
        "SELECT s.saga_id, CAST(SUM(o.status = 'pending') AS INT), CAST(SUM(o.status = 'waiting') AS INT),
                CAST(SUM(o.status = 'failed') AS INT)
         FROM saga s LEFT JOIN exchange_outbox o ON o.saga_id = s.saga_id GROUP BY s.saga_id",
    )
    .fetch_all(master)
    .await
    .expect("reads");
    let mut sagas = Vec::new();
    let mut owed = Vec::new();
    for (saga_id, pending, waiting, failed) in rows {
        let record = sagas::record(master, saga_id).await;
        let cursors = Cursors {
            pending,
            waiting,
            failed,
        };
        sagas.push((record.expect("reads").expect("is there"), cursors));
        owed.extend(
            obligations::of_sagas(master, &[saga_id])
                .await
                .expect("reads"),
        );
    }
    let all = ids(master, "SELECT obligation_id FROM obligation").await;
    assert_eq!(all.len(), owed.len(), "an obligation without a saga");
    (sagas, owed)
}
