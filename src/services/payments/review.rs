//! What waits for a person: everything that is known of it, and the person's verdict.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde_json::json;
use uuid::Uuid;

use super::outbox::STUCK;
use super::turns::REVIEW;
use super::{IntentHistory, PaymentError, PaymentService};
use crate::domain::money::CurrencyCode;
use crate::domain::payment::incoming::IncomingStatus;
use crate::domain::payment::outcome::PAID_ANOTHER_AMOUNT;
use crate::domain::payment::statement::Line;
use crate::domain::payment::{IntentKind, IntentStatus, OutboxAction, PspState};
use crate::domain::reason;
use crate::domain::words::words;
use crate::runtime::failpoint;
use crate::stores::master::{self, alerts};
use crate::stores::pm::calls::{self, PspCallRow};
use crate::stores::pm::events::{self, IntentEventRow, NewIntentEvent};
use crate::stores::pm::incoming::{self, Incoming};
use crate::stores::pm::intents::{self, Intent};
use crate::stores::pm::outbox::{self, Stuck};
use crate::stores::pm::queue::{self, PspTx};
use crate::stores::pm::{self, PmTx, statements};

words!(
    /// What somebody has found out at the provider.
    Verdict {
        /// It has paid.
        Confirmed = "CONFIRMED",
        /// It has not, and will not.
        Failed = "FAILED",
    }
);

/// The longest name of a provider for a payment.
const MAX_PAYMENT_ID: usize = 128;

/// What somebody says of a payment under review.
#[derive(Clone, Copy, Debug)]
pub struct Finding<'a> {
    pub verdict: Verdict,
    /// The provider's name for the payment that it has made or taken in, where it is known: by it
    /// a payment that comes back, or a callback, is known again.
    pub payment_id: Option<&'a str>,
    /// What was found out, and where.
    pub reason: &'a str,
    pub by: &'a str,
}

/// Everything that is known of a payment.
#[derive(Clone, Debug, PartialEq)]
pub struct Evidence {
    /// `None` where its row is missing: this database was restored to an older time.
    pub intent: Option<Intent>,
    pub psp: PspTx,
    pub events: Vec<IntentEventRow>,
    pub calls: Vec<PspCallRow>,
    /// What the provider has said came in for it, by itself.
    pub incoming: Vec<Incoming>,
    /// What the provider's statements say of it.
    pub lines: Vec<Line>,
}

impl PaymentService {
    /// What waits for a person, the oldest first; `after` is the last of the page before.
    ///
    /// # Errors
    /// The database's.
    pub async fn reviews(
        &self,
        after: Option<(DateTime<Utc>, Uuid)>,
        limit: u32,
    ) -> Result<Vec<(PspTx, Option<Intent>)>, PaymentError> {
        let rows = queue::reviews(&self.0.pm, after, limit).await?;
        let ids: Vec<Uuid> = rows.iter().map(|row| row.intent).collect();
        let intents = intents::many(&self.0.pm, &ids).await?;
        let intent_of = |id| intents.iter().find(|intent| intent.id == id).cloned();
        Ok(rows
            .into_iter()
            .map(|row| {
                let intent = intent_of(row.intent);
                (row, intent)
            })
            .collect())
    }

    /// All that is known of a payment, whoever's it is.
    ///
    /// # Errors
    /// [`PaymentError::NoSuchIntent`]; the database's.
    pub async fn evidence(&self, id: Uuid) -> Result<Evidence, PaymentError> {
        let pm = &self.0.pm;
        let intent = intents::get(pm, id).await?;
        let psp = queue::of(pm, id).await?.ok_or(PaymentError::NoSuchIntent)?;
        let events = events::of(pm, id).await?;
        let calls = calls::of(pm, id).await?;
        let mut tx = pm::begin(pm).await?;
        let payment = psp.facts.response_id.as_deref();
        let incoming = incoming::evidence(&mut tx, psp.psp, id, payment).await?;
        let lines = match uid_of(&psp) {
            Some(uid) => statements::of(pm, psp.psp, &[uid.to_owned()]).await?,
            None => BTreeMap::new(),
        };
        Ok(Evidence {
            intent,
            psp,
            events,
            calls,
            incoming,
            lines: lines.into_values().flatten().collect(),
        })
    }

