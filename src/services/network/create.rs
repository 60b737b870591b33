//! Creating a request: once per intention, however often it is asked for.

use chrono::{DateTime, Utc};
use secrecy::SecretString;

use super::{Actor, Answer, FieldError, NetworkError, NetworkService, RACES};
use crate::domain::account::{AccountRef, OwnerKind};
use crate::domain::ids::{AccountId, BrokerId, ObligationId, RequestId, is_partner_uid};
use crate::domain::money::{Amount, Currency, CurrencyCode, format_minor};
use crate::domain::pause::{Hindrance, Standing};
use crate::domain::request::{Change, NewRequest, Request, RequestKind, Settles};
use crate::domain::terms::{Commission, CommissionSize, ObligationTerm, Party, Terms};
use crate::domain::text::{self, TextError};
use crate::services::announce;
use crate::stores::StoreError;
use crate::stores::master::idempotency::{self, Intention, Known};
use crate::stores::master::settlements::{self, Debts};
use crate::stores::master::standing::{self, GateVersion};
use crate::stores::master::{self, feed, obligations, requests};

/// What an author asks for, as it came in: amounts are decimal strings in major units.
#[derive(Clone, Debug)]
pub struct CreateRequest {
    pub target_broker_id: Option<BrokerId>,
    pub kind: RequestKind,
    pub currency_code: String,
    pub amount: String,
    pub method: String,
    pub city_code: Option<String>,
    pub counterpart_uid: Option<String>,
    pub contact: Option<String>,
    pub note: Option<String>,
    /// Who owes whom; the network's default where it says nothing.
    pub obligation: Option<ObligationTerm>,
    pub commission: Option<CommissionInput>,
    /// The author's own account.
    pub account_id: Option<AccountId>,
    pub deadline_at: Option<DateTime<Utc>>,
    /// Of a settlement: the one obligation that it repays.
    pub obligation_id: Option<ObligationId>,
    /// Of a settlement: the side that owes; the author where it says nothing and names no obligation.
    pub debtor: Option<Party>,
    /// Of an order: it is confirmed by being executed.
    pub auto_confirm: bool,
}

/// An order that was asked for, with the code of a payout where it was created now.
#[derive(Debug)]
pub struct CreatedOrder {
    pub answer: Answer,
    pub pickup_code: Option<SecretString>,
}

/// A commission as it came in: one of the two sizes.
#[derive(Clone, Debug)]
pub struct CommissionInput {
    pub payer: Party,
    pub amount: Option<String>,
    pub basis_points: Option<u32>,
}

/// Ids are 48 bits: when one is taken by another intention, the next of this one is tried.
const IDS: u32 = 8;

const MAX_METHOD: usize = 32;
pub(super) const MAX_CITY: usize = 16;
const MAX_CONTACT: usize = 500;
const MAX_NOTE: usize = 1_000;

impl NetworkService {
    /// Creates a request. The same intention again gives the request that it created.
    ///
    /// # Errors
    /// See [`NetworkError`]: a field that is wrong is named.
    pub async fn create_request(
        &self,
        actor: &Actor,
        intention: Intention,
        input: CreateRequest,
    ) -> Result<Answer, NetworkError> {
        Ok(self.create(actor, &intention, &input, None).await?.0)
    }

    /// Creates an order. The same intention again gives the order that it created, without its code,
    /// which is shown once: its author may make a new one.
    ///
    /// # Errors
    /// See [`NetworkError`]: a field that is wrong is named.
    pub async fn create_order(
        &self,
        actor: &Actor,
        intention: Intention,
        input: CreateRequest,
    ) -> Result<CreatedOrder, NetworkError> {
        let (pickup_code, hash) = match input.kind {
            RequestKind::Payout if self.known(&intention).await?.is_none() => {
                let (code, hash) = self.new_code().await?;
                (Some(code), Some(hash))
            }
            _ => (None, None),
        };
        let (answer, created) = self.create(actor, &intention, &input, hash).await?;
        Ok(CreatedOrder {
            answer,
            pickup_code: pickup_code.filter(|_| created),
        })
    }

