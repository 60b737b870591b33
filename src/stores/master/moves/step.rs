use chrono::{DateTime, Utc};
use serde_json::json;
use sqlx::{MySql, QueryBuilder};

use super::{Claim, shortened};
use crate::domain::broker_move::{BrokerMove, MoveEvent, MoveState};
use crate::stores::StoreError;
use crate::stores::error::corrupt;
use crate::stores::master::feed::{self, NewEvent};
use crate::stores::master::{MasterTx, failed};

/// What a step of a move writes besides its state.
#[derive(Clone, Debug)]
pub enum Step {
    /// Nothing: whoever has the claim goes on.
    On,
    /// Look at it again at once.
    Again,
    /// Both fences are turned: the source is kept until then.
    Arrived {
        pause_us: Option<u64>,
        purge_at: DateTime<Utc>,
    },
    /// It is over.
    Ended,
    /// It needs a person.
    Rests { fault: String },
    /// A person has given up what it has left.
    Abandoned { because: String },
}

/// Brings a move from one state to the next, all of it in one transaction; gives whether it was
/// in the first under this claim. `None` for a claim asks for the state only: an admin's wish.
///
/// # Errors
/// The master's; a state or a route that is not what the move has left.
pub async fn step(
    tx: &mut MasterTx,
    this: &BrokerMove,
    claim: Option<&Claim>,
    event: MoveEvent,
    step: &Step,
    now: DateTime<Utc>,
) -> Result<bool, StoreError> {
    let next = following(this, event)?;
    let mut builder = QueryBuilder::<MySql>::new("UPDATE broker_move SET state = ");
    builder.push_bind(next.as_str());
    builder.push(", open_broker_id = ");
    builder.push_bind(next.is_open().then_some(this.broker));
    match step {
        Step::On => {}
        Step::Again => {
            builder.push(", tries = 0, due_at = ").push_bind(now);
        }
        Step::Arrived { pause_us, purge_at } => {
            builder.push(", pause_us = ").push_bind(*pause_us);
            builder.push(", due_at = ").push_bind(*purge_at);
        }
        Step::Ended => {
            builder
                .push(", due_at = NULL, leased_by = NULL, fault = NULL, ended_at = ")
                .push_bind(now);
        }
        Step::Rests { fault } => {
            builder
                .push(", due_at = NULL, leased_by = NULL, fault = ")
                .push_bind(shortened(fault));
        }
        Step::Abandoned { because } => {
            builder
                .push(", due_at = NULL, leased_by = NULL, claim_no = claim_no + 1, ended_at = ")
                .push_bind(now);
            builder
                .push(", abandoned_because = ")
                .push_bind(because.clone());
        }
    }
    builder.push(" WHERE move_id = ").push_bind(this.id);
    builder.push(" AND state = ").push_bind(this.state.as_str());
    if let Some(claim) = claim {
        builder.push(" AND claim_no = ").push_bind(claim.number);
    }
    let done = builder.build().execute(&mut *tx).await.map_err(failed)?;
    if done.rows_affected() != 1 {
        return Ok(false);
    }
    if let Some(event) = told(this, next, step) {
        feed::insert(tx, &[event], now).await?;
    }
    Ok(true)
}

pub(super) fn following(this: &BrokerMove, event: MoveEvent) -> Result<MoveState, StoreError> {
    this.state.after(event).ok_or_else(|| {
        let what = format!("{}: {event:?} in state {}", this.id, this.state.as_str());
        corrupt("broker_move", what)
    })
}

/// What the platform's feed is told of a step.
fn told(this: &BrokerMove, next: MoveState, step: &Step) -> Option<NewEvent> {
    let kind = match next {
        MoveState::Copying if this.state == MoveState::RollingBack => "move.rolled_back",
        MoveState::Retained if this.state == MoveState::Flipped => "move.arrived",
        MoveState::Done => "move.done",
        MoveState::Kept => "move.kept",
        MoveState::Stuck => "move.stuck",
        MoveState::Cancelled => "move.cancelled",
        MoveState::Abandoned => "move.abandoned",
        MoveState::Preparing
        | MoveState::Copying
        | MoveState::Fencing
        | MoveState::RollingBack
        | MoveState::Flipped
        | MoveState::Retained
        | MoveState::Purging
        | MoveState::Cancelling => return None,
    };
    let mut payload = json!({ "broker_id": this.broker, "to": this.to.to_string() });
    match step {
        Step::Arrived { pause_us, .. } => {
            payload["pause_us"] = json!(pause_us);
            if let Some(proof) = &this.proof {
                payload["head"] =
                    json!({ "seq": proof.head.seq.to_string(), "hash": proof.head.hash });
                payload["root_before"] = json!(proof.root_before);
                payload["root_after"] = json!(proof.root_after);
            }
        }
        Step::Rests { fault } => payload["fault"] = json!(fault),
        Step::Abandoned { because } => payload["because"] = json!(because),
        Step::On | Step::Again | Step::Ended => {}
    }
    Some(NewEvent {
        broker: feed::PLATFORM,
        kind: kind.to_owned(),
        subject: this.id.to_string(),
        payload,
    })
}
