//! Network requests: every transition loads the request, lets the domain decide, and persists the
//! decision where nothing has changed meanwhile; racing transitions have one winner, and the
//! others decide again on what the winner left.
//!
//! Whatever opens a transaction runs in a task of its own, so that a client who hangs up leaves
//! none open and interrupts nothing.

mod create;
mod disputes;
mod error;
mod orders;
mod persist;
mod read;

pub use crate::stores::master::disputes::{Dispute, Filter as DisputeFilter};
pub use crate::stores::master::requests::{After, Filter};
pub use create::{CommissionInput, CreateRequest};
pub use disputes::{Evidence, Judgment, Said};
pub use error::{FieldError, NetworkError, Shortage};
use persist::{Outcome, Takes};

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde_json::Value;
use uuid::Uuid;

use super::auth::password::Passwords;
use super::checkpoints::CheckpointService;
use super::lanes::Lanes;
use super::saga::{SagaEngine, Systems, Waited};
use crate::domain::account::{AccountRef, OwnerKind};
use crate::domain::ids::{AccountId, BrokerId, RequestId};
use crate::domain::money::{Amount, Currency, reason_in_major};
use crate::domain::proof::{self, Proof};
use crate::domain::request::{
    Acceptance, Decision, DisputeRules, Past, Refusal, Request, RequestStatus,
};
use crate::domain::saga::SagaKind;
use crate::domain::terms::{DefaultTerms, Party};
use crate::stores::book;
use crate::stores::master::credit_lines;
use crate::stores::master::currencies::CurrencyRegistry;
use crate::stores::master::requests::{self, Overdue};
use crate::stores::master::settlements::Debts;
use crate::stores::master::standing::{self, GateVersion};
use crate::stores::master::uploads;
use crate::stores::pool::Pool;

/// Who asks: a broker, by the subject of its token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actor {
    pub broker: BrokerId,
    /// The subject of the token; stands in the events.
    pub subject: String,
}

/// Rules that the operator of a network may set.
#[derive(Clone, Copy, Debug)]
pub struct NetworkRules {
    /// How long the receiver has to confirm before the sender may ask an arbiter.
    pub confirm_within: Duration,
    /// How long a client waits for its saga before it is told that it runs.
    pub wait: Duration,
    pub default_terms: DefaultTerms,
    pub disputes: DisputeRules,
}

/// A request after a transition.
#[derive(Clone, Debug)]
pub struct Answer {
    pub request: Request,
    /// Its saga has not ended within the bound: the outcome is still to come.
    pub running: Option<Uuid>,
}

/// Tries of a transition that others get in before.
const RACES: u32 = 16;

/// Network requests. One per process; clones share it.
#[derive(Clone)]
pub struct NetworkService(Arc<Inner>);

struct Inner {
    systems: Systems,
    currencies: Arc<CurrencyRegistry>,
    engine: SagaEngine,
    /// What signs decisions.
    checkpoints: CheckpointService,
    rules: NetworkRules,
    /// Makes and compares the codes of payouts.
    codes: Passwords,
    /// Payouts whose codes are being made anew.
    renewing: Arc<Mutex<HashSet<RequestId>>>,
    recordings: Lanes<(), persist::Recording, persist::Recorded>,
}

impl NetworkService {
    #[must_use]
    pub fn new(
        systems: Systems,
        currencies: Arc<CurrencyRegistry>,
        engine: SagaEngine,
        checkpoints: CheckpointService,
        codes: Passwords,
        rules: NetworkRules,
    ) -> Self {
        Self(Arc::new(Inner {
            checkpoints,
            codes,
            renewing: Arc::default(),
            recordings: persist::lanes(&systems, &engine),
            systems,
            currencies,
            engine,
            rules,
        }))
    }

    /// Accepts a request. Where the completion will debit an account with a floor, the amount is
    /// reserved first.
    ///
    /// # Errors
    /// See [`NetworkError`]; a reservation that is refused is [`NetworkError::SagaRefused`].
    pub async fn accept_request(
        &self,
        actor: &Actor,
        id: RequestId,
        account: Option<AccountId>,
    ) -> Result<Answer, NetworkError> {
        for _ in 0..RACES {
            match Box::pin(self.accept_once(actor, id, account)).await {
                Err(NetworkError::GateTurned) => {}
                other => return other,
            }
        }
        Err(NetworkError::Contended)
    }

