//! The system account that a server runs under.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use nix::unistd::{Gid, Uid, User};

/// A system user: `MariaDB` and `PostgreSQL` refuse to run as root, or should.
#[derive(Debug, Clone)]
pub(super) struct Account {
    pub name: String,
    pub uid: Uid,
    pub gid: Gid,
}

#[derive(Debug, thiserror::Error)]
pub enum AccountError {
    #[error("there is no system user {name}; the server's package creates it: run `make setup`")]
    Missing { name: String },
    #[error("could not look up the system user {name}")]
    Lookup { name: String, source: nix::Error },
}

impl Account {
    /// The account `name` when this process is root; `None` when it is not,
    /// for then a server runs as whoever started the stack.
    pub fn when_root(name: &str) -> Result<Option<Self>, AccountError> {
        if !Uid::effective().is_root() {
            return Ok(None);
        }
        let user = User::from_name(name)
            .map_err(|source| AccountError::Lookup { name: name.into(), source })?
            .ok_or_else(|| AccountError::Missing { name: name.into() })?;
        Ok(Some(Self { name: user.name, uid: user.uid, gid: user.gid }))
    }

    /// Whether the account may walk through every folder on the way to `path`.
    /// A checkout under `/root` (mode 0700) is the usual case where it may not.
    pub fn can_reach(&self, path: &Path) -> std::io::Result<bool> {
        for folder in path.ancestors() {
            let meta = folder.metadata()?;
            let allowed = if meta.uid() == self.uid.as_raw() {
                meta.mode() & 0o100
            } else if meta.gid() == self.gid.as_raw() {
                meta.mode() & 0o010
            } else {
                meta.mode() & 0o001
            };
            if allowed == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
