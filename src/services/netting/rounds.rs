//! Rounds of netting over the network: proposing, answering, ending.
//!
//! | status | means | who goes on |
//! |---|---|---|
//! | `proposed` | touched brokers have yet to answer | they, an admin (`cancel`), or the worker when the time has run out |
//! | `recomputing` | somebody has declined, or less is left of an obligation | the call that found it, else the worker |
//! | `approved` | all have approved | the call that approved last, else the worker |
//! | `applied` | every reduction is there, since one commit | nobody needs to |
//! | `failed`, `cancelled`, `expired` | nothing has changed | nobody needs to |
//!
//! A round's row is its lock: whoever changes anything of a round holds it.

use chrono::{DateTime, Utc};
use serde_json::json;

use super::recomputing::{Solved, solve};
use super::{IDS, NettingError, NettingService, ended, retried, whole};
use crate::domain::ids::NettingRoundId;
use crate::domain::money::Currency;
use crate::domain::netting_round::{
    Answer, Decision, Party, PartyState, Refusal, Round, RoundStatus,
};
use crate::runtime::failpoint;
use crate::services::Intention;
use crate::services::network::Actor;
use crate::stores::StoreError;
use crate::stores::master::feed::{self, NewEvent};
use crate::stores::master::idempotency::{self, Known};
use crate::stores::master::netting::{due, lines, parties, rounds};
use crate::stores::master::{self, MasterTx, standing};

impl NettingService {
    /// Proposes a round: the largest that the obligations of one moment allow. `by` is the subject
    /// of who asks. The same intention again gives the round that it made. Where everybody has
    /// auto-approve on, it is applied at once.
    ///
    /// # Errors
    /// See [`NettingError`].
    pub async fn propose_round(
        &self,
        intention: Option<Intention>,
        currency_code: &str,
        expires_at: Option<DateTime<Utc>>,
        by: &str,
    ) -> Result<Round, NettingError> {
        let (this, code, by) = (self.clone(), currency_code.to_owned(), by.to_owned());
        whole(async move {
            let intention = intention.as_ref();
            let round = retried(|| this.propose_round_once(intention, &code, expires_at, &by));
            let round = round.await?;
            this.driven(round.id).await;
            this.round(round.id).await
        })
        .await
    }

    async fn propose_round_once(
        &self,
        intention: Option<&Intention>,
        currency_code: &str,
        expires_at: Option<DateTime<Utc>>,
        by: &str,
    ) -> Result<Round, NettingError> {
        if let Some(known) = self.known_round(intention).await? {
            return Ok(known);
        }
        let currency = self.currency(currency_code).await?;
        let now = self.clock.now();
        let expires_at = Self::expiry(expires_at, self.rules.round_expiry, now)?;
        self.may_open(&currency).await?;
        let claims = lines::snapshot(&self.master.patient(), &currency.code).await?;
        let solved = solve(claims).await?;
        if solved.sums.cleared == 0 {
            let total = solved.sums.total;
            return Err(NettingError::NothingClears { total, currency });
        }
        let mut round = Round {
            id: NettingRoundId::from_bits(0),
            currency: currency.code,
            status: RoundStatus::Proposed,
            revision: 1,
            proposed_by: by.to_owned(),
            created_at: now,
            expires_at,
            ended_by: None,
            ended_at: None,
            sums: solved.sums,
        };
        let unnamed = self.entropy.uuid(now).to_string();
        for attempt in 0..IDS {
            let attempt = attempt.to_string();
            round.id = NettingRoundId::derive(&match intention {
                Some(intention) => [&intention.client, &intention.key, attempt.as_str()],
                None => ["", &unnamed, &attempt],
            });
            match self.insert_round(intention, &mut round, &solved).await {
                Ok(()) => return Ok(round),
                Err(error) if error.is_duplicate() => {}
                Err(error) => return Err(error.into()),
            }
            if let Some(known) = self.known_round(intention).await? {
                return Ok(known);
            }
            if let Some(id) = rounds::open_of(&self.master, &round.currency).await? {
                return Err(NettingError::RoundOpen { id });
            }
        }
        Err(NettingError::Overtaken)
    }