    /// Ends a review by what somebody has found out. The money is posted or given back by that.
    /// The same verdict again changes nothing.
    ///
    /// # Errors
    /// [`PaymentError::State`] for what waits for nobody, had the other verdict, or whose intent is
    /// missing; a reason that is none; [`PaymentError::PaymentTaken`] for a payment that another
    /// intent has; a top-up of which anything says that another amount came in, which is never
    /// credited as if it had been the right one.
    pub async fn resolve(&self, id: Uuid, finding: &Finding<'_>) -> Result<Evidence, PaymentError> {
        let &Finding { verdict, by, .. } = finding;
        let because = reason::checked(finding.reason)?;
        let payment_id = payment_id(finding)?;
        let (state, action) = match verdict {
            Verdict::Confirmed => (PspState::Confirmed, OutboxAction::Post),
            Verdict::Failed => (PspState::Failed, OutboxAction::Void),
        };
        let now = self.0.clock.now();
        let mut tx = pm::begin(&self.0.pm).await?;
        let row = queue::lock(&mut tx, id).await?;
        let row = row.ok_or(PaymentError::NoSuchIntent)?;
        let Some(intent) = intents::lock(&mut tx, id).await? else {
            let why =
                "its row is missing here: bring this database to the time of the others first";
            let status = IntentStatus::ManualReview;
            return Err(PaymentError::State { status, why });
        };
        if row.state != PspState::ManualReview {
            drop(tx);
            if row.state == state {
                return self.evidence(id).await;
            }
            let (status, why) = (intent.status, "only what is under review is resolved");
            return Err(PaymentError::State { status, why });
        }
        if verdict == Verdict::Confirmed {
            may_be_confirmed(&mut tx, &row, &intent, payment_id).await?;
        }
        let resolved = queue::resolve(&mut tx, id, state, payment_id, now).await;
        match (resolved, payment_id) {
            (Ok(true), _) => {}
            (Ok(false), _) => return Err(PaymentError::BrokenOff),
            // Somebody has just said it of another intent.
            (Err(error), Some(named)) if error.is_duplicate() => {
                drop(tx);
                let mut tx = pm::begin(&self.0.pm).await?;
                let holder = queue::holder(&mut tx, row.psp, named, id).await?;
                let taken = holder.map(|intent| PaymentError::PaymentTaken { intent });
                return Err(taken.unwrap_or_else(|| error.into()));
            }
            (Err(error), _) => return Err(error.into()),
        }
        let line = NewIntentEvent {
            intent: id,
            from: Some(intent.status),
            to: intent.status,
            reason: Some(&because),
            payload: json!({ "review": { "verdict": verdict, "by": by, "payment_id": payment_id } }),
        };
        events::insert(&mut tx, &line, now).await?;
        let event = self.0.entropy.uuid(now);
        outbox::insert(&mut tx, event, id, action, now).await?;
        if verdict == Verdict::Confirmed {
            self.0.have_watched(&mut tx, &intent).await?;
        }
        pm::commit(tx).await?;
        let mut tx = master::begin(&self.0.master).await?;
        alerts::resolve(&mut tx, REVIEW, &id.to_string(), now).await?;
        master::commit(tx).await?;
        self.0.wake.up();
        self.evidence(id).await
    }

    /// What is stuck, the oldest first; `after` is the last of the page before.
    ///
    /// # Errors
    /// The database's.
    pub async fn stuck(
        &self,
        after: Option<(DateTime<Utc>, Uuid)>,
        limit: u32,
    ) -> Result<Vec<Stuck>, PaymentError> {
        Ok(outbox::stuck(&self.0.pm, after, limit).await?)
    }

    /// Has what is stuck of a payment tried again, once somebody has mended what was wrong.
    ///
    /// # Errors
    /// [`PaymentError::State`] where nothing is stuck; [`PaymentError::NoSuchIntent`].
    pub async fn retry(&self, id: Uuid, by: &str) -> Result<IntentHistory, PaymentError> {
        let now = self.0.clock.now();
        let intent = intents::get(&self.0.pm, id).await?;
        let intent = intent.ok_or(PaymentError::NoSuchIntent)?;
        let mut tx = pm::begin(&self.0.pm).await?;
        if outbox::retry(&mut tx, id, now).await? == 0 {
            return Err(PaymentError::State {
                status: intent.status,
                why: "nothing of it is stuck",
            });
        }
        let line = NewIntentEvent {
            intent: id,
            from: Some(intent.status),
            to: intent.status,
            reason: Some("tried again"),
            payload: json!({ "retry": { "by": by } }),
        };
        events::insert(&mut tx, &line, now).await?;
        // Before anybody can find it stuck again; where the commit fails it is told of again.
        let mut told = master::begin(&self.0.master).await?;
        alerts::resolve(&mut told, STUCK, &id.to_string(), now).await?;
        master::commit(told).await?;
        failpoint::at("payment.retried.before");
        pm::commit(tx).await?;
        self.0.actions.reset();
        self.0.wake.up();
        self.get(intent.broker, id).await
    }
}

