//! The system account that a server runs under.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Where system users are listed. The servers' packages put theirs here.
const PASSWD: &str = "/etc/passwd";

/// A system user: `MariaDB` and `PostgreSQL` refuse to run as root, or should.
#[derive(Debug, Clone)]
pub(super) struct Account {
    pub name: String,
    pub uid: u32,
    pub gid: u32,
}

#[derive(Debug, thiserror::Error)]
pub enum AccountError {
    #[error("there is no system user {name}; the server's package creates it: run `make setup`")]
    Missing { name: String },
    #[error("could not read {PASSWD}")]
    Lookup(#[source] std::io::Error),
}

impl Account {
    /// The account `name` when this process is root; `None` when it is not,
    /// for then a server runs as whoever started the stack.
    pub fn when_root(name: &str) -> Result<Option<Self>, AccountError> {
        if !rustix::process::geteuid().is_root() {
            return Ok(None);
        }
        let passwd = std::fs::read_to_string(PASSWD).map_err(AccountError::Lookup)?;
        passwd
            .lines()
            .find_map(|line| Self::parse(line).filter(|account| account.name == name))
            .map(Some)
            .ok_or_else(|| AccountError::Missing { name: name.into() })
    }

    /// One line of [`PASSWD`]: name, password, uid, gid and more, parted by colons.
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split(':');
        let name = fields.next()?.to_owned();
        let mut numbers = fields.skip(1).map(str::parse);
        Some(Self {
            name,
            uid: numbers.next()?.ok()?,
            gid: numbers.next()?.ok()?,
        })
    }

    /// Whether the account may walk through every folder on the way to `path`.
    /// A checkout under `/root` (mode 0700) is the usual case where it may not.
    pub fn can_reach(&self, path: &Path) -> std::io::Result<bool> {
        for folder in path.ancestors() {
            let meta = folder.metadata()?;
            let allowed = if meta.uid() == self.uid {
                meta.mode() & 0o100
            } else if meta.gid() == self.gid {
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
