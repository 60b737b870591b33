//! Brokers with a book that is worked in.

use anyhow::Context as _;
use uuid::Uuid;

use super::network::intention;
use crate::app::App;
use crate::domain::account::{AccountRef, OwnerKind, Side};
use crate::domain::book::{Job, Work};
use crate::domain::broker::BrokerPlan;
use crate::domain::chain::{EntryKind, PlannedEntry, op_digest};
use crate::domain::ids::{AccountId, BrokerId};
use crate::domain::money::{Amount, CurrencyCode};
use crate::services::books::{EntryInput, NewAccount, OwnEntryKind};
use crate::stores::book;

/// Accounts in a book that is filled.
const ACCOUNTS: usize = 500;

/// A broker that is worked for, with an account.
#[derive(Clone)]
pub(super) struct Client {
    pub(super) broker: BrokerId,
    account: AccountId,
    currency: CurrencyCode,
}

impl Client {
    pub(super) async fn new(app: &App, name: &str) -> anyhow::Result<Self> {
        let now = app.systems.clock.now();
        let (plan, places) = (BrokerPlan::Starter, &app.provisioning);
        let broker = places.create_broker(name, plan, None, None, now).await?.id;
        let currency: CurrencyCode = "USD".parse()?;
        let account = NewAccount {
            owner_kind: OwnerKind::Cashier,
            owner_ref: "till".to_owned(),
            currency: currency.clone(),
        };
        let meant = intention();
        let opened = app.books.open_account(broker, &meant, account, now);
        Ok(Self {
            broker,
            account: opened.await?.owner.id(),
            currency,
        })
    }

    pub(super) async fn write(&self, app: &App) -> anyhow::Result<()> {
        let input = EntryInput {
            account: self.account,
            kind: OwnEntryKind::Correction,
            side: Side::Credit,
            amount: Amount::from_minor(100).context("an amount")?,
            note: None,
        };
        let now = app.systems.clock.now();
        app.books
            .book_entry(self.broker, &intention(), input, now)
            .await?;
        Ok(())
    }

    pub(super) async fn read(&self, app: &App) -> anyhow::Result<()> {
        let page = app
            .books
            .transactions(self.broker, Some(self.account), None, 20);
        page.await?;
        Ok(())
    }
}

/// Entries over many accounts, in large appends.
pub(super) async fn fill(app: &App, client: &Client, size: usize) -> anyhow::Result<()> {
    const AT_ONCE: usize = 250;
    let scope = app.systems.router.book(client.broker).await?;
    let mut done = 0;
    while done < size {
        let count = AT_ONCE.min(size - done);
        let jobs: Vec<Job> = (done..done + count).map(|n| job(client, n)).collect();
        book::append(&scope, &jobs, app.systems.clock.now()).await?;
        done += count;
    }
    Ok(())
}

fn job(client: &Client, number: usize) -> Job {
    let saga_id = Uuid::now_v7();
    let account = AccountRef {
        broker: client.broker,
        owner_kind: OwnerKind::Partner,
        owner_ref: format!("FO-{:012x}", number % ACCOUNTS),
        currency: client.currency.clone(),
    };
    let entry = PlannedEntry {
        leg: 0,
        account,
        side: Side::Credit,
        amount: 100 + number as u64 % 900,
        kind: EntryKind::Correction,
    };
    let subject = format!("{number:012x}");
    let digest = op_digest(saga_id, &subject, [(1, &entry)]);
    Job {
        saga_id,
        step: 1,
        subject,
        work: Work::Book {
            entries: vec![entry],
            op_digest: digest,
            consumes: None,
            private: None,
        },
    }
}