    async fn accept_once(
        &self,
        actor: &Actor,
        id: RequestId,
        account: Option<AccountId>,
    ) -> Result<Answer, NetworkError> {
        let request = self.load_with_past(id).await?;
        if !request.visible_to(actor.broker) && !request.broadcast {
            return Err(Refusal::NotFound.into());
        }
        self.serves_city(actor.broker, &request).await?;
        let currency = self.currency(&request).await?;
        let gate = self.may_accept(actor.broker, &request).await?;
        let account = Box::pin(self.account_for(actor.broker, &request, account)).await?;
        let takes = self.takes(actor.broker, &request).await?;
        self.transition_through(
            (gate, takes),
            actor,
            request,
            move |request, saga_id, now| {
                if request.status == RequestStatus::Pending && gate.is_none() {
                    // Open again just now, and nobody has looked at the account.
                    return Err(Refusal::Taken);
                }
                let acceptance = Acceptance {
                    by: actor.broker,
                    account: account.clone(),
                    saga_id,
                };
                request.accept(acceptance, &currency, now)
            },
        )
        .await
    }

    /// # Errors
    /// See [`NetworkError`].
    pub async fn reject_request(
        &self,
        actor: &Actor,
        id: RequestId,
        reason: Option<String>,
    ) -> Result<Answer, NetworkError> {
        let request = self.load_with_past(id).await?;
        self.transition(actor, request, |request, _, now| {
            request.reject(actor.broker, reason.as_deref(), now)
        })
        .await
    }

    /// Cancels, or proposes or agrees to cancelling.
    ///
    /// # Errors
    /// See [`NetworkError`].
    pub async fn cancel_request(
        &self,
        actor: &Actor,
        id: RequestId,
    ) -> Result<Answer, NetworkError> {
        let request = self.load_with_past(id).await?;
        self.transition(actor, request, |request, saga_id, now| {
            request.cancel(actor.broker, saga_id, now)
        })
        .await
    }

    /// Proposes or agrees to going back from sent to accepted.
    ///
    /// # Errors
    /// See [`NetworkError`].
    pub async fn resend_request(
        &self,
        actor: &Actor,
        id: RequestId,
    ) -> Result<Answer, NetworkError> {
        let request = self.load_with_past(id).await?;
        self.transition(actor, request, |request, _, now| {
            request.resend(actor.broker, now)
        })
        .await
    }

    /// The sender has sent. A proof that names an upload carries its SHA-256 from here on.
    ///
    /// # Errors
    /// See [`NetworkError`]; an upload must be the sender's own and have the hash that is stated.
    pub async fn mark_sent(
        &self,
        actor: &Actor,
        id: RequestId,
        proofs: Vec<Proof>,
    ) -> Result<Answer, NetworkError> {
        proof::check(&proofs).map_err(|error| FieldError::new(error.field(), &error))?;
        let proofs = self.with_hashes(actor, proofs).await?;
        let within = chrono::Duration::from_std(self.0.rules.confirm_within).unwrap_or_default();
        let request = self.load_with_past(id).await?;
        self.transition(actor, request, |request, _, now| {
            request.mark_sent(actor.broker, &proofs, within, now)
        })
        .await
    }

    async fn with_hashes(
        &self,
        actor: &Actor,
        mut proofs: Vec<Proof>,
    ) -> Result<Vec<Proof>, NetworkError> {
        for proof in &mut proofs {
            let Some(upload) = proof.upload() else {
                continue;
            };
            let found = uploads::get(self.master(), upload)
                .await?
                .filter(|found| found.broker == actor.broker)
                .ok_or_else(|| FieldError::new("proof.url", "is an upload of your own"))?;
            if proof.sha256.is_some_and(|stated| stated != found.sha256) {
                return Err(
                    FieldError::new("proof.sha256", "is the hash of the uploaded file").into(),
                );
            }
            proof.sha256 = Some(found.sha256);
        }
        Ok(proofs)
    }

