//! A payment that was made, and comes back weeks later.

use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;
use settlenet::domain::ledger::AccountOwner;
use settlenet::domain::payment::receiver::Receiver;
use settlenet::domain::payment::{IntentStatus, PspName};
use settlenet::psp::breaker::Limits;
use settlenet::psp::client::Endpoint;
use settlenet::psp::wise::{Wise, WiseConfig};
use settlenet::psp::{Driver, Registry};
use settlenet::services::payments::{NewIntent, PaymentService};

use super::sim::{Behaviour, Sim};
use super::{Till, meant, through};

fn wise(till: &Till, sim: &Sim) -> PaymentService {
    let driver = Wise::new(WiseConfig {
        endpoint: Endpoint {
            url: sim.url.clone(),
            token: SecretString::from("sim-token"),
            connect_timeout: Duration::from_secs(5),
            timeout: Duration::from_secs(5),
            breaker: Limits {
                failures: u32::MAX,
                cool_down: Duration::from_secs(1),
            },
        },
        profile: 1,
        currencies: vec![till.currency.code.clone()],
        deduplicates: true,
        watched_for: Duration::from_hours(60 * 24),
    });
    let providers = Registry::new([Arc::new(driver.unwrap()) as Arc<dyn Driver>]);
    through(&till.world, &till.pm, providers, till.world.clock.clone())
}

async fn settle(payments: &PaymentService) {
    loop {
        let acted = payments.outbox().serve(50).await.unwrap();
        let rows = payments.engine().pick_up(PspName::Wise, 10).await.unwrap();
        if acted == 0 && rows.is_empty() {
            return;
        }
        for row in rows {
            payments.engine().serve(row).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_sent_back_is_on_the_wallet_and_in_the_book_again() {
    let till = Till::new().await;
    till.fund(100_000).await;
    let behaviour = Behaviour {
        deduplicates: true,
        ..Behaviour::default()
    };
    let sim = Sim::start(behaviour).await;
    let payments = wise(&till, &sim);
    let world = &till.world;
    let account = world
        .funded(world.client(world.alpha, "FO-0000000000aa"), 100_000)
        .await;
    let new = NewIntent {
        channel: PspName::Wise,
        receiver: Receiver::Iban {
            holder_name: "Jo Do".to_owned(),
            iban: "DE89370400440532013000".to_owned(),
        },
        book_account: Some(account.id()),
        ..till.payout(40_000)
    };
    let created = payments.create(world.alpha, &meant(), new).await.unwrap();
    let id = created.intent.id;
    for _ in 0..20 {
        settle(&payments).await;
        if till.status(id).await == IntentStatus::Completed {
            break;
        }
        world.clock.advance(super::PAST_ALL);
    }
    assert_eq!(till.status(id).await, IntentStatus::Completed);
    let fee = i128::from(created.intent.fee);
    assert_eq!(till.wallet().await.posted(), 60_000 - fee);
    let balance = async || {
        let books = &world.app.books;
        let state = books.account(world.alpha, account.id()).await.unwrap();
        i128::from(state.balance.balance)
    };
    assert_eq!(balance().await, 60_000 - fee);

    let engine = payments.engine();
    // It is asked about at ever longer intervals, and is as it was.
    for _ in 0..3 {
        world.clock.advance(chrono::Duration::days(1));
        assert_eq!(engine.watch(PspName::Wise, 10).await.unwrap(), 1);
        assert_eq!(engine.watch(PspName::Wise, 10).await.unwrap(), 0);
    }
    let row = payments.evidence(id).await.unwrap().psp;
    let transfer = row.facts.response_id.unwrap();
    assert!(sim.bounce(&transfer).await);
    // It is on its way back for a while.
    for _ in 0..10 {
        world.clock.advance(chrono::Duration::days(1));
        engine.watch(PspName::Wise, 10).await.unwrap();
        settle(&payments).await;
    }
    assert_eq!(till.status(id).await, IntentStatus::Returned);
    assert_eq!(till.wallet().await.posted(), 100_000 - fee, "the fee stays");
    assert_eq!(balance().await, 100_000 - fee);
    assert_eq!(till.balances(AccountOwner::Revenue).await.posted(), fee);
    let evidence = payments.evidence(id).await.unwrap();
    assert_eq!(evidence.psp.state.as_str(), "CONFIRMED", "it was paid");
    let back = evidence
        .events
        .iter()
        .filter(|event| event.reason.as_deref() == Some("sent_back"));
    assert_eq!(back.count(), 1);
    world.clock.advance(chrono::Duration::days(1));
    let asked = engine.watch(PspName::Wise, 10).await.unwrap();
    assert_eq!(asked, 0, "nobody asks any more");
    crate::harness::assert_invariants(world).await;
    let paid = sim.paid().await;
    assert_eq!(paid.get(&id.to_string()), Some(&(40_000, 0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_can_not_come_back_any_more_is_asked_about_no_more() {
    let till = Till::new().await;
    till.fund(100_000).await;
    let behaviour = Behaviour {
        deduplicates: true,
        ..Behaviour::default()
    };
    let sim = Sim::start(behaviour).await;
    let payments = wise(&till, &sim);
    let new = NewIntent {
        channel: PspName::Wise,
        receiver: Receiver::Iban {
            holder_name: "Jo Do".to_owned(),
            iban: "DE89370400440532013000".to_owned(),
        },
        ..till.payout(40_000)
    };
    let created = payments.create(till.world.alpha, &meant(), new).await;
    let id = created.unwrap().intent.id;
    for _ in 0..20 {
        settle(&payments).await;
        till.world.clock.advance(super::PAST_ALL);
    }
    assert_eq!(till.status(id).await, IntentStatus::Completed);
    let engine = payments.engine();
    till.world.clock.advance(chrono::Duration::days(61));
    assert_eq!(engine.watch(PspName::Wise, 10).await.unwrap(), 1);
    till.world.clock.advance(chrono::Duration::days(1));
    assert_eq!(engine.watch(PspName::Wise, 10).await.unwrap(), 0);
    assert_eq!(till.status(id).await, IntentStatus::Completed);
}
