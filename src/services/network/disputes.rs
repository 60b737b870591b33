//! Disputes: the sides and the arbiter, each in its transitions, and what goes on by itself.

use chrono::{DateTime, Duration, Utc};

use super::{Actor, Answer, FieldError, NetworkError, NetworkService};
use crate::domain::canonical::Hash;
use crate::domain::ids::{BrokerId, RequestId};
use crate::domain::money::Amount;
use crate::domain::proof::{self, Proof};
use crate::domain::request::{Decision, Refusal, Request, Statement, Verdict};
use crate::domain::request_event::Event;
use crate::services::checkpoints::CheckpointError;
use crate::stores::book;
use crate::stores::book::StoredEntry;
use crate::stores::master::disputes::{self, After, Dispute, Filter};
use crate::stores::master::requests;
use crate::stores::master::ties::{self, Standing};

/// What one side says in a dispute, as it came in.
#[derive(Clone, Debug)]
pub struct Said {
    pub text: String,
    pub proofs: Vec<Proof>,
}

/// An arbiter's decision, as it came in.
#[derive(Clone, Debug)]
pub struct Judgment {
    pub verdict: Verdict,
    /// Of an adjustment: a decimal string in major units.
    pub amount: Option<String>,
    pub reason: String,
}

/// What an arbiter sees of a dispute: its request, what happened to it, and what both books have
/// booked of it; nothing else of them.
#[derive(Clone, Debug)]
pub struct Evidence {
    pub request: Request,
    pub dispute: Dispute,
    pub events: Vec<(Event, Hash)>,
    /// By book; `None` where it can't be read now.
    pub entries: Vec<(BrokerId, Option<Vec<StoredEntry>>)>,
}

/// How long one side has to answer an arbiter's question.
const ANSWER_WITHIN: Duration = Duration::days(3);
/// The actor of what goes on by itself.
const WORKER: &str = "disputes";

impl NetworkService {
    /// Takes what was sent, or has completed not long ago, to an arbiter.
    ///
    /// # Errors
    /// See [`NetworkError`].
    pub async fn dispute_request(
        &self,
        actor: &Actor,
        id: RequestId,
        said: Said,
    ) -> Result<Answer, NetworkError> {
        let rules = self.0.rules.disputes;
        self.said(actor, id, said, |request, by, statement, now| {
            request.dispute(by, statement, &rules, now)
        })
        .await
    }

    /// Whoever opened a dispute takes it back.
    ///
    /// # Errors
    /// See [`NetworkError`].
    pub async fn withdraw_dispute(
        &self,
        actor: &Actor,
        id: RequestId,
    ) -> Result<Answer, NetworkError> {
        let request = self.load_with_past(id).await?;
        self.transition(actor, request, |request, _, now| {
            request.withdraw_dispute(actor.broker, now)
        })
        .await
    }

    /// One side says something in a dispute.
    ///
    /// # Errors
    /// See [`NetworkError`].
    pub async fn state(
        &self,
        actor: &Actor,
        id: RequestId,
        said: Said,
    ) -> Result<Answer, NetworkError> {
        self.said(actor, id, said, Request::state).await
    }

    /// Either side appeals a decision that is not final.
    ///
    /// # Errors
    /// See [`NetworkError`].
    pub async fn appeal(
        &self,
        actor: &Actor,
        id: RequestId,
        said: Said,
    ) -> Result<Answer, NetworkError> {
        self.said(actor, id, said, Request::appeal).await
    }

