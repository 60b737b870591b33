//! The transitions that a broker, or the deadline, asks for.

use chrono::{DateTime, Duration, Utc};
use serde_json::{Value, json};
use uuid::Uuid;

use super::change::{apply, event, minor};
use super::{
    Change, Decision, Proposal, ProposalKind, Refusal, Request, RequestKind, RequestStatus,
};
use crate::domain::account::{AccountRef, HousePurpose};
use crate::domain::ids::{BrokerId, RequestId};
use crate::domain::money::{Amount, Currency};
use crate::domain::plan;
use crate::domain::proof::{self, Proof};
use crate::domain::request_event::{self, EventKind};
use crate::domain::terms::{Party, Terms};

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
    /// The author's own account; its main house account where it names none.
    pub account: Option<AccountRef>,
    pub deadline_at: Option<DateTime<Utc>>,
}

/// What a broker brings to an acceptance.
#[derive(Clone, Debug)]
pub struct Acceptance {
    pub by: BrokerId,
    /// Its own account; its main house account where it names none.
    pub account: Option<AccountRef>,
    /// The saga to run where something must be reserved.
    pub saga_id: Uuid,
}

impl NewRequest {
    /// # Errors
    /// A target that is the author, a deadline that has passed, terms that can't stand, or an
    /// account of another book or currency.
    pub fn create(self, now: DateTime<Utc>) -> Result<Change, Refusal> {
        if self.target == Some(self.author) {
            return Err(invalid(
                "target_broker_id",
                "is another broker than the author",
            ));
        }
        if self.deadline_at.is_some_and(|deadline| deadline <= now) {
            return Err(invalid("deadline_at", "lies in the future"));
        }
        self.terms
            .check(self.amount)
            .map_err(|error| invalid("terms.commission", &error.to_string()))?;
        let account = own_account(self.account, self.author, &self.currency)?;
        let private = private(&[
            ("contact", self.contact.as_deref()),
            ("note", self.note.as_deref()),
        ]);
        let mut event = event(
            EventKind::Created,
            Some(self.author),
            &[
                ("type", json!(self.kind)),
                ("author", json!(self.author.to_string())),
                ("target", json!(self.target.map(|id| id.to_string()))),
                ("currency", json!(self.currency.code)),
                ("amount", minor(self.amount.minor())),
                ("method", json!(self.method)),
                ("city_code", json!(self.city_code)),
                ("terms", terms_fact(&self.terms)),
            ],
        );
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
                author_account: Some(account),
                counterparty_account: None,
                deadline_at: self.deadline_at,
                confirm_by: None,
                proposal: None,
                saga_id: None,
                reservation_saga_id: None,
                proof_digest: None,
                event_seq: 0,
                event_hash: request_event::genesis(self.id),
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
}

impl Request {
    /// The target, or on a broadcast the first broker to come, accepts. Where the completion
    /// will debit an account with a floor, a saga reserves it first.
    ///
    /// # Errors
    /// See [`Refusal`]; the author can't accept its own request.
    pub fn accept(
        &self,
        acceptance: Acceptance,
        currency: &Currency,
        now: DateTime<Utc>,
    ) -> Result<Decision, Refusal> {
        let by = acceptance.by;
        if self.party(by) == Some(Party::Author) {
            return Err(not_your_move("counterparty", "accept"));
        }
        if self.party(by).is_none() && !self.broadcast {
            return Err(Refusal::NotFound);
        }
        if self.status != RequestStatus::Pending {
            let accepted_by_it = self.target == Some(by)
                && (self.accepted_at.is_some() || self.status == RequestStatus::Accepting);
            return if accepted_by_it {
                Ok(Decision::Already)
            } else {
                Err(self.wrong_status())
            };
        }
        self.no_saga()?;
        self.in_time(now)?;
        let account = own_account(acceptance.account, by, currency)?;
        let mut request = self.changed(now);
        request.target = Some(by);
        request.counterparty_account = Some(account);
        let sends_from = request.account_of(request.sender()).cloned();
        let facts = [
            ("broker", json!(by.to_string())),
            ("terms", terms_fact(&self.terms)),
        ];
        if let Some(account) = sends_from.filter(AccountRef::has_floor) {
            let plan = plan::accept(self.id, acceptance.saga_id, account, request.debit_amount());
            request.status = RequestStatus::Accepting;
            request.saga_id = Some(acceptance.saga_id);
            let event = event(EventKind::Accepting, Some(by), &facts);
            return Ok(apply(request, event, Some(plan)));
        }
        request.status = RequestStatus::Accepted;
        request.accepted_at = Some(now);
        let event = event(EventKind::Accepted, Some(by), &facts);
        Ok(apply(request, event, None))
    }

