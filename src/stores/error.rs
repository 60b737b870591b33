/// What goes wrong between us and a database.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Nobody answers, or not in time: trying again may help.
    #[error("the database can't be reached")]
    Unavailable(#[source] sqlx::Error),
    /// A row with this unique key is there already.
    #[error("there is such a row already")]
    Duplicate,
    /// Another transaction holds what this one needs: trying again may help.
    #[error("another transaction was in the way")]
    Contended(#[source] sqlx::Error),
    /// A stored value that no code of ours writes.
    #[error("{0} in the database is not what it should be")]
    Corrupt(&'static str),
    #[error("the database refused")]
    Refused(#[source] sqlx::Error),
}

/// Lock wait timeout and deadlock.
const CONTENDED: [u16; 2] = [1205, 1213];

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        match &error {
            sqlx::Error::Io(_)
            | sqlx::Error::Tls(_)
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::PoolClosed
            | sqlx::Error::WorkerCrashed => Self::Unavailable(error),
            sqlx::Error::Database(refusal) if refusal.is_unique_violation() => Self::Duplicate,
            sqlx::Error::Database(refusal) => {
                let number = refusal
                    .try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>()
                    .map(sqlx::mysql::MySqlDatabaseError::number);
                if number.is_some_and(|number| CONTENDED.contains(&number)) {
                    Self::Contended(error)
                } else {
                    Self::Refused(error)
                }
            }
            _ => Self::Refused(error),
        }
    }
}
