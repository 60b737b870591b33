//! An auditor's view of the ledger: accounts and transfers by nothing but their names and ids.

pub use crate::stores::ledger::{
    AccountRecord, LedgerConfig, LedgerError, TransferKind, TransferRecord,
};

use crate::domain::ledger::{AccountName, AccountRule, TransferId, account_id};
use crate::stores::ledger::Ledger;

/// Reads the ledger. Needs no database.
#[derive(Clone, Debug)]
pub struct Auditor(Ledger);

/// An account, and what of it is not as its name says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audited {
    pub account: AccountRecord,
    pub wrong: Option<&'static str>,
}

impl Auditor {
    /// With a client that the process has already.
    #[must_use]
    pub const fn new(ledger: Ledger) -> Self {
        Self(ledger)
    }

    /// # Errors
    /// The client not starting.
    pub fn connect(config: &LedgerConfig) -> Result<Self, LedgerError> {
        Ledger::connect(config).map(Self)
    }

    /// The account of a name, where there is one.
    ///
    /// # Errors
    /// No answer.
    pub async fn account(&self, name: &AccountName) -> Result<Option<Audited>, LedgerError> {
        let found = self.0.account(account_id(name)).await?;
        Ok(found.map(|account| Audited {
            wrong: differs(name, &account),
            account,
        }))
    }

    /// A transfer, where there is one.
    ///
    /// # Errors
    /// No answer.
    pub async fn transfer(&self, id: TransferId) -> Result<Option<TransferRecord>, LedgerError> {
        self.0.transfer(id).await
    }
}

fn differs(name: &AccountName, found: &AccountRecord) -> Option<&'static str> {
    let owner = name.owner();
    let never_negative = owner.rule() == AccountRule::NeverNegative;
    if found.code != owner.code() {
        Some("its code is another than its name says")
    } else if found.never_negative != never_negative {
        Some("what the ledger holds it to is not what its name says")
    } else if !found.history {
        Some("its history is not kept")
    } else {
        None
    }
}
