//! Money that comes in, told of by a provider's own word.
//!
//! A word is believed where the provider has signed it, and moves nothing by itself: it is written
//! down, once per payment, and has the provider asked about the top-up at once. What that comes to
//! decides: the payment that the top-up was confirmed by is what was credited, every other goes to
//! `system.suspense`, where a person finds out whose it is. Each transfer's id is computed from the
//! payment's, so whoever dies on the way is gone on for by any other.

use chrono::{DateTime, TimeDelta, Utc};
use reqwest::header::HeaderMap;
use serde_json::json;
use uuid::Uuid;

use super::cursor::Cursor;
use super::{PaymentError, PaymentOutbox, PaymentService};
use crate::domain::ledger::{
    AccountName, AccountOwner, NamePart, TransferCode, incoming_index, transfer_id,
};
use crate::domain::money::Amount;
use crate::domain::payment::incoming::{CallbackVerdict, Goes, IncomingStatus, goes};
use crate::domain::payment::{IntentKind, PspName, is_a_time};
use crate::domain::reason;
use crate::domain::text;
use crate::psp::Delivery;
use crate::psp::qp::callback::{Callback, CallbackError};
use crate::runtime::failpoint;
use crate::stores::StoreError;
use crate::stores::ledger::{ChainOutcome, Leg, Movement};
use crate::stores::master;
use crate::stores::master::alerts::{self, NewAlert};
use crate::stores::pm::incoming::{self, CallbackRow, Ended, Incoming};
use crate::stores::pm::{self, intents, wallets};

/// Names a provider's payment; never changes.
const INCOMING_NS: Uuid = Uuid::from_u128(0x1b6e_83d0_47fa_5c29_9e04_b1d7_52c8_6fa3);
/// Kind of the alert of money that came in for nobody; its subject is the payment.
pub const SUSPENSE: &str = "payment_suspense";
/// Kind of the alert of a provider that says of one payment two things; its subject is the payment.
pub const CONTRADICTS: &str = "payment_contradicts";
/// Of a body this much is kept.
const KEPT: usize = 4096;
/// Of a provider's names for things.
const MAX_NAME: usize = 128;
/// A provider that was told of a payment is asked about it this often, for so long.
const ASK_EVERY: TimeDelta = TimeDelta::seconds(1);
const ASK_FOR: TimeDelta = TimeDelta::minutes(10);

