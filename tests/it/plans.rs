//! What the workers ask again and again reads an index, however much history there is.

use chrono::Utc;
use settlenet::domain::ids::{ObligationId, RequestId};
use settlenet::domain::obligation::ObligationStatus;
use settlenet::stores::book::{logged, partners};
use settlenet::stores::master::obligations::Filter;
use settlenet::stores::master::{
    book_audit, credit_lines, feed, log, moves, obligations, requests, sagas, settlements,
};
use settlenet::stores::migrate::{Kind, migrate};
use sqlx::mysql::MySqlRow;
use sqlx::{AssertSqlSafe, MySqlPool, Row};

use crate::harness::Databases;

/// Rows of history; only a few are due.
const HISTORY: u32 = 5_000;

async fn plan(pool: &MySqlPool, sql: &str, binds: &[Bind]) -> Vec<(String, Option<String>, i64)> {
    let explained = format!("EXPLAIN {sql}");
    let mut query = sqlx::query(AssertSqlSafe(explained));
    for bind in binds {
        query = match bind {
            Bind::Now => query.bind(Utc::now()),
            Bind::Number(number) => query.bind(*number),
            Bind::Text(text) => query.bind(*text),
        };
    }
    let rows: Vec<MySqlRow> = query.fetch_all(pool).await.unwrap();
    rows.iter()
        .filter_map(|row| {
            let table: Option<String> = row.try_get("table").unwrap();
            let table = table.filter(|table| !table.starts_with('<'))?;
            let key: Option<String> = row.try_get("key").unwrap();
            // MariaDB gives the estimate as text.
            let read: Option<String> = row.try_get("rows").unwrap();
            let read = read.map_or(0, |read| read.trim().parse().unwrap());
            Some((table, key, read))
        })
        .collect()
}

#[derive(Clone, Copy)]
enum Bind {
    Now,
    Number(u32),
    Text(&'static str),
}

#[tokio::test(flavor = "multi_thread")]
async fn due_work_is_found_by_an_index() {
    use Bind::{Now, Number};
    let databases = Databases::new().await;
    migrate(databases.master_url(), Kind::Master).await.unwrap();
    let pool = MySqlPool::connect(databases.master_url().expose())
        .await
        .unwrap();
    for fill in [
        "INSERT INTO exchange_outbox (saga_id, step, direction, target_db, entity_class, payload,
             payload_version, status, available_at, created_at)
         SELECT UNHEX(LPAD(HEX(seq), 32, '0')), 1, 'do', 'master', 'x', '{}', 1,
             IF(seq % 500 = 0, 'pending', 'done'), NOW(6), NOW(6) FROM seq_1_to_HISTORY",
        "INSERT INTO network_request (request_id, author_broker_id, broadcast, type, status, version,
             currency_code, amount, method, terms, deadline_at, event_seq, event_hash, created_at,
             updated_at)
         SELECT seq, 1, 0, 'send', ELT(1 + seq % 500, 'pending', 'accepted', 'completed'), 1, 'USD',
             1, 'cash', '{}', NOW(6), 1, REPEAT('x', 32), NOW(6), NOW(6) FROM seq_1_to_HISTORY
         WHERE seq % 500 < 3",
        "INSERT INTO network_request (request_id, author_broker_id, broadcast, type, status, version,
             currency_code, amount, method, terms, deadline_at, event_seq, event_hash, created_at,
             updated_at)
         SELECT 1000000 + seq, 1, 0, 'send', 'completed', 1, 'USD',
             1, 'cash', '{}', NOW(6), 1, REPEAT('x', 32), NOW(6), NOW(6) FROM seq_1_to_HISTORY",
        "INSERT INTO feed_event (broker_id, kind, subject, payload, created_at, position, sequenced)
         SELECT 1, 'x', 'x', '{}', NOW(6), seq, seq % 500 <> 0 FROM seq_1_to_HISTORY",
        "ANALYZE TABLE exchange_outbox, network_request, feed_event",
    ] {
        let fill = fill.replace("HISTORY", &HISTORY.to_string());
        sqlx::raw_sql(AssertSqlSafe(fill)).execute(&pool).await.unwrap();
    }
    let due = plan(&pool, sagas::DUE, &[Now, Number(1), Number(32)]).await;
    let range = [Now, Now, Now, Number(0), Number(100)];
    let overdue = [&range[..], &range, &[Number(100)]].concat();
    let overdue = plan(&pool, requests::OVERDUE, &overdue).await;
    let unsequenced = plan(&pool, feed::UNSEQUENCED, &[Number(500)]).await;
    for (found, key) in [
        (due, "outbox_due"),
        (overdue, "request_deadline"),
        (unsequenced, "feed_unsequenced"),
    ] {
        assert!(!found.is_empty());
        for (table, used, rows) in found {
            assert_eq!(used.as_deref(), Some(key), "{table}");
            assert!(
                rows < i64::from(HISTORY) / 10,
                "{table}: {rows} rows are read"
            );
        }
    }
}

