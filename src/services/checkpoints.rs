//! The log of chain heads and its checkpoints: whoever has an older checkpoint sees whether a
//! broker has rewritten its book, or the network its requests.
//!
//! A pass, once an interval and in one process at a time: heads that are newer than the log's are
//! read from each database by an index, appended to the log in the master, the log's new state is
//! signed, and the heads are marked as had.
//!
//! | it dies | what is there | who goes on |
//! |---|---|---|
//! | before the append commits | nothing | the next pass, anywhere |
//! | before the signing | leaves, in no checkpoint yet | the next pass signs them |
//! | once the state is written down in the payment manager's database | a state that nobody has seen signed | the next pass signs it, or a later one that begins with it |
//! | before the marks | heads that are read again | the next pass finds that the log has them, and marks them |
//!
//! What is signed is written down in the payment manager's database first and compared with the
//! master before: a master that was restored from an older backup signs no second history. It
//! raises [`FORKED`] instead, and only a person goes on from there ([`CheckpointService::begin_new`]).

mod appending;
mod reading;
mod renewal;
mod signing;
mod witnesses;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ed25519_dalek::SigningKey;
use sqlx::postgres::PgPool;

pub use appending::Passed;
pub use reading::{Included, Shown, Standing, Wanted};
pub use witnesses::Cosigned;

use super::auth::keys::{self, KeyError};
use crate::domain::ids::BrokerId;
use crate::domain::note::{Algorithm, NoteError, NoteKey};
use crate::domain::reason::NotAReason;
use crate::runtime::Clock;
use crate::stores::StoreError;
use crate::stores::pool::Pool;
use crate::stores::router::{DatabaseKey, Router};

pub use crate::stores::master::log::Log;
pub use crate::stores::master::log::witnesses::Witness;

/// The alert that the master's log is not the one that was signed.
pub const FORKED: &str = "log_forked";

/// The alert that a chain is another than the log says.
pub const CONTRADICTED: &str = "head_contradicts_log";

/// Most cosignatures of one checkpoint.
pub const COSIGNATURES_MAX: u32 = 80;

/// What the configuration says of the log.
#[derive(Clone, Debug)]
pub struct CheckpointRules {
    /// The log's name: the origin of the first one, and what later ones begin with.
    pub name: String,
    /// The folder of private keys; without it this process keeps no log.
    pub signing_keys: Option<PathBuf>,
    /// Between two passes.
    pub interval: Duration,
    /// Heads that are taken of one database in one pass, and appended in one transaction.
    pub batch: u32,
    /// Databases that are read at the same time.
    pub readers: usize,
    /// How long after its last audit a book is audited again that has grown.
    pub audit_growth: Duration,
}

/// What is wrong.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    #[error("there is no such {0}")]
    NoSuch(&'static str),
    /// What was asked of a proof can't be shown.
    #[error("{0}")]
    Range(String),
    #[error(transparent)]
    Note(#[from] NoteError),
    #[error("the signature is by no witness of this network")]
    UnknownWitness,
    #[error("the witness's signature does not verify")]
    WrongSignature,
    #[error("the checkpoint has {COSIGNATURES_MAX} cosignatures already")]
    Full,
    #[error("a witness of the name {name} is there already")]
    NameTaken { name: String },
    #[error(transparent)]
    Reason(#[from] NotAReason),
    #[error("this process has no keys of the log: checkpoints.signing_key_file names none")]
    NoKeys,
    #[error("nothing was ever signed, so no log needs to follow another")]
    NothingSigned,
    #[error("what was signed last is log {last}, so a new one does not follow log {after}")]
    NotTheLast { after: u32, last: u32 },
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The log. Cheap to clone.
#[derive(Clone)]
pub struct CheckpointService {
    master: Pool,
    router: Arc<Router>,
    pm: PgPool,
    clock: Clock,
    rules: Arc<CheckpointRules>,
    /// Where the next look at a database begins that had more heads than a batch.
    turns: Arc<Mutex<HashMap<DatabaseKey, BrokerId>>>,
}

impl CheckpointService {
    #[must_use]
    pub fn new(
        master: Pool,
        router: Arc<Router>,
        pm: PgPool,
        clock: Clock,
        rules: CheckpointRules,
    ) -> Self {
        Self {
            master,
            router,
            pm,
            clock,
            rules: Arc::new(rules),
            turns: Arc::default(),
        }
    }

    /// Whether this process keeps the log.
    #[must_use]
    pub fn keeps_log(&self) -> bool {
        self.rules.signing_keys.is_some()
    }

    /// After which book a look at a database begins.
    fn turn(&self, database: &DatabaseKey) -> BrokerId {
        let turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        turns.get(database).copied().unwrap_or_default()
    }

    /// The next look goes on after the last book of a full batch: heads that can't be logged, of
    /// books that are not at home, don't keep the others out for ever.
    fn end_turn(&self, database: &DatabaseKey, last: Option<BrokerId>) {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        match last {
            Some(last) => turns.insert(database.clone(), last),
            None => turns.remove(database),
        };
    }

    /// The private keys as their files are now: a key that is put beside another signs from the
    /// next checkpoint on, one that is taken away no longer.
    fn signers(&self) -> Result<Vec<SigningKey>, CheckpointError> {
        let folder = self.rules.signing_keys.as_ref();
        Ok(keys::read_files(folder.ok_or(CheckpointError::NoKeys)?)?)
    }
}

/// The public half of a key of ours, under the name of a log.
fn key_of(origin: &str, public: &[u8; 32]) -> Result<NoteKey, NoteError> {
    NoteKey::new(origin, Algorithm::Ed25519, public)
}