/// Why a word was not taken.
#[derive(Debug, thiserror::Error)]
pub enum WordError {
    #[error("no provider of that name sends callbacks here")]
    NoSuchProvider,
    #[error(transparent)]
    Refused(CallbackError),
    #[error("{field} {what}")]
    NotUnderstood { field: &'static str, what: String },
    #[error("{0} was told of before with another amount, currency or reference")]
    Contradicts(String),
    #[error(transparent)]
    Payment(#[from] PaymentError),
}

impl From<StoreError> for WordError {
    fn from(error: StoreError) -> Self {
        Self::Payment(error.into())
    }
}

impl PaymentService {
    /// Takes a provider's word of a payment, and gives what is known of that payment now. The same
    /// word again changes nothing.
    ///
    /// # Errors
    /// See [`WordError`]. What is [`WordError::Refused`] is not written down yet: see
    /// [`Self::keep_refused`].
    pub async fn callback(
        &self,
        psp: PspName,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Result<Incoming, WordError> {
        let inner = &self.0;
        let now = inner.clock.now();
        let driver = inner.providers.get(psp).ok_or(WordError::NoSuchProvider)?;
        let delivery = Delivery { headers, body, now };
        let read = driver.read_callback(&delivery);
        let word = match read.ok_or(WordError::NoSuchProvider)? {
            Ok(word) => word,
            Err(error) => return Err(WordError::Refused(error)),
        };
        let told = match self.understood(psp, &word, now).await? {
            Ok(told) => told,
            Err((field, what)) => {
                let verdict = CallbackVerdict::NotUnderstood;
                let why = format!("{field} {what}");
                self.keep_word(psp, verdict, Some(&word), Some(&why), body)
                    .await?;
                return Err(WordError::NotUnderstood { field, what });
            }
        };
        let mut tx = pm::begin(&inner.pm).await?;
        let kept = incoming::put(&mut tx, &told).await?;
        let same = (&kept.reference, &kept.currency, kept.amount)
            == (&told.reference, &told.currency, told.amount);
        let verdict = match (same, kept.deliveries) {
            (false, _) => CallbackVerdict::Contradicts,
            (true, 1) => CallbackVerdict::Taken,
            (true, _) => CallbackVerdict::Repeated,
        };
        let body = shown(body);
        let row = CallbackRow {
            id: inner.entropy.uuid(now),
            psp,
            verdict,
            payment_id: Some(&word.payment_id),
            reference: Some(&word.reference),
            why: None,
            body: &body,
        };
        incoming::keep_word(&mut tx, &row, now).await?;
        failpoint::at("incoming.kept.before");
        pm::commit(tx).await?;
        metrics::counter!("settlenet_psp_callbacks_total", "psp" => psp.as_str(),
            "verdict" => verdict.as_str())
        .increment(1);
        match verdict {
            CallbackVerdict::Contradicts => {
                self.alert_contradiction(&kept, &told).await?;
                return Err(WordError::Contradicts(word.payment_id));
            }
            _ if kept.status == IncomingStatus::Unknown => self.0.alert_open(&kept).await?,
            _ => inner.wake.up(),
        }
        Ok(kept)
    }

    /// Writes down a word that is not the provider's.
    ///
    /// # Errors
    /// The database's.
    pub async fn keep_refused(
        &self,
        psp: PspName,
        error: &CallbackError,
        body: &[u8],
    ) -> Result<(), PaymentError> {
        let verdict = match error {
            CallbackError::Time { .. } => CallbackVerdict::OutOfTime,
            CallbackError::Body { .. } => CallbackVerdict::NotUnderstood,
            CallbackError::Signature | CallbackError::Timestamp => CallbackVerdict::NotSigned,
        };
        let why = error.to_string();
        Ok(self.keep_word(psp, verdict, None, Some(&why), body).await?)
    }

    /// What a signed word says, in our terms; the inner error says what of it we can't read.
    async fn understood(
        &self,
        psp: PspName,
        word: &Callback,
        now: DateTime<Utc>,
    ) -> Result<Result<Incoming, (&'static str, String)>, StoreError> {
        for (name, value) in [
            ("paymentId", &word.payment_id),
            ("reference", &word.reference),
        ] {
            if let Err(error) = text::line(value, MAX_NAME) {
                return Ok(Err((name, error.to_string())));
            }
        }
        if !is_a_time(word.paid_at) {
            return Ok(Err(("paidAt", "is no time of a payment".to_owned())));
        }
        let Some(currency) = self.0.currencies.get(&word.currency).await? else {
            let what = format!("{} is none of ours", word.currency);
            return Ok(Err(("currency", what)));
        };
        let amount = match Amount::parse(&word.amount, &currency) {
            Ok(amount) => amount.minor(),
            Err(error) => return Ok(Err(("amount", error.to_string()))),
        };
        let intent = match word.reference.parse::<Uuid>() {
            Ok(id) => intents::get(&self.0.pm, id).await?,
            Err(_) => None,
        };
        let intent = intent.filter(|intent| {
            intent.kind == IntentKind::TopUp
                && intent.channel == psp
                && intent.currency == word.currency
        });
        Ok(Ok(Incoming {
            id: incoming_id(psp, &word.payment_id),
            psp,
            payment_id: word.payment_id.clone(),
            reference: word.reference.clone(),
            status: match intent {
                Some(_) => IncomingStatus::Waiting,
                None => IncomingStatus::Unknown,
            },
            intent: intent.map(|intent| intent.id),
            currency: currency.code,
            ledger: currency.ledger,
            amount,
            paid_at: word.paid_at,
            wallet: None,
            reason: None,
            resolved_by: None,
            disputed_at: None,
            last_error: None,
            deliveries: 1,
            received_at: now,
            updated_at: now,
        }))
    }

    async fn keep_word(
        &self,
        psp: PspName,
        verdict: CallbackVerdict,
        word: Option<&Callback>,
        why: Option<&str>,
        body: &[u8],
    ) -> Result<(), StoreError> {
        let now = self.0.clock.now();
        let body = shown(body);
        let bounded = |text: &String| kept_text(&text.chars().take(MAX_NAME).collect::<String>());
        let payment = word.map(|word| bounded(&word.payment_id));
        let reference = word.map(|word| bounded(&word.reference));
        let why = why.map(kept_text);
        let row = CallbackRow {
            id: self.0.entropy.uuid(now),
            psp,
            verdict,
            payment_id: payment.as_deref(),
            reference: reference.as_deref(),
            why: why.as_deref(),
            body: &body,
        };
        let mut tx = pm::begin(&self.0.pm).await?;
        incoming::keep_word(&mut tx, &row, now).await?;
        pm::commit(tx).await?;
        metrics::counter!("settlenet_psp_callbacks_total", "psp" => psp.as_str(),
            "verdict" => verdict.as_str())
        .increment(1);
        Ok(())
    }

    async fn alert_contradiction(
        &self,
        kept: &Incoming,
        told: &Incoming,
    ) -> Result<(), StoreError> {
        let alert = NewAlert {
            kind: CONTRADICTS,
            subject: kept.id.to_string(),
            message: format!(
                "{} has told of its payment {} twice, and differently. What it said first stands; \
                 ask it which is right.",
                kept.psp, kept.payment_id
            ),
            details: json!({
                "first": { "amount": kept.amount, "currency": kept.currency, "reference": kept.reference },
                "now": { "amount": told.amount, "currency": told.currency, "reference": told.reference },
            }),
        };
        self.0.raise(&alert).await
    }

    /// Payments that came in and that nobody has yet, the oldest first; `after` is the last of the
    /// page before.
    ///
    /// # Errors
    /// The database's.
    pub async fn incoming(
        &self,
        after: Option<(DateTime<Utc>, Uuid)>,
        limit: u32,
    ) -> Result<Vec<Incoming>, PaymentError> {
        Ok(incoming::open(&self.0.pm, after, limit).await?)
    }

    /// Gives a payment that came in for nobody to a wallet. The same again changes nothing.
    ///
    /// # Errors
    /// [`PaymentError::NoSuchIncoming`], [`PaymentError::NoSuchWallet`], a wallet in another
    /// currency or of a broker that has left, a payment that somebody has already, and
    /// [`PaymentError::PaymentTaken`] for one that an intent was confirmed by.
    pub async fn assign(
        &self,
        id: Uuid,
        wallet: &AccountName,
        because: &str,
        by: &str,
    ) -> Result<Incoming, PaymentError> {
        let inner = &self.0;
        let because = reason::checked(because)?;
        let found = incoming::get(&inner.pm, id).await?;
        let found = found.ok_or(PaymentError::NoSuchIncoming)?;
        let known = wallets::get(&inner.pm, wallet).await?;
        let known = known.ok_or(PaymentError::NoSuchWallet)?;
        if known.currency != found.currency {
            return Err(PaymentError::Invalid {
                field: "wallet",
                rule: format!("is one in {}", found.currency),
            });
        }
        inner.is_here(known.broker).await?;
        let now = inner.clock.now();
        if let Some(intent) = inner.confirmed_by(&found).await? {
            return Err(PaymentError::PaymentTaken { intent });
        }
        if incoming::give(&inner.pm, id, wallet, &because, by, now).await? {
            failpoint::at("incoming.given");
            let given = incoming::get(&inner.pm, id).await?;
            inner
                .hand_over(&given.ok_or(PaymentError::NoSuchIncoming)?)
                .await?;
        }
        let found = incoming::get(&inner.pm, id).await?;
        let found = found.ok_or(PaymentError::NoSuchIncoming)?;
        if found.status == IncomingStatus::Assigned && found.wallet.as_ref() == Some(wallet) {
            return Ok(found);
        }
        Err(PaymentError::Incoming {
            status: found.status,
        })
    }
}

impl PaymentOutbox {
    /// Brings payments that came in where they go, and has providers asked about those of which
    /// nothing can be said yet; gives how many it brought.
    ///
    /// # Errors
    /// The first of the databases' or the ledger's. What it was about comes after all others then.
    pub async fn take_in(&self, limit: u32) -> Result<usize, PaymentError> {
        let inner = &self.0;
        let now = inner.clock.now();
        let ended = incoming::ended(&inner.pm, limit).await?;
        let given = incoming::given(&inner.pm, limit).await?;
        let mut all = Ok(());
        for one in &ended {
            let brought = inner.bring(one).await;
            all = all.and(inner.or_later(&one.incoming, brought).await);
        }
        for one in &given {
            let handed_over = inner.hand_over(one).await;
            all = all.and(inner.or_later(one, handed_over).await);
        }
        all?;
        if incoming::hasten(&inner.pm, ASK_EVERY, ASK_FOR, now).await? > 0 {
            inner.queues.values().for_each(Cursor::reset);
            inner.wake.up();
        }
        Ok(ended.len() + given.len())
    }
}

impl super::Inner {
    /// Brings a payment where it goes, now that its row has ended.
    async fn bring(&self, one: &Ended) -> Result<(), PaymentError> {
        let payment = &one.incoming;
        let is_amount = payment.amount == one.wanted;
        let by = one.by.as_deref();
        let credited = match goes(one.state, by, &payment.payment_id, is_amount) {
            Goes::Nowhere => return Ok(()),
            Goes::Credited => true,
            Goes::Disputed => {
                let why = format!("the top-up was credited {} for it", one.wanted);
                return self.dispute(payment, &why).await;
            }
            Goes::Claims => {
                let by = incoming::claim(&self.pm, payment).await?;
                by.as_ref() == Some(&payment.payment_id)
            }
            Goes::Suspense => false,
        };
        if !credited {
            return match self.confirmed_by(payment).await? {
                None => self.suspend(payment).await,
                Some(other) => {
                    let why = format!("intent {other} was confirmed by it");
                    self.dispute(payment, &why).await
                }
            };
        }
        let (from, to) = (IncomingStatus::Waiting, IncomingStatus::Credited);
        let now = self.clock.now();
        incoming::set_status(&self.pm, payment.id, from, to, now).await?;
        Ok(())
    }

    /// What went wrong with a payment keeps no other waiting.
    async fn or_later(
        &self,
        payment: &Incoming,
        done: Result<(), PaymentError>,
    ) -> Result<(), PaymentError> {
        if let Err(error) = &done {
            tracing::warn!(%error, payment = %payment.id, "a payment that came in waits");
            let error = error.to_string();
            incoming::put_off(&self.pm, payment.id, &error, self.clock.now()).await?;
        }
        done
    }

    /// The intent that was confirmed by it, another than it came in for.
    async fn confirmed_by(&self, payment: &Incoming) -> Result<Option<Uuid>, StoreError> {
        incoming::confirmed_another(&self.pm, payment).await
    }

    /// What the provider says of it and what we have done can't both be right: it is left to a
    /// person, and nothing is moved.
    async fn dispute(&self, payment: &Incoming, why: &str) -> Result<(), PaymentError> {
        // Nobody looks at it again by himself: what can't be told of is tried again.
        self.alert_dispute(payment, why).await?;
        failpoint::at("incoming.disputed");
        incoming::dispute(&self.pm, payment.id, why, self.clock.now()).await?;
        Ok(())
    }

    pub(super) async fn alert_dispute(
        &self,
        payment: &Incoming,
        why: &str,
    ) -> Result<(), StoreError> {
        let alert = NewAlert {
            kind: CONTRADICTS,
            subject: payment.id.to_string(),
            message: format!(
                "{} has told of its payment {} of {} {} (minor units) for {}, and {why}. Nothing of \
                 it is moved; ask the provider which is right.",
                payment.psp,
                payment.payment_id,
                payment.amount,
                payment.currency,
                payment.reference
            ),
            details: json!({
                "psp": payment.psp,
                "payment_id": payment.payment_id,
                "intent": payment.intent,
                "currency": payment.currency,
                "amount_minor": payment.amount,
            }),
        };
        self.raise(&alert).await
    }

    /// Nobody waits for it any more.
    async fn suspend(&self, payment: &Incoming) -> Result<(), PaymentError> {
        self.put_aside(payment).await?;
        failpoint::at("incoming.suspended");
        let (from, to) = (IncomingStatus::Waiting, IncomingStatus::Suspense);
        let now = self.clock.now();
        if incoming::set_status(&self.pm, payment.id, from, to, now).await? {
            self.alert_open(payment).await?;
        }
        Ok(())
    }

    /// To whom a person has given it.
    async fn hand_over(&self, payment: &Incoming) -> Result<(), PaymentError> {
        let Some(wallet) = payment.wallet.clone() else {
            return Ok(());
        };
        self.put_aside(payment).await?;
        let suspense = AccountName::new(AccountOwner::Suspense, payment.currency.clone());
        let (index, code) = (incoming_index::OUT, TransferCode::SuspenseOut);
        self.moved(payment, index, code, suspense, wallet).await?;
        failpoint::at("incoming.handed_over");
        let now = self.clock.now();
        let to = IncomingStatus::Assigned;
        incoming::set_status(&self.pm, payment.id, payment.status, to, now).await?;
        let mut tx = master::begin(&self.master).await?;
        alerts::resolve(&mut tx, SUSPENSE, &payment.id.to_string(), now).await?;
        Ok(master::commit(tx).await?)
    }

    async fn put_aside(&self, payment: &Incoming) -> Result<(), PaymentError> {
        let of = |owner| AccountName::new(owner, payment.currency.clone());
        let provider = NamePart::new(payment.psp.nostro()).map_err(|_| StoreError::Corrupt {
            table: "psp_incoming",
            what: format!("{}: no account has its provider's name", payment.id),
        })?;
        let (from, to) = (
            of(AccountOwner::Nostro(provider)),
            of(AccountOwner::Suspense),
        );
        let (index, code) = (incoming_index::SUSPENSE, TransferCode::Suspense);
        self.moved(payment, index, code, from, to).await
    }

    async fn moved(
        &self,
        payment: &Incoming,
        index: u32,
        code: TransferCode,
        debit: AccountName,
        credit: AccountName,
    ) -> Result<(), PaymentError> {
        let movement = Movement {
            id: transfer_id(payment.id, index),
            debit,
            credit,
            amount: payment.amount,
            ledger: payment.ledger,
            code,
            operation: payment.id,
        };
        match self.ledger.chain(&[Leg::Move(movement)]).await? {
            ChainOutcome::Landed => Ok(()),
            ChainOutcome::InsufficientFunds
            | ChainOutcome::NeverLands
            | ChainOutcome::Settled(_) => Err(StoreError::Corrupt {
                table: "psp_incoming",
                what: format!("{}: the ledger refuses to move it", payment.id),
            }
            .into()),
        }
    }

    pub(super) async fn alert_open(&self, payment: &Incoming) -> Result<(), StoreError> {
        let what = match payment.intent {
            Some(intent) => format!("for top-up {intent}, which had ended or was paid before"),
            None => format!("for {:?}, which is no top-up of ours", payment.reference),
        };
        let alert = NewAlert {
            kind: SUSPENSE,
            subject: payment.id.to_string(),
            message: format!(
                "{} says that its payment {} came in {what}. Find out whose it is, and give it to \
                 a wallet: settlenet admin incoming assign {} --wallet NAME --reason TEXT",
                payment.psp, payment.payment_id, payment.id
            ),
            details: json!({
                "psp": payment.psp,
                "payment_id": payment.payment_id,
                "currency": payment.currency,
                "amount_minor": payment.amount,
                "paid_at": payment.paid_at,
            }),
        };
        self.raise(&alert).await
    }
}

/// One payment of a provider is one thing, however often and by whom it is told of.
fn incoming_id(psp: PspName, payment: &str) -> Uuid {
    Uuid::new_v5(&INCOMING_NS, format!("{psp}\0{payment}").as_bytes())
}

/// A body as it is kept: the beginning of it, as text.
fn shown(body: &[u8]) -> String {
    kept_text(&String::from_utf8_lossy(body.get(..KEPT).unwrap_or(body)))
}

/// `PostgreSQL` keeps no NUL in a text.
fn kept_text(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}
