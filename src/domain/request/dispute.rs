//! Disputes: what was sent, or has completed a short while ago, stands still until an arbiter has
//! decided. All of it is events in the request's chain.
//!
//! ```text
//! opened ──assigned──▶ heard ──decided──▶ (appeal window) ──▶ enforced: completed, cancelled, corrected
//!    │                   ▲                     │ appeal, once: heard by another arbiter
//!    │                   └─────────────────────┘
//!    │ the other side is silent past `respond_by`: decided against it by default
//!    └ withdrawn by whoever opened it: as it was before
//! ```
//!
//! | it stops | what is there | who goes on |
//! |---|---|---|
//! | opened, heard | nothing has moved | an arbiter; past `respond_by` a worker, by default |
//! | decided | nothing has moved | either side appeals; past `final_at` a worker enforces |
//! | being enforced | a saga | a worker; refused by a book, it is decided and an admin is told |
//!
//! What had completed is never undone: a correction books new entries, from the amount that was
//! booked to the amount that the arbiter found.

use std::collections::BTreeMap;

use chrono::{DateTime, Duration, Utc};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::change::{apply, event, invalid, minor};
use super::{Decision, Refusal, Request, RequestStatus};
use crate::domain::canonical::{self, Hash};
use crate::domain::ids::BrokerId;
use crate::domain::moment::Moment;
use crate::domain::money::{Amount, Currency};
use crate::domain::plan;
use crate::domain::proof::{self, Proof};
use crate::domain::request_event::EventKind;
use crate::domain::words::words;

words!(
    /// How an arbiter decides.
    Verdict {
        /// As it was agreed: it completes, or stays completed.
        Complete = "complete",
        /// Nothing of it counts.
        Cancel = "cancel",
        /// Less than was agreed counts.
        Adjust = "adjust",
    }
);

/// Statements that one side may make in a dispute.
pub const MAX_STATEMENTS: u32 = 50;
/// Times that an arbiter may ask for evidence.
pub const MAX_QUESTIONS: u32 = 20;

words!(
    /// How far a dispute is.
    CaseStatus {
        Open = "open",
        /// An arbiter has it.
        Heard = "heard",
        Decided = "decided",
        Over = "over",
    }
);

/// What was decided and is not enforced yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ruling {
    pub verdict: Verdict,
    /// What counts of an adjusted one.
    pub amount: Option<Amount>,
    /// From when on nobody may appeal.
    pub final_at: DateTime<Utc>,
}

/// A dispute as its events tell it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    pub opened_by: BrokerId,
    /// Who has to answer next, and until when.
    pub due: Option<(BrokerId, DateTime<Utc>)>,
    /// The subject of the arbiter who hears it.
    pub arbiter: Option<String>,
    /// Arbiters who may not hear it again.
    pub heard_by: Vec<String>,
    pub statements: BTreeMap<BrokerId, u32>,
    pub questions: u32,
    pub ruling: Option<Ruling>,
    pub appealed: bool,
}

impl Case {
    #[must_use]
    pub const fn status(&self) -> CaseStatus {
        match (&self.ruling, &self.arbiter) {
            (Some(_), _) => CaseStatus::Decided,
            (None, Some(_)) => CaseStatus::Heard,
            (None, None) => CaseStatus::Open,
        }
    }

    /// When silence decides it, or its decision is final.
    #[must_use]
    pub fn due_at(&self) -> Option<DateTime<Utc>> {
        match (&self.ruling, self.due) {
            (Some(ruling), _) => Some(ruling.final_at),
            (None, due) => due.map(|(_, respond_by)| respond_by),
        }
    }

    /// Follows the events of a dispute, each by its kind, whose act it is and its facts; `None` before
    /// there is one and once it is over.
    pub(super) fn follow(
        case: Option<Self>,
        kind: EventKind,
        by: Option<BrokerId>,
        facts: &Map<String, Value>,
    ) -> Option<Self> {
        let text = |name: &str| facts.get(name).and_then(Value::as_str);
        let time =
            |name: &str| text(name).and_then(|text| Moment::parse(text).ok().map(Moment::at));
        if kind == EventKind::Disputed {
            let opened_by = by?;
            let against = text("against").and_then(|id| id.parse().ok());
            return Some(Self {
                opened_by,
                due: against.zip(time("respond_by")),
                arbiter: None,
                heard_by: Vec::new(),
                statements: BTreeMap::new(),
                questions: 0,
                ruling: None,
                appealed: false,
            });
        }
        let mut case = case?;
        match kind {
            EventKind::DisputeAssigned => case.arbiter = text("arbiter").map(str::to_owned),
            EventKind::DisputeStatement => {
                if let Some(by) = by {
                    *case.statements.entry(by).or_default() += 1;
                    case.due = case.due.filter(|(who, _)| *who != by);
                }
            }
            EventKind::EvidenceAsked => {
                case.questions += 1;
                let of = text("of").and_then(|id| id.parse().ok());
                case.due = of.zip(time("respond_by"));
            }
            EventKind::Decided => {
                let amount = text("amount").and_then(|minor| minor.parse().ok());
                case.due = None;
                case.ruling = Some(Ruling {
                    verdict: text("verdict").and_then(Verdict::parse)?,
                    amount: amount.and_then(|minor| Amount::from_minor(minor).ok()),
                    final_at: time("final_at")?,
                });
            }
            EventKind::Appealed => {
                case.heard_by.extend(case.arbiter.take());
                case.ruling = None;
                case.appealed = true;
            }
            EventKind::DisputeWithdrawn
            | EventKind::DisputeDismissed
            | EventKind::Completed
            | EventKind::Corrected
            | EventKind::Cancelled => return None,
            // Enforced: its saga runs; refused: decided still.
            _ => {}
        }
        Some(case)
    }
}