    /// Gives also whether it was created now.
    async fn create(
        &self,
        actor: &Actor,
        intention: &Intention,
        input: &CreateRequest,
        pickup_hash: Option<String>,
    ) -> Result<(Answer, bool), NetworkError> {
        for _ in 0..RACES {
            let hash = pickup_hash.clone();
            match Box::pin(self.create_once(actor, intention, input, hash)).await {
                Err(NetworkError::GateTurned) => {}
                other => return other,
            }
        }
        Err(NetworkError::Contended)
    }

    async fn create_once(
        &self,
        actor: &Actor,
        intention: &Intention,
        input: &CreateRequest,
        pickup_hash: Option<String>,
    ) -> Result<(Answer, bool), NetworkError> {
        if let Some(known) = self.known(intention).await? {
            return Ok((known, false));
        }
        let parties = [Some(actor.broker), input.target_broker_id];
        let currency: Option<CurrencyCode> = input.currency_code.parse().ok();
        let (standing, gate) = standing::look(self.master(), parties, currency.as_ref()).await?;
        standing.network_is_open()?;
        standing.broker_is_open(actor.broker, actor.broker)?;
        let new = self
            .check(actor, intention, &standing, input.clone())
            .await?;
        let new = NewRequest { pickup_hash, ..new };
        for attempt in 0..IDS {
            let id = id_of(input.kind, intention, &attempt.to_string());
            let now = self.0.systems.clock.now();
            let change = NewRequest { id, ..new.clone() }.create(now)?;
            match self.insert(actor, intention, change, gate, now).await? {
                Inserted::Created(request) => {
                    let answer = Answer {
                        request: *request,
                        running: None,
                    };
                    return Ok((answer, true));
                }
                Inserted::GateTurned => return Err(NetworkError::GateTurned),
                Inserted::Duplicate => {
                    // The key, by somebody at the same moment; or the id, by another intention.
                    if let Some(known) = self.known(intention).await? {
                        return Ok((known, false));
                    }
                }
            }
        }
        Err(NetworkError::Contended)
    }

    async fn known(&self, intention: &Intention) -> Result<Option<Answer>, NetworkError> {
        match idempotency::find(self.master(), intention).await? {
            None => Ok(None),
            Some(Known::Other) => Err(NetworkError::KeyReused),
            Some(Known::Same { subject }) => {
                let id = subject.parse().map_err(|_| NetworkError::KeyReused)?;
                let request = self.load(id).await?;
                Ok(Some(Answer {
                    request,
                    running: None,
                }))
            }
        }
    }

