//! What a saga has done, system by system, for an admin who decides about a stuck one.

use serde::Serialize;
use serde_json::{Value, json};
use uuid::Uuid;

use super::Systems;
use crate::domain::ledger::{HOLD_INDEX, SETTLE_INDEX, transfer_id};
use crate::domain::plan::{Action, Plan, Step};
use crate::domain::saga::{Direction, SagaStatus};
use crate::stores::StoreError;
use crate::stores::book;
use crate::stores::ledger::TransferKind;
use crate::stores::master::sagas;

/// A saga in words.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct Explanation {
    pub saga_id: Uuid,
    pub kind: String,
    pub subject: String,
    pub status: String,
    pub direction: String,
    #[schema(value_type = Value, required)]
    pub reason: Option<Value>,
    pub steps: Vec<StepView>,
    /// What would happen if it were tried again.
    pub retry_would: String,
    /// What would happen if an admin asked for compensation.
    pub compensate_would: String,
}

/// A step, as the record has it and as its system shows it.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct StepView {
    pub step: u16,
    pub name: String,
    pub target_db: String,
    /// The record in `exchange_outbox`; it may lag.
    pub recorded: String,
    pub retries: u32,
    pub error_message: Option<String>,
    /// What the system itself shows now.
    #[schema(value_type = Value)]
    pub shows: Value,
}

pub(super) async fn explain(
    systems: &Systems,
    saga_id: Uuid,
) -> Result<Option<Explanation>, StoreError> {
    let Some(loaded) = sagas::load(&systems.master, saga_id).await? else {
        return Ok(None);
    };
    let detail = sagas::show(&systems.master, saga_id).await?;
    let rows = detail.map(|detail| detail.steps).unwrap_or_default();
    let mut steps = Vec::with_capacity(loaded.plan.steps.len());
    for step in &loaded.plan.steps {
        let row = rows
            .iter()
            .find(|row| row.step == step.number && row.direction == "do");
        steps.push(StepView {
            step: step.number,
            name: step.action.name().to_owned(),
            target_db: step.action.target(),
            recorded: row.map_or_else(String::new, |row| row.status.clone()),
            retries: row.map_or(0, |row| row.retries),
            error_message: row.and_then(|row| row.error_message.clone()),
            shows: shows(systems, &loaded.plan, step).await,
        });
    }
    let record = loaded.record;
    Ok(Some(Explanation {
        saga_id,
        kind: record.kind.to_string(),
        subject: record.subject.to_string(),
        status: record.status.to_string(),
        direction: record.direction.to_string(),
        retry_would: retry_would(record.status, record.direction),
        compensate_would: compensate_would(record.status, record.direction, &loaded.plan),
        reason: record.reason,
        steps,
    }))
}

async fn shows(systems: &Systems, plan: &Plan, step: &Step) -> Value {
    match &step.action {
        Action::Hold(_) => transfer(systems, plan.saga_id, HOLD_INDEX).await,
        Action::Post(_) => transfer(systems, plan.saga_id, SETTLE_INDEX).await,
        Action::Book { book, .. } | Action::Release { book, .. } => {
            in_book(systems, *book, plan.saga_id, step.number).await
        }
        Action::Reserve { account, .. } => {
            in_book(systems, account.broker, plan.saga_id, step.number).await
        }
        Action::Claim | Action::OpenObligation(_) | Action::Decide | Action::Finish => Value::Null,
    }
}

async fn transfer(systems: &Systems, saga_id: Uuid, index: u32) -> Value {
    match systems.ledger.transfer(transfer_id(saga_id, index)).await {
        Ok(Some(found)) => {
            let kind = match found.kind {
                TransferKind::Hold => "held",
                TransferKind::Post { .. } => "posted",
                TransferKind::Void { .. } => "voided",
                TransferKind::Single => "a transfer of another kind",
            };
            json!({ "transfer": kind, "amount": found.amount.to_string() })
        }
        Ok(None) => json!({ "transfer": "none" }),
        Err(error) => json!({ "unknown": error.to_string() }),
    }
}

async fn in_book(systems: &Systems, broker: u64, saga_id: Uuid, step: u16) -> Value {
    let read = async {
        let scope = systems.router.book(broker).await?;
        let mut read = scope.read().await?;
        let outcomes = book::step_outcomes(&mut read, saga_id, step).await?;
        read.end().await?;
        Ok::<_, StoreError>(outcomes)
    };
    match read.await {
        Ok(outcomes) => json!({ "book": outcomes }),
        Err(error) => json!({ "unknown": error.to_string() }),
    }
}

fn retry_would(status: SagaStatus, direction: Direction) -> String {
    match (status, direction) {
        (SagaStatus::Completed | SagaStatus::Compensated, _) => {
            "nothing: the saga has ended".to_owned()
        }
        (_, Direction::Back) => {
            "go on undoing: what was booked is reversed, the request goes back".to_owned()
        }
        (_, Direction::Undecided | Direction::Forward) => {
            "do every step again that has no outcome yet, and complete".to_owned()
        }
    }
}

fn compensate_would(status: SagaStatus, direction: Direction, plan: &Plan) -> String {
    match (status, direction) {
        (SagaStatus::Completed | SagaStatus::Compensated, _) => "nothing: the saga has ended".to_owned(),
        (_, Direction::Forward) => "nothing: it has passed its pivot and can only complete".to_owned(),
        (_, Direction::Back) => "nothing more: it is going back already".to_owned(),
        (_, Direction::Undecided) if plan.debt().is_some() => {
            "ask the ledger: where the hold has not been posted it is voided and every booked debit is \
             reversed; where it has been posted the saga completes instead"
                .to_owned()
        }
        (_, Direction::Undecided) => "undo every step that was done; the request goes back".to_owned(),
    }
}