    /// The target declines a direct request.
    ///
    /// # Errors
    /// See [`Refusal`]; a broadcast has nobody who could decline it for all.
    pub fn reject(
        &self,
        by: BrokerId,
        reason: Option<&str>,
        now: DateTime<Utc>,
    ) -> Result<Decision, Refusal> {
        if self.party_or_hidden(by)? == Party::Author || self.broadcast {
            return Err(not_your_move("target of a direct request", "reject it"));
        }
        match self.status {
            RequestStatus::Rejected => Ok(Decision::Already),
            RequestStatus::Pending => {
                self.no_saga()?;
                let mut request = self.changed(now);
                request.status = RequestStatus::Rejected;
                request.closed_at = Some(now);
                let mut event = event(EventKind::Rejected, Some(by), &[]);
                event.private = private(&[("reason", reason)]);
                Ok(apply(request, event, None))
            }
            RequestStatus::Accepting
            | RequestStatus::Accepted
            | RequestStatus::Sent
            | RequestStatus::Completed
            | RequestStatus::Cancelled
            | RequestStatus::Expired
            | RequestStatus::Disputed => Err(self.wrong_status()),
        }
    }

    /// Cancels: the author alone while pending, both together afterwards (the first proposes,
    /// the second agrees). `release_saga` gives reservations back.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub fn cancel(
        &self,
        by: BrokerId,
        release_saga: Uuid,
        now: DateTime<Utc>,
    ) -> Result<Decision, Refusal> {
        let party = self.party_or_hidden(by)?;
        match self.status {
            RequestStatus::Cancelled => Ok(Decision::Already),
            RequestStatus::Pending if party == Party::Author => {
                self.no_saga()?;
                Ok(self.close(
                    RequestStatus::Cancelled,
                    EventKind::Cancelled,
                    Some(by),
                    release_saga,
                    now,
                ))
            }
            RequestStatus::Pending => Err(not_your_move("author", "cancel a pending request")),
            RequestStatus::Accepted | RequestStatus::Sent => {
                self.no_saga()?;
                match self.proposal {
                    Some(Proposal {
                        kind: ProposalKind::Cancel,
                        by: first,
                    }) if first == by => Ok(Decision::Already),
                    Some(Proposal {
                        kind: ProposalKind::Cancel,
                        ..
                    }) => Ok(self.close(
                        RequestStatus::Cancelled,
                        EventKind::Cancelled,
                        Some(by),
                        release_saga,
                        now,
                    )),
                    Some(Proposal {
                        kind: ProposalKind::Resend,
                        ..
                    })
                    | None => {
                        Ok(self.propose(ProposalKind::Cancel, EventKind::CancelProposed, by, now))
                    }
                }
            }
            RequestStatus::Accepting
            | RequestStatus::Completed
            | RequestStatus::Rejected
            | RequestStatus::Expired
            | RequestStatus::Disputed => Err(self.wrong_status()),
        }
    }