/// A page of a broker's obligations reads a page, not all that it ever had.
#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_obligations_is_read_by_an_index() {
    let databases = Databases::new().await;
    migrate(databases.master_url(), Kind::Master).await.unwrap();
    let pool = MySqlPool::connect(databases.master_url().expose())
        .await
        .unwrap();
    let fill = format!(
        "INSERT INTO obligation (obligation_id, saga_id, subject, debtor_broker_id,
             creditor_broker_id, currency_code, amount, remaining_amount, status, created_at)
         SELECT seq, UNHEX(LPAD(HEX(seq), 32, '0')), 'NR-000000000001', 1 + seq % 10, 1 + (seq + 1) % 10,
             'USD', 1, 1, 'active', NOW(6) + INTERVAL seq SECOND FROM seq_1_to_{HISTORY}"
    );
    for sql in [fill.as_str(), "ANALYZE TABLE obligation"] {
        sqlx::raw_sql(AssertSqlSafe(sql))
            .execute(&pool)
            .await
            .unwrap();
    }
    let middle = Utc::now() + chrono::Duration::seconds(i64::from(HISTORY) / 2);
    let after = Some((middle, ObligationId::from_bits(9)));
    for (status, after) in [
        (None, None),
        (None, after),
        (Some(ObligationStatus::Active), after),
    ] {
        let filter = Filter {
            status,
            ..Filter::default()
        };
        let mut query = obligations::newest("EXPLAIN ", 1, &filter, after, 51);
        let rows: Vec<MySqlRow> = query.build().fetch_all(&pool).await.unwrap();
        let keys: Vec<Option<String>> = rows
            .iter()
            .filter(|row| row.get::<Option<String>, _>("table").as_deref() == Some("obligation"))
            .map(|row| {
                // The merge of the two pages is sorted; neither page is.
                let extra: Option<String> = row.get("Extra");
                assert!(
                    !extra.unwrap_or_default().contains("filesort"),
                    "{status:?} {after:?}"
                );
                row.get("key")
            })
            .collect();
        let expected = ["debtor", "creditor"].map(|side| Some(format!("obligation_{side}_newest")));
        assert_eq!(keys, expected, "{status:?} {after:?}");
    }
}

