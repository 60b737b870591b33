//! What the ledger and a book are told of an intent.
//!
//! An action is repeated until it has an answer: every id in it is computed from the intent's, so
//! a repeat finds what the one before has done. What it comes to is written where the action is
//! still taken on by the same process.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use serde_json::{Value, json};
use uuid::Uuid;

use super::create::booked_on;
use super::{Inner, PaymentError};
use crate::domain::account::Side;
use crate::domain::book::{Job, JobOutcome, Work};
use crate::domain::chain::{self, EntryKind, PlannedEntry};
use crate::domain::ledger::{
    AccountName, AccountOwner, NamePart, TransferCode, TransferId, payout_index, top_up_index,
    transfer_id,
};
use crate::domain::payment::{IntentEvent, IntentKind, IntentStatus, OutboxAction, book_step};
use crate::runtime::failpoint;
use crate::services::books::BooksError;
use crate::stores::StoreError;
use crate::stores::ledger::{ChainOutcome, Hold, Leg, Movement, SettleOutcome};
use crate::stores::master::alerts::NewAlert;
use crate::stores::pm::events::{self, NewIntentEvent};
use crate::stores::pm::intents::{self, Intent};
use crate::stores::pm::outbox::{self, Ended, Taken};
use crate::stores::pm::{self, PmTx, queue};

/// Kind of the alert of an action that nothing mends by itself; its subject is the intent.
pub const STUCK: &str = "payment_stuck";
/// Kind of the alert of a post and a void that both were to be; its subject is the intent.
pub const RACED: &str = "payment_raced";

/// Does the work at the ledger and in books. Clones share everything.
#[derive(Clone)]
pub struct PaymentOutbox(pub(super) Arc<Inner>);

/// What an action has come to.
enum Came {
    /// The intent goes on with this.
    To(IntentEvent),
    /// The money is not there, in the wallet or in the book.
    Short { reason: String },
    /// The other of post and void was first.
    Lost(SettleOutcome),
    /// It was all over before.
    Before,
}

impl PaymentOutbox {
    /// Takes on actions that are due and carries them out, all at once; gives how many there
    /// were.
    ///
    /// # Errors
    /// The database's. What goes wrong with one action is left for a later try of it.
    pub async fn serve(&self, limit: u32) -> Result<usize, StoreError> {
        let inner = &self.0;
        let now = inner.clock.now();
        let leases = &inner.rules.outbox;
        let look = outbox::Look {
            from: inner.actions.begin(now),
            by: &inner.process,
            limit,
        };
        let taken = outbox::take(&inner.pm, &look, leases, &inner.clock).await?;
        let newest = taken.last().map(|taken| taken.created_at);
        inner
            .actions
            .found(newest, taken.len() == limit as usize, now);
        let count = taken.len();
        futures::future::join_all(taken.iter().map(|taken| self.carry_out(taken))).await;
        Ok(count)
    }

    async fn carry_out(&self, taken: &Taken) {
        let came = match self.act(taken).await {
            Ok(came) => self.tell(taken, came).await,
            Err(error) => Err(error),
        };
        let Err(error) = came else {
            self.0.wake.up();
            return;
        };
        tracing::warn!(%error, intent = %taken.intent, action = %taken.action, "a payment waits");
        let left = if is_hopeless(&error) {
            self.give_up(taken, &error).await
        } else {
            let now = self.0.clock.now();
            outbox::leave(&self.0.pm, taken, &error.to_string(), now).await
        };
        if let Err(error) = left {
            tracing::warn!(%error, "that could not be recorded; the lease will run out");
        }
    }

    async fn act(&self, taken: &Taken) -> Result<Came, PaymentError> {
        let intent = intents::get(&self.0.pm, taken.intent).await?;
        let intent = intent.ok_or(PaymentError::NoSuchIntent)?;
        match taken.action {
            OutboxAction::Hold => self.hold(&intent).await,
            OutboxAction::Post => self.post(&intent).await,
            OutboxAction::Void => self.void(&intent).await,
            OutboxAction::Return => self.give_back(&intent).await,
        }
    }

