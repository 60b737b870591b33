//! Evidence bundles: what all systems have of one request or order, put together as it is now, for
//! whoever verifies it elsewhere. Nothing is judged here; what was tampered with goes in as it is, and
//! the verifier names it.
//!
//! A bundle is made of what the last checkpoint has. What is newer is there after the next one, within
//! `checkpoints.interval_s`: until then it is refused, as [`BundleError::NotLogged`].

use std::collections::BTreeMap;
use std::sync::Arc;

use uuid::Uuid;

use super::checkpoints::{CheckpointError, CheckpointService, Included, Wanted};
use crate::domain::bundle::{
    Bundle, BundledBook, BundledEvent, BundledObligation, BundledTransfer, FORMAT, Logged, Segment,
    VERSION,
};
use crate::domain::canonical::{self, Hash};
use crate::domain::chain::{ExportedEntry, Head};
use crate::domain::checkpoint::LeafKind;
use crate::domain::ids::{BrokerId, RequestId};
use crate::domain::ledger::{
    AccountName, HOLD_INDEX, LedgerAccountId, SETTLE_INDEX, account_id, transfer_id,
};
use crate::domain::money::CurrencyCode;
use crate::domain::request::Request;
use crate::domain::request_event::{Event, EventKind, named_entries};
use crate::runtime::Clock;
use crate::stores::StoreError;
use crate::stores::book;
use crate::stores::ledger::{Ledger, LedgerError, TransferKind, TransferRecord};
use crate::stores::master::{obligations, requests};
use crate::stores::pool::Pool;
use crate::stores::router::Router;

/// Why there is no bundle.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// For whoever asks there is no such request.
    #[error("no such request")]
    NotFound,
    /// Its last event is newer than the last checkpoint.
    #[error("the last checkpoint does not have its last event yet")]
    NotLogged,
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

/// Whom a bundle is made for: it has what they may see.
#[derive(Clone, Copy, Debug)]
pub enum Viewer {
    /// A side of the request.
    Party(BrokerId),
    /// Who hears a dispute of it, which the caller has seen to.
    Arbiter,
}

/// Makes bundles. Cheap to clone.
#[derive(Clone)]
pub struct BundleService {
    master: Pool,
    router: Arc<Router>,
    ledger: Ledger,
    checkpoints: CheckpointService,
    clock: Clock,
}

/// Where in the log leaves are looked for.
#[derive(Clone, Copy)]
struct At {
    log: u32,
    size: u64,
}

impl BundleService {
    #[must_use]
    pub const fn new(
        master: Pool,
        router: Arc<Router>,
        ledger: Ledger,
        checkpoints: CheckpointService,
        clock: Clock,
    ) -> Self {
        Self {
            master,
            router,
            ledger,
            checkpoints,
            clock,
        }
    }

    /// The bundle of a request or an order.
    ///
    /// # Errors
    /// See [`BundleError`].
    pub async fn bundle(&self, id: RequestId, viewer: Viewer) -> Result<Bundle, BundleError> {
        let request = requests::get(&self.master, id).await?;
        let request = request.ok_or(BundleError::NotFound)?;
        if let Viewer::Party(broker) = viewer
            && request.party(broker).is_none()
        {
            return Err(BundleError::NotFound);
        }
        let checkpoint = match self.checkpoints.checkpoint(None, None).await {
            Err(CheckpointError::NoSuch(_)) => return Err(BundleError::NotLogged),
            other => other?,
        };
        let at = At {
            log: checkpoint.signed.log,
            size: checkpoint.signed.size,
        };
        let events = requests::events(&self.master, id).await?;
        let head = events.last().map(|(event, hash)| Head {
            seq: event.seq.into(),
            hash: *hash,
        });
        let head = head.ok_or(BundleError::NotFound)?;
        let wanted = Wanted::At(LeafKind::Request, id.to_string(), head.seq);
        let logged = self.included(at, &wanted).await?;
        let books = self.books(&request, &events, viewer, at).await?;
        let sagas = bookings(&events);
        let obligations = obligations::of_sagas(&self.master, &sagas).await?;
        let in_order = |saga: &Uuid| sagas.iter().position(|one| one == saga);
        let mut obligations: Vec<_> = obligations
            .into_iter()
            .filter(|one| sagas.contains(&one.saga_id))
            .collect();
        obligations.sort_by_key(|one| in_order(&one.saga_id));
        let obligations = obligations.into_iter().map(|one| BundledObligation {
            amount: one.amount.to_string(),
            creditor: one.creditor.to_string(),
            currency: one.currency,
            debtor: one.debtor.to_string(),
            id: one.id.to_string(),
            saga: one.saga_id.to_string(),
        });
        let seen_by = match viewer {
            Viewer::Party(broker) => broker,
            // What a book has told only its owner is no arbiter's matter either.
            Viewer::Arbiter => 0,
        };
        let bundle = Bundle {
            books,
            checkpoint: checkpoint.note,
            events: events
                .iter()
                .map(|(event, hash)| BundledEvent {
                    event: event.canonical(),
                    hash: *hash,
                    private: event.private_for(seen_by).cloned(),
                })
                .collect(),
            format: FORMAT.to_owned(),
            logged: of_log(&logged),
            made_at: canonical::time(self.clock.now()),
            obligations: obligations.collect(),
            sha256: Hash([0; 32]),
            subject: id.to_string(),
            transfers: self.transfers(&request, &sagas).await?,
            v: VERSION,
        };
        Ok(bundle.sealed())
    }

