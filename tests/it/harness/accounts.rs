//! Accounts of clients and cashiers in the books of a [`World`], made ready for a test.

use settlenet::domain::account::{AccountRef, OwnerKind, Side};
use settlenet::domain::book::{Job, JobOutcome, Work};
use settlenet::domain::chain::{EntryKind, PlannedEntry, op_digest};
use settlenet::domain::ids::{BrokerId, RequestId};
use settlenet::stores::book;
use sqlx::mysql::MySqlConnection;
use sqlx::{AssertSqlSafe, Connection as _};
use uuid::Uuid;

use super::World;

impl World {
    pub fn cashier(&self, broker: BrokerId, name: &str) -> AccountRef {
        AccountRef {
            broker,
            owner_kind: OwnerKind::Cashier,
            owner_ref: name.to_owned(),
            currency: self.currency.clone(),
        }
    }

    /// Opens an account and books an opening credit on it.
    pub async fn funded(&self, account: AccountRef, amount: u64) -> AccountRef {
        let sql = "INSERT INTO account (broker_id, account_id, owner_kind, owner_ref, currency_code, \
                   state, balance, reserved, min_balance, created_at) \
                   VALUES (?, ?, ?, ?, ?, 'open', 0, 0, ?, ?)";
        let mut connection = self.book_connection(account.broker).await;
        sqlx::query(sql)
            .bind(account.broker)
            .bind(account.id().bits())
            .bind(account.owner_kind.as_str())
            .bind(&account.owner_ref)
            .bind(account.currency.as_str())
            .bind(account.owner_kind.default_floor())
            .bind(self.clock.now())
            .execute(&mut connection)
            .await
            .expect("a new account");
        let operation = Uuid::new_v4();
        let subject = "opening";
        let entry = PlannedEntry {
            leg: 0,
            account: account.clone(),
            side: Side::Credit,
            amount,
            kind: EntryKind::Opening,
        };
        let digest = op_digest(operation, subject, [(1, &entry)]);
        let job = Job {
            saga_id: operation,
            step: 1,
            subject: subject.to_owned(),
            work: Work::Book {
                entries: vec![entry],
                op_digest: digest,
                consumes: None,
                private: None,
            },
        };
        let outcomes = self.append(account.broker, &[job]).await;
        assert!(matches!(
            outcomes[0],
            JobOutcome::Done {
                diverted: false,
                ..
            }
        ));
        account
    }

    /// Gives jobs to a book, as any worker may.
    pub async fn append(&self, broker: BrokerId, jobs: &[Job]) -> Vec<JobOutcome> {
        let scope = self.app.systems.router.book(broker).await.expect("a book");
        book::append(&scope, jobs, self.clock.now())
            .await
            .expect("the book answers")
    }

    pub async fn set_open(&self, account: &AccountRef, open: bool) {
        let state = if open { "open" } else { "closed" };
        self.alter(account, "state", state).await;
    }

    /// Raises an account's floor over its head, so that a debit is refused; 0 puts it back.
    pub async fn set_floor(&self, account: &AccountRef, floor: i64) {
        self.alter(account, "min_balance", floor).await;
    }

    async fn alter<'q, T>(&self, account: &AccountRef, column: &str, value: T)
    where
        T: sqlx::Encode<'q, sqlx::MySql> + sqlx::Type<sqlx::MySql> + Send + 'q,
    {
        let sql = format!("UPDATE account SET {column} = ? WHERE broker_id = ? AND account_id = ?");
        let mut connection = self.book_connection(account.broker).await;
        let done = sqlx::query(AssertSqlSafe(sql))
            .bind(value)
            .bind(account.broker)
            .bind(account.id().bits())
            .execute(&mut connection)
            .await
            .expect("is altered");
        assert_eq!(done.rows_affected(), 1);
    }

    pub async fn balance(&self, account: &AccountRef) -> i64 {
        self.state(account).await.0
    }

    pub async fn reserved(&self, account: &AccountRef) -> i64 {
        self.state(account).await.1
    }

    async fn state(&self, account: &AccountRef) -> (i64, i64) {
        let mut connection = self.book_connection(account.broker).await;
        sqlx::query_as(
            "SELECT balance, reserved FROM account WHERE broker_id = ? AND account_id = ?",
        )
        .bind(account.broker)
        .bind(account.id().bits())
        .fetch_one(&mut connection)
        .await
        .expect("an account")
    }

    /// What a book has booked of a request, in order: debits are negative.
    pub async fn entries_of(&self, broker: BrokerId, request: RequestId) -> Vec<i64> {
        let mut connection = self.book_connection(broker).await;
        sqlx::query_scalar(
            "SELECT CAST(IF(side = 'debit', -1, 1) * CAST(amount AS INT) AS INT) FROM transaction \
             WHERE broker_id = ? AND subject = ? ORDER BY seq",
        )
        .bind(broker)
        .bind(request.to_string())
        .fetch_all(&mut connection)
        .await
        .expect("reads")
    }

    /// How many transactions are open in this test's databases, on both servers.
    pub async fn open_transactions(&self) -> i64 {
        let mut open = 0;
        for broker in [self.alpha, self.gamma] {
            let mut connection = self.book_connection(broker).await;
            let found: i64 = sqlx::query_scalar(
                "SELECT COUNT(*) FROM information_schema.innodb_trx t
                 JOIN information_schema.processlist p ON p.id = t.trx_mysql_thread_id
                 WHERE p.db LIKE ? AND p.id <> CONNECTION_ID()",
            )
            .bind(format!("{}%", self.databases.prefix.replace('_', "\\_")))
            .fetch_one(&mut connection)
            .await
            .expect("reads");
            open += found;
        }
        open
    }

    /// A connection to the database of a broker's book, past the router.
    pub async fn book_connection(&self, broker: BrokerId) -> MySqlConnection {
        let url = match broker {
            alpha if alpha == self.alpha => self.databases.url("b", &self.databases.tenants[0]),
            beta if beta == self.beta => self.databases.url("b", &self.databases.tenants[1]),
            _ => self.databases.shard_url(),
        };
        MySqlConnection::connect(url.expose())
            .await
            .expect("MariaDB answers")
    }
}