    /// Confirms what has arrived: starts the saga and waits for it within the bound. Everyone who
    /// confirms meanwhile waits too and gets the same answer.
    ///
    /// # Errors
    /// See [`NetworkError`]; a debit that is refused is [`NetworkError::SagaRefused`], and the
    /// request is sent again.
    pub async fn confirm_received(
        &self,
        actor: &Actor,
        id: RequestId,
        received_amount: Option<&str>,
    ) -> Result<Answer, NetworkError> {
        let request = self.load_with_past(id).await?;
        if request.party(actor.broker).is_none() {
            return Err(Refusal::NotFound.into());
        }
        let currency = self.currency(&request).await?;
        let received = received_amount
            .map(|text| Amount::parse(text, &currency))
            .transpose()
            .map_err(|error| FieldError::new("received_amount", error))?;
        let decide = |request: &Request, saga_id, now| {
            request.confirm(actor.broker, received, saga_id, &currency, now)
        };
        self.transition(actor, request, decide).await
    }

    /// Expires requests whose deadline has passed, at most `limit`. Gives how many. One that
    /// can't be expired, for whatever reason, holds up no other: the next is taken in its place.
    ///
    /// # Errors
    /// The master's, where it can't be reached; a request that somebody else moved first is left
    /// alone.
    pub async fn expire_overdue(&self, limit: u32) -> Result<usize, NetworkError> {
        let now = self.0.systems.clock.now();
        let mut after = None;
        let mut expired = 0;
        while expired < limit as usize {
            let overdue = requests::overdue(self.master(), now, after, limit).await?;
            let Some(last) = overdue.last() else {
                break;
            };
            after = Some(*last);
            for Overdue { id, .. } in overdue {
                if expired == limit as usize {
                    break;
                }
                match self.expire(id).await {
                    Ok(()) => expired += 1,
                    Err(NetworkError::Refused(_)) => {}
                    Err(NetworkError::Store(error)) if error.is_unavailable() => {
                        return Err(error.into());
                    }
                    Err(error) => tracing::error!(%error, request = %id, "can't be expired"),
                }
            }
        }
        Ok(expired)
    }

    async fn expire(&self, id: RequestId) -> Result<(), NetworkError> {
        let worker = Actor {
            broker: 0,
            subject: "expiry".to_owned(),
        };
        let request = self.load(id).await?;
        self.transition(&worker, request, |request, saga_id, now| {
            request.expire(saga_id, now)
        })
        .await?;
        Ok(())
    }

    /// Decides on the request as it was loaded, and again on what others made of it meanwhile.
    async fn transition(
        &self,
        actor: &Actor,
        request: Request,
        decide: impl Fn(&Request, Uuid, DateTime<Utc>) -> Result<Decision, Refusal>,
    ) -> Result<Answer, NetworkError> {
        let nothing = (None, Takes::Nothing);
        self.transition_through(nothing, actor, request, decide)
            .await
    }

    /// The same; with a gate for what starts something new, and only while that is as it was, and
    /// with what that takes.
    async fn transition_through(
        &self,
        (gate, takes): (Option<GateVersion>, Takes),
        actor: &Actor,
        mut request: Request,
        decide: impl Fn(&Request, Uuid, DateTime<Utc>) -> Result<Decision, Refusal>,
    ) -> Result<Answer, NetworkError> {
        for _ in 0..RACES {
            let id = request.id;
            let now = self.0.systems.clock.now();
            let saga_id = self.0.systems.entropy.uuid(now);
            let (recorded, saga_id) = match decide(&request, saga_id, now)? {
                Decision::Already => {
                    let saga_id = request.saga_id;
                    (request, saga_id)
                }
                Decision::Apply(change) => {
                    let saga = change.plan.as_ref().map(|plan| (plan.saga_id, plan.kind));
                    let owner = request.saga_id;
                    let start = (gate, takes.clone());
                    let recorded = match self.persist(actor, *change, owner, start, now).await? {
                        Outcome::Recorded(request) => *request,
                        Outcome::Changed => {
                            request = self.load_with_past(id).await?;
                            continue;
                        }
                        Outcome::GateTurned => return Err(NetworkError::GateTurned),
                        Outcome::Short(shortage) => {
                            let currency = self.currency(&request).await?;
                            return Err(NetworkError::Short { shortage, currency });
                        }
                    };
                    let waits = saga.filter(|(_, kind)| *kind != SagaKind::Release);
                    (recorded, waits.map(|(saga_id, _)| saga_id))
                }
            };
            return match saga_id {
                Some(saga_id) => Box::pin(self.settled(actor, saga_id, id)).await,
                None => Ok(Answer {
                    request: recorded,
                    running: None,
                }),
            };
        }
        Err(NetworkError::Contended)
    }