    async fn hold(&self, intent: &Intent) -> Result<Came, PaymentError> {
        if intent.status != IntentStatus::Created {
            return Ok(Came::Before);
        }
        if let Some(account) = booked_on(&self.0, intent).await? {
            let amount = intent.amount.saturating_add(intent.fee);
            let reserved = self
                .in_book(
                    intent,
                    book_step::RESERVE,
                    Work::Reserve { account, amount },
                )
                .await?;
            match reserved {
                JobOutcome::Done { .. } => {}
                JobOutcome::Refused(why) => {
                    return Ok(Came::Short {
                        reason: refusal(&why),
                    });
                }
                JobOutcome::Tombstone => {
                    return Ok(Came::Short {
                        reason: "released".to_owned(),
                    });
                }
            }
            failpoint::at("payment.reserved");
        }
        let legs = holds(intent)?;
        failpoint::at("payment.hold.before");
        let outcome = self.0.ledger.chain(&legs).await?;
        failpoint::at("payment.hold.after");
        match outcome {
            ChainOutcome::Landed => Ok(Came::To(IntentEvent::Held)),
            ChainOutcome::InsufficientFunds | ChainOutcome::NeverLands => {
                self.release(intent).await?;
                let reason = "insufficient_funds".to_owned();
                Ok(Came::Short { reason })
            }
            ChainOutcome::Settled(_) => Err(odd(intent, "a hold was answered as a settlement")),
        }
    }

    async fn post(&self, intent: &Intent) -> Result<Came, PaymentError> {
        let legs = match intent.kind {
            IntentKind::Payout => posts(intent)?,
            IntentKind::TopUp => credits(intent)?,
        };
        failpoint::at("payment.post.before");
        let outcome = self.0.ledger.chain(&legs).await?;
        failpoint::at("payment.post.after");
        match outcome {
            ChainOutcome::Landed => {}
            ChainOutcome::Settled(settled) => return Ok(Came::Lost(settled)),
            ChainOutcome::InsufficientFunds | ChainOutcome::NeverLands => {
                return Err(odd(intent, "a post was refused for funds"));
            }
        }
        let fee = (Side::Debit, intent.fee, EntryKind::PaymentFee);
        let amount = match intent.kind {
            IntentKind::Payout => (Side::Debit, intent.amount, EntryKind::PaymentAmount),
            IntentKind::TopUp => (Side::Credit, intent.amount, EntryKind::PaymentAmount),
        };
        self.book(intent, book_step::BOOK, &[amount, fee]).await?;
        failpoint::at("payment.booked");
        Ok(Came::To(IntentEvent::Posted))
    }

    async fn void(&self, intent: &Intent) -> Result<Came, PaymentError> {
        if intent.kind == IntentKind::TopUp {
            // Nothing is held for money that was to come in.
            return Ok(Came::To(IntentEvent::Voided));
        }
        failpoint::at("payment.void.before");
        let outcome = self.0.ledger.chain(&voids(intent)).await?;
        failpoint::at("payment.void.after");
        match outcome {
            ChainOutcome::Landed => {}
            ChainOutcome::Settled(settled) => return Ok(Came::Lost(settled)),
            ChainOutcome::InsufficientFunds | ChainOutcome::NeverLands => {
                return Err(odd(intent, "a void was refused for funds"));
            }
        }
        self.release(intent).await?;
        Ok(Came::To(IntentEvent::Voided))
    }

    async fn give_back(&self, intent: &Intent) -> Result<Came, PaymentError> {
        let outcome = self.0.ledger.chain(&returns(intent)?).await?;
        failpoint::at("payment.return.after");
        if outcome != ChainOutcome::Landed {
            return Err(odd(intent, "a return was refused"));
        }
        let amount = (Side::Credit, intent.amount, EntryKind::PaymentAmount);
        self.book(intent, book_step::RETURN, &[amount]).await?;
        Ok(Came::To(IntentEvent::Returned))
    }