/// A page of a book's partners, and a search among them, read an index, however many there are.
#[tokio::test(flavor = "multi_thread")]
async fn partners_are_listed_and_searched_by_an_index() {
    let mut databases = Databases::new().await;
    let tenant = databases.tenant().await;
    let url = databases.url("b", &tenant);
    migrate(&url, Kind::Tenant).await.unwrap();
    let pool = MySqlPool::connect(url.expose()).await.unwrap();
    let fill = format!(
        "INSERT INTO partner (broker_id, partner_id, kind, display_name, search_name, state,
             created_at, updated_at)
         SELECT 1 + seq % 4, seq, IF(seq % 3 = 0, 'online', 'offline'), CONCAT('Client ', seq),
             CONCAT('client ', seq), 'active', NOW(6) + INTERVAL seq SECOND, NOW(6)
         FROM seq_1_to_{HISTORY}"
    );
    for sql in [fill.as_str(), "ANALYZE TABLE partner"] {
        sqlx::raw_sql(AssertSqlSafe(sql))
            .execute(&pool)
            .await
            .unwrap();
    }
    let name = Some(("client 77", "client 77\u{10ffff}"));
    for (pages, range, key, sorted, most) in [
        (partners::NEWEST, None, "partner_newest", false, HISTORY),
        (partners::NAMED, name, "partner_name", true, 100),
        (partners::NUMBERED, Some(("7", "77")), "PRIMARY", true, 100),
    ] {
        for (sql, after) in pages.into_iter().zip([None, Some(Utc::now())]) {
            let mut query = sqlx::query(AssertSqlSafe(format!("EXPLAIN {sql}"))).bind(1);
            if let Some((first, last)) = range {
                query = query.bind(first).bind(last);
            }
            let none = None::<String>;
            query = query.bind(&none).bind(&none).bind(&none).bind(&none);
            if let Some(at) = after {
                query = query.bind(at).bind(at).bind(u64::MAX);
            }
            let rows: Vec<MySqlRow> = query.bind(51).fetch_all(&pool).await.unwrap();
            assert_eq!(rows.len(), 1);
            let extra: Option<String> = rows[0].get("Extra");
            let extra = extra.unwrap_or_default();
            let used: Option<String> = rows[0].get("key");
            assert_eq!(used.as_deref(), Some(key), "{sql}: {extra}");
            assert_eq!(extra.contains("filesort"), sorted, "{sql}: {extra}");
            let read: Option<String> = rows[0].try_get("rows").unwrap();
            let read: u32 = read.unwrap_or_default().trim().parse().unwrap();
            assert!(read <= most, "{sql}: {read} rows are read");
        }
    }
    // Room for one more is counted in an index that has all that is asked.
    let count = "EXPLAIN SELECT COUNT(*) FROM partner WHERE broker_id = 1 AND kind = 'offline' \
                 AND state = 'active'";
    let row = sqlx::query(count).fetch_one(&pool).await.unwrap();
    let used: Option<String> = row.get("key");
    assert_eq!(used.as_deref(), Some("partner_places"));
    let extra: Option<String> = row.get("Extra");
    assert!(extra.unwrap_or_default().contains("Using index"));
}

#[tokio::test(flavor = "multi_thread")]
async fn moves_that_are_due_are_found_by_an_index() {
    let databases = Databases::new().await;
    migrate(databases.master_url(), Kind::Master).await.unwrap();
    let pool = MySqlPool::connect(databases.master_url().expose())
        .await
        .unwrap();
    for fill in [
        "INSERT INTO broker_move (move_id, broker_id, state, cause, from_server, from_database,
             to_server, to_database, retention_s, due_at, created_at)
         SELECT UNHEX(LPAD(HEX(seq), 32, '0')), seq, 'done', 'admin', 'a', 'x', 'b', 'y', 1,
             IF(seq % 500 = 0, NOW(6), NULL), NOW(6) FROM seq_1_to_HISTORY",
        "ANALYZE TABLE broker_move",
    ] {
        let fill = fill.replace("HISTORY", &HISTORY.to_string());
        sqlx::raw_sql(AssertSqlSafe(fill))
            .execute(&pool)
            .await
            .unwrap();
    }
    let due = plan(&pool, moves::DUE, &[Bind::Now, Bind::Number(1)]).await;
    for (table, key, read) in due {
        assert_eq!(key.as_deref(), Some("broker_move_due"), "{table}");
        assert!(read < 100, "{table}: {read}");
    }
}