    /// The request once the saga that owns it has ended, or as it is when the bound is over.
    async fn settled(
        &self,
        actor: &Actor,
        saga_id: Uuid,
        id: RequestId,
    ) -> Result<Answer, NetworkError> {
        let ended = match self.0.engine.wait(saga_id, self.0.rules.wait).await? {
            Waited::Forward(request) => {
                return Ok(Answer {
                    request: *request,
                    running: None,
                });
            }
            Waited::Ended => true,
            Waited::Running => false,
        };
        let request = self.load(id).await?;
        if !ended || request.saga_id == Some(saga_id) {
            return Ok(Answer {
                request,
                running: Some(saga_id),
            });
        }
        match self.refusal_of(actor, &request, saga_id).await? {
            Some(reason) => {
                let exponent = self.currency(&request).await?.exponent;
                Err(NetworkError::SagaRefused {
                    status: request.status,
                    reason: reason_in_major(reason, exponent),
                })
            }
            None => Ok(Answer {
                request,
                running: None,
            }),
        }
    }

    /// Why a saga went back, if it did: its request's events say, as much as is the caller's to
    /// know.
    async fn refusal_of(
        &self,
        actor: &Actor,
        request: &Request,
        saga_id: Uuid,
    ) -> Result<Option<Value>, NetworkError> {
        use crate::domain::request_event::EventKind;
        if request.status == RequestStatus::Completed {
            return Ok(None);
        }
        let saga = saga_id.to_string();
        let events = requests::events(self.master(), request.id).await?;
        Ok(events
            .into_iter()
            .rev()
            .find(|(event, _)| {
                matches!(
                    event.kind,
                    EventKind::AcceptFailed | EventKind::ConfirmFailed
                ) && event.payload.get("saga").and_then(Value::as_str) == Some(&saga)
            })
            .map(|(event, _)| event.reason_for(actor.broker)))
    }

    async fn load(&self, id: RequestId) -> Result<Request, NetworkError> {
        let request = requests::get(self.master(), id).await?;
        request.ok_or_else(|| Refusal::NotFound.into())
    }

    /// As [`Self::load`], for a transition.
    async fn load_with_past(&self, id: RequestId) -> Result<Request, NetworkError> {
        self.load_for(id, false).await
    }

    /// With its past where the transition asks for more than its status tells.
    async fn load_for(&self, id: RequestId, whole: bool) -> Result<Request, NetworkError> {
        let mut request = self.load(id).await?;
        if whole || request.has_past() {
            let events = Box::pin(requests::events(self.master(), id)).await?;
            let events = events.iter().map(|(event, _)| event);
            // Events that came after it was read go with a later version, which is decided anew.
            let past = Past::of(events.take_while(|event| event.seq <= request.event_seq));
            request.past = Box::new(past);
        }
        Ok(request)
    }

    async fn currency(&self, request: &Request) -> Result<Currency, NetworkError> {
        let currency = self.0.currencies.get(&request.currency).await?;
        currency
            .ok_or_else(|| FieldError::new("currency_code", "is no currency of the network").into())
    }

    /// The gate that a broker's acceptance goes through where it would be a new one; nothing where
    /// it can't be. Neither side may be paused then.
    async fn may_accept(
        &self,
        broker: BrokerId,
        request: &Request,
    ) -> Result<Option<GateVersion>, NetworkError> {
        let own = request.target == Some(broker);
        match request.status {
            RequestStatus::Pending => {}
            // Its own may come back, and be accepted anew.
            RequestStatus::Accepting if own => {}
            RequestStatus::Accepting
            | RequestStatus::Accepted
            | RequestStatus::Sent
            | RequestStatus::Completed
            | RequestStatus::Rejected
            | RequestStatus::Cancelled
            | RequestStatus::Expired
            | RequestStatus::Disputed => return Ok(None),
        }
        let parties = [Some(broker), Some(request.author)];
        let (standing, gate) =
            standing::look(self.master(), parties, Some(&request.currency)).await?;
        let open = standing
            .network_is_open()
            .and_then(|()| standing.broker_is_open(broker, broker))
            .and_then(|()| standing.broker_is_open(request.author, broker));
        match open {
            Ok(()) => Ok(Some(gate)),
            // What it has begun is finished.
            Err(_) if request.status == RequestStatus::Accepting => Ok(None),
            Err(hindrance) => Err(hindrance.into()),
        }
    }