/// What one side, or the arbiter, says in a dispute.
#[derive(Clone, Debug)]
pub struct Statement<'a> {
    pub text: &'a str,
    pub proofs: &'a [Proof],
}

impl Statement<'_> {
    /// The digests of its files, for the chain, and all of it for beside the chain.
    fn parts(&self) -> Result<(Value, Value), Refusal> {
        if !self.proofs.is_empty() {
            proof::check(self.proofs)
                .map_err(|error| invalid(error.field(), &error.to_string()))?;
        }
        let files: Vec<Hash> = self
            .proofs
            .iter()
            .filter_map(|proof| proof.sha256)
            .collect();
        Ok((
            json!(files),
            json!({ "text": self.text, "proof": self.proofs }),
        ))
    }
}

/// How long things may take, as the operator has set it.
#[derive(Clone, Copy, Debug)]
pub struct DisputeRules {
    /// What has completed may be disputed for so long.
    pub window: Duration,
    /// How long the other side has to answer.
    pub respond_within: Duration,
    /// How long a decision may be appealed.
    pub appeal_within: Duration,
}

impl Request {
    /// Either side takes what was sent, or has completed not long ago, to an arbiter: everything
    /// stands still until then.
    ///
    /// # Errors
    /// See [`Refusal`]; what has completed too long ago, or was decided before, stays as it is.
    pub fn dispute(
        &self,
        by: BrokerId,
        statement: &Statement<'_>,
        rules: &DisputeRules,
        now: DateTime<Utc>,
    ) -> Result<Decision, Refusal> {
        let party = self.party(by).ok_or(Refusal::NotFound)?;
        match self.status {
            RequestStatus::Disputed if self.past.ended_so(by, Some(statement.text)) => {
                return Ok(Decision::Already);
            }
            RequestStatus::Sent => self.no_saga()?,
            RequestStatus::Completed => {
                self.no_saga()?;
                let late = self.closed_at.is_none_or(|at| at + rules.window <= now);
                if late || self.past.decided {
                    return Err(self.wrong_status());
                }
            }
            RequestStatus::Pending
            | RequestStatus::Accepting
            | RequestStatus::Accepted
            | RequestStatus::Rejected
            | RequestStatus::Cancelled
            | RequestStatus::Expired
            | RequestStatus::Disputed => return Err(self.wrong_status()),
        }
        let against = self.broker_of(party.other()).ok_or(Refusal::NotFound)?;
        let (files, beside) = statement.parts()?;
        let respond_by = now + rules.respond_within;
        let mut request = self.changed(now);
        request.status = RequestStatus::Disputed;
        request.closed_at = None;
        request.past.end(Some(by), Some(statement.text.to_owned()));
        let mut event = event(
            EventKind::Disputed,
            Some(by),
            &[
                ("against", json!(against.to_string())),
                ("respond_by", json!(canonical::time(respond_by))),
                ("files_sha256", files),
            ],
        );
        event.private = Some(json!({ "claim": beside["text"], "proof": beside["proof"] }));
        Ok(apply(request, event, None))
    }

