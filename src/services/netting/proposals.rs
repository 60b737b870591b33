//! What two brokers propose to each other.
//!
//! | status | means | who goes on |
//! |---|---|---|
//! | `proposed` | the counterparty has yet to answer | the counterparty, the proposer (`cancel`), or the worker when its time has run out |
//! | `applied` | both sides' debts have fallen by the same, in the transaction that says so | nobody needs to |
//! | `declined`, `cancelled`, `expired` | nothing has changed | nobody needs to |
//!
//! Whoever dies in between: either the transaction of an approval has committed, or nothing of it
//! is there, and the approval is said again.

use chrono::{DateTime, Utc};
use serde_json::json;

use super::{IDS, NettingError, NettingService, ended, retried, whole};
use crate::domain::ids::{BrokerId, NettingProposalId};
use crate::domain::money::{Amount, Currency};
use crate::domain::netting_proposal::{Act, Decision, Proposal, ProposalStatus, Refusal};
use crate::domain::pause::Hindrance;
use crate::domain::settlement::{MAX_PARTS, Open, allocate, available};
use crate::runtime::failpoint;
use crate::services::Intention;
use crate::services::network::{Actor, FieldError};
use crate::stores::StoreError;
use crate::stores::master::feed::{self, NewEvent};
use crate::stores::master::idempotency::{self, Known};
use crate::stores::master::netting::due;
use crate::stores::master::netting::proposals::{self, After};
use crate::stores::master::settlements::{self, Debts};
use crate::stores::master::{self, MasterTx, standing};

/// Obligations of each side that one netting spans, the oldest.
const PARTS: usize = MAX_PARTS / 2;

/// What a broker proposes, as it came in: the amount is a decimal string in major units.
#[derive(Clone, Debug)]
pub struct NewProposal {
    pub counterparty: BrokerId,
    pub currency_code: String,
    /// Netted is no more than this.
    pub amount: Option<String>,
    pub expires_at: Option<DateTime<Utc>>,
}

impl NettingService {
    /// Proposes a netting to another broker. The same intention again gives the proposal that it
    /// made.
    ///
    /// # Errors
    /// See [`NettingError`]: a field that is wrong is named.
    pub async fn propose_to(
        &self,
        actor: &Actor,
        intention: Intention,
        new: NewProposal,
    ) -> Result<Proposal, NettingError> {
        let (this, actor) = (self.clone(), actor.clone());
        whole(async move { retried(|| this.propose_to_once(&actor, &intention, &new)).await }).await
    }

    async fn propose_to_once(
        &self,
        actor: &Actor,
        intention: &Intention,
        new: &NewProposal,
    ) -> Result<Proposal, NettingError> {
        if let Some(known) = self.known_proposal(intention).await? {
            return Ok(known);
        }
        let (proposal, currency) = self.checked(actor, new).await?;
        self.both_owe(&proposal, &currency).await?;
        let brokers = [Some(proposal.proposer), Some(proposal.counterparty)];
        for attempt in 0..IDS {
            let parts = [&intention.client, &intention.key, &attempt.to_string()];
            let proposal = Proposal {
                id: NettingProposalId::derive(&parts.map(String::as_str)),
                ..proposal.clone()
            };
            let mut tx = self
                .begin_open(brokers, &proposal.currency, actor.broker)
                .await?;
            match insert(&mut tx, intention, &proposal).await {
                Ok(()) => {
                    failpoint::at("netting.propose_to.commit");
                    master::commit(tx).await?;
                    failpoint::at("netting.propose_to.after");
                    return Ok(proposal);
                }
                Err(error) if error.is_duplicate() => drop(tx),
                Err(error) => return Err(error.into()),
            }
            // The key, by somebody at the same moment; or the id, by another intention.
            if let Some(known) = self.known_proposal(intention).await? {
                return Ok(known);
            }
        }
        Err(NettingError::Overtaken)
    }

    async fn known_proposal(
        &self,
        intention: &Intention,
    ) -> Result<Option<Proposal>, NettingError> {
        match idempotency::find(&self.master, intention).await? {
            None => Ok(None),
            Some(Known::Other) => Err(NettingError::KeyReused),
            Some(Known::Same { subject }) => {
                let id = subject.parse().map_err(|_| NettingError::KeyReused)?;
                let found = proposals::get(&self.master, id).await?;
                found.map(Some).ok_or(NettingError::KeyReused)
            }
        }
    }

