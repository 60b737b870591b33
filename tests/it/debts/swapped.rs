//! A client's exchange of currencies is made once, whoever dies.

use chrono::Duration;
use serde_json::json;
use settlenet::domain::account::OwnerKind;

use crate::harness::{Child, MovedClock, World, assert_invariants};
use crate::saga::served::Client;

/// The server dies before or after the swap's only commit; the same key elsewhere gives the one swap.
#[tokio::test(flavor = "multi_thread")]
async fn a_swap_is_made_once_whoever_dies() {
    let clock = MovedClock::new();
    let world = World::with_clock(clock.clock(Duration::zero())).await;
    let account = |code| World::account_in(world.beta, OwnerKind::Partner, "FO-00000000000a", code);
    let dollars = world.funded(account("USD-CASH"), 100_000).await;
    let roubles = world.funded(account("RUB-CASH"), 1).await;
    let (_survivor, address) = Child::serve(&world, &clock, &[], "").await;
    let client = Client::log_in(&address, &world).await;
    let body = json!({
        "sold_account_id": dollars.id(), "bought_account_id": roubles.id(),
        "amount": "100.00", "currency_code": "USD-CASH",
        "bought_currency_code": "RUB-CASH", "rate": "92.333",
    });
    for (number, place) in (1..).zip(["book.once.commit.before", "book.once.commit.after"]) {
        let failpoints = format!("{place}=kill");
        let args = ["--no-workers"];
        let (mut server, dying) = Child::serve(&world, &clock, &args, &failpoints).await;
        let swap = |address: &str| format!("{address}/v1/swaps");
        let lost = client.create(&swap(&dying), place, &body).await;
        assert!(lost.is_err(), "{place}: it answered {lost:?}");
        server.killed(place).await;
        for _ in 0..2 {
            let (code, swap) = client.create(&swap(&address), place, &body).await.unwrap();
            assert_eq!(code, 201, "{place}: {swap}");
            assert_eq!(swap["bought"]["amount"], "9233.30");
        }
        assert_eq!(world.balance(&dollars).await, 100_000 - number * 10_000);
        assert_eq!(world.balance(&roubles).await, 1 + number * 923_330);
    }
    assert_invariants(&world).await;
}