    /// Goes back from sent to accepted when both sides want it, as after a wrong proof. Money may
    /// have moved already, so `sent_at` stays, and with it the deadline is past its use.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub fn resend(&self, by: BrokerId, now: DateTime<Utc>) -> Result<Decision, Refusal> {
        self.party_or_hidden(by)?;
        if self.status != RequestStatus::Sent {
            return Err(self.wrong_status());
        }
        self.no_saga()?;
        match self.proposal {
            Some(Proposal {
                kind: ProposalKind::Resend,
                by: first,
            }) if first == by => Ok(Decision::Already),
            Some(Proposal {
                kind: ProposalKind::Resend,
                ..
            }) => {
                let mut request = self.changed(now);
                request.status = RequestStatus::Accepted;
                request.confirm_by = None;
                request.proof_digest = None;
                request.received_amount = None;
                Ok(apply(
                    request,
                    event(EventKind::ResendAgreed, Some(by), &[]),
                    None,
                ))
            }
            Some(Proposal {
                kind: ProposalKind::Cancel,
                ..
            })
            | None => Ok(self.propose(ProposalKind::Resend, EventKind::ResendProposed, by, now)),
        }
    }

    /// The sender has sent, with proof.
    ///
    /// # Errors
    /// See [`Refusal`]; other proofs than those that were recorded are refused, not merged.
    pub fn mark_sent(
        &self,
        by: BrokerId,
        proofs: &[Proof],
        confirm_within: Duration,
        now: DateTime<Utc>,
    ) -> Result<Decision, Refusal> {
        if self.party_or_hidden(by)? != self.sender() {
            return Err(not_your_move(
                self.sender().as_str(),
                "mark this request sent",
            ));
        }
        proof::check(proofs).map_err(|error| invalid("proof", &error.to_string()))?;
        let digest = proof::digest(proofs);
        match self.status {
            RequestStatus::Accepted => {
                self.no_saga()?;
                self.in_time(now)?;
                let mut request = self.changed(now);
                request.status = RequestStatus::Sent;
                request.sent_at = Some(now);
                request.confirm_by = Some(now + confirm_within);
                request.proof_digest = Some(digest);
                let files: Vec<_> = proofs.iter().filter_map(|proof| proof.sha256).collect();
                let mut event = event(
                    EventKind::Sent,
                    Some(by),
                    &[
                        ("proof_digest", json!(digest)),
                        ("files_sha256", json!(files)),
                    ],
                );
                event.private = Some(json!({ "proof": proofs }));
                Ok(apply(request, event, None))
            }
            RequestStatus::Sent | RequestStatus::Completed | RequestStatus::Disputed
                if self.proof_digest == Some(digest) =>
            {
                Ok(Decision::Already)
            }
            RequestStatus::Pending
            | RequestStatus::Accepting
            | RequestStatus::Sent
            | RequestStatus::Completed
            | RequestStatus::Rejected
            | RequestStatus::Cancelled
            | RequestStatus::Expired
            | RequestStatus::Disputed => Err(self.wrong_status()),
        }
    }

    /// The receiver confirms what has arrived. All of it starts the saga; less is a claim that
    /// the sender agrees to by confirming the same `received_amount`, or disputes.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub fn confirm(
        &self,
        by: BrokerId,
        received: Option<Amount>,
        saga_id: Uuid,
        currency: &Currency,
        now: DateTime<Utc>,
    ) -> Result<Decision, Refusal> {
        let party = self.party_or_hidden(by)?;
        let received = received.unwrap_or(self.amount);
        if received > self.amount {
            return Err(invalid(
                "received_amount",
                "is at most the amount of the request",
            ));
        }
        match self.status {
            RequestStatus::Completed => self.repeated_confirm(received),
            RequestStatus::Sent if self.saga_id.is_some() => self.repeated_confirm(received),
            RequestStatus::Sent => {
                if party == self.sender() {
                    match self.received_amount {
                        Some(claimed) if claimed == received => {
                            self.start_confirm(by, received, saga_id, currency, now)
                        }
                        Some(_) => Err(invalid(
                            "received_amount",
                            "is what the receiver has stated",
                        )),
                        None => Err(not_your_move("receiver", "confirm first")),
                    }
                } else if received == self.amount {
                    self.start_confirm(by, received, saga_id, currency, now)
                } else if self.received_amount == Some(received) {
                    Ok(Decision::Already)
                } else {
                    self.terms.check(received).map_err(|error| {
                        invalid("received_amount", &format!("leaves no room: {error}"))
                    })?;
                    let mut request = self.changed(now);
                    request.received_amount = Some(received);
                    let facts = [("received_amount", minor(received.minor()))];
                    Ok(apply(
                        request,
                        event(EventKind::ReceivedClaimed, Some(by), &facts),
                        None,
                    ))
                }
            }
            RequestStatus::Pending
            | RequestStatus::Accepting
            | RequestStatus::Accepted
            | RequestStatus::Rejected
            | RequestStatus::Cancelled
            | RequestStatus::Expired
            | RequestStatus::Disputed => Err(self.wrong_status()),
        }
    }

    /// Either side takes what was sent to an arbiter: everything stands still until then.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub fn dispute(
        &self,
        by: BrokerId,
        claim: &str,
        now: DateTime<Utc>,
    ) -> Result<Decision, Refusal> {
        self.party_or_hidden(by)?;
        match self.status {
            RequestStatus::Disputed => Ok(Decision::Already),
            RequestStatus::Sent => {
                self.no_saga()?;
                let mut request = self.changed(now);
                request.status = RequestStatus::Disputed;
                let mut event = event(EventKind::Disputed, Some(by), &[]);
                event.private = Some(json!({ "claim": claim }));
                Ok(apply(request, event, None))
            }
            RequestStatus::Pending
            | RequestStatus::Accepting
            | RequestStatus::Accepted
            | RequestStatus::Completed
            | RequestStatus::Rejected
            | RequestStatus::Cancelled
            | RequestStatus::Expired => Err(self.wrong_status()),
        }
    }

    /// The deadline has passed and nothing was ever sent.
    ///
    /// # Errors
    /// See [`Refusal`]; a deadline that has not passed is [`Refusal::WrongStatus`] too.
    pub fn expire(&self, release_saga: Uuid, now: DateTime<Utc>) -> Result<Decision, Refusal> {
        match self.status {
            RequestStatus::Expired => Ok(Decision::Already),
            RequestStatus::Pending | RequestStatus::Accepted if self.is_late(now) => {
                self.no_saga()?;
                Ok(self.close(
                    RequestStatus::Expired,
                    EventKind::Expired,
                    None,
                    release_saga,
                    now,
                ))
            }
            RequestStatus::Pending
            | RequestStatus::Accepting
            | RequestStatus::Accepted
            | RequestStatus::Sent
            | RequestStatus::Completed
            | RequestStatus::Rejected
            | RequestStatus::Cancelled
            | RequestStatus::Disputed => Err(self.wrong_status()),
        }
    }

    fn start_confirm(
        &self,
        by: BrokerId,
        received: Amount,
        saga_id: Uuid,
        currency: &Currency,
        now: DateTime<Utc>,
    ) -> Result<Decision, Refusal> {
        let mut request = self.changed(now);
        request.received_amount = (received != self.amount).then_some(received);
        request.saga_id = Some(saga_id);
        let plan = plan::confirm(&request, saga_id, received, currency)
            .ok_or_else(|| self.wrong_status())?;
        let facts = [
            ("saga", json!(saga_id.to_string())),
            ("received_amount", minor(received.minor())),
        ];
        Ok(apply(
            request,
            event(EventKind::Confirmed, Some(by), &facts),
            Some(plan),
        ))
    }

    fn repeated_confirm(&self, received: Amount) -> Result<Decision, Refusal> {
        if received == self.settled_amount() {
            Ok(Decision::Already)
        } else {
            Err(self.wrong_status())
        }
    }

    fn close(
        &self,
        status: RequestStatus,
        kind: EventKind,
        by: Option<BrokerId>,
        release_saga: Uuid,
        now: DateTime<Utc>,
    ) -> Decision {
        let mut request = self.changed(now);
        request.status = status;
        request.closed_at = Some(now);
        let reserved = request.reservation_saga_id.take();
        let book = request.broker_of(request.sender());
        let plan = reserved
            .zip(book)
            .map(|(reserved_by, book)| plan::release(self.id, release_saga, book, reserved_by));
        apply(request, event(kind, by, &[]), plan)
    }

    fn propose(
        &self,
        kind: ProposalKind,
        event_kind: EventKind,
        by: BrokerId,
        now: DateTime<Utc>,
    ) -> Decision {
        let mut request = self.changed(now);
        request.proposal = Some(Proposal { kind, by });
        apply(request, event(event_kind, Some(by), &[]), None)
    }

    /// A copy with the next version. A proposal lapses with whatever happens next.
    fn changed(&self, now: DateTime<Utc>) -> Request {
        Request {
            version: self.version + 1,
            updated_at: now,
            proposal: None,
            ..self.clone()
        }
    }

    fn party_or_hidden(&self, by: BrokerId) -> Result<Party, Refusal> {
        self.party(by).ok_or(Refusal::NotFound)
    }

    fn no_saga(&self) -> Result<(), Refusal> {
        match self.saga_id {
            Some(_) => Err(Refusal::InSaga {
                status: self.status,
            }),
            None => Ok(()),
        }
    }

    fn in_time(&self, now: DateTime<Utc>) -> Result<(), Refusal> {
        if self.is_late(now) {
            return Err(Refusal::DeadlinePassed);
        }
        Ok(())
    }

    /// The deadline is for sending: once something was sent it has done its work.
    fn is_late(&self, now: DateTime<Utc>) -> bool {
        self.sent_at.is_none() && self.deadline_at.is_some_and(|deadline| deadline <= now)
    }

    fn wrong_status(&self) -> Refusal {
        match self.saga_id {
            Some(_) => Refusal::InSaga {
                status: self.status,
            },
            None => Refusal::WrongStatus {
                status: self.status,
            },
        }
    }
}