/// Of open orders a broker reads those of the cities that it serves, and of its own a page.
#[tokio::test(flavor = "multi_thread")]
async fn open_orders_are_found_by_their_city() {
    let databases = Databases::new().await;
    migrate(databases.master_url(), Kind::Master).await.unwrap();
    let pool = MySqlPool::connect(databases.master_url().expose())
        .await
        .unwrap();
    let fill = format!(
        "INSERT INTO network_request (request_id, author_broker_id, broadcast, type, status, version,
             currency_code, amount, method, city_code, terms, event_seq, event_hash, created_at,
             updated_at, is_order)
         SELECT seq, 1 + seq % 1000, 1, 'collect', 'pending', 1, 'USD', 1, 'cash',
             CONCAT('C', seq % 500), '{{}}', 1, REPEAT('x', 32), NOW(6), NOW(6), 1
         FROM seq_1_to_{HISTORY}"
    );
    for sql in [fill.as_str(), "ANALYZE TABLE network_request"] {
        sqlx::raw_sql(AssertSqlSafe(sql))
            .execute(&pool)
            .await
            .unwrap();
    }
    let cities = ["C7", "C8"].map(str::to_owned);
    let filter = requests::Filter {
        orders: true,
        ..requests::Filter::default()
    };
    let mut query = requests::newest("EXPLAIN ", (7, &cities), filter, None, 51);
    let rows: Vec<MySqlRow> = query.build().fetch_all(&pool).await.unwrap();
    let read: Vec<i64> = rows
        .iter()
        .filter(|row| {
            let table: Option<String> = row.get("table");
            table.as_deref() == Some("network_request")
        })
        .map(|row| {
            let read: Option<String> = row.get("rows");
            read.map_or(0, |read| read.trim().parse().unwrap())
        })
        .collect();
    // What it made, what was made to it, a range for each city, and the rows of the page.
    assert_eq!(read.len(), 5, "{read:?}");
    assert!(
        read.iter().all(|rows| *rows < i64::from(HISTORY) / 20),
        "{read:?}"
    );
}

/// What a settlement locks and what a credit line has used of a pair are ranges of that pair, whatever
/// else there is.
#[tokio::test(flavor = "multi_thread")]
async fn a_pairs_debts_are_found_by_an_index() {
    use Bind::{Number, Text};
    let databases = Databases::new().await;
    migrate(databases.master_url(), Kind::Master).await.unwrap();
    let pool = MySqlPool::connect(databases.master_url().expose())
        .await
        .unwrap();
    for fill in [
        "INSERT INTO obligation (obligation_id, saga_id, subject, debtor_broker_id,
             creditor_broker_id, currency_code, amount, remaining_amount, status, created_at)
         SELECT seq, UNHEX(LPAD(HEX(seq), 32, '0')), 'x', 1, 2 + seq % 500, 'USD', 1, 1,
             IF(seq % 3 = 0, 'active', 'settled'), NOW(6) + INTERVAL seq SECOND
         FROM seq_1_to_HISTORY",
        "INSERT INTO network_request (request_id, author_broker_id, broadcast, type, status, version,
             currency_code, amount, method, terms, event_seq, event_hash, created_at, updated_at,
             credit_debtor_id, credit_creditor_id, credit_amount)
         SELECT seq, 1, 0, 'send', 'accepted', 1, 'USD', 1, 'cash', '{}', 1, REPEAT('x', 32), NOW(6),
             NOW(6), 1, 2 + seq % 500, 1
         FROM seq_1_to_HISTORY",
        "INSERT INTO credit_line (creditor_broker_id, debtor_broker_id, currency_code, limit_amount,
             set_by, created_at, updated_at)
         SELECT 1, 1 + seq, 'USD', 1, 'x', NOW(6), NOW(6) FROM seq_1_to_HISTORY",
        "ANALYZE TABLE obligation, network_request, credit_line",
    ] {
        let fill = fill.replace("HISTORY", &HISTORY.to_string());
        sqlx::raw_sql(AssertSqlSafe(fill)).execute(&pool).await.unwrap();
    }
    let pair = [Number(1), Number(7), Text("USD")];
    let locked = [&pair[..], &[Number(1_000)]].concat();
    let used = [pair, pair].concat();
    for (sql, values, keys) in [
        (settlements::LOCK_OPEN, locked, &["obligation_pair"][..]),
        (
            credit_lines::USED,
            used,
            &["obligation_pair", "request_credit"],
        ),
        (
            credit_lines::ONE,
            pair.to_vec(),
            &["PRIMARY", "obligation_pair", "request_credit"],
        ),
    ] {
        let found = plan(&pool, sql, &values).await;
        assert_eq!(found.len(), keys.len(), "{sql} {found:?}");
        for (table, key, rows) in found {
            let key = key.unwrap_or_default();
            assert!(keys.contains(&key.as_str()), "{table}: {key}");
            assert!(rows < i64::from(HISTORY) / 100, "{table}: {rows} rows");
        }
    }
}

