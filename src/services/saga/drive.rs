//! One try at a saga, from wherever it stands to its end.

use futures::future::join_all;
use serde_json::{Value, json};

use super::ending::{End, Ending, EndingOutcome};
use super::steps::StepOutcome;
use super::{Fault, Run, SagaEngine};
use crate::domain::plan::{Action, Step};
use crate::domain::request::Booked;
use crate::domain::saga::Direction;
use crate::stores::master::sagas;

/// Which way a try goes now.
enum Way {
    Forward,
    Back(Value),
}

/// Where a way led.
enum Led {
    Ended(End),
    /// The other way was decided.
    Turned(Way),
}

/// A saga turns once from forward to back, and once more where the ledger has posted meanwhile.
const TURNS: u32 = 4;

impl SagaEngine {
    /// # Errors
    /// See [`Fault`]: what was done stands, and the next try goes on from it.
    pub(super) async fn drive(&self, run: &Run) -> Result<End, Fault> {
        let mut way = match run.direction {
            Direction::Back => Way::Back(Value::Null),
            Direction::Undecided if run.compensation_requested => {
                Way::Back(json!({ "code": "compensation_requested" }))
            }
            Direction::Undecided | Direction::Forward => Way::Forward,
        };
        for _ in 0..TURNS {
            let led = match way {
                Way::Forward => self.forward(run).await?,
                Way::Back(reason) => self.back(run, &reason).await?,
            };
            way = match led {
                Led::Ended(end) => return Ok(end),
                Led::Turned(way) => way,
            };
        }
        Err(Fault::Integrity(
            "the ledger and the saga's row disagree about the direction".to_owned(),
        ))
    }

    async fn forward(&self, run: &Run) -> Result<Led, Fault> {
        let mut booked = Vec::new();
        let mut diverted = false;
        let before: Vec<&Step> = run.plan.before_pivot().collect();
        let outcomes = self.steps(run, &before).await;
        // A refusal is final; a fault beside it is only met again on the way back.
        if let Some(reason) = refusal(&outcomes) {
            return Ok(Led::Turned(Way::Back(reason)));
        }
        gather(outcomes, &mut booked, &mut diverted)?;

        match run.plan.pivot().map(|step| &step.action) {
            Some(action @ Action::Post(_)) => {
                let posted = self.post(run, action).await?;
                if !posted {
                    return Ok(Led::Turned(Way::Back(json!({ "code": "voided" }))));
                }
            }
            Some(_) => {
                self.arrive_at(run, "decide", "before")?;
                let decided = self.decide(run, Direction::Forward, None).await?;
                self.arrive_at(run, "decide", "after")?;
                if decided == Direction::Back {
                    return Ok(Led::Turned(Way::Back(Value::Null)));
                }
            }
            None => {}
        }

        let after: Vec<&Step> = run.plan.after_pivot().collect();
        let outcomes = self.steps(run, &after).await;
        if let Some(reason) = refusal(&outcomes) {
            return Err(Fault::Integrity(format!(
                "a credit was refused after the pivot: {reason}"
            )));
        }
        gather(outcomes, &mut booked, &mut diverted)?;

        self.arrive_at(run, "finish", "before")?;
        let outcome = self.end(Ending::forward(run, booked, diverted)).await?;
        self.arrive_at(run, "finish", "after")?;
        Ok(outcome)
    }

    /// Begins at the ledger, because only the ledger can say whether the pivot has passed.
    async fn back(&self, run: &Run, reason: &Value) -> Result<Led, Fault> {
        let debt = run.plan.debt();
        if let Some(debt) = debt
            && !self.unhold(run, debt).await?
        {
            return Ok(Led::Turned(Way::Forward));
        }
        let decided = self.decide(run, Direction::Back, Some(reason)).await?;
        if decided != Direction::Back {
            return match debt {
                None => Ok(Led::Turned(Way::Forward)),
                Some(_) => Err(Fault::Integrity(
                    "the hold is void and the saga is recorded as going forward".to_owned(),
                )),
            };
        }
        self.arrive_at(run, "back", "after")?;
        let steps: Vec<&Step> = run.plan.before_pivot().rev().collect();
        for step in steps {
            self.undo(run, step).await?;
        }
        self.arrive_at(run, "finish", "undo.before")?;
        let outcome = self.end(Ending::back(run)).await?;
        self.arrive_at(run, "finish", "undo.after")?;
        Ok(outcome)
    }

    /// Steps with nothing between them that orders them: at the same time.
    async fn steps(&self, run: &Run, steps: &[&Step]) -> Vec<Result<StepOutcome, Fault>> {
        join_all(steps.iter().map(|step| self.step(run, step))).await
    }

    async fn decide(
        &self,
        run: &Run,
        direction: Direction,
        reason: Option<&Value>,
    ) -> Result<Direction, Fault> {
        let systems = &self.0.systems;
        let reason = reason.filter(|reason| !reason.is_null());
        let decided = sagas::decide(
            &systems.master,
            run.plan.saga_id,
            direction,
            reason,
            systems.clock.now(),
        )
        .await?;
        Ok(decided)
    }

    async fn end(&self, ending: Ending) -> Result<Led, Fault> {
        match self.0.endings.submit((), ending).await? {
            EndingOutcome::Ended(end) => Ok(Led::Ended(end)),
            EndingOutcome::GoesForward => Ok(Led::Turned(Way::Forward)),
            EndingOutcome::GoesBack => Ok(Led::Turned(Way::Back(Value::Null))),
            EndingOutcome::Failed(fault) => Err(fault),
        }
    }
}

fn refusal(outcomes: &[Result<StepOutcome, Fault>]) -> Option<Value> {
    outcomes.iter().find_map(|outcome| match outcome {
        Ok(StepOutcome::Refused(reason)) => Some(reason.clone()),
        Ok(StepOutcome::GoingBack) => Some(json!({ "code": "given_up" })),
        Ok(StepOutcome::Done { .. }) | Err(_) => None,
    })
}

fn gather(
    outcomes: Vec<Result<StepOutcome, Fault>>,
    booked: &mut Vec<Booked>,
    diverted: &mut bool,
) -> Result<(), Fault> {
    for outcome in outcomes {
        if let StepOutcome::Done {
            booked: entries,
            diverted: was_diverted,
        } = outcome?
        {
            booked.extend(entries);
            *diverted |= was_diverted;
        }
    }
    Ok(())
}
