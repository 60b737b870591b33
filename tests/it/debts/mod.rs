//! Debts from where they arise to where they end: orders, transfers to a client, repayments, credit
//! lines.

mod credit;
mod mixed;
mod orders;
mod repaid;
mod schemes;
mod swapped;

use settlenet::domain::account::{AccountRef, OwnerKind};
use settlenet::domain::ids::BrokerId;
use settlenet::domain::money::{Currency, CurrencyCode};
use settlenet::domain::request::RequestKind;
use settlenet::services::network::CreateRequest;
use settlenet::stores::master::obligations::{self, Filter, Obligation};
use settlenet::stores::master::settlements::{self, Settlement};

use crate::harness::World;

impl World {
    /// An account in another currency than the world's own.
    pub fn account_in(broker: BrokerId, kind: OwnerKind, owner: &str, code: &str) -> AccountRef {
        AccountRef {
            broker,
            owner_kind: kind,
            owner_ref: owner.to_owned(),
            currency: code.parse().unwrap(),
        }
    }

    /// What a broker is owed less what it owes, as the ledger says.
    pub async fn position(&self, broker: BrokerId, code: &CurrencyCode) -> i128 {
        let currency = self.currency_of(code).await;
        let obligations = &self.app.obligations;
        let position = obligations.position_in_ledger(broker, &currency).await;
        position.unwrap()
    }

    pub async fn currency_of(&self, code: &CurrencyCode) -> Currency {
        self.app.currencies.get(code).await.unwrap().unwrap()
    }

    /// A broker's obligations, the oldest first.
    pub async fn obligations_of(&self, broker: BrokerId) -> Vec<Obligation> {
        let master = &self.app.systems.master;
        let filter = Filter::default();
        let mut all = obligations::list(master, broker, &filter, None, 1_000)
            .await
            .unwrap();
        all.reverse();
        all
    }

    pub async fn settlements_of(&self, owed: &Obligation) -> Vec<Settlement> {
        let master = &self.app.systems.master;
        settlements::of_obligation(master, owed.id, 1_000)
            .await
            .unwrap()
    }

    /// A request of the author to repay.
    pub fn repay(&self, creditor: BrokerId, amount: &str) -> CreateRequest {
        CreateRequest {
            kind: RequestKind::Settlement,
            amount: amount.to_owned(),
            ..self.send(Some(creditor))
        }
    }
}