    /// The proposal that is meant, with an id yet to be given.
    async fn checked(
        &self,
        actor: &Actor,
        new: &NewProposal,
    ) -> Result<(Proposal, Currency), NettingError> {
        let currency = self.currency(&new.currency_code).await?;
        let most = new.amount.as_ref().map(|text| {
            Amount::parse(text, &currency).map_err(|error| FieldError::new("amount", error))
        });
        let most = most.transpose()?.map(Amount::minor);
        let field = "counterparty_broker_id";
        if new.counterparty == actor.broker {
            return Err(FieldError::new(field, "is another broker").into());
        }
        let now = self.clock.now();
        let expires_at = Self::expiry(new.expires_at, self.rules.proposal_expiry, now)?;
        let brokers = [Some(actor.broker), Some(new.counterparty)];
        let (standing, _) = standing::look(&self.master, brokers, Some(&currency.code)).await?;
        standing.network_is_open()?;
        standing.broker_is_open(actor.broker, actor.broker)?;
        match standing.broker_is_open(new.counterparty, actor.broker) {
            Err(Hindrance::NoBroker { .. }) => {
                return Err(FieldError::new(field, "is no broker of the network").into());
            }
            open => open?,
        }
        let proposal = Proposal {
            id: NettingProposalId::from_bits(0),
            proposer: actor.broker,
            counterparty: new.counterparty,
            currency: currency.code.clone(),
            most,
            status: ProposalStatus::Proposed,
            netted: None,
            proposed_by: actor.subject.clone(),
            created_at: now,
            expires_at,
            ended_by: None,
            ended_at: None,
        };
        Ok((proposal, currency))
    }

    async fn both_owe(&self, proposal: &Proposal, currency: &Currency) -> Result<(), NettingError> {
        let [there, back] = self.free(proposal).await?;
        if there > 0 && back > 0 {
            return Ok(());
        }
        Err(nothing_between(proposal, currency, [there, back]))
    }

    /// What is free of what the proposer owes the counterparty, and of what that owes it.
    async fn free(&self, proposal: &Proposal) -> Result<[u128; 2], StoreError> {
        let [there, back] = debts(proposal);
        Ok([
            proposals::free(&self.master, &there).await?,
            proposals::free(&self.master, &back).await?,
        ])
    }

    /// What both parties of an open proposal owe each other and nothing has reserved, in minor
    /// units; nothing where it is not open any more.
    ///
    /// # Errors
    /// The master's.
    pub async fn owed_both_ways(&self, proposal: &Proposal) -> Result<Option<u64>, StoreError> {
        if proposal.status != ProposalStatus::Proposed {
            return Ok(None);
        }
        let [there, back] = self.free(proposal).await?;
        Ok(Some(u64::try_from(there.min(back)).unwrap_or(u64::MAX)))
    }

    /// A proposal, for its parties; for everybody else there is none.
    ///
    /// # Errors
    /// See [`NettingError`].
    pub async fn proposal(
        &self,
        broker: BrokerId,
        id: NettingProposalId,
    ) -> Result<Proposal, NettingError> {
        let found = proposals::get(&self.master, id).await?;
        let found = found.filter(|proposal| proposal.is_of(broker));
        Ok(found.ok_or(Refusal::NoParty)?)
    }

    /// What a broker has proposed and what was proposed to it, newest first; `after` is the last
    /// of the page before.
    ///
    /// # Errors
    /// The master's.
    pub async fn proposals(
        &self,
        broker: BrokerId,
        status: Option<ProposalStatus>,
        after: Option<After>,
        limit: u32,
    ) -> Result<Vec<Proposal>, StoreError> {
        proposals::list(&self.master, broker, status, after, limit).await
    }

    /// Approves, declines or takes back a proposal. An approval is applied with its recording.
    /// Repeated by the same party, it gives the proposal as it is.
    ///
    /// # Errors
    /// See [`NettingError`].
    pub async fn act_on(
        &self,
        actor: &Actor,
        id: NettingProposalId,
        act: Act,
    ) -> Result<Proposal, NettingError> {
        let (this, actor) = (self.clone(), actor.clone());
        whole(async move { retried(|| this.act_on_once(&actor, id, act)).await }).await
    }

    async fn act_on_once(
        &self,
        actor: &Actor,
        id: NettingProposalId,
        act: Act,
    ) -> Result<Proposal, NettingError> {
        let now = self.clock.now();
        let seen = self.proposal(actor.broker, id).await?;
        if seen.decide(actor.broker, act, now)? == Decision::Already {
            return Ok(seen);
        }
        let mut tx = if act == Act::Approve {
            let brokers = [Some(seen.proposer), Some(seen.counterparty)];
            self.begin_open(brokers, &seen.currency, actor.broker)
                .await?
        } else {
            master::begin(&self.master).await?
        };
        let locked = proposals::lock(&mut tx, id).await?;
        let mut proposal = locked.ok_or(Refusal::NoParty)?;
        if proposal.decide(actor.broker, act, now)? == Decision::Already {
            tx.rollback().await.map_err(master::failed)?;
            return Ok(proposal);
        }
        if act == Act::Approve {
            proposal.netted = Some(self.net(&mut tx, &proposal, now).await?);
        }
        proposal.status = act.end();
        proposal.ended_by = Some(actor.subject.clone());
        proposal.ended_at = Some(now);
        end(&mut tx, &proposal, &actor.subject, now).await?;
        failpoint::at("netting.act_on.commit");
        master::commit(tx).await?;
        failpoint::at("netting.act_on.after");
        Ok(proposal)
    }

