//! What stands in the master without the thing that it comes of: rows are read by the page, in
//! the order of their ids, and what they name is looked for in a statement each. A thing is
//! recorded no later than what comes of it, so what is looked for afterwards must be there.

use std::collections::{BTreeMap, BTreeSet};

use sqlx::{MySql, QueryBuilder};
use uuid::Uuid;

use super::failed;
use crate::domain::ids::{BrokerId, ObligationId, RequestId};
use crate::domain::obligation::ObligationStatus;
use crate::domain::saga::SagaStatus;
use crate::stores::StoreError;
use crate::stores::error::corrupt;
use crate::stores::pool::Pool;
use crate::stores::sql::list_of;

/// A saga's row, as far as it says what else must be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SagaRow {
    pub saga_id: Uuid,
    pub subject: String,
    pub status: SagaStatus,
}

/// Sagas after an id.
///
/// # Errors
/// The master's, or a row that can't be read.
pub async fn sagas(
    master: &Pool,
    after: Option<Uuid>,
    limit: u32,
) -> Result<Vec<SagaRow>, StoreError> {
    let rows: Vec<(Uuid, String, String)> = sqlx::query_as(
        "SELECT saga_id, subject, status FROM saga WHERE saga_id > ? ORDER BY saga_id LIMIT ?",
    )
    .bind(after.unwrap_or_default())
    .bind(limit)
    .fetch_all(master)
    .await
    .map_err(failed)?;
    rows.into_iter()
        .map(|(saga_id, subject, status)| {
            let status = SagaStatus::parse(&status)
                .ok_or_else(|| corrupt("saga", format!("{saga_id}: status {status}")))?;
            Ok(SagaRow {
                saga_id,
                subject,
                status,
            })
        })
        .collect()
}

/// An obligation's row, as far as it says what else must be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObligationRow {
    pub id: ObligationId,
    pub saga_id: Uuid,
    pub subject: String,
    pub status: ObligationStatus,
}

/// Obligations after an id.
///
/// # Errors
/// The master's, or a row that can't be read.
pub async fn obligations(
    master: &Pool,
    after: Option<ObligationId>,
    limit: u32,
) -> Result<Vec<ObligationRow>, StoreError> {
    let rows: Vec<(u64, Uuid, String, String)> = sqlx::query_as(
        "SELECT obligation_id, saga_id, subject, status FROM obligation
         WHERE obligation_id > ? ORDER BY obligation_id LIMIT ?",
    )
    .bind(after.map_or(0, ObligationId::bits))
    .bind(limit)
    .fetch_all(master)
    .await
    .map_err(failed)?;
    rows.into_iter()
        .map(|(id, saga_id, subject, status)| {
            let id = ObligationId::from_bits(id);
            let status = ObligationStatus::parse(&status)
                .ok_or_else(|| corrupt("obligation", format!("{id}: status {status}")))?;
            Ok(ObligationRow {
                id,
                saga_id,
                subject,
                status,
            })
        })
        .collect()
}

/// The sagas that `exchange_outbox` has steps of, after an id.
///
/// # Errors
/// The master's.
pub async fn stepping(
    master: &Pool,
    after: Option<Uuid>,
    limit: u32,
) -> Result<Vec<Uuid>, StoreError> {
    sqlx::query_scalar(
        "SELECT DISTINCT saga_id FROM exchange_outbox WHERE saga_id > ? ORDER BY saga_id LIMIT ?",
    )
    .bind(after.unwrap_or_default())
    .bind(limit)
    .fetch_all(master)
    .await
    .map_err(failed)
}

/// The requests that there are events of, after an id.
///
/// # Errors
/// The master's.
pub async fn eventful(
    master: &Pool,
    after: Option<RequestId>,
    limit: u32,
) -> Result<Vec<RequestId>, StoreError> {
    let ids: Vec<u64> = sqlx::query_scalar(
        "SELECT DISTINCT request_id FROM network_request_event
         WHERE request_id > ? ORDER BY request_id LIMIT ?",
    )
    .bind(after.map_or(0, RequestId::bits))
    .bind(limit)
    .fetch_all(master)
    .await
    .map_err(failed)?;
    Ok(ids.into_iter().map(RequestId::from_bits).collect())
}

/// The two sides of a request; nobody is the other of a broadcast that is open.
pub type Sides = (BrokerId, Option<BrokerId>);

/// The sides of those of some requests that are there.
///
/// # Errors
/// The master's.
pub async fn sides(
    master: &Pool,
    ids: &[RequestId],
) -> Result<BTreeMap<RequestId, Sides>, StoreError> {
    let bits: Vec<u64> = ids.iter().map(|id| id.bits()).collect();
    let rows: Vec<(u64, u64, Option<u64>)> = among(
        master,
        "SELECT request_id, author_broker_id, target_broker_id FROM network_request \
         WHERE request_id IN (",
        &bits,
        ")",
    )
    .await?;
    Ok(rows
        .into_iter()
        .map(|(id, author, target)| (RequestId::from_bits(id), (author, target)))
        .collect())
}

/// Those of some sagas that are there.
///
/// # Errors
/// The master's.
pub async fn sagas_there(master: &Pool, ids: &[Uuid]) -> Result<BTreeSet<Uuid>, StoreError> {
    let rows: Vec<(Uuid,)> = among(
        master,
        "SELECT saga_id FROM saga WHERE saga_id IN (",
        ids,
        ")",
    )
    .await?;
    Ok(rows.into_iter().map(|(id,)| id).collect())
}

/// How many steps of each of some sagas are not ended; none for a saga without steps.
///
/// # Errors
/// The master's.
pub async fn open_steps(master: &Pool, ids: &[Uuid]) -> Result<BTreeMap<Uuid, i64>, StoreError> {
    let rows: Vec<(Uuid, i64)> = among(
        master,
        "SELECT saga_id, CAST(SUM(status IN ('waiting', 'pending', 'failed')) AS SIGNED)
         FROM exchange_outbox WHERE saga_id IN (",
        ids,
        ") GROUP BY saga_id",
    )
    .await?;
    Ok(rows.into_iter().collect())
}

/// Runs a statement with a list in it.
pub(super) async fn among<T, V>(
    master: &Pool,
    before: &'static str,
    values: &[V],
    after: &'static str,
) -> Result<Vec<T>, StoreError>
where
    T: for<'r> sqlx::FromRow<'r, sqlx::mysql::MySqlRow> + Send + Unpin,
    V: Clone + Send + sqlx::Encode<'static, MySql> + sqlx::Type<MySql> + 'static,
{
    if values.is_empty() {
        return Ok(Vec::new());
    }
    let mut builder = QueryBuilder::<MySql>::new(before);
    let mut list = builder.separated(", ");
    for value in list_of(values) {
        list.push_bind(value.clone());
    }
    builder.push(after);
    builder
        .build_query_as()
        .fetch_all(master)
        .await
        .map_err(failed)
}
