//! What a broker that leaves has to settle of its payments first.

use super::{Inner, PaymentError, PaymentService, WalletBalance};
use crate::domain::broker::BrokerState;
use crate::domain::ids::BrokerId;
use crate::stores::master::brokers;
use crate::stores::pm::incoming::{self, Incoming};
use crate::stores::pm::intents::{self, Intent};

/// Wallets that are read at once.
const PAGE: u32 = 500;

/// Payments that go on, and money that is a broker's.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Unsettled {
    /// All of those that are not over, and the oldest of them.
    pub intents: (u64, Vec<Intent>),
    /// Wallets with money, or with some that is held.
    pub wallets: Vec<WalletBalance>,
    /// What came in for top-ups and is nobody's yet: all, and the oldest.
    pub incoming: (u64, Vec<Incoming>),
}

impl PaymentService {
    /// What a broker has to settle before it can leave; of each kind at most `named` are named.
    ///
    /// # Errors
    /// The database's and the ledger's.
    pub async fn unsettled(&self, broker: BrokerId, named: u32) -> Result<Unsettled, PaymentError> {
        let pm = &self.0.pm;
        let mut wallets = Vec::new();
        let mut last: Option<String> = None;
        loop {
            let page = self.wallets(broker, last.as_deref(), PAGE).await?;
            last = page.last().map(|found| found.wallet.name.to_string());
            let full = page.len() == PAGE as usize;
            wallets.extend(page.into_iter().filter(|found| !found.is_empty()));
            if !full {
                break;
            }
        }
        Ok(Unsettled {
            intents: intents::open(pm, broker, named).await?,
            wallets,
            incoming: incoming::open_of(pm, broker, named).await?,
        })
    }
}

impl Inner {
    /// Refuses what would bring money to a broker that has left.
    pub(super) async fn is_here(&self, broker: BrokerId) -> Result<(), PaymentError> {
        let found = brokers::get(&self.master, broker).await?;
        match found.map(|broker| broker.state) {
            Some(BrokerState::Archived) => Err(PaymentError::HasLeft { broker }),
            _ => Ok(()),
        }
    }
}
