//! Invariant 1, as far as debts are repaid: a settlement has promised, or repaid, what its state
//! says, and every obligation is what it was less what settled it.

use serde_json::Value;

use super::evidence::Evidence;
use super::{
    BETWEEN_LOOKS, Finding, InvariantReport, LOOKS, REQUESTS_PAGE, Reconcile, ReconcileError,
};
use crate::domain::request::Request;
use crate::domain::request_event::Event;
use crate::domain::settlement::PartStatus;
use crate::stores::master::audit::{self, Unsettled};

impl Evidence {
    /// What a request has promised and repaid of obligations, and takes of a credit line, against its
    /// state and its completion. No saga may be changing it.
    pub(super) fn settlement_faults(
        &self,
        request: &Request,
        completion: Option<(&Event, u64)>,
        found: &mut Vec<String>,
    ) {
        if self.credit.get(&request.id) != Some(&request.credit_hold()) {
            found.push("it takes another amount of a credit line than its terms say".to_owned());
        }
        let subject = request.id.to_string();
        let parts = self
            .settlements
            .get(&subject)
            .map_or(&[][..], Vec::as_slice);
        let of = |status| parts.iter().filter(move |part| part.status == status);
        let reserved: u64 = of(PartStatus::Reserved).map(|part| part.amount).sum();
        let settled: u64 = of(PartStatus::Settled)
            .map(|part| part.settled_amount)
            .sum();
        let amount = request.amount.minor();
        let (promises, repays) = match (request.settles, completion) {
            // What a completion has repaid stays repaid, whatever an arbiter corrects later: that is
            // a debt of its own.
            (Some(_), Some((_, repaid))) => (0, repaid),
            (Some(_), None) if request.is_under_way() => (amount, 0),
            _ => (0, 0),
        };
        if reserved != promises {
            found.push(format!(
                "{reserved} of debts is reserved for it, not {promises}"
            ));
        }
        if settled != repays {
            found.push(format!("it has repaid {settled}, not {repays}"));
        }
        let named = completion.map(|(event, _)| named(event));
        let mut named = named.unwrap_or_default();
        let mut stands: Vec<_> = of(PartStatus::Settled)
            .map(|part| (part.obligation.to_string(), part.settled_amount.to_string()))
            .collect();
        named.sort_unstable();
        stands.sort_unstable();
        if named != stands {
            found.push("it has repaid other obligations than its completion says".to_owned());
        }
    }
}

/// The obligations that a completion says were settled, and how much of each.
fn named(completion: &Event) -> Vec<(String, String)> {
    let parts = completion.payload.get("settled").and_then(Value::as_array);
    let text = |part: &Value, field: &str| {
        let text = part.get(field).and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    };
    let parts = parts.into_iter().flatten();
    parts
        .map(|part| (text(part, "obligation"), text(part, "amount")))
        .collect()
}

impl Reconcile {
    /// Whether every obligation is its amount less what settled it, and has reserved what
    /// settlements under way were promised.
    ///
    /// # Errors
    /// The master's.
    pub(super) async fn settled_obligations(
        &self,
        report: &mut InvariantReport,
    ) -> Result<(), ReconcileError> {
        let master = &self.systems.master;
        let mut last = None;
        loop {
            let (mut found, to) = audit::unsettled(master, last, REQUESTS_PAGE).await?;
            // Read in one statement; looked at again, because the report says so of everything.
            for _ in 1..LOOKS {
                if found.is_empty() {
                    break;
                }
                tokio::time::sleep(BETWEEN_LOOKS).await;
                let (again, _) = audit::unsettled(master, last, REQUESTS_PAGE).await?;
                found.retain(|one| again.contains(one));
            }
            for one in found {
                let Unsettled {
                    id,
                    remaining,
                    reserved,
                    should_remain,
                    should_reserve,
                } = one;
                let what = format!(
                    "{remaining} remains of it and {reserved} is reserved; its settlements say {should_remain} and {should_reserve}"
                );
                report.broken(Finding::new(id, what));
            }
            let Some(to) = to else {
                return Ok(());
            };
            last = Some(to);
        }
    }
}