    /// What a broker's acceptance takes in the master, beyond the request itself.
    async fn takes(&self, broker: BrokerId, request: &Request) -> Result<Takes, NetworkError> {
        if request.status != RequestStatus::Pending {
            return Ok(Takes::Nothing);
        }
        let currency = request.currency.clone();
        if let Some(settles) = request.settles {
            let (debtor, creditor) = match settles.debtor {
                Party::Author => (request.author, broker),
                Party::Counterparty => (broker, request.author),
            };
            return Ok(Takes::Debts {
                debts: Debts {
                    debtor,
                    creditor,
                    currency,
                },
                only: settles.obligation,
                amount: request.amount.minor(),
            });
        }
        let Some(owing) = request.owing_with(broker) else {
            return Ok(Takes::Nothing);
        };
        let debts = Debts {
            debtor: owing.debtor,
            creditor: owing.creditor,
            currency,
        };
        let bounded = credit_lines::is_bounded(self.master(), &debts).await?;
        Ok(if bounded {
            Takes::Credit(debts)
        } else {
            Takes::Nothing
        })
    }

    /// The account that an acceptance brings: the one that is named, or the client's where the
    /// request names a client. On a request that is accepted already only one that it may have
    /// been accepted with.
    async fn account_for(
        &self,
        broker: BrokerId,
        request: &Request,
        named: Option<AccountId>,
    ) -> Result<Option<AccountRef>, NetworkError> {
        let open = matches!(
            request.status,
            RequestStatus::Pending | RequestStatus::Accepting
        );
        if request.target == Some(broker) || (open && request.party(broker).is_none()) {
            if let Some(accepted) = &request.counterparty_account
                && named.is_none_or(|named| named == accepted.id())
            {
                return Ok(Some(accepted.clone()));
            }
            return match named {
                Some(id) => Ok(Some(self.own_account(broker, id).await?)),
                None => self.client_account(broker, request).await,
            };
        }
        Ok(None)
    }

    /// An open account of the broker's own book.
    async fn own_account(
        &self,
        broker: BrokerId,
        id: AccountId,
    ) -> Result<AccountRef, NetworkError> {
        let scope = self.0.systems.router.book(broker).await?;
        let mut read = scope.read().await?;
        let found = book::account(&mut read, id).await?;
        read.end().await?;
        match found {
            Some((_, state)) if state.open => Ok(state.owner),
            Some(_) => Err(FieldError::new("account_id", "is closed").into()),
            None => Err(FieldError::new("account_id", "is no account of your book").into()),
        }
    }

    /// The account of the client that a request names by uid, in the book of whoever accepts.
    async fn client_account(
        &self,
        broker: BrokerId,
        request: &Request,
    ) -> Result<Option<AccountRef>, NetworkError> {
        // The client of an order is its author's own.
        let named = request.counterpart_uid.as_ref();
        let Some(uid) = named.filter(|_| !request.kind.is_order()) else {
            return Ok(None);
        };
        let account = AccountRef {
            broker,
            owner_kind: OwnerKind::Partner,
            owner_ref: uid.clone(),
            currency: request.currency.clone(),
        };
        self.own_account(broker, account.id())
            .await
            .map(Some)
            .map_err(|error| match error {
                NetworkError::Field(field) if request.shows_contact_to(broker) => {
                    let rule = field.rule;
                    let rule = format!("{rule} (the client {uid} in {})", request.currency);
                    FieldError::new("account_id", rule).into()
                }
                // Nobody learns the client's uid by trying, or what state its account is in.
                NetworkError::Field(_) => FieldError::new(
                    "account_id",
                    "is the account of the client whom the request names, and your book has none open",
                )
                .into(),
                other => other,
            })
    }

    fn master(&self) -> &Pool {
        &self.0.systems.master
    }
}