/// A page of a broker's requests and orders reads a page of each range, whatever else is open.
#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_requests_and_orders_is_read_by_indexes() {
    let databases = Databases::new().await;
    migrate(databases.master_url(), Kind::Master).await.unwrap();
    let pool = MySqlPool::connect(databases.master_url().expose())
        .await
        .unwrap();
    for fill in [
        "INSERT INTO network_request (request_id, author_broker_id, target_broker_id, broadcast, type,
             status, version, currency_code, amount, method, city_code, terms, event_seq, event_hash,
             created_at, updated_at, is_order)
         SELECT seq, 2 + seq % 10, IF(seq % 2 = 0, NULL, 1), seq % 2 = 0, 'send', 'pending', 1, 'USD',
             1, 'cash', CONCAT('C', seq % 50 DIV 5), '{}', 1, REPEAT('x', 32),
             NOW(6) + INTERVAL seq SECOND, NOW(6), seq % 3 > 0
         FROM seq_1_to_HISTORY",
        "ANALYZE TABLE network_request",
    ] {
        let fill = fill.replace("HISTORY", &HISTORY.to_string());
        sqlx::raw_sql(AssertSqlSafe(fill))
            .execute(&pool)
            .await
            .unwrap();
    }
    let cities = ["C1", "C2", "C7"].map(str::to_owned);
    let middle = requests::After {
        created_at: Utc::now() + chrono::Duration::seconds(i64::from(HISTORY) / 2),
        id: RequestId::from_bits(9),
    };
    let own = ["request_author_orders", "request_target_orders"];
    for (orders, open) in [
        (false, &["request_open"][..]),
        (true, &["request_open_orders"; 3]),
    ] {
        for after in [None, Some(middle)] {
            let filter = requests::Filter {
                orders,
                ..requests::Filter::default()
            };
            let mut query = requests::newest("EXPLAIN ", (1, &cities), filter, after, 51);
            let rows: Vec<MySqlRow> = query.build().fetch_all(&pool).await.unwrap();
            let rows = rows.iter().filter(|row| {
                row.get::<Option<String>, _>("table").as_deref() == Some("network_request")
            });
            let (whole, ranges): (Vec<&MySqlRow>, Vec<&MySqlRow>) =
                rows.partition(|row| row.get::<String, _>("select_type") == "PRIMARY");
            let key = |row: &&MySqlRow| row.get::<Option<String>, _>("key");
            let keys: Vec<Option<String>> = ranges.iter().map(key).collect();
            let expected = own.iter().chain(open);
            let expected: Vec<_> = expected.map(|key| Some((*key).to_owned())).collect();
            assert_eq!(keys, expected, "{orders} {after:?}");
            for row in ranges {
                // The merge of the ranges is sorted; none of them is.
                let extra: Option<String> = row.get("Extra");
                let extra = extra.unwrap_or_default();
                assert!(!extra.contains("filesort"), "{orders} {after:?}: {extra}");
            }
            let whole: Vec<Option<String>> = whole.iter().map(key).collect();
            assert_eq!(whole, [Some("PRIMARY".to_owned())]);
            let mut query = requests::newest("", (1, &cities), filter, after, 51);
            let page: Vec<MySqlRow> = query.build().fetch_all(&pool).await.unwrap();
            assert_eq!(page.len(), 51);
            let ids: Vec<u64> = page.iter().map(|row| row.get("request_id")).collect();
            assert!(ids.windows(2).all(|two| two[0] > two[1]), "{ids:?}");
        }
    }
}

