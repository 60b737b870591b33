//! What netting has settled, against the proposals and rounds that it is said to come of. Subjects
//! are read by the page, in their order: `MN-` and `NP-` come before the requests' `NR-`, which are
//! looked at with their requests.

use super::failed;
use crate::domain::ids::BrokerId;
use crate::stores::StoreError;
use crate::stores::pool::Pool;

/// What is settled under one subject on one side of a debt, in minor units.
pub type Side = (String, BrokerId, BrokerId, u64);

/// Subjects of settlements that are no requests, after one.
///
/// # Errors
/// The master's.
pub async fn netting_subjects(
    master: &Pool,
    after: &str,
    limit: u32,
) -> Result<Vec<String>, StoreError> {
    sqlx::query_scalar(
        "(SELECT DISTINCT subject FROM obligation_settlement
          WHERE subject > ? AND subject < 'NR-' ORDER BY subject LIMIT ?)
         UNION ALL
         (SELECT DISTINCT subject FROM obligation_settlement
          WHERE subject > ? AND subject >= 'NR.' ORDER BY subject LIMIT ?)
         ORDER BY subject LIMIT ?",
    )
    .bind(after)
    .bind(limit)
    .bind(after)
    .bind(limit)
    .bind(limit)
    .fetch_all(master)
    .await
    .map_err(failed)
}

/// What some subjects have settled, by debtor and creditor.
///
/// # Errors
/// The master's.
pub async fn netted_sides(master: &Pool, subjects: &[String]) -> Result<Vec<Side>, StoreError> {
    super::strays::among(
        master,
        "SELECT s.subject, o.debtor_broker_id, o.creditor_broker_id,
                CAST(SUM(s.settled_amount) AS UNSIGNED)
         FROM obligation_settlement s JOIN obligation o ON o.obligation_id = s.obligation_id
         WHERE s.subject IN (",
        subjects,
        ") GROUP BY 1, 2, 3",
    )
    .await
}

/// How many of the lines that a round has applied, and of the rows that it has settled, have not the
/// other.
///
/// # Errors
/// The master's.
pub async fn unlike_lines(
    master: &Pool,
    subject: &str,
    (round, revision): (u64, u32),
) -> Result<u64, StoreError> {
    let odd: i64 = sqlx::query_scalar(
        "SELECT (SELECT COUNT(*) FROM netting_line l
                 LEFT JOIN obligation_settlement s
                      ON s.subject = ? AND s.obligation_id = l.obligation_id
                 WHERE l.round_id = ? AND l.revision = ? AND l.reduction > 0
                   AND NOT (s.settled_amount <=> l.reduction AND s.status <=> 'settled'))
              + (SELECT COUNT(*) FROM obligation_settlement s
                 LEFT JOIN netting_line l
                      ON l.round_id = ? AND l.revision = ? AND l.obligation_id = s.obligation_id
                         AND l.reduction > 0
                 WHERE s.subject = ? AND l.round_id IS NULL)",
    )
    .bind(subject)
    .bind(round)
    .bind(revision)
    .bind(round)
    .bind(revision)
    .bind(subject)
    .fetch_one(master)
    .await
    .map_err(failed)?;
    Ok(u64::try_from(odd).unwrap_or(u64::MAX))
}

/// Proposals and rounds that were applied and have settled nothing; at most `limit`.
///
/// # Errors
/// The master's.
pub async fn applied_without_settling(
    master: &Pool,
    limit: u32,
) -> Result<Vec<String>, StoreError> {
    sqlx::query_scalar(
        "SELECT subject FROM (
             SELECT CONCAT('NP-', LPAD(LOWER(HEX(proposal_id)), 12, '0')) AS subject
             FROM netting_proposal WHERE status = 'applied'
             UNION ALL
             SELECT CONCAT('MN-', LPAD(LOWER(HEX(round_id)), 12, '0'))
             FROM netting_round WHERE status = 'applied'
         ) AS applied
         WHERE NOT EXISTS (
             SELECT 1 FROM obligation_settlement s WHERE s.subject = applied.subject
         ) LIMIT ?",
    )
    .bind(limit)
    .fetch_all(master)
    .await
    .map_err(failed)
}