    /// Whoever opened a dispute takes it back before it is decided: all is as it was before.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub fn withdraw_dispute(&self, by: BrokerId, now: DateTime<Utc>) -> Result<Decision, Refusal> {
        self.party(by).ok_or(Refusal::NotFound)?;
        let case = self.case()?;
        if case.opened_by != by {
            return Err(Refusal::NotYourMove {
                whose: "side that opened the dispute",
                what: "withdraw it",
            });
        }
        self.undecided()?;
        let mut request = self.changed(now);
        if self.booked_saga_id.is_some() {
            request.status = RequestStatus::Completed;
            request.closed_at = Some(now);
        } else {
            request.status = RequestStatus::Sent;
        }
        Ok(apply(
            request,
            event(EventKind::DisputeWithdrawn, Some(by), &[]),
            None,
        ))
    }

    /// An arbiter takes a dispute. The caller has seen to it that it belongs to neither side; and
    /// whether the one who hears it now has left it behind, from whom it is taken over.
    ///
    /// # Errors
    /// See [`Refusal`]; of an appeal, another arbiter is needed.
    pub fn assign_dispute(
        &self,
        arbiter: &str,
        left_behind: Option<&str>,
        now: DateTime<Utc>,
    ) -> Result<Decision, Refusal> {
        let case = self.case()?;
        match case.arbiter.as_deref() {
            Some(current) if current == arbiter => return Ok(Decision::Already),
            Some(current) if Some(current) == left_behind => self.undecided()?,
            Some(_) => return Err(not_the_arbiters()),
            None => {}
        }
        if case.heard_by.iter().any(|before| before == arbiter) {
            return Err(Refusal::NotYourMove {
                whose: "arbiter who has not decided it before",
                what: "hear an appeal",
            });
        }
        self.no_saga()?;
        let facts = [("arbiter", json!(arbiter))];
        let event = event(EventKind::DisputeAssigned, None, &facts);
        Ok(apply(self.changed(now), event, None))
    }

    /// One side says something, with or without proof; that is its answer, where it owes one.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub fn state(
        &self,
        by: BrokerId,
        statement: &Statement<'_>,
        now: DateTime<Utc>,
    ) -> Result<Decision, Refusal> {
        self.party(by).ok_or(Refusal::NotFound)?;
        let case = self.case()?;
        self.undecided()?;
        if case.statements.get(&by) >= Some(&MAX_STATEMENTS) {
            return Err(Refusal::TooOften {
                what: "one side makes statements in a dispute",
                most: MAX_STATEMENTS,
            });
        }
        let (files, beside) = statement.parts()?;
        let mut event = event(
            EventKind::DisputeStatement,
            Some(by),
            &[("files_sha256", files)],
        );
        event.private = Some(beside);
        Ok(apply(self.changed(now), event, None))
    }

    /// The arbiter asks one side for evidence, to be answered within `within`.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub fn ask(
        &self,
        arbiter: &str,
        of: BrokerId,
        text: &str,
        within: Duration,
        now: DateTime<Utc>,
    ) -> Result<Decision, Refusal> {
        let case = self.heard_by(arbiter)?;
        self.undecided()?;
        if self.party(of).is_none() {
            return Err(invalid("broker_id", "is a side of the dispute"));
        }
        if case.questions >= MAX_QUESTIONS {
            return Err(Refusal::TooOften {
                what: "an arbiter asks for evidence",
                most: MAX_QUESTIONS,
            });
        }
        let facts = [
            ("of", json!(of.to_string())),
            ("respond_by", json!(canonical::time(now + within))),
        ];
        let mut event = event(EventKind::EvidenceAsked, None, &facts);
        event.private = Some(json!({ "text": text }));
        Ok(apply(self.changed(now), event, None))
    }

    /// The arbiter decides. Nothing moves until the decision is final.
    ///
    /// # Errors
    /// See [`Refusal`]; an adjusted amount is smaller than what was agreed, and more than nothing.
    pub fn decide(
        &self,
        arbiter: &str,
        verdict: Verdict,
        amount: Option<Amount>,
        reason: &str,
        rules: &DisputeRules,
        now: DateTime<Utc>,
    ) -> Result<Decision, Refusal> {
        self.heard_by(arbiter)?;
        self.undecided()?;
        match (verdict, amount) {
            (Verdict::Adjust, Some(amount)) if amount < self.agreed() => {
                self.terms
                    .check(amount)
                    .map_err(|error| invalid("amount", &format!("leaves no room: {error}")))?;
            }
            (Verdict::Adjust, _) => {
                return Err(invalid(
                    "amount",
                    "is less than what was agreed, of an adjustment",
                ));
            }
            (Verdict::Complete | Verdict::Cancel, None) => {}
            (Verdict::Complete | Verdict::Cancel, Some(_)) => {
                return Err(invalid("amount", "has a place only in an adjustment"));
            }
        }
        Ok(self.ruled(verdict, amount, Some(reason), rules, now))
    }

    /// A side that owed an answer has been silent past its time: decided against it. A sender loses
    /// what it says it has sent, a receiver what it says has not come.
    ///
    /// # Errors
    /// See [`Refusal`]; nobody is late.
    pub fn decide_by_default(
        &self,
        rules: &DisputeRules,
        now: DateTime<Utc>,
    ) -> Result<Decision, Refusal> {
        let case = self.case()?;
        self.undecided()?;
        let late = case.due.filter(|(_, respond_by)| *respond_by <= now);
        let (silent, _) = late.ok_or_else(|| self.wrong_status())?;
        let verdict = if self.party(silent) == Some(self.sender()) {
            Verdict::Cancel
        } else {
            Verdict::Complete
        };
        Ok(self.ruled(verdict, None, None, rules, now))
    }

    fn ruled(
        &self,
        verdict: Verdict,
        amount: Option<Amount>,
        reason: Option<&str>,
        rules: &DisputeRules,
        now: DateTime<Utc>,
    ) -> Decision {
        let appealed = self.past.case.as_ref().is_some_and(|case| case.appealed);
        // Of an appeal there is none.
        let window = if appealed {
            Duration::zero()
        } else {
            rules.appeal_within
        };
        let mut event = event(
            EventKind::Decided,
            None,
            &[
                ("verdict", json!(verdict)),
                (
                    "amount",
                    json!(amount.map(|amount| amount.minor().to_string())),
                ),
                ("by_default", json!(reason.is_none())),
                ("final_at", json!(canonical::time(now + window))),
            ],
        );
        event.private = reason.map(|reason| json!({ "reason": reason }));
        apply(self.changed(now), event, None)
    }

    /// Either side appeals, once, while the decision is not final: another arbiter hears it.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub fn appeal(
        &self,
        by: BrokerId,
        statement: &Statement<'_>,
        now: DateTime<Utc>,
    ) -> Result<Decision, Refusal> {
        self.party(by).ok_or(Refusal::NotFound)?;
        let case = self.case()?;
        self.no_saga()?;
        let open = case.ruling.is_some_and(|ruling| now < ruling.final_at);
        if case.appealed || !open {
            return Err(self.wrong_status());
        }
        let (files, beside) = statement.parts()?;
        let mut event = event(EventKind::Appealed, Some(by), &[("files_sha256", files)]);
        event.private = Some(beside);
        Ok(apply(self.changed(now), event, None))
    }

    /// The decision is final: what it says is done, by a saga where money moves.
    ///
    /// # Errors
    /// See [`Refusal`]; it is not final yet.
    pub fn enforce(
        &self,
        saga_id: Uuid,
        currency: &Currency,
        now: DateTime<Utc>,
    ) -> Result<Decision, Refusal> {
        let case = self.case()?;
        self.no_saga()?;
        let ruling = case.ruling.filter(|ruling| ruling.final_at <= now);
        let ruling = ruling.ok_or_else(|| self.wrong_status())?;
        let booked = self.booked_saga_id.is_some();
        let counts = match ruling.verdict {
            Verdict::Complete => self.agreed().minor(),
            Verdict::Adjust => ruling.amount.map_or(0, Amount::minor),
            Verdict::Cancel => 0,
        };
        if !booked && counts == 0 {
            return Ok(self.close(
                RequestStatus::Cancelled,
                EventKind::Cancelled,
                None,
                saga_id,
                now,
            ));
        }
        let mut request = self.changed(now);
        if booked && counts == self.agreed().minor() {
            request.status = RequestStatus::Completed;
            request.closed_at = Some(now);
            return Ok(apply(
                request,
                event(EventKind::DisputeDismissed, None, &[]),
                None,
            ));
        }
        let plan = if booked {
            plan::correct(self, saga_id, counts, currency)
        } else {
            let received = Amount::from_minor(counts).map_err(|_| self.wrong_status())?;
            request.received_amount = (received != self.amount).then_some(received);
            plan::confirm(&request, saga_id, received, currency)
        };
        let plan = plan.ok_or_else(|| self.wrong_status())?;
        request.saga_id = Some(saga_id);
        let facts = [
            ("saga", json!(saga_id.to_string())),
            ("received_amount", minor(counts)),
        ];
        let event = event(EventKind::Enforced, None, &facts);
        Ok(apply(request, event, Some(plan)))
    }

    /// What was agreed, or booked.
    fn agreed(&self) -> Amount {
        match self.booked_saga_id {
            Some(_) => self.settled_amount(),
            None => self.amount,
        }
    }

    fn case(&self) -> Result<&Case, Refusal> {
        match &self.past.case {
            Some(case) if self.status == RequestStatus::Disputed => Ok(case),
            _ => Err(self.wrong_status()),
        }
    }

    fn heard_by(&self, arbiter: &str) -> Result<&Case, Refusal> {
        let case = self.case()?;
        if case.arbiter.as_deref() != Some(arbiter) {
            return Err(not_the_arbiters());
        }
        Ok(case)
    }

    fn undecided(&self) -> Result<(), Refusal> {
        self.no_saga()?;
        match self.case()?.ruling {
            None => Ok(()),
            Some(_) => Err(Refusal::Decided),
        }
    }
}

fn not_the_arbiters() -> Refusal {
    Refusal::NotYourMove {
        whose: "arbiter who hears the dispute",
        what: "do this",
    }
}