/// Of ten thousand heads those that the log has are not looked at, and a leaf is one row.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_log_has_is_not_looked_at_again() {
    use Bind::{Now, Number, Text};
    let databases = Databases::new().await;
    migrate(databases.master_url(), Kind::Master).await.unwrap();
    migrate(&databases.shard_url(), Kind::Shared).await.unwrap();
    let connect = async |url: &str| MySqlPool::connect(url).await.unwrap();
    let master = connect(databases.master_url().expose()).await;
    let shard = connect(databases.shard_url().expose()).await;
    for (pool, fill) in [
        (
            &master,
            "INSERT INTO network_request (request_id, author_broker_id, broadcast, type, status, version,
                 currency_code, amount, method, terms, deadline_at, event_seq, event_hash, created_at,
                 updated_at, logged_seq, logged_in)
             SELECT seq, 1, 0, 'send', 'completed', 1, 'USD', 1, 'cash', '{}', NOW(6), 3,
                 REPEAT('x', 32), NOW(6), NOW(6), IF(seq % 500 = 0, 2, 3), 1 FROM seq_1_to_HISTORY",
        ),
        (
            &master,
            "INSERT INTO log_leaf (log_number, leaf_index, v, kind, id, seq, hash, at)
             SELECT 1, seq, 1, ELT(1 + seq % 3, 'book', 'entry', 'request'), seq % 50, seq,
                 REPEAT('x', 32), NOW(6) FROM seq_1_to_HISTORY",
        ),
        (
            &master,
            "INSERT INTO book_audit (broker_id, due_at)
             SELECT seq, NOW(6) + INTERVAL CAST(seq AS SIGNED) - 5 MINUTE FROM seq_1_to_HISTORY",
        ),
        (
            &shard,
            "INSERT INTO chain_head (broker_id, seq, tx_hash, logged_seq, logged_in)
             SELECT seq, 3, REPEAT('x', 32), IF(seq % 500 = 0, 2, 3), 1 FROM seq_1_to_HISTORY",
        ),
        (&master, "ANALYZE TABLE network_request, log_leaf, book_audit"),
        (&shard, "ANALYZE TABLE chain_head"),
    ] {
        let fill = fill.replace("HISTORY", &HISTORY.to_string());
        sqlx::raw_sql(AssertSqlSafe(fill)).execute(pool).await.unwrap();
    }
    let of_book = [Number(1), Text("book"), Text("7")];
    for (pool, sql, binds, key) in [
        (
            &master,
            log::requests::UNLOGGED,
            vec![Number(1_000)],
            "request_unlogged",
        ),
        (
            &shard,
            logged::UNLOGGED,
            vec![Number(0), Number(1_000)],
            "chain_head_unlogged",
        ),
        (
            &master,
            log::LAST_OF,
            [&of_book[..], &[Number(5_000)]].concat(),
            "log_leaf_of",
        ),
        (
            &master,
            log::LEAF_AT,
            [&of_book[..], &[Number(57), Number(5_000)]].concat(),
            "log_leaf_at",
        ),
        (&master, book_audit::DUE, vec![Now], "book_audit_due"),
    ] {
        let plan = plan(pool, sql, &binds).await;
        assert_eq!(plan.len(), 1, "{sql}: {plan:?}");
        assert_eq!(plan[0].1.as_deref(), Some(key), "{sql}: {plan:?}");
        assert!(plan[0].2 <= 100, "{sql}: {plan:?}");
    }
}
