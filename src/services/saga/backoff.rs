//! When a saga whose try has failed is tried again.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde_json::json;

use super::{Fault, Run, SagaEngine};
use crate::stores::master::alerts::NewAlert;
use crate::stores::master::sagas::{self, AfterFailure};

impl SagaEngine {
    /// Records a failed try: again after a while, or stuck. Where even that can't be recorded,
    /// the lease runs out by itself.
    pub(super) async fn failed(&self, run: &Run, fault: &Fault) {
        let now = self.0.systems.clock.now();
        let (counts, after) = match fault {
            Fault::Away(_) => (
                false,
                AfterFailure::RetryAt(now + self.while_away(run, now)),
            ),
            Fault::Transient(_) if run.retries + 1 < run.max_retries => {
                (true, AfterFailure::RetryAt(now + self.backoff(run.retries)))
            }
            Fault::Transient(_) | Fault::Integrity(_) => {
                (true, AfterFailure::Stuck(alert(run, fault)))
            }
        };
        let outcome = match &after {
            AfterFailure::RetryAt(_) => "retry",
            AfterFailure::Stuck(_) => "stuck",
        };
        tracing::warn!(%fault, outcome, "a try at a saga has failed");
        metrics::counter!("settlenet_saga_failures_total", "outcome" => outcome).increment(1);
        let master = &self.0.systems.master;
        let recorded = sagas::fail(
            master,
            run.plan.saga_id,
            run.lease.token,
            counts,
            &fault.to_string(),
            &after,
            now,
        )
        .await;
        if let Err(error) = recorded {
            tracing::warn!(%error, "the failed try could not be recorded; its lease will run out");
        }
    }

    /// Doubles with every failed try, and is spread so that sagas which failed together don't
    /// come back together.
    fn backoff(&self, retries: u32) -> chrono::Duration {
        let doubled = self
            .0
            .limits
            .backoff_base
            .saturating_mul(1u32.checked_shl(retries).unwrap_or(u32::MAX));
        self.spread(doubled)
    }

    /// While a system is away, a saga is asked about the less often the older it is.
    fn while_away(&self, run: &Run, now: DateTime<Utc>) -> chrono::Duration {
        let age = (now - run.created_at).to_std().unwrap_or_default();
        self.spread(self.0.limits.backoff_base.max(age / 8))
    }

    fn spread(&self, wait: Duration) -> chrono::Duration {
        let wait = wait.min(self.0.limits.backoff_max);
        let millis = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        let jitter = self.0.systems.entropy.below(millis / 2 + 1);
        let millis = i64::try_from(millis / 2 + jitter).unwrap_or(i64::MAX);
        chrono::Duration::milliseconds(millis)
    }
}

fn alert(run: &Run, fault: &Fault) -> NewAlert {
    let saga = run.plan.saga_id;
    NewAlert {
        kind: sagas::STUCK_ALERT,
        subject: saga.to_string(),
        message: format!(
            "the {} saga of {} is stuck: {fault}. What it did stands and nothing is lost; \
             `settlenet admin saga show {saga}` says what each side shows and what retry and \
             compensate would do.",
            run.plan.kind, run.plan.subject
        ),
        details: json!({
            "kind": run.plan.kind,
            "subject": run.plan.subject,
            "error": fault.to_string(),
            "tries": run.retries + 1,
        }),
    }
}