    /// Settles as much as both owe each other, oldest first, and gives it. Whoever nets locks the
    /// debts of the broker with the lower number first.
    async fn net(
        &self,
        tx: &mut MasterTx,
        proposal: &Proposal,
        now: DateTime<Utc>,
    ) -> Result<u64, NettingError> {
        let mut both_ways = debts(proposal);
        both_ways.sort_unstable_by_key(|debts| debts.debtor);
        let [first, second] = both_ways;
        let enough = proposal.most.unwrap_or(u64::MAX);
        let mut first = settlements::lock_open(tx, &first, None, enough).await?;
        let mut second = settlements::lock_open(tx, &second, None, enough).await?;
        failpoint::at("netting.net.locked");
        first.truncate(PARTS);
        second.truncate(PARTS);
        let both = available(&first).min(available(&second));
        let amount = both.min(proposal.most.unwrap_or(u64::MAX));
        if amount == 0 {
            let currency = self.currency(proposal.currency.as_str()).await?;
            let [there, back] = self.free(proposal).await?;
            return Err(nothing_between(proposal, &currency, [there, back]));
        }
        let take = |open: &[Open]| allocate(open, amount).unwrap_or_default();
        let parts = [take(&first), take(&second)].concat();
        settlements::settle_now(tx, &proposal.id.to_string(), &parts, now).await?;
        Ok(amount)
    }

    /// Ends proposals whose time has run out; gives how many there were.
    ///
    /// # Errors
    /// The master's; what somebody else ended first is left alone.
    pub async fn expire_proposals(&self, limit: u32) -> Result<usize, NettingError> {
        let now = self.clock.now();
        let overdue = due::overdue_proposals(&self.master, now, limit).await?;
        let mut expired = 0;
        for id in overdue {
            let outcome = retried(|| self.expire_proposal(id, now)).await;
            expired += usize::from(ended(outcome, id)?);
        }
        Ok(expired)
    }

    async fn expire_proposal(
        &self,
        id: NettingProposalId,
        now: DateTime<Utc>,
    ) -> Result<(), NettingError> {
        let mut tx = master::begin(&self.master).await?;
        let Some(mut proposal) = proposals::lock(&mut tx, id).await? else {
            return Ok(());
        };
        if proposal.status != ProposalStatus::Proposed {
            return Ok(());
        }
        proposal.status = ProposalStatus::Expired;
        end(&mut tx, &proposal, "expiry", now).await?;
        Ok(master::commit(tx).await?)
    }
}

/// What the proposer owes the counterparty, and what that owes it.
fn debts(proposal: &Proposal) -> [Debts; 2] {
    let debts = |debtor, creditor| Debts {
        debtor,
        creditor,
        currency: proposal.currency.clone(),
    };
    let (one, other) = (proposal.proposer, proposal.counterparty);
    [debts(one, other), debts(other, one)]
}

fn nothing_between(proposal: &Proposal, currency: &Currency, free: [u128; 2]) -> NettingError {
    NettingError::NothingBetween {
        one: proposal.proposer,
        other: proposal.counterparty,
        free,
        currency: currency.clone(),
    }
}

async fn insert(
    tx: &mut MasterTx,
    intention: &Intention,
    proposal: &Proposal,
) -> Result<(), StoreError> {
    let now = proposal.created_at;
    idempotency::insert(tx, intention, &proposal.id.to_string(), now).await?;
    proposals::insert(tx, proposal).await?;
    feed::insert(tx, &events(proposal), now).await
}

async fn end(
    tx: &mut MasterTx,
    proposal: &Proposal,
    by: &str,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    let Proposal {
        id, status, netted, ..
    } = *proposal;
    proposals::end(tx, id, status, netted, by, now).await?;
    feed::insert(tx, &events(proposal), now).await
}

/// What both parties' feeds are told.
fn events(proposal: &Proposal) -> [NewEvent; 2] {
    [proposal.proposer, proposal.counterparty].map(|broker| NewEvent {
        broker,
        kind: format!("netting_proposal.{}", proposal.status),
        subject: proposal.id.to_string(),
        payload: json!({ "status": proposal.status }),
    })
}
