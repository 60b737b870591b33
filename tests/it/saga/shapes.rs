//! The shapes that a request can have, as far as its sagas differ.

use settlenet::domain::account::AccountRef;
use settlenet::domain::ids::{AccountId, BrokerId, ObligationId, RequestId};
use settlenet::domain::request::{Request, RequestKind};
use settlenet::domain::terms::{ObligationTerm, Party};
use settlenet::services::network::{CommissionInput, CreateRequest};

use crate::harness::World;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// House to house; the author owes.
    Plain,
    /// Nobody owes: the pivot is in the master.
    NoDebt,
    /// From a client's account, which is reserved.
    FromClient,
    /// From a client's account, and nobody owes.
    FromClientNoDebt,
    /// The target pays out of its cashier's float, which is reserved.
    FromCashier,
    /// To a client of the target.
    ToClient,
    /// The sender pays a fixed commission.
    SenderPays,
    /// The receiver pays a commission by rate: debits in both books.
    ReceiverPays,
    /// Debits in both books, and nobody owes.
    ReceiverPaysNoDebt,
    /// The author repays two debts, the second in part.
    Settles,
    /// The author repays one debt from a client's account, which is reserved.
    SettlesFromClient,
    /// An order: credits in both books.
    Collect,
    /// An order: debits in both books, both of them reserved.
    Payout,
}

impl Shape {
    pub const ALL: [Self; 13] = [
        Self::Plain,
        Self::NoDebt,
        Self::FromClient,
        Self::FromClientNoDebt,
        Self::FromCashier,
        Self::ToClient,
        Self::SenderPays,
        Self::ReceiverPays,
        Self::ReceiverPaysNoDebt,
        Self::Settles,
        Self::SettlesFromClient,
        Self::Collect,
        Self::Payout,
    ];

    pub const fn reserves(self) -> bool {
        match self {
            Self::FromClient
            | Self::FromClientNoDebt
            | Self::FromCashier
            | Self::SettlesFromClient
            | Self::Payout => true,
            Self::Plain
            | Self::NoDebt
            | Self::ToClient
            | Self::SenderPays
            | Self::ReceiverPays
            | Self::ReceiverPaysNoDebt
            | Self::Settles
            | Self::Collect => false,
        }
    }

    /// A pending request of alpha to beta, with the account that beta accepts with.
    pub async fn created(self, world: &World) -> (Request, Option<AccountId>) {
        let mut input = world.send(Some(world.beta));
        let mut accept_with = None;
        match self {
            Self::Plain => {}
            Self::NoDebt => input.obligation = Some(ObligationTerm::None),
            Self::FromClient => {
                input.account_id = Some(client(world, world.alpha, 1_000_000).await.id());
            }
            Self::FromClientNoDebt => {
                input.account_id = Some(client(world, world.alpha, 1_000_000).await.id());
                input.obligation = Some(ObligationTerm::None);
            }
            Self::FromCashier => {
                input.kind = RequestKind::Receive;
                let cashier = world.cashier(world.beta, &name());
                accept_with = Some(world.funded(cashier, 1_500_000).await.id());
            }
            Self::ToClient => {
                input.counterpart_uid = Some(client(world, world.beta, 5).await.owner_ref);
            }
            Self::SenderPays => input.commission = Some(fixed(Party::Author, "25.00")),
            Self::ReceiverPays => input.commission = Some(rate(Party::Counterparty, 50)),
            Self::ReceiverPaysNoDebt => {
                input.commission = Some(rate(Party::Counterparty, 50));
                input.obligation = Some(ObligationTerm::None);
            }
            Self::Settles => {
                owing(world, world.alpha, world.beta).await;
                owing(world, world.alpha, world.beta).await;
                input.kind = RequestKind::Settlement;
                "15000.00".clone_into(&mut input.amount);
            }
            Self::SettlesFromClient => {
                let owed = owing(world, world.alpha, world.beta).await;
                input.kind = RequestKind::Settlement;
                input.obligation_id = Some(owed);
                input.account_id = Some(client(world, world.alpha, 1_000_000).await.id());
            }
            Self::Collect | Self::Payout => {
                input.kind = if self == Self::Collect {
                    RequestKind::Collect
                } else {
                    RequestKind::Payout
                };
                let client = client(world, world.alpha, 1_000_000).await;
                input.counterpart_uid = Some(client.owner_ref);
                let cashier = world.cashier(world.beta, &name());
                accept_with = Some(world.funded(cashier, 1_500_000).await.id());
                input.commission = Some(rate(Party::Author, 50));
                let created = world.order(world.alpha, input).await;
                return (created.0, accept_with);
            }
        }
        (world.create(world.alpha, input).await, accept_with)
    }

    /// Accepted by beta, with all its reservations.
    pub async fn accepted(self, world: &World) -> Request {
        let (request, account) = self.created(world).await;
        let accepted = world
            .app
            .network
            .accept_request(&World::actor(world.beta), request.id, account)
            .await;
        accepted.expect("is accepted").request
    }

    /// All but the receiver's confirmation.
    pub async fn sent(self, world: &World) -> RequestId {
        let request = self.accepted(world).await;
        world.mark_sent(&request).await;
        request.id
    }
}

/// A debt of 10,000.00.
pub async fn owing(world: &World, debtor: BrokerId, creditor: BrokerId) -> ObligationId {
    let id = world.sent(debtor, creditor).await;
    world.confirm(id).await.expect("is booked");
    let saga = world.completed_by(id).await;
    ObligationId::derive(&[&saga.to_string()])
}

fn fixed(payer: Party, amount: &str) -> CommissionInput {
    CommissionInput {
        payer,
        amount: Some(amount.to_owned()),
        basis_points: None,
    }
}

fn rate(payer: Party, basis_points: u32) -> CommissionInput {
    CommissionInput {
        payer,
        amount: None,
        basis_points: Some(basis_points),
    }
}

/// A client with a balance.
pub async fn client(world: &World, broker: BrokerId, balance: u64) -> AccountRef {
    world.funded(world.client(broker, &name()), balance).await
}

/// A send of alpha from this client's account.
pub fn from_client(world: &World, account: &AccountRef) -> CreateRequest {
    let mut input = world.send(Some(world.beta));
    input.account_id = Some(account.id());
    input
}

fn name() -> String {
    format!("FO-{:012x}", rand::random_range(0..1_u64 << 48))
}