    async fn check(
        &self,
        actor: &Actor,
        intention: &Intention,
        standing: &Standing,
        input: CreateRequest,
    ) -> Result<NewRequest, NetworkError> {
        let code: CurrencyCode = input
            .currency_code
            .parse()
            .map_err(|_| FieldError::new("currency_code", "is no currency of the network"))?;
        let currency = self
            .0
            .currencies
            .get(&code)
            .await?
            .ok_or_else(|| FieldError::new("currency_code", "is no currency of the network"))?;
        let amount = Amount::parse(&input.amount, &currency)
            .map_err(|error| FieldError::new("amount", error))?;
        let field = |name, check: Result<(), TextError>| {
            check.map_err(|error| FieldError::new(name, error))
        };
        field("method", text::line(&input.method, MAX_METHOD))?;
        if let Some(city) = &input.city_code {
            field("city_code", text::word(city, MAX_CITY))?;
        }
        if let Some(uid) = &input.counterpart_uid
            && !is_partner_uid(uid)
        {
            let rule = "is FO- and 12 hex digits, in lower case";
            return Err(FieldError::new("counterpart_uid", rule).into());
        }
        if let Some(contact) = &input.contact {
            field("contact", text::prose(contact, MAX_CONTACT))?;
        }
        if let Some(note) = &input.note {
            field("note", text::prose(note, MAX_NOTE))?;
        }
        if let Some(target) = input.target_broker_id {
            check_target(actor, target, standing)?;
        }
        let settles = if input.kind == RequestKind::Settlement {
            Some(self.settles(actor, &input, &currency, amount).await?)
        } else {
            let of = "a settlement";
            not_given("obligation_id", input.obligation_id.is_some(), of)?;
            not_given("debtor", input.debtor.is_some(), of)?;
            None
        };
        let scenario = Request::scenario(input.kind, input.counterpart_uid.is_some());
        let default = scenario.map_or(ObligationTerm::None, |scenario| {
            self.0.rules.default_terms.of(scenario)
        });
        let commission = input.commission.as_ref();
        let terms = Terms {
            obligation: input.obligation.unwrap_or(default),
            commission: commission
                .map(|commission| commission_of(commission, &currency))
                .transpose()?,
        };
        let account = self.author_account(actor, &input, &currency).await?;
        Ok(NewRequest {
            id: id_of(input.kind, intention, ""),
            settles,
            auto_confirm: input.auto_confirm,
            pickup_hash: None,
            author: actor.broker,
            target: input.target_broker_id,
            kind: input.kind,
            currency,
            amount,
            method: input.method,
            city_code: input.city_code,
            counterpart_uid: input.counterpart_uid,
            contact: input.contact,
            note: input.note,
            terms,
            account,
            deadline_at: input.deadline_at,
        })
    }

    /// What a settlement repays. That much must be owed and free now; whether it still is decides
    /// the acceptance.
    async fn settles(
        &self,
        actor: &Actor,
        input: &CreateRequest,
        currency: &Currency,
        amount: Amount,
    ) -> Result<Settles, NetworkError> {
        let target = input.target_broker_id.ok_or_else(|| {
            FieldError::new("target_broker_id", "names the other side of the debt")
        })?;
        let party_of = |broker| {
            if broker == actor.broker {
                Party::Author
            } else {
                Party::Counterparty
            }
        };
        let debtor = match input.obligation_id {
            None => input.debtor.unwrap_or(Party::Author),
            Some(id) => {
                let unknown = "is an obligation between you and the target, in this currency";
                let found = obligations::get(self.master(), id).await?;
                let found = found
                    .filter(|one| {
                        let sides = [one.debtor, one.creditor];
                        sides.contains(&actor.broker) && sides.contains(&target)
                    })
                    .filter(|one| one.currency == currency.code.as_str())
                    .ok_or_else(|| FieldError::new("obligation_id", unknown))?;
                let debtor = party_of(found.debtor);
                if input.debtor.is_some_and(|stated| stated != debtor) {
                    return Err(FieldError::new("debtor", "is the obligation's debtor").into());
                }
                debtor
            }
        };
        let (debtor_id, creditor_id) = match debtor {
            Party::Author => (actor.broker, target),
            Party::Counterparty => (target, actor.broker),
        };
        let debts = Debts {
            debtor: debtor_id,
            creditor: creditor_id,
            currency: currency.code.clone(),
        };
        let free = settlements::free(self.master(), &debts, input.obligation_id).await?;
        if free < amount.minor() {
            let free = format_minor(i128::from(free), currency.exponent);
            let code = &currency.code;
            let rule = format!(
                "is at most what broker {debtor_id} owes broker {creditor_id} and no other settlement has reserved: {free} {code}"
            );
            return Err(FieldError::new("amount", rule).into());
        }
        Ok(Settles {
            debtor,
            obligation: input.obligation_id,
        })
    }