fn own_account(
    account: Option<AccountRef>,
    broker: BrokerId,
    currency: &Currency,
) -> Result<AccountRef, Refusal> {
    let account =
        account.unwrap_or_else(|| AccountRef::house(broker, HousePurpose::Main, &currency.code));
    if account.broker != broker {
        return Err(invalid("account_id", "is an account of your own book"));
    }
    if account.currency != currency.code {
        return Err(invalid(
            "account_id",
            "is an account in the currency of the request",
        ));
    }
    Ok(account)
}

fn terms_fact(terms: &Terms) -> Value {
    let commission = terms.commission.map(|commission| match commission.size {
        crate::domain::terms::CommissionSize::Amount(amount) => {
            json!({ "payer": commission.payer, "amount": minor(amount.minor()) })
        }
        crate::domain::terms::CommissionSize::BasisPoints(points) => {
            json!({ "payer": commission.payer, "basis_points": points.to_string() })
        }
    });
    json!({ "obligation": terms.obligation, "commission": commission })
}

fn private(texts: &[(&str, Option<&str>)]) -> Option<Value> {
    let given: serde_json::Map<String, Value> = texts
        .iter()
        .filter_map(|(name, text)| text.map(|text| ((*name).to_owned(), json!(text))))
        .collect();
    (!given.is_empty()).then_some(Value::Object(given))
}

fn invalid(field: &'static str, rule: &str) -> Refusal {
    Refusal::Invalid {
        field,
        rule: rule.to_owned(),
    }
}

const fn not_your_move(whose: &'static str, what: &'static str) -> Refusal {
    Refusal::NotYourMove { whose, what }
}