    async fn known_round(
        &self,
        intention: Option<&Intention>,
    ) -> Result<Option<Round>, NettingError> {
        let Some(intention) = intention else {
            return Ok(None);
        };
        match idempotency::find(&self.master, intention).await? {
            None => Ok(None),
            Some(Known::Other) => Err(NettingError::KeyReused),
            Some(Known::Same { subject }) => {
                let id = subject.parse().map_err(|_| NettingError::KeyReused)?;
                self.round(id).await.map(Some)
            }
        }
    }

    /// Whether a round may be proposed. A pause is looked at just before; that nothing starts
    /// under one rests on the approvals, each of which holds the gate.
    async fn may_open(&self, currency: &Currency) -> Result<(), NettingError> {
        let (standing, _) =
            standing::look(&self.master, [None, None], Some(&currency.code)).await?;
        standing.network_is_open()?;
        let active = rounds::active_brokers(&self.master).await?;
        let needed = self.rules.min_brokers;
        if active < needed {
            return Err(NettingError::TooFewBrokers { active, needed });
        }
        match rounds::open_of(&self.master, &currency.code).await? {
            Some(id) => Err(NettingError::RoundOpen { id }),
            None => Ok(()),
        }
    }

    async fn insert_round(
        &self,
        intention: Option<&Intention>,
        round: &mut Round,
        solved: &Solved,
    ) -> Result<(), StoreError> {
        let now = round.created_at;
        let key = (round.id, round.revision);
        let mut tx = master::begin(&self.master.patient()).await?;
        rounds::insert(&mut tx, round).await?;
        if let Some(intention) = intention {
            idempotency::insert(&mut tx, intention, &round.id.to_string(), now).await?;
        }
        lines::insert(&mut tx, key, &solved.clearing).await?;
        parties::ask(&mut tx, key, now).await?;
        self.settle_status(&mut tx, round, now).await?;
        failpoint::at("netting.propose.commit");
        master::commit(tx).await?;
        failpoint::at("netting.propose.after");
        Ok(())
    }

    /// A round whose lines are as they are to be waits for answers, or for nobody's any more.
    pub(super) async fn settle_status(
        &self,
        tx: &mut MasterTx,
        round: &mut Round,
        now: DateTime<Utc>,
    ) -> Result<(), StoreError> {
        let asked = parties::count(tx, round.id, PartyState::Asked).await?;
        let status = if asked == 0 {
            RoundStatus::Approved
        } else {
            RoundStatus::Proposed
        };
        self.change(tx, round, status, "", now).await
    }

    /// Takes a round that is locked to another status, and tells everybody whom it concerns. That it
    /// is being recomputed is told to the platform alone: what it comes to follows.
    pub(super) async fn change(
        &self,
        tx: &mut MasterTx,
        round: &mut Round,
        status: RoundStatus,
        by: &str,
        now: DateTime<Utc>,
    ) -> Result<(), StoreError> {
        round.status = status;
        rounds::set_status(tx, round.id, status, by, now).await?;
        let event = NewEvent {
            broker: feed::PLATFORM,
            kind: format!("netting_round.{status}"),
            subject: round.id.to_string(),
            payload: json!({ "status": status, "revision": round.revision }),
        };
        if status != RoundStatus::Recomputing {
            parties::tell(tx, round.id, &event.kind, &event.payload, now).await?;
        }
        feed::insert(tx, &[event], now).await
    }

    /// Approves or declines a round for a broker. The last approval applies it; a refusal has it
    /// recomputed without the broker. Repeated, it gives the round as it is.
    ///
    /// # Errors
    /// See [`NettingError`].
    pub async fn answer(
        &self,
        actor: &Actor,
        id: NettingRoundId,
        answer: Answer,
    ) -> Result<(Round, Party), NettingError> {
        let (this, actor) = (self.clone(), actor.clone());
        whole(async move {
            let said = retried(|| this.answer_once(&actor, id, answer)).await?;
            if matches!(said, RoundStatus::Recomputing | RoundStatus::Approved) {
                this.driven(id).await;
            }
            this.round_of(actor.broker, id).await
        })
        .await
    }

