//! Netting of two brokers and of the whole network, on real servers.

mod atomic;
mod audited;
mod killed;
mod pair;
mod rounds;

use std::collections::BTreeMap;

use settlenet::domain::ids::{BrokerId, NettingRoundId};
use settlenet::domain::money::Currency;
use settlenet::domain::netting::verify::{Verified, verify};
use settlenet::domain::netting_round::{Answer, Party, PartyState, Round};
use settlenet::services::netting::NettingError;
use settlenet::services::network::CreateRequest;
use settlenet::stores::master::settlements::{self, Settlement};
use settlenet::stores::master::{netting, obligations};
use sqlx::{MySql, QueryBuilder};

use crate::harness::World;

/// A world in which rounds are offered.
pub async fn network() -> World {
    World::with_extra_brokers(8).await
}

/// A debt, by a request from its first step to its last: books and ledger have it too.
pub async fn owe(world: &World, debtor: BrokerId, creditor: BrokerId, amount: &str) {
    let input = CreateRequest {
        amount: amount.to_owned(),
        ..world.send(Some(creditor))
    };
    let request = world.create(debtor, input).await;
    world.bring_to_sent(&request, creditor).await;
    world.confirm(request.id).await.unwrap();
}

/// Debts in the master alone, oldest first: debtor, creditor and minor units.
pub async fn debts(world: &World, debts: &[(BrokerId, BrokerId, u64)]) {
    let start = world.clock.now();
    for (part, chunk) in (0_i64..).zip(debts.chunks(1_000)) {
        let mut builder = QueryBuilder::<MySql>::new(
            "INSERT INTO obligation (obligation_id, saga_id, subject, debtor_broker_id, \
             creditor_broker_id, currency_code, amount, remaining_amount, status, created_at, \
             activated_at) ",
        );
        let numbered = (0..).zip(chunk);
        builder.push_values(numbered, |mut row, (number, (debtor, creditor, amount))| {
            let place = part * 1_000 + number;
            let at = start + chrono::Duration::microseconds(place);
            row.push_bind(rand::random::<u64>() >> 16)
                .push_bind(uuid::Uuid::new_v4())
                .push_bind("NR-000000000001")
                .push_bind(*debtor)
                .push_bind(*creditor)
                .push_bind(world.currency.to_string())
                .push_bind(*amount)
                .push_bind(*amount)
                .push_bind("active")
                .push_bind(at)
                .push_bind(at);
        });
        builder
            .build()
            .execute(&world.app.systems.master)
            .await
            .unwrap();
    }
}

/// What a broker owes another, in minor units.
pub async fn owed(world: &World, debtor: BrokerId, creditor: BrokerId) -> u64 {
    let found = obligations::positions(&world.app.systems.master, debtor).await;
    let found = found.unwrap().into_iter();
    let mut found = found.filter(|position| position.counterparty == creditor);
    found.next().map_or(0, |position| position.owing)
}

/// What each broker is owed less what it owes, as the obligations say.
pub async fn nets(world: &World) -> BTreeMap<BrokerId, i128> {
    let mut nets = BTreeMap::new();
    for broker in &world.brokers {
        let net = obligations::net(&world.app.systems.master, *broker, &world.currency);
        nets.insert(*broker, net.await.unwrap());
    }
    nets
}

/// The same as the ledger says.
pub async fn in_ledger(world: &World) -> BTreeMap<BrokerId, i128> {
    let currency = Currency {
        code: world.currency.clone(),
        exponent: 2,
        ledger: world.ledger,
    };
    let mut nets = BTreeMap::new();
    for broker in &world.brokers {
        let position = world.app.obligations.position_in_ledger(*broker, &currency);
        nets.insert(*broker, position.await.unwrap());
    }
    nets
}

/// What a proposal or a round has settled.
pub async fn settled_by(world: &World, subject: impl ToString) -> Vec<Settlement> {
    let master = &world.app.systems.master;
    settlements::of_subjects(master, &[subject.to_string()])
        .await
        .unwrap()
}

pub async fn propose(world: &World) -> Result<Round, NettingError> {
    let intention = Some(World::intention());
    let code = world.currency.as_str();
    let netting = &world.app.netting;
    netting.propose_round(intention, code, None, "US-1").await
}

pub async fn parties(world: &World, id: NettingRoundId) -> Vec<Party> {
    world.app.netting.parties(id, None, 1_000).await.unwrap()
}

/// Those of whom an answer is waited for.
pub async fn asked(world: &World, id: NettingRoundId) -> Vec<BrokerId> {
    let parties = parties(world, id).await.into_iter();
    let asked = parties.filter(|party| party.state == PartyState::Asked);
    asked.map(|party| party.broker).collect()
}

pub async fn answer(world: &World, broker: BrokerId, id: NettingRoundId, said: Answer) -> Round {
    let netting = &world.app.netting;
    let answered = netting.answer(&World::actor(broker), id, said).await;
    answered.unwrap().0
}

/// Everybody who is asked approves; gives the round after the last.
pub async fn approve_all(world: &World, id: NettingRoundId) -> Round {
    let mut round = world.app.netting.round(id).await.unwrap();
    for broker in asked(world, id).await {
        round = answer(world, broker, id, Answer::Approve).await;
    }
    round
}

/// The certificate of a round, checked.
pub async fn certified(world: &World, id: NettingRoundId, revision: Option<u32>) -> Verified {
    let bytes = world.app.netting.certificate(id, revision).await.unwrap();
    let again = world.app.netting.certificate(id, revision).await.unwrap();
    assert_eq!(bytes, again, "the same bytes each time");
    let verified = verify(bytes.as_slice()).unwrap();
    assert_eq!(verified.round, id.to_string());
    assert_eq!(verified.currency, world.currency);
    verified
}

/// What a revision takes off each obligation.
pub async fn reductions(world: &World, id: NettingRoundId, revision: u32) -> BTreeMap<u64, u64> {
    let lines = netting::lines::all(&world.app.systems.master, (id, revision)).await;
    let lines = lines.unwrap().into_iter();
    let reduced = lines.filter(|line| line.reduction > 0);
    reduced
        .map(|line| (line.id.bits(), line.reduction))
        .collect()
}