    async fn said(
        &self,
        actor: &Actor,
        id: RequestId,
        said: Said,
        act: impl Fn(&Request, BrokerId, &Statement<'_>, DateTime<Utc>) -> Result<Decision, Refusal>,
    ) -> Result<Answer, NetworkError> {
        if !said.proofs.is_empty() {
            proof::check(&said.proofs).map_err(|error| FieldError::new(error.field(), &error))?;
        }
        let proofs = self.with_hashes(actor, said.proofs).await?;
        let request = self.load_for(id, true).await?;
        self.transition(actor, request, |request, _, now| {
            let statement = Statement {
                text: &said.text,
                proofs: &proofs,
            };
            act(request, actor.broker, &statement, now)
        })
        .await
    }

    /// An arbiter takes a dispute.
    ///
    /// # Errors
    /// See [`NetworkError`].
    pub async fn assign_dispute(
        &self,
        arbiter: &str,
        id: RequestId,
    ) -> Result<Answer, NetworkError> {
        let left = self.left_behind(id).await?;
        self.judged(arbiter, id, |request, now| {
            let left = left.as_deref();
            request.assign_dispute(arbiter, left, now)
        })
        .await
    }

    /// The arbiter who hears a dispute and may not go on with it: tied to a side meanwhile, or gone.
    async fn left_behind(&self, id: RequestId) -> Result<Option<String>, NetworkError> {
        let dispute = self.dispute(id).await?;
        let Some(arbiter) = &dispute.arbiter else {
            return Ok(None);
        };
        let standing = self.standing(arbiter, &dispute).await?;
        Ok(dispute.arbiter.filter(|_| standing != Standing::Free))
    }

    async fn standing(&self, arbiter: &str, dispute: &Dispute) -> Result<Standing, NetworkError> {
        let Ok(user) = arbiter.parse() else {
            return Ok(Standing::Free);
        };
        let sides = [dispute.opened_by, dispute.against];
        Ok(ties::standing(self.master(), user, &sides).await?)
    }

    /// An arbiter who is tied to a side sees nothing of its dispute, and does nothing in it.
    ///
    /// # Errors
    /// Such a tie, or [`Refusal::NotFound`] where the request was never disputed.
    pub async fn may_hear(&self, arbiter: &str, id: RequestId) -> Result<Dispute, NetworkError> {
        let dispute = self.dispute(id).await?;
        if self.standing(arbiter, &dispute).await? == Standing::Tied {
            return Err(Refusal::NotYourMove {
                whose: "arbiter without ties to a side",
                what: "see and hear a dispute",
            }
            .into());
        }
        Ok(dispute)
    }

    /// The dispute that an arbiter hears, who is tied to neither side.
    ///
    /// # Errors
    /// [`Refusal::NotFound`] where another one hears it, or none; see [`Self::may_hear`].
    pub async fn hears(&self, arbiter: &str, id: RequestId) -> Result<Dispute, NetworkError> {
        let dispute = self.may_hear(arbiter, id).await?;
        if dispute.arbiter.as_deref() == Some(arbiter) {
            Ok(dispute)
        } else {
            Err(Refusal::NotFound.into())
        }
    }

    /// The arbiter asks one side for evidence.
    ///
    /// # Errors
    /// See [`NetworkError`].
    pub async fn ask(
        &self,
        arbiter: &str,
        id: RequestId,
        of: BrokerId,
        text: &str,
    ) -> Result<Answer, NetworkError> {
        self.judged(arbiter, id, |request, now| {
            request.ask(arbiter, of, text, ANSWER_WITHIN, now)
        })
        .await
    }

    /// The arbiter decides. What follows from it is done once the decision is final: at once where
    /// there is no appeal.
    ///
    /// # Errors
    /// See [`NetworkError`].
    pub async fn decide(
        &self,
        arbiter: &str,
        id: RequestId,
        judgment: &Judgment,
    ) -> Result<Answer, NetworkError> {
        let request = self.load(id).await?;
        let currency = self.currency(&request).await?;
        let amount = judgment.amount.as_deref();
        let amount = amount
            .map(|text| Amount::parse(text, &currency))
            .transpose()
            .map_err(|error| FieldError::new("amount", error))?;
        let rules = self.0.rules.disputes;
        let (verdict, reason) = (judgment.verdict, judgment.reason.as_str());
        let decided = self
            .judged(arbiter, id, |request, now| {
                request.decide(arbiter, verdict, amount, reason, &rules, now)
            })
            .await?;
        if rules.appeal_within > Duration::zero() {
            return Ok(decided);
        }
        self.enforce(id).await
    }

    async fn judged(
        &self,
        arbiter: &str,
        id: RequestId,
        decide: impl Fn(&Request, DateTime<Utc>) -> Result<Decision, Refusal>,
    ) -> Result<Answer, NetworkError> {
        let request = self.load_with_past(id).await?;
        self.may_hear(arbiter, id).await?;
        let actor = Actor {
            broker: 0,
            subject: arbiter.to_owned(),
        };
        self.transition(&actor, request, |request, _, now| decide(request, now))
            .await
    }

    /// Does what is due: decides by default where a side is silent past its time, enforces what is
    /// final. At most `limit`; gives how many. One that can't be gone on with holds up no other.
    ///
    /// # Errors
    /// The master's, where it can't be reached.
    pub async fn go_on_with_disputes(&self, limit: u32) -> Result<usize, NetworkError> {
        let now = self.0.systems.clock.now();
        let due = disputes::due(self.master(), now, limit).await?;
        for id in &due {
            match self.go_on_with(*id).await {
                // Others may have the keys by which decisions are signed.
                Ok(_)
                | Err(
                    NetworkError::Refused(_)
                    | NetworkError::SagaRefused { .. }
                    | NetworkError::Unsigned(CheckpointError::NoKeys),
                ) => {}
                Err(NetworkError::Store(error)) if error.is_unavailable() => {
                    return Err(error.into());
                }
                Err(error) => tracing::error!(%error, request = %id, "a dispute can't go on"),
            }
        }
        Ok(due.len())
    }

    async fn go_on_with(&self, id: RequestId) -> Result<Answer, NetworkError> {
        let request = self.load_with_past(id).await?;
        let decided = request
            .past
            .case
            .as_ref()
            .is_some_and(|case| case.ruling.is_some());
        if !decided {
            let rules = self.0.rules.disputes;
            self.transition(&worker(), request, |request, _, now| {
                request.decide_by_default(&rules, now)
            })
            .await?;
        }
        self.enforce(id).await
    }

    async fn enforce(&self, id: RequestId) -> Result<Answer, NetworkError> {
        let request = self.load_with_past(id).await?;
        let currency = self.currency(&request).await?;
        self.transition(&worker(), request, |request, saga_id, now| {
            request.enforce(saga_id, &currency, now)
        })
        .await
    }

    /// Disputes, those opened last first.
    ///
    /// # Errors
    /// The master's.
    pub async fn disputes(
        &self,
        filter: Filter,
        after: Option<After>,
        limit: u32,
    ) -> Result<Vec<Dispute>, NetworkError> {
        Ok(disputes::list(self.master(), filter, after, limit).await?)
    }

    /// # Errors
    /// [`Refusal::NotFound`] where the request was never disputed.
    pub async fn dispute(&self, id: RequestId) -> Result<Dispute, NetworkError> {
        let found = disputes::get(self.master(), id).await?;
        Ok(found.ok_or(Refusal::NotFound)?)
    }

    /// What an arbiter sees of a dispute.
    ///
    /// # Errors
    /// See [`Self::may_hear`].
    pub async fn evidence(&self, arbiter: &str, id: RequestId) -> Result<Evidence, NetworkError> {
        let dispute = self.may_hear(arbiter, id).await?;
        let request = self.load(id).await?;
        let events = requests::events(self.master(), id).await?;
        let mut entries = Vec::new();
        for broker in std::iter::once(request.author).chain(request.target) {
            let found = self.entries(broker, id).await;
            if let Err(error) = &found {
                tracing::warn!(%error, broker, "a book can't be shown to an arbiter");
            }
            entries.push((broker, found.ok()));
        }
        Ok(Evidence {
            request,
            dispute,
            events,
            entries,
        })
    }

    async fn entries(
        &self,
        broker: BrokerId,
        id: RequestId,
    ) -> Result<Vec<StoredEntry>, NetworkError> {
        let scope = self.0.systems.router.book(broker).await?;
        let mut read = scope.read().await?;
        let entries = book::entries_of(&mut read, &[id.to_string()]).await?;
        read.end().await?;
        Ok(entries)
    }
}

fn worker() -> Actor {
    Actor {
        broker: 0,
        subject: WORKER.to_owned(),
    }
}