    /// Gives what the round is after it.
    async fn answer_once(
        &self,
        actor: &Actor,
        id: NettingRoundId,
        answer: Answer,
    ) -> Result<RoundStatus, NettingError> {
        let now = self.clock.now();
        let (seen, party) = self.round_of(actor.broker, id).await?;
        if seen.decide(party.state, answer, now)? == Decision::Already {
            return Ok(seen.status);
        }
        let mut tx = match answer {
            Answer::Approve => {
                let own = [Some(actor.broker), None];
                self.begin_open(own, &seen.currency, actor.broker).await?
            }
            Answer::Decline => master::begin(&self.master).await?,
        };
        let mut round = lock(&mut tx, id).await?;
        let party = parties::of(&mut tx, id, actor.broker).await?;
        let state = party.ok_or(NettingError::NoRound)?.state;
        if round.decide(state, answer, now)? == Decision::Already {
            tx.rollback().await.map_err(master::failed)?;
            return Ok(round.status);
        }
        let subject = &actor.subject;
        parties::answer(&mut tx, id, actor.broker, answer.state(), subject, now).await?;
        match answer {
            Answer::Decline => {
                let to = RoundStatus::Recomputing;
                self.change(&mut tx, &mut round, to, "", now).await?;
            }
            // One that is being recomputed counts its approvals afterwards.
            Answer::Approve if round.status == RoundStatus::Proposed => {
                if parties::count(&mut tx, id, PartyState::Asked).await? == 0 {
                    let to = RoundStatus::Approved;
                    self.change(&mut tx, &mut round, to, "", now).await?;
                }
            }
            Answer::Approve => {}
        }
        failpoint::at("netting.answer.commit");
        master::commit(tx).await?;
        failpoint::at("netting.answer.after");
        Ok(round.status)
    }

    /// Ends a round that is open, for an admin. Repeated, it gives the round as it is.
    ///
    /// # Errors
    /// See [`NettingError`].
    pub async fn cancel_round(&self, id: NettingRoundId, by: &str) -> Result<Round, NettingError> {
        let (this, by) = (self.clone(), by.to_owned());
        whole(async move {
            retried(|| this.end(id, RoundStatus::Cancelled, RoundStatus::is_open, &by)).await?;
            match this.round(id).await? {
                round if round.status == RoundStatus::Cancelled => Ok(round),
                Round { status, .. } => Err(Refusal::Status { status }.into()),
            }
        })
        .await
    }

    /// Ends rounds whose time has run out; gives how many there were.
    ///
    /// # Errors
    /// The master's; what somebody else ended first is left alone.
    pub async fn expire_rounds(&self, limit: u32) -> Result<usize, NettingError> {
        let overdue = due::overdue_rounds(&self.master, self.clock.now(), limit).await?;
        let mut expired = 0;
        for id in overdue {
            let (to, from) = (RoundStatus::Expired, RoundStatus::is_asking);
            let outcome = retried(|| self.end(id, to, from, "expiry")).await;
            expired += usize::from(ended(outcome, id)?);
        }
        Ok(expired)
    }

    /// Ends a round that is in one of some statuses, and leaves others as they are.
    async fn end(
        &self,
        id: NettingRoundId,
        to: RoundStatus,
        from: fn(RoundStatus) -> bool,
        by: &str,
    ) -> Result<(), NettingError> {
        let mut tx = master::begin(&self.master).await?;
        let mut round = lock(&mut tx, id).await?;
        if !from(round.status) {
            return Ok(());
        }
        let now = self.clock.now();
        self.change(&mut tx, &mut round, to, by, now).await?;
        failpoint::at("netting.end.commit");
        master::commit(tx).await?;
        failpoint::at("netting.end.after");
        Ok(())
    }
}

pub(super) async fn lock(tx: &mut MasterTx, id: NettingRoundId) -> Result<Round, NettingError> {
    let found = rounds::lock(tx, id).await?;
    found.ok_or(NettingError::NoRound)
}