/// What a statement calls a payment: a payout by the confirmation's uid, a top-up by the code's.
fn uid_of(row: &PspTx) -> Option<&str> {
    match row.psp.kind() {
        IntentKind::Payout => row.confirm_rq_uid.as_deref(),
        IntentKind::TopUp => row.query_rq_uid.as_deref(),
    }
}

/// Refuses what would be paid or credited by the payment of another, and a top-up that came in with
/// another amount.
async fn may_be_confirmed(
    tx: &mut PmTx,
    row: &PspTx,
    intent: &Intent,
    named: Option<&str>,
) -> Result<(), PaymentError> {
    let uid = uid_of(row);
    let incoming = incoming::evidence(tx, row.psp, row.intent, named).await?;
    let mut lines = match uid {
        Some(uid) => statements::under(tx, row.psp, uid).await?,
        None => Vec::new(),
    };
    if let Some(named) = named {
        if let Some(intent) = queue::holder(tx, row.psp, named, row.intent).await? {
            return Err(PaymentError::PaymentTaken { intent });
        }
        let of_it = incoming.iter().find(|one| one.payment_id == named);
        if of_it.is_some_and(|one| one.intent != Some(row.intent)) {
            return Err(not_its("came in for another, or for nobody"));
        }
        let by_name = statements::named(tx, row.psp, named).await?;
        if by_name.iter().any(|line| Some(line.uid.as_str()) != uid) {
            return Err(not_its("is another payment's in the provider's statement"));
        }
        if of_it.is_some_and(|one| one.status != IncomingStatus::Waiting) {
            return Err(not_its("has been given to somebody, or put aside, already"));
        }
        lines.extend(by_name);
    }
    if intent.kind != IntentKind::TopUp {
        return Ok(());
    }
    let came_in = incoming
        .iter()
        .map(|one| (one.payment_id.as_str(), one.amount, &one.currency));
    let listed = lines
        .iter()
        .map(|line| (line.response_id.as_str(), line.amount, &line.currency));
    let all = came_in.chain(listed).collect::<Vec<_>>();
    let right = |&(_, amount, currency): &(&str, u64, &CurrencyCode)| {
        amount == intent.amount && *currency == intent.currency
    };
    // What is known of the payment that is named counts for it; what else came in goes elsewhere.
    let of_named: Vec<_> = all.iter().filter(|(id, ..)| Some(*id) == named).collect();
    let is_right = if of_named.is_empty() {
        let told = row.last_error.as_deref() != Some(PAID_ANOTHER_AMOUNT);
        told && all.iter().all(right)
    } else {
        of_named.into_iter().all(right)
    };
    if is_right {
        return Ok(());
    }
    let rule = "is FAILED for a top-up that was paid with another amount: what came in goes \
                to system.suspense by its callback, and from there to a wallet";
    Err(PaymentError::Invalid {
        field: "verdict",
        rule: rule.to_owned(),
    })
}

fn not_its(rule: &str) -> PaymentError {
    PaymentError::Invalid {
        field: "payment_id",
        rule: rule.to_owned(),
    }
}

/// A provider's name for a payment, where it can be one: it stands in paths.
fn payment_id<'a>(finding: &Finding<'a>) -> Result<Option<&'a str>, PaymentError> {
    let Some(id) = finding.payment_id else {
        return Ok(None);
    };
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    let is_name = (1..=MAX_PAYMENT_ID).contains(&id.len()) && id.bytes().all(plain);
    if is_name && finding.verdict == Verdict::Confirmed {
        return Ok(Some(id));
    }
    let rule =
        format!("goes with CONFIRMED, and is 1 to {MAX_PAYMENT_ID} of letters, digits and '-'");
    let field = "payment_id";
    Err(PaymentError::Invalid { field, rule })
}