    /// Books amounts on the account that the intent names, where it names one, using what it has
    /// reserved there.
    async fn book(
        &self,
        intent: &Intent,
        step: u16,
        amounts: &[(Side, u64, EntryKind)],
    ) -> Result<(), PaymentError> {
        let Some(account) = booked_on(&self.0, intent).await? else {
            return Ok(());
        };
        let amounts = amounts.iter().filter(|(_, amount, _)| *amount > 0);
        let entries: Vec<PlannedEntry> = (0..)
            .zip(amounts)
            .map(|(leg, &(side, amount, kind))| {
                let account = account.clone();
                PlannedEntry {
                    leg,
                    account,
                    side,
                    amount,
                    kind,
                }
            })
            .collect();
        let subject = subject_of(intent);
        let planned = entries.iter().map(|entry| (step, entry));
        let op_digest = chain::op_digest(intent.id, &subject, planned);
        let consumes = Some(intent.id);
        let work = Work::Book {
            entries,
            op_digest,
            consumes,
            private: None,
        };
        match self.in_book(intent, step, work).await? {
            JobOutcome::Done { .. } => Ok(()),
            JobOutcome::Refused(why) => Err(odd(intent, &format!("the book refuses: {why}"))),
            JobOutcome::Tombstone => Err(odd(intent, "it was released in the book before")),
        }
    }

    async fn release(&self, intent: &Intent) -> Result<(), PaymentError> {
        if intent.book_account.is_some() {
            self.in_book(intent, book_step::RESERVE, Work::UndoReserve)
                .await?;
        }
        Ok(())
    }

    async fn in_book(
        &self,
        intent: &Intent,
        step: u16,
        work: Work,
    ) -> Result<JobOutcome, PaymentError> {
        let (saga_id, subject) = (intent.id, subject_of(intent));
        let job = Job {
            saga_id,
            step,
            subject,
            work,
        };
        let now = self.0.clock.now();
        match self.0.books.apply(intent.broker, job, now).await {
            // A book that is moving, or is paused, comes back; one that was archived does not.
            Err(
                error @ (BooksError::Store(StoreError::Moving { .. }) | BooksError::Hindered(_)),
            ) => {
                self.0.is_here(intent.broker).await?;
                Err(error.into())
            }
            done => Ok(done?),
        }
    }

    /// Writes what an action has come to.
    async fn tell(&self, taken: &Taken, came: Came) -> Result<(), PaymentError> {
        let now = self.0.clock.now();
        let (ended, event, reason) = match &came {
            Came::To(event) => (Ended::Done, Some(*event), None),
            Came::Short { reason } => (
                Ended::Refused,
                Some(IntentEvent::HoldRefused),
                Some(reason.clone()),
            ),
            Came::Lost(settled) => {
                self.raced(taken, *settled).await?;
                (
                    Ended::Refused,
                    None,
                    Some(format!("the hold was {settled:?} before")),
                )
            }
            Came::Before => (Ended::Done, None, None),
        };
        let intent = intents::get(&self.0.pm, taken.intent).await?;
        let intent = intent.ok_or(PaymentError::NoSuchIntent)?;
        let reason = match event {
            Some(IntentEvent::Voided) => {
                let row = queue::of(&self.0.pm, intent.id).await?;
                row.and_then(|row| row.last_error)
            }
            _ => reason,
        };
        let mut tx = pm::begin(&self.0.pm).await?;
        if !outbox::end(&mut tx, taken, ended, reason.as_deref(), now).await? {
            // Somebody else has gone on with it.
            return Ok(());
        }
        if let Some(event) = event {
            let payload = json!({ "action": taken.action });
            self.turn(&mut tx, &intent, event, reason.as_deref(), payload, now)
                .await?;
            if event == IntentEvent::Held {
                queue::insert(&mut tx, intent.id, intent.channel, now).await?;
            }
        }
        failpoint::at("payment.told.before");
        pm::commit(tx).await?;
        failpoint::at("payment.told.after");
        Ok(())
    }

