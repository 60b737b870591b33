//! How a request comes to be.

use chrono::{DateTime, Months, Utc};
use serde_json::json;

use super::change::{event, invalid, minor, own_account, private, terms_fact};
use super::order::pickup_digest;
use super::{Change, Refusal, Request, RequestKind, RequestStatus, Settles};
use crate::domain::account::{AccountRef, OwnerKind};
use crate::domain::canonical;
use crate::domain::ids::{BrokerId, RequestId};
use crate::domain::moment::Moment;
use crate::domain::money::{Amount, Currency};
use crate::domain::request_event::{self, EventKind};
use crate::domain::terms::Terms;

/// How far ahead a deadline may lie.
const DEADLINE_WITHIN: Months = Months::new(5 * 12);

/// What an author asks for, already checked for form.
#[derive(Clone, Debug)]
pub struct NewRequest {
    pub id: RequestId,
    pub author: BrokerId,
    pub target: Option<BrokerId>,
    pub kind: RequestKind,
    pub currency: Currency,
    pub amount: Amount,
    pub method: String,
    pub city_code: Option<String>,
    pub counterpart_uid: Option<String>,
    pub contact: Option<String>,
    pub note: Option<String>,
    pub terms: Terms,
    /// Of a settlement and of nothing else.
    pub settles: Option<Settles>,
    /// Of an order: it is confirmed by being executed.
    pub auto_confirm: bool,
    /// Of a payout and of nothing else.
    pub pickup_hash: Option<String>,
    /// The author's own account; its main house account where it names none. Of an order the
    /// client's.
    pub account: Option<AccountRef>,
    pub deadline_at: Option<DateTime<Utc>>,
}

impl NewRequest {
    /// # Errors
    /// A target that is the author, a deadline that has passed or lies too far ahead, terms that can't stand, or an
    /// account of another book or currency.
    pub fn create(self, now: DateTime<Utc>) -> Result<Change, Refusal> {
        if self.target == Some(self.author) {
            return Err(invalid(
                "target_broker_id",
                "is another broker than the author",
            ));
        }
        let deadline_at = self.deadline_at.map(|deadline| Moment::from(deadline).at());
        let last = now.checked_add_months(DEADLINE_WITHIN);
        if deadline_at.is_some_and(|at| at <= now || last.is_none_or(|last| at > last)) {
            return Err(invalid(
                "deadline_at",
                "lies in the future, at most 5 years ahead",
            ));
        }
        self.check_kind()?;
        self.terms
            .check(self.amount)
            .map_err(|error| invalid("terms.commission", &error.to_string()))?;
        let account = own_account(self.account, self.author, &self.currency)?;
        let private = private(&[
            ("contact", self.contact.as_deref()),
            ("counterpart_uid", self.counterpart_uid.as_deref()),
            ("note", self.note.as_deref()),
        ]);
        let pickup_digest = self.pickup_hash.as_deref().map(pickup_digest);
        let mut facts = vec![
            ("type", json!(self.kind)),
            ("author", json!(self.author.to_string())),
            ("target", json!(self.target.map(|id| id.to_string()))),
            ("currency", json!(self.currency.code)),
            ("amount", minor(self.amount.minor())),
            ("method", json!(self.method)),
            ("city_code", json!(self.city_code)),
            ("deadline_at", json!(deadline_at.map(canonical::time))),
            ("terms", terms_fact(&self.terms)),
        ];
        // A fact that only some kinds have is left out of the others' events.
        facts.extend(self.settles.map(|settles| ("settles", json!(settles))));
        facts.extend(self.auto_confirm.then_some(("auto_confirm", json!(true))));
        facts.extend(pickup_digest.map(|digest| ("pickup_digest", json!(digest))));
        let mut event = event(EventKind::Created, Some(self.author), &facts);
        event.private = private;
        Ok(Change {
            request: Request {
                id: self.id,
                author: self.author,
                target: self.target,
                broadcast: self.target.is_none(),
                kind: self.kind,
                status: RequestStatus::Pending,
                version: 1,
                currency: self.currency.code,
                amount: self.amount,
                received_amount: None,
                method: self.method,
                city_code: self.city_code,
                counterpart_uid: self.counterpart_uid,
                contact: self.contact,
                note: self.note,
                terms: self.terms,
                settles: self.settles,
                auto_confirm: self.auto_confirm,
                pickup_hash: self.pickup_hash,
                author_account: Some(account),
                counterparty_account: None,
                deadline_at,
                confirm_by: None,
                proposal: None,
                saga_id: None,
                reservation_saga_id: None,
                booked_saga_id: None,
                proof_digest: None,
                event_seq: 0,
                event_hash: request_event::genesis(self.id),
                past: Box::default(),
                created_at: now,
                accepted_at: None,
                sent_at: None,
                closed_at: None,
                updated_at: now,
            },
            event,
            plan: None,
        })
    }

    /// What only some kinds may have, and must.
    fn check_kind(&self) -> Result<(), Refusal> {
        let settlement = self.kind == RequestKind::Settlement;
        debug_assert_eq!(
            settlement,
            self.settles.is_some(),
            "only settlements settle"
        );
        if settlement {
            if self.target.is_none() {
                return Err(invalid(
                    "target_broker_id",
                    "names the other side of the debt",
                ));
            }
            if self.counterpart_uid.is_some() {
                return Err(invalid("counterpart_uid", "has no place in a settlement"));
            }
            if self.terms != Terms::NONE {
                return Err(invalid("terms", "has no place in a settlement"));
            }
        }
        if self.kind.is_order() {
            if self.target.is_none() && self.city_code.is_none() {
                return Err(invalid("city_code", "says where, in an order to all"));
            }
            let client = self.account.as_ref().map(|account| account.owner_kind);
            if client != Some(OwnerKind::Partner) {
                return Err(invalid("counterpart_uid", "names a client of your own"));
            }
        }
        Ok(())
    }
}
