//! A large round, watched while it is applied.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use settlenet::domain::netting_round::RoundStatus;
use settlenet::stores::master::obligations;

use super::{debts, nets, propose, settled_by};
use crate::harness::World;

/// Obligations that are reduced; `SETTLENET_TEST_REDUCTIONS` asks for more.
fn reductions() -> u64 {
    let asked = std::env::var("SETTLENET_TEST_REDUCTIONS");
    asked.ok().and_then(|n| n.parse().ok()).unwrap_or(10_000)
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_reads_sees_all_of_a_round_or_nothing() {
    let world = World::with_extra_brokers(16).await;
    let count = world.brokers.len() as u64;
    let mut all = Vec::new();
    for number in 0..reductions() {
        let place = usize::try_from(number % count).unwrap();
        let next = (place + 1) % world.brokers.len();
        all.push((
            world.brokers[place],
            world.brokers[next],
            5 + number / count % 9,
        ));
    }
    // What does not go round stays.
    all.push((world.alpha, world.gamma, 77));
    debts(&world, &all).await;
    let before = nets(&world).await;
    for broker in &world.brokers[1..] {
        let netting = &world.app.netting;
        netting
            .set_auto_approve(*broker, true, "US-1")
            .await
            .unwrap();
    }
    let began = Instant::now();
    let round = propose(&world).await.unwrap();
    eprintln!("proposed within {:?}", began.elapsed());

    let master = &world.app.systems.master;
    let over = AtomicBool::new(false);
    let watch = async |broker| {
        let mut seen = BTreeSet::new();
        let mut looks = 0_u32;
        loop {
            let last = over.load(Ordering::SeqCst);
            let found = obligations::positions(master, broker).await.unwrap();
            seen.insert(format!("{found:?}"));
            looks += 1;
            if last {
                return (seen.len(), looks);
            }
        }
    };
    let apply = async {
        let began = Instant::now();
        let actor = World::actor(world.alpha);
        let said = settlenet::domain::netting_round::Answer::Approve;
        world
            .app
            .netting
            .answer(&actor, round.id, said)
            .await
            .unwrap();
        while world.app.netting.round(round.id).await.unwrap().status == RoundStatus::Approved {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        eprintln!("applied within {:?}", began.elapsed());
        over.store(true, Ordering::SeqCst);
    };
    let ((), one, two, three) = tokio::join!(
        apply,
        watch(world.alpha),
        watch(world.beta),
        watch(world.delta)
    );
    for (seen, looks) in [one, two, three] {
        assert!(looks > 2, "somebody looked meanwhile");
        assert_eq!(seen, 2, "before and after, in {looks} looks");
    }
    assert_eq!(
        settled_by(&world, round.id).await.len() as u64,
        reductions()
    );
    assert_eq!(nets(&world).await, before);
    let left: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM obligation WHERE status = 'active'")
        .fetch_one(master)
        .await
        .unwrap();
    assert_eq!(left, 1);
}