    async fn included(&self, at: At, wanted: &Wanted) -> Result<Included, BundleError> {
        let found = self
            .checkpoints
            .inclusion(Some(at.log), Some(at.size), wanted);
        match found.await {
            Err(CheckpointError::NoSuch(_)) => Err(BundleError::NotLogged),
            other => Ok(other?),
        }
    }

    /// What the books have at the places that the events name; of a place that is empty nothing.
    async fn books(
        &self,
        request: &Request,
        events: &[(Event, Hash)],
        viewer: Viewer,
        at: At,
    ) -> Result<Vec<BundledBook>, BundleError> {
        let mut wanted: BTreeMap<BrokerId, Vec<u64>> = BTreeMap::new();
        for (event, _) in events.iter().filter(|(event, _)| is_booking(event.kind)) {
            for (broker, entry) in named_entries(&event.payload).into_iter().flatten() {
                wanted.entry(broker).or_default().push(entry.seq);
            }
        }
        wanted.retain(|broker, _| request.party(*broker).is_some());
        let mut books = Vec::new();
        for (broker, mut seqs) in wanted {
            seqs.sort_unstable();
            let scope = self.router.book(broker).await?;
            let mut read = scope.read().await?;
            let mut segments = Vec::new();
            for seq in seqs {
                let found = book::entries_after(&mut read, seq.saturating_sub(1), 1).await?;
                let Some(stored) = found.into_iter().next() else {
                    continue;
                };
                let shown = stored.exported();
                let own = matches!(viewer, Viewer::Party(party) if party == broker);
                let wanted = Wanted::At(LeafKind::Entry, broker.to_string(), seq);
                segments.push(Segment {
                    entries: vec![ExportedEntry {
                        private: shown.private.filter(|_| own),
                        ..shown
                    }],
                    logged: of_log(&self.included(at, &wanted).await?),
                });
            }
            read.end().await?;
            let broker = broker.to_string();
            books.push(BundledBook { broker, segments });
        }
        Ok(books)
    }

    /// What the ledger has of each booking: the hold and its post.
    async fn transfers(
        &self,
        request: &Request,
        sagas: &[Uuid],
    ) -> Result<Vec<BundledTransfer>, BundleError> {
        let mut transfers = Vec::new();
        for saga in sagas {
            let ids = [HOLD_INDEX, SETTLE_INDEX].map(|index| transfer_id(*saga, index));
            let found = self.ledger.transfers(&ids).await?;
            let [Some(hold), Some(post)] = found.as_slice() else {
                continue;
            };
            if post.kind != TransferKind::Post(hold.id) {
                continue;
            }
            transfers.push(of_ledger(request, *saga, hold, post));
        }
        Ok(transfers)
    }
}

const fn is_booking(kind: EventKind) -> bool {
    matches!(kind, EventKind::Completed | EventKind::Corrected)
}

/// The sagas that have booked, in the order of their events.
fn bookings(events: &[(Event, Hash)]) -> Vec<Uuid> {
    let booking = events.iter().filter(|(event, _)| is_booking(event.kind));
    let saga = booking.filter_map(|(event, _)| event.payload.get("saga")?.as_str()?.parse().ok());
    saga.collect()
}

fn of_log(included: &Included) -> Logged {
    Logged {
        index: included.index.to_string(),
        leaf: included.leaf.canonical(),
        proof: included.proof.clone(),
    }
}

fn of_ledger(
    request: &Request,
    saga: Uuid,
    hold: &TransferRecord,
    post: &TransferRecord,
) -> BundledTransfer {
    BundledTransfer {
        amount: post.amount.to_string(),
        credit: name_of(request, hold.credit),
        debit: name_of(request, hold.debit),
        hold: hold.id.get().to_string(),
        post: post.id.get().to_string(),
        saga: saga.to_string(),
    }
}

/// The ledger has only ids: the position of a side, or the bare number of an account that is none.
fn name_of(request: &Request, id: LedgerAccountId) -> String {
    let currency: &CurrencyCode = &request.currency;
    let sides = std::iter::once(request.author).chain(request.target);
    let mut names = sides.map(|broker| AccountName::position(broker, currency));
    let name = names.find(|name| account_id(name) == id);
    name.map_or_else(|| id.get().to_string(), |name| name.to_string())
}