    /// The author's account: of an order its client's, whom it names by uid.
    async fn author_account(
        &self,
        actor: &Actor,
        input: &CreateRequest,
        currency: &Currency,
    ) -> Result<Option<AccountRef>, NetworkError> {
        if !input.kind.is_order() {
            return match input.account_id {
                Some(id) => Ok(Some(self.own_account(actor.broker, id).await?)),
                None => Ok(None),
            };
        }
        let uid = input.counterpart_uid.clone();
        let owner_ref =
            uid.ok_or_else(|| FieldError::new("counterpart_uid", "names a client of your own"))?;
        let account = AccountRef {
            broker: actor.broker,
            owner_kind: OwnerKind::Partner,
            owner_ref,
            currency: currency.code.clone(),
        };
        let found = self.own_account(actor.broker, account.id()).await;
        found.map(Some).map_err(|error| match error {
            NetworkError::Field(_) => {
                let code = &currency.code;
                let rule = format!("names a client of yours with an open account in {code}");
                FieldError::new("counterpart_uid", rule).into()
            }
            other => other,
        })
    }

    async fn insert(
        &self,
        actor: &Actor,
        intention: &Intention,
        change: Change,
        gate: GateVersion,
        now: DateTime<Utc>,
    ) -> Result<Inserted, NetworkError> {
        let pool = self.master().clone();
        let intention = intention.clone();
        let subject = actor.subject.clone();
        let salt = self.0.systems.entropy.uuid(now);
        let change = Change {
            event: change.event.salted(salt),
            ..change
        };
        let task = tokio::spawn(async move {
            let sealed = requests::seal(change, &subject, now);
            let (mut tx, found) = standing::begin(&pool).await?;
            if found != gate {
                tx.rollback().await.map_err(master::failed)?;
                return Ok(None);
            }
            idempotency::insert(&mut tx, &intention, &sealed.request.id.to_string(), now).await?;
            requests::insert(&mut tx, &sealed).await?;
            feed::insert(&mut tx, &announce::of_transition(&sealed), now).await?;
            master::commit(tx).await?;
            Ok::<_, StoreError>(Some(sealed.request))
        });
        match task.await.map_err(|_| NetworkError::Lost)? {
            Ok(Some(request)) => Ok(Inserted::Created(Box::new(request))),
            Ok(None) => Ok(Inserted::GateTurned),
            Err(error) if error.is_duplicate() => Ok(Inserted::Duplicate),
            Err(error) => Err(error.into()),
        }
    }
}

/// The id of the request or order that an intention stands for.
fn id_of(kind: RequestKind, intention: &Intention, attempt: &str) -> RequestId {
    let parts = [intention.client.as_str(), &intention.key, attempt];
    if kind.is_order() {
        RequestId::derive_order(&parts)
    } else {
        RequestId::derive(&parts)
    }
}

fn not_given(field: &'static str, given: bool, of: &str) -> Result<(), FieldError> {
    if given {
        return Err(FieldError::new(field, format!("has a place only in {of}")));
    }
    Ok(())
}

enum Inserted {
    Created(Box<Request>),
    Duplicate,
    /// What may start has changed since it was looked at.
    GateTurned,
}

fn check_target(actor: &Actor, target: BrokerId, standing: &Standing) -> Result<(), NetworkError> {
    if target == actor.broker {
        return Err(
            FieldError::new("target_broker_id", "is another broker than the author").into(),
        );
    }
    match standing.broker_is_open(target, actor.broker) {
        Err(Hindrance::NoBroker { .. }) => {
            Err(FieldError::new("target_broker_id", "is no broker of the network").into())
        }
        open => Ok(open?),
    }
}

fn commission_of(input: &CommissionInput, currency: &Currency) -> Result<Commission, FieldError> {
    let size = match (&input.amount, input.basis_points) {
        (Some(amount), None) => Amount::parse(amount, currency)
            .map(CommissionSize::Amount)
            .map_err(|error| FieldError::new("terms.commission.amount", error))?,
        (None, Some(points)) => CommissionSize::BasisPoints(points),
        (Some(_), Some(_)) | (None, None) => {
            return Err(FieldError::new(
                "terms.commission",
                "has either an amount or basis_points",
            ));
        }
    };
    Ok(Commission {
        payer: input.payer,
        size,
    })
}