    async fn turn(
        &self,
        tx: &mut PmTx,
        intent: &Intent,
        event: IntentEvent,
        reason: Option<&str>,
        payload: Value,
        now: DateTime<Utc>,
    ) -> Result<(), PaymentError> {
        let Some(to) = intent.status.after(event) else {
            return Err(odd(
                intent,
                &format!("{event:?} in status {}", intent.status),
            ));
        };
        if !intents::set_status(tx, intent.id, intent.status, to, reason, now).await? {
            return Err(StoreError::Moving {
                broker: intent.broker,
            }
            .into());
        }
        let event = NewIntentEvent {
            intent: intent.id,
            from: Some(intent.status),
            to,
            reason,
            payload,
        };
        Ok(events::insert(tx, &event, now).await?)
    }

    async fn raced(&self, taken: &Taken, settled: SettleOutcome) -> Result<(), PaymentError> {
        let alert = NewAlert {
            kind: RACED,
            subject: taken.intent.to_string(),
            message: format!(
                "Intent {} was to be {} and the ledger says that its hold was {settled:?} before. \
                 The ledger's word stands; find out who asked for the other.",
                taken.intent, taken.action
            ),
            details: json!({ "action": taken.action }),
        };
        Ok(self.0.raise(&alert).await?)
    }

    async fn give_up(&self, taken: &Taken, error: &PaymentError) -> Result<(), StoreError> {
        let now = self.0.clock.now();
        let text = error.to_string();
        // Nobody is left who does not know: what can't be told of is tried again.
        self.0
            .alert_stuck(taken.intent, taken.action, &text)
            .await?;
        let mut tx = pm::begin(&self.0.pm).await?;
        outbox::end(&mut tx, taken, Ended::Stuck, Some(&text), now).await?;
        pm::commit(tx).await
    }
}

impl Inner {
    pub(super) async fn alert_stuck(
        &self,
        intent: Uuid,
        action: OutboxAction,
        error: &str,
    ) -> Result<(), StoreError> {
        let alert = NewAlert {
            kind: STUCK,
            subject: intent.to_string(),
            message: format!(
                "Intent {intent} can't be {}: {error}. Its money stays as it is until somebody has \
                 looked.",
                done(action)
            ),
            details: json!({ "action": action, "error": error }),
        };
        self.raise(&alert).await
    }
}

/// What an action is to make of an intent.
const fn done(action: OutboxAction) -> &'static str {
    match action {
        OutboxAction::Hold => "held",
        OutboxAction::Post => "posted",
        OutboxAction::Void => "voided",
        OutboxAction::Return => "given back",
    }
}

fn account(intent: &Intent, owner: AccountOwner) -> AccountName {
    AccountName::new(owner, intent.currency.clone())
}

fn nostro(intent: &Intent) -> Result<AccountName, PaymentError> {
    let part =
        NamePart::new(intent.channel.nostro()).map_err(|error| odd(intent, &error.to_string()))?;
    Ok(account(intent, AccountOwner::Nostro(part)))
}

fn transit(intent: &Intent) -> Result<AccountName, PaymentError> {
    let part =
        NamePart::new(intent.channel.as_str()).map_err(|error| odd(intent, &error.to_string()))?;
    Ok(account(intent, AccountOwner::Transit(part)))
}

fn hold_of(
    intent: &Intent,
    index: u32,
    credit: AccountName,
    amount: u64,
    code: TransferCode,
) -> Leg {
    Leg::Hold(Hold {
        id: transfer_id(intent.id, index),
        debit: intent.wallet.clone(),
        credit,
        amount,
        ledger: intent.ledger,
        code,
        operation: intent.id,
    })
}

fn movement(
    intent: &Intent,
    index: u32,
    (debit, credit): (AccountName, AccountName),
    amount: u64,
    code: TransferCode,
) -> Leg {
    Leg::Move(Movement {
        id: transfer_id(intent.id, index),
        debit,
        credit,
        amount,
        ledger: intent.ledger,
        code,
        operation: intent.id,
    })
}

/// Amount and fee, held together or not at all.
fn holds(intent: &Intent) -> Result<Vec<Leg>, PaymentError> {
    use payout_index as at;
    let transit = transit(intent)?;
    let amount = hold_of(
        intent,
        at::HOLD_AMOUNT,
        transit,
        intent.amount,
        TransferCode::PayoutAmount,
    );
    let mut legs = vec![amount];
    if intent.fee > 0 {
        let revenue = account(intent, AccountOwner::Revenue);
        legs.push(hold_of(
            intent,
            at::HOLD_FEE,
            revenue,
            intent.fee,
            TransferCode::PayoutFee,
        ));
    }
    Ok(legs)
}

