//! What is copied is all that there is.

use std::collections::BTreeSet;

use settlenet::domain::book_table::{BOOK_TABLES, Kind};
use sqlx::MySqlPool;

use crate::harness::World;

/// Every table of a book's database that has a broker is copied, every column of it, with the key
/// that the database has; but the fence, which says where the book is.
#[tokio::test(flavor = "multi_thread")]
async fn every_table_and_every_column_of_a_book_is_known() {
    let world = World::new().await;
    let pool = MySqlPool::connect(world.databases.shard_url().expose())
        .await
        .unwrap();
    let columns: Vec<(String, String, String, String, String)> = sqlx::query_as(
        "SELECT CAST(c.table_name AS CHAR), CAST(c.column_name AS CHAR), CAST(c.column_type AS CHAR),
                CAST(c.is_nullable AS CHAR), CAST(c.data_type AS CHAR)
         FROM information_schema.columns c
         WHERE c.table_schema = DATABASE() AND c.column_name <> 'broker_id'
           -- How far the log has a head stands with the database: of a book that has come it is
           -- looked at again.
           AND c.column_name NOT IN ('logged_seq', 'logged_in', 'unlogged') AND EXISTS (
             SELECT 1 FROM information_schema.columns b WHERE b.table_schema = DATABASE()
               AND b.table_name = c.table_name AND b.column_name = 'broker_id')
         ORDER BY 1, c.ordinal_position",
    )
    .fetch_all(&pool)
    .await
    .unwrap();
    let there: BTreeSet<_> = columns
        .iter()
        .filter(|(table, ..)| table != "book_fence")
        .map(|(table, column, type_, null, data)| {
            let kind = match data.as_str() {
                "bigint" | "int" | "smallint" | "tinyint" if type_.contains("unsigned") => {
                    Kind::Unsigned
                }
                "bigint" | "int" | "smallint" | "tinyint" => Kind::Signed,
                "varchar" | "char" => Kind::Text,
                "binary" | "varbinary" => Kind::Bytes,
                "longtext" | "json" => Kind::Json,
                "datetime" => Kind::Time,
                other => panic!("{table}.{column} is {other}, which no move can copy yet"),
            };
            (
                table.clone(),
                column.clone(),
                format!("{kind:?}"),
                null == "YES",
            )
        })
        .collect();
    let known: BTreeSet<_> = BOOK_TABLES
        .iter()
        .flat_map(|table| {
            table.columns.iter().map(|column| {
                let kind = format!("{:?}", column.kind);
                (
                    table.name.to_owned(),
                    column.name.to_owned(),
                    kind,
                    column.nullable,
                )
            })
        })
        .collect();
    assert_eq!(known, there);
    for table in BOOK_TABLES {
        let key: Vec<String> = sqlx::query_scalar(
            "SELECT CAST(column_name AS CHAR) FROM information_schema.key_column_usage
             WHERE table_schema = DATABASE() AND table_name = ? AND constraint_name = 'PRIMARY'
             ORDER BY ordinal_position",
        )
        .bind(table.name)
        .fetch_all(&pool)
        .await
        .unwrap();
        let known: Vec<&str> = table
            .key_columns()
            .iter()
            .map(|column| column.name)
            .collect();
        assert_eq!(key[0], "broker_id");
        assert_eq!(key[1..], known, "{}", table.name);
    }
}
