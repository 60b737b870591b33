//! What only orders have: they are executed where a request is sent, a payout against the code that
//! the client shows, and confirmed by that where the author has said so beforehand.

use chrono::{DateTime, Duration, Utc};
use serde_json::json;
use uuid::Uuid;

use super::change::{apply, event, invalid};
use super::past::{MAX_PICKUPS, MAX_RENEWALS};
use super::{Decision, Refusal, Request, RequestKind, RequestStatus};
use crate::domain::canonical::Hash;
use crate::domain::ids::BrokerId;
use crate::domain::money::Currency;
use crate::domain::plan;
use crate::domain::proof::Proof;
use crate::domain::request_event::EventKind;
use crate::domain::terms::Party;

/// What an executor brings to an execution.
#[derive(Clone, Debug)]
pub struct Execution<'a> {
    pub by: BrokerId,
    pub proofs: &'a [Proof],
    /// Whether the code that the client showed is the payout's; not asked where it is no payout.
    pub pickup: Pickup,
    /// The saga to run where it is confirmed by this.
    pub saga_id: Uuid,
    /// How long the author has to confirm.
    pub confirm_within: Duration,
}

/// What is known of the code that a client showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pickup {
    /// None was shown, or it has not been looked at because the order is past that.
    Missing,
    Right,
    Wrong,
}

/// The digest that the events have of a payout's code as it is kept, so that nobody puts another
/// in its place unseen.
#[must_use]
pub fn pickup_digest(hash: &str) -> Hash {
    Hash::of_bytes(hash.as_bytes())
}

impl Request {
    #[must_use]
    pub fn pickup_digest(&self) -> Option<Hash> {
        self.pickup_hash.as_deref().map(pickup_digest)
    }

    /// The executor has done what the order asks, with proof. A wrong code is an event of its own,
    /// and the order stays as it is.
    ///
    /// # Errors
    /// See [`Refusal`]; without the code of a payout, or after too many wrong ones.
    pub fn execute(
        &self,
        execution: &Execution<'_>,
        currency: &Currency,
        now: DateTime<Utc>,
    ) -> Result<Decision, Refusal> {
        let Execution { by, proofs, .. } = *execution;
        if !self.kind.is_order() {
            return Err(invalid("id", "is no order's"));
        }
        let executed = self.prove(by, proofs, execution.confirm_within, now)?;
        let Decision::Apply(mut change) = executed else {
            return Ok(executed);
        };
        if self.pickup_hash.is_some() {
            self.pickups_left()?;
            match execution.pickup {
                Pickup::Right => {}
                Pickup::Wrong => return Ok(self.refuse_pickup(by, now)),
                Pickup::Missing => {
                    return Err(invalid("pickup_code", "is the code that the client shows"));
                }
            }
        }
        if self.auto_confirm {
            let saga_id = execution.saga_id;
            change.request.saga_id = Some(saga_id);
            let plan = plan::confirm(&change.request, saga_id, self.amount, currency);
            change.plan = Some(plan.ok_or_else(|| self.wrong_status())?);
            let saga = json!(saga_id.to_string());
            change.event.payload.insert("saga".to_owned(), saga);
        }
        Ok(Decision::Apply(change))
    }

    /// How many wrong codes are left.
    ///
    /// # Errors
    /// None is: the author has to make a new code.
    pub fn pickups_left(&self) -> Result<u32, Refusal> {
        match MAX_PICKUPS.saturating_sub(self.past.pickups_refused) {
            0 => Err(Refusal::TooOften {
                what: "a wrong pickup code is taken before its author makes a new one:",
                most: MAX_PICKUPS,
            }),
            left => Ok(left),
        }
    }

    fn refuse_pickup(&self, by: BrokerId, now: DateTime<Utc>) -> Decision {
        let mut request = self.changed(now);
        request.past.pickups_refused += 1;
        apply(
            request,
            event(EventKind::PickupRefused, Some(by), &[]),
            None,
        )
    }

    /// Whether a broker may make a new code for a payout: its author, before it is executed. The code
    /// before was lost, or tried too often.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub fn may_renew_pickup(&self, by: BrokerId) -> Result<(), Refusal> {
        let party = self.party(by).ok_or(Refusal::NotFound)?;
        if party != Party::Author || self.kind != RequestKind::Payout {
            return Err(Refusal::NotYourMove {
                whose: "author of a payout",
                what: "make its pickup code",
            });
        }
        match self.status {
            RequestStatus::Pending | RequestStatus::Accepted => self.no_saga()?,
            RequestStatus::Accepting
            | RequestStatus::Sent
            | RequestStatus::Completed
            | RequestStatus::Rejected
            | RequestStatus::Cancelled
            | RequestStatus::Expired
            | RequestStatus::Disputed => return Err(self.wrong_status()),
        }
        if self.past.pickups_renewed >= MAX_RENEWALS {
            return Err(Refusal::TooOften {
                what: "a pickup code is made anew",
                most: MAX_RENEWALS,
            });
        }
        Ok(())
    }

    /// The author makes a new code: the one before opens nothing any more.
    ///
    /// # Errors
    /// As [`Self::may_renew_pickup`].
    pub fn renew_pickup(
        &self,
        by: BrokerId,
        hash: String,
        now: DateTime<Utc>,
    ) -> Result<Decision, Refusal> {
        self.may_renew_pickup(by)?;
        let mut request = self.changed(now);
        request.past.renew_pickup();
        let facts = [("pickup_digest", json!(pickup_digest(&hash)))];
        request.pickup_hash = Some(hash);
        let event = event(EventKind::PickupRenewed, Some(by), &facts);
        Ok(apply(request, event, None))
    }
}