/// Both holds posted, and the amount on its way to the provider.
fn posts(intent: &Intent) -> Result<Vec<Leg>, PaymentError> {
    let mut legs: Vec<Leg> = settled(intent)
        .map(|(hold, settle)| Leg::Post { hold, settle })
        .collect();
    let ways = (transit(intent)?, nostro(intent)?);
    let out = payout_index::OUT;
    legs.push(movement(
        intent,
        out,
        ways,
        intent.amount,
        TransferCode::PayoutOut,
    ));
    Ok(legs)
}

fn voids(intent: &Intent) -> Vec<Leg> {
    settled(intent)
        .map(|(hold, settle)| Leg::Void { hold, settle })
        .collect()
}

/// The holds of an intent, with the ids that their posts and voids share.
fn settled(intent: &Intent) -> impl Iterator<Item = (TransferId, TransferId)> {
    use payout_index as at;
    let id = intent.id;
    let amount = (at::HOLD_AMOUNT, at::SETTLE_AMOUNT);
    let fee = (intent.fee > 0).then_some((at::HOLD_FEE, at::SETTLE_FEE));
    std::iter::once(amount)
        .chain(fee)
        .map(move |(hold, settle)| (transfer_id(id, hold), transfer_id(id, settle)))
}

/// Money that has come in, less the fee.
fn credits(intent: &Intent) -> Result<Vec<Leg>, PaymentError> {
    use top_up_index as at;
    let (from, wallet) = (nostro(intent)?, intent.wallet.clone());
    let ways = (from.clone(), wallet);
    let credit = intent.amount.saturating_sub(intent.fee);
    let mut legs = vec![movement(
        intent,
        at::CREDIT,
        ways,
        credit,
        TransferCode::TopUp,
    )];
    if intent.fee > 0 {
        let ways = (from, account(intent, AccountOwner::Revenue));
        legs.push(movement(
            intent,
            at::FEE,
            ways,
            intent.fee,
            TransferCode::TopUp,
        ));
    }
    Ok(legs)
}

/// The amount back on the wallet; what the provider was paid for stays with it.
fn returns(intent: &Intent) -> Result<Vec<Leg>, PaymentError> {
    let ways = (nostro(intent)?, intent.wallet.clone());
    let index = payout_index::RETURN;
    Ok(vec![movement(
        intent,
        index,
        ways,
        intent.amount,
        TransferCode::PayoutReturn,
    )])
}

/// What a book calls it: the intent's uuid without hyphens.
fn subject_of(intent: &Intent) -> String {
    intent.id.simple().to_string()
}

fn refusal(why: &Value) -> String {
    let code = why.get("code").and_then(Value::as_str);
    format!("book: {}", code.unwrap_or("refused"))
}

fn odd(intent: &Intent, what: &str) -> PaymentError {
    let what = format!("{}: {what}", intent.id);
    PaymentError::Store(StoreError::Corrupt {
        table: "intent",
        what,
    })
}

/// Whether only a person can mend it.
const fn is_hopeless(error: &PaymentError) -> bool {
    match error {
        PaymentError::Ledger(error) => !error.is_transient(),
        PaymentError::Store(StoreError::Corrupt { .. })
        | PaymentError::NoSuchIntent
        | PaymentError::HasLeft { .. } => true,
        PaymentError::Book(_)
        | PaymentError::Store(_)
        | PaymentError::Hindered(_)
        | PaymentError::Invalid { .. }
        | PaymentError::NoSuchWallet
        | PaymentError::NoSuchIncoming
        | PaymentError::Incoming { .. }
        | PaymentError::PaymentTaken { .. }
        | PaymentError::SenderTaken { .. }
        | PaymentError::KeyReused
        | PaymentError::Reason(_)
        | PaymentError::State { .. }
        | PaymentError::FundingRefused
        | PaymentError::BrokenOff => false,
    }
}
