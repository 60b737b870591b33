/// What can go wrong between us and a database.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database can't be reached now; whether a commit under way took effect is unknown.
    #[error("{database} is not available: {source}")]
    Unavailable {
        database: String,
        #[source]
        source: sqlx::Error,
    },
    /// A deadlock or a lock wait that ran out: nothing was done, and a retry may do it.
    #[error("{database} is busy: {source}")]
    Busy {
        database: String,
        #[source]
        source: sqlx::Error,
    },
    /// The book's fence says that the broker's data is moving or has moved: ask the router again.
    #[error("the book of broker {broker} is moving")]
    Moving { broker: u64 },
    #[error("broker {broker} has no book")]
    NoBook { broker: u64 },
    /// The database is not at this release's schema yet: it is not used until it is.
    #[error("{database} lacks migration {missing}: run settlenet migrate")]
    Outdated { database: String, missing: String },
    /// The configuration lacks a server that the registry names.
    #[error("server {server} of the registry is not in the configuration (servers.{server}.url)")]
    UnknownServer { server: String },
    /// A row holds what this program can't have written.
    #[error("{table}: {what}")]
    Corrupt { table: &'static str, what: String },
    #[error("{database}: {source}")]
    Database {
        database: String,
        #[source]
        source: sqlx::Error,
    },
}

/// MySQL's error numbers for a deadlock and for a lock wait that ran out.
const DEADLOCK: u16 = 1213;
const LOCK_WAIT: u16 = 1205;

/// A statement that the server itself cut short: `MariaDB`'s number and `MySQL`'s.
const STATEMENT_TIME: u16 = 1969;
const STATEMENT_TIME_OF_MYSQL: u16 = 3024;
/// A serialisation failure, a deadlock, a lock that was not had, a statement's time.
const BUSY_OF_POSTGRES: [&str; 4] = ["40001", "40P01", "55P03", "57014"];
/// Connection exceptions, too many connections, shutting down or starting up, a transaction that
/// stood still for too long, and a server that takes no writes.
const AWAY_OF_POSTGRES: [&str; 5] = ["08", "53", "57P", "25P03", "25006"];

/// No such database, and no such table.
const ABSENT: [u16; 2] = [1049, 1146];
/// Answers of a server that does no work now: it is shutting down or was told to end the
/// connection (1053, 1077, 1317, 1927, 4031), takes no more connections (1040, 1129, 1203, 1226),
/// or was made read-only, as before a failover (1290, 1836).
const AWAY: [u16; 11] = [
    1040, 1053, 1077, 1129, 1203, 1226, 1290, 1317, 1836, 1927, 4031,
];
/// Those of [`AWAY`] after which a new connection may lead to another server.
const READ_ONLY: [u16; 2] = [1290, 1836];

/// Whether a server answered that it takes no writes: its connections lead to the wrong one.
pub(super) fn is_read_only(error: &sqlx::Error) -> bool {
    number_of(error).is_some_and(|number| READ_ONLY.contains(&number))
}

fn number_of(error: &sqlx::Error) -> Option<u16> {
    let error = error.as_database_error()?;
    let error = error.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>()?;
    Some(error.number())
}

impl StoreError {
    #[must_use]
    pub fn from_sqlx(database: &str, source: sqlx::Error) -> Self {
        let database = database.to_owned();
        match &source {
            sqlx::Error::Io(_)
            | sqlx::Error::Tls(_)
            | sqlx::Error::Protocol(_)
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::PoolClosed
            | sqlx::Error::WorkerCrashed => Self::Unavailable { database, source },
            sqlx::Error::Database(_) => match number_of(&source) {
                Some(DEADLOCK | LOCK_WAIT | STATEMENT_TIME | STATEMENT_TIME_OF_MYSQL) => {
                    Self::Busy { database, source }
                }
                Some(number) if AWAY.contains(&number) => Self::Unavailable { database, source },
                _ => Self::Database { database, source },
            },
            _ => Self::Database { database, source },
        }
    }

    /// The same of `PostgreSQL`, whose errors have codes of five characters.
    #[must_use]
    pub fn from_postgres(database: &str, source: sqlx::Error) -> Self {
        let code = source
            .as_database_error()
            .and_then(sqlx::error::DatabaseError::code);
        let code = code.map(std::borrow::Cow::into_owned);
        match code.as_deref() {
            None => Self::from_sqlx(database, source),
            Some(code) => {
                let database = database.to_owned();
                if BUSY_OF_POSTGRES.contains(&code) {
                    Self::Busy { database, source }
                } else if AWAY_OF_POSTGRES.iter().any(|class| code.starts_with(class)) {
                    Self::Unavailable { database, source }
                } else {
                    Self::Database { database, source }
                }
            }
        }
    }

    /// Whether a server has answered that the database or the table is not there.
    #[must_use]
    pub fn is_absence(&self) -> bool {
        match self {
            Self::Database { source, .. } => {
                number_of(source).is_some_and(|number| ABSENT.contains(&number))
            }
            Self::Unavailable { .. }
            | Self::Outdated { .. }
            | Self::Busy { .. }
            | Self::Moving { .. }
            | Self::NoBook { .. }
            | Self::UnknownServer { .. }
            | Self::Corrupt { .. } => false,
        }
    }

    /// Whether a unique key was already there.
    #[must_use]
    pub fn is_duplicate(&self) -> bool {
        match self {
            Self::Database { source, .. } => source
                .as_database_error()
                .is_some_and(sqlx::error::DatabaseError::is_unique_violation),
            Self::Unavailable { .. }
            | Self::Outdated { .. }
            | Self::Busy { .. }
            | Self::Moving { .. }
            | Self::NoBook { .. }
            | Self::UnknownServer { .. }
            | Self::Corrupt { .. } => false,
        }
    }

    /// Whether the same call may succeed in a moment.
    #[must_use]
    pub const fn is_transient(&self) -> bool {
        match self {
            Self::Unavailable { .. }
            | Self::Outdated { .. }
            | Self::Busy { .. }
            | Self::Moving { .. } => true,
            Self::NoBook { .. }
            | Self::UnknownServer { .. }
            | Self::Corrupt { .. }
            | Self::Database { .. } => false,
        }
    }

    /// Whether a server is away, or not to be used yet, which says nothing about the work.
    #[must_use]
    pub const fn is_unavailable(&self) -> bool {
        matches!(self, Self::Unavailable { .. } | Self::Outdated { .. })
    }
}

/// A value that a store finds in a row and can't read.
pub(super) fn corrupt(table: &'static str, what: impl std::fmt::Display) -> StoreError {
    StoreError::Corrupt {
        table,
        what: what.to_string(),
    }
}
