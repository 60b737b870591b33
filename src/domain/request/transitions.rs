//! The transitions that a broker, or the deadline, asks for.

use chrono::{DateTime, Duration, Utc};
use serde_json::json;
use uuid::Uuid;

use super::change::{apply, event, invalid, minor, own_account, private, terms_fact};
use super::past;
use super::{Decision, Proposal, ProposalKind, Refusal, Request, RequestStatus};
use crate::domain::account::{AccountRef, OwnerKind};
use crate::domain::ids::BrokerId;
use crate::domain::money::{Amount, Currency};
use crate::domain::plan;
use crate::domain::proof::{self, Proof};
use crate::domain::request_event::EventKind;
use crate::domain::terms::Party;

/// What a broker brings to an acceptance.
#[derive(Clone, Debug)]
pub struct Acceptance {
    pub by: BrokerId,
    /// Its own account; its main house account where it names none.
    pub account: Option<AccountRef>,
    /// The saga to run where something must be reserved.
    pub saga_id: Uuid,
}

impl Request {
    /// The target, or on a broadcast the first broker to come, accepts. Where the completion
    /// will debit an account with a floor, a saga reserves it first.
    ///
    /// # Errors
    /// See [`Refusal`]; the author can't accept its own request, and who is no party of a
    /// broadcast that isn't open learns no more than that.
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
            return self.repeated_accept(by, acceptance.account.as_ref());
        }
        self.no_saga()?;
        self.in_time(now)?;
        if self.past.failed_accepts.get(&by) >= Some(&past::MAX_FAILED_ACCEPTS) {
            return Err(Refusal::TooOften {
                what: "an acceptance that a book refuses is tried",
                most: past::MAX_FAILED_ACCEPTS,
            });
        }
        let account = own_account(acceptance.account, by, currency)?;
        self.check_landing(&account)?;
        let mut request = self.changed(now);
        request.target = Some(by);
        request.counterparty_account = Some(account);
        let promises = request.promises();
        let facts = [
            ("broker", json!(by.to_string())),
            ("terms", terms_fact(&self.terms)),
        ];
        if !promises.is_empty() {
            let plan = plan::accept(self.id, acceptance.saga_id, promises);
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

    fn repeated_accept(
        &self,
        by: BrokerId,
        account: Option<&AccountRef>,
    ) -> Result<Decision, Refusal> {
        if self.party(by).is_none() {
            return Err(Refusal::Taken);
        }
        if self.accepted_at.is_none() && self.status != RequestStatus::Accepting {
            return Err(self.wrong_status());
        }
        let accepted_with = self.counterparty_account.as_ref();
        if account.is_some_and(|account| Some(account) != accepted_with) {
            return Err(invalid(
                "account_id",
                "is another than it was accepted with",
            ));
        }
        Ok(Decision::Already)
    }

    /// Where the author names a client of the other side, that client's account and no other is
    /// credited or debited there; an order is executed by a cashier.
    fn check_landing(&self, account: &AccountRef) -> Result<(), Refusal> {
        if self.kind.is_order() {
            if account.owner_kind != OwnerKind::Cashier {
                return Err(invalid("account_id", "is an account of a cashier of yours"));
            }
            return Ok(());
        }
        let named =
            |uid: &String| account.owner_kind == OwnerKind::Partner && account.owner_ref == *uid;
        if !self.counterpart_uid.as_ref().is_none_or(named) {
            return Err(invalid(
                "account_id",
                "is the account of the client whom the request names",
            ));
        }
        Ok(())
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
            RequestStatus::Rejected if self.past.ended_so(by, reason) => Ok(Decision::Already),
            RequestStatus::Pending => {
                self.no_saga()?;
                let mut request = self.changed(now);
                request.past.end(Some(by), reason.map(str::to_owned));
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
            | RequestStatus::Rejected
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
            // Once accepted it was cancelled by both, before by its author alone.
            RequestStatus::Cancelled if self.accepted_at.is_some() || party == Party::Author => {
                Ok(Decision::Already)
            }
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
                        self.propose(ProposalKind::Cancel, EventKind::CancelProposed, by, now)
                    }
                }
            }
            RequestStatus::Accepting
            | RequestStatus::Completed
            | RequestStatus::Rejected
            | RequestStatus::Cancelled
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
        if self.status == RequestStatus::Accepted && self.sent_at.is_some() {
            // Both have agreed to it.
            return Ok(Decision::Already);
        }
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
                let withdrawn = request.proof_digest.take();
                request.past.withdrawn.extend(withdrawn);
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
            | None => self.propose(ProposalKind::Resend, EventKind::ResendProposed, by, now),
        }
    }

    /// The sender has sent, with proof. An order is executed: see [`Self::execute`].
    ///
    /// # Errors
    /// See [`Refusal`]; other proofs than those that were recorded are refused, not merged, and so
    /// are those that both sides have taken back, for they are a late repeat.
    pub fn mark_sent(
        &self,
        by: BrokerId,
        proofs: &[Proof],
        confirm_within: Duration,
        now: DateTime<Utc>,
    ) -> Result<Decision, Refusal> {
        if self.kind.is_order() {
            return Err(invalid("id", "is an order's, which is executed"));
        }
        self.prove(by, proofs, confirm_within, now)
    }

    /// Records that the sender has done its part, and the proof of it.
    pub(super) fn prove(
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
        proof::check(proofs).map_err(|error| invalid(error.field(), &error.to_string()))?;
        let digest = proof::digest(proofs);
        match self.status {
            RequestStatus::Accepted => {
                self.no_saga()?;
                self.in_time(now)?;
                if self.past.withdrawn.contains(&digest) {
                    return Err(Refusal::ProofWithdrawn {
                        status: self.status,
                    });
                }
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
            RequestStatus::Completed => self.repeated_confirm(party, received),
            RequestStatus::Sent if self.saga_id.is_some() => self.repeated_confirm(party, received),
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
                    if self.past.claims >= past::MAX_CLAIMS {
                        return Err(Refusal::TooOften {
                            what: "another received_amount is stated",
                            most: past::MAX_CLAIMS,
                        });
                    }
                    let mut request = self.changed(now);
                    request.received_amount = Some(received);
                    request.past.claims += 1;
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

    /// The receiver has confirmed it, and the sender too where it agreed to less.
    fn repeated_confirm(&self, party: Party, received: Amount) -> Result<Decision, Refusal> {
        let confirmed = party != self.sender() || self.received_amount.is_some();
        if confirmed && received == self.settled_amount() {
            Ok(Decision::Already)
        } else {
            Err(self.wrong_status())
        }
    }

    pub(super) fn close(
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
        let books = request.promises().into_iter();
        let books = books.map(|(account, _)| account.broker).collect();
        let reserved = request.reservation_saga_id.take();
        let plan =
            reserved.map(|reserved_by| plan::release(self.id, release_saga, books, reserved_by));
        apply(request, event(kind, by, &[]), plan)
    }

    fn propose(
        &self,
        kind: ProposalKind,
        event_kind: EventKind,
        by: BrokerId,
        now: DateTime<Utc>,
    ) -> Result<Decision, Refusal> {
        if self.past.proposals.get(&by) >= Some(&past::MAX_PROPOSALS) {
            return Err(Refusal::TooOften {
                what: "one side proposes to cancel or to send again",
                most: past::MAX_PROPOSALS,
            });
        }
        let mut request = self.changed(now);
        request.proposal = Some(Proposal { kind, by });
        request.past.count_proposal(Some(by));
        Ok(apply(request, event(event_kind, Some(by), &[]), None))
    }

    /// A copy with the next version. A proposal lapses with whatever happens next.
    pub(super) fn changed(&self, now: DateTime<Utc>) -> Request {
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

    pub(super) fn no_saga(&self) -> Result<(), Refusal> {
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

    pub(super) fn wrong_status(&self) -> Refusal {
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

const fn not_your_move(whose: &'static str, what: &'static str) -> Refusal {
    Refusal::NotYourMove { whose, what }
}
