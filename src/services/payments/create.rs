use serde_json::json;
use uuid::Uuid;

use super::{IntentHistory, PaymentError, PaymentService};
use crate::domain::account::AccountRef;
use crate::domain::ids::{AccountId, BrokerId};
use crate::domain::ledger::AccountName;
use crate::domain::money::{Amount, Currency};
use crate::domain::payment::receiver::Receiver;
use crate::domain::payment::{IntentKind, IntentStatus, OutboxAction, PspName};
use crate::services::books::BooksError;
use crate::stores::StoreError;
use crate::stores::master::idempotency::{Intention, Known};
use crate::stores::master::standing;
use crate::stores::pm::events::{self, NewIntentEvent};
use crate::stores::pm::intents::{self, Intent};
use crate::stores::pm::{self, idempotency, outbox, queue, wallets};

/// Names the intent of a client's key; never changes.
const INTENT_NS: Uuid = Uuid::from_u128(0x4f1d_7a62_93c8_5b0e_8d15_6e2a_90f4_b7c3);

/// An instruction as it is asked for.
#[derive(Clone, Debug)]
pub struct NewIntent {
    pub wallet: AccountName,
    pub currency: Currency,
    pub amount: Amount,
    pub channel: PspName,
    pub receiver: Receiver,
    /// An account in the broker's own book that it is booked on.
    pub book_account: Option<AccountId>,
}

impl PaymentService {
    /// Writes an instruction down; workers carry it out. A repeat of the same intention gives the
    /// same one as it is by then.
    ///
    /// # Errors
    /// See [`PaymentError`]. What the wallet hasn't got is told by the intent, not here.
    pub async fn create(
        &self,
        broker: BrokerId,
        intention: &Intention,
        new: NewIntent,
    ) -> Result<IntentHistory, PaymentError> {
        let id = intent_id(intention);
        match idempotency::find(&self.0.pm, intention).await? {
            Some(Known::Same { .. }) => return self.get(broker, id).await,
            Some(Known::Other) => return Err(PaymentError::KeyReused),
            None => {}
        }
        let intent = self.checked(broker, id, intention, new).await?;
        let (this, meant) = (self.clone(), intention.clone());
        // To its end, whether or not the caller stays.
        let task = tokio::spawn(async move { this.write(&intent, &meant).await });
        match task.await.map_err(|_| PaymentError::BrokenOff)? {
            Ok(()) => {}
            // The same intention at the same time.
            Err(error) if error.is_duplicate() => {
                let known = idempotency::find(&self.0.pm, intention).await?;
                if !matches!(known, Some(Known::Same { .. })) {
                    return Err(PaymentError::KeyReused);
                }
            }
            Err(error) => return Err(error.into()),
        }
        self.0.wake.up();
        self.get(broker, id).await
    }

    async fn checked(
        &self,
        broker: BrokerId,
        id: Uuid,
        intention: &Intention,
        new: NewIntent,
    ) -> Result<Intent, PaymentError> {
        let code = &new.currency.code;
        let (standing, _) =
            standing::look(&self.0.master, [Some(broker), None], Some(code)).await?;
        standing.network_is_open()?;
        standing.broker_is_open(broker, broker)?;
        let invalid = |field, rule: String| PaymentError::Invalid { field, rule };
        let Some(driver) = self.0.providers.get(new.channel) else {
            let names: Vec<_> = self.0.providers.names().map(PspName::as_str).collect();
            return Err(invalid(
                "channel",
                format!("is one of: {}", names.join(", ")),
            ));
        };
        if !driver.currencies().contains(code) {
            let codes = driver.currencies().iter().map(ToString::to_string);
            let codes = codes.collect::<Vec<_>>().join(", ");
            let rule = format!("through {} is one of: {codes}", new.channel);
            return Err(invalid("currency_code", rule));
        }
        new.receiver.check(new.channel)?;
        let wallet = wallets::get(&self.0.pm, &new.wallet).await?;
        let wallet = wallet.filter(|wallet| wallet.broker == broker);
        let wallet = wallet.ok_or(PaymentError::NoSuchWallet)?;
        if wallet.currency != *code {
            let rule = format!("is in {}, and the payment in {code}", wallet.currency);
            return Err(invalid("wallet", rule));
        }
        if let Some(account) = new.book_account {
            let rule = || format!("is an open account in {code}");
            let state = match self.0.books.account(broker, account).await {
                Err(BooksError::NoSuchAccount) => {
                    return Err(invalid("book_account_id", rule()));
                }
                found => found?,
            };
            if !state.open || state.owner.currency != *code {
                return Err(invalid("book_account_id", rule()));
            }
        }
        let now = self.0.clock.now();
        let kind = new.channel.kind();
        let fee = self
            .0
            .rules
            .fees
            .get(&new.channel)
            .copied()
            .unwrap_or_default();
        let fee = fee.fee(new.amount.minor());
        if new
            .amount
            .minor()
            .checked_add(fee)
            .is_none_or(|sum| Amount::from_minor(sum).is_err())
        {
            return Err(invalid(
                "amount",
                "with the fee is more than an amount can be".to_owned(),
            ));
        }
        if kind == IntentKind::TopUp && fee >= new.amount.minor() {
            return Err(invalid("amount", "is no more than the fee".to_owned()));
        }
        Ok(Intent {
            id,
            kind,
            broker,
            user: wallet.user,
            wallet: wallet.name,
            currency: new.currency.code,
            ledger: new.currency.ledger,
            amount: new.amount.minor(),
            fee,
            channel: new.channel,
            receiver: new.receiver,
            book_account: new.book_account,
            status: match kind {
                IntentKind::Payout => IntentStatus::Created,
                IntentKind::TopUp => IntentStatus::Processing,
            },
            reason: None,
            created_by: intention.client.clone(),
            created_at: now,
            updated_at: now,
        })
    }

    async fn write(&self, intent: &Intent, intention: &Intention) -> Result<(), StoreError> {
        let now = intent.created_at;
        let mut tx = pm::begin(&self.0.pm).await?;
        idempotency::insert(&mut tx, intention, &intent.id.to_string(), None, now).await?;
        intents::insert(&mut tx, intent).await?;
        let event = NewIntentEvent {
            intent: intent.id,
            from: None,
            to: intent.status,
            reason: None,
            payload: json!({ "by": intent.created_by }),
        };
        events::insert(&mut tx, &event, now).await?;
        match intent.kind {
            IntentKind::Payout => {
                let event = self.0.entropy.uuid(now);
                outbox::insert(&mut tx, event, intent.id, OutboxAction::Hold, now).await?;
            }
            IntentKind::TopUp => queue::insert(&mut tx, intent.id, intent.channel, now).await?,
        }
        pm::commit(tx).await
    }
}

/// The same intention of the same client is the same intent.
fn intent_id(intention: &Intention) -> Uuid {
    let name = format!("{}\0{}", intention.client, intention.key);
    Uuid::new_v5(&INTENT_NS, name.as_bytes())
}

/// The account in a broker's book that an intent is booked on, by its owner.
pub(super) async fn booked_on(
    inner: &super::Inner,
    intent: &Intent,
) -> Result<Option<AccountRef>, PaymentError> {
    match intent.book_account {
        None => Ok(None),
        Some(account) => {
            let state = inner.books.account(intent.broker, account).await?;
            Ok(Some(state.owner))
        }
    }
}
