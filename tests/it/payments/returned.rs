//! A payment that was made, and comes back weeks later.

use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;
use settlenet::domain::broker::BrokerState;
use settlenet::domain::ledger::AccountOwner;
use settlenet::domain::money::Amount;
use settlenet::domain::payment::receiver::Receiver;
use settlenet::domain::payment::{IntentStatus, OutboxAction, PspName};
use settlenet::psp::breaker::Limits;
use settlenet::psp::client::Endpoint;
use settlenet::psp::wise::{Wise, WiseConfig};
use settlenet::psp::{Driver, Registry};
use settlenet::services::payments::{Finding, NewIntent, PaymentService, Verdict};
use settlenet::stores::pm::{self, outbox};

use super::sim::{Behaviour, Sim};
use super::{Till, finding, meant, state_of, through};

fn wise(till: &Till, sim: &Sim) -> PaymentService {
    wise_at(till, &sim.url)
}

fn wise_at(till: &Till, url: &str) -> PaymentService {
    let driver = Wise::new(WiseConfig {
        endpoint: Endpoint {
            url: url.to_owned(),
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

fn payout(till: &Till) -> NewIntent {
    NewIntent {
        channel: PspName::Wise,
        receiver: Receiver::Iban {
            holder_name: "Jo Do".to_owned(),
            iban: "DE89370400440532013000".to_owned(),
        },
        ..till.payout(40_000)
    }
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
        book_account: Some(account.id()),
        ..payout(&till)
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
    // Nothing is heard all the time: it is asked about on and on, and somebody is told.
    let silent = wise_at(&till, "http://127.0.0.1:9").engine();
    silent.remind(10).await.unwrap();
    assert!(till.alerts("payments_unwatched").await.is_empty());
    for _ in 0..70 {
        till.world.clock.advance(chrono::Duration::days(1));
        assert_eq!(silent.watch(PspName::Wise, 10).await.unwrap(), 1);
    }
    silent.remind(10).await.unwrap();
    assert_eq!(till.alerts("payments_unwatched").await, ["WISE"]);
    let engine = payments.engine();
    till.world.clock.advance(chrono::Duration::days(1));
    assert_eq!(engine.watch(PspName::Wise, 10).await.unwrap(), 1);
    till.world.clock.advance(chrono::Duration::days(1));
    assert_eq!(engine.watch(PspName::Wise, 10).await.unwrap(), 0);
    assert_eq!(till.status(id).await, IntentStatus::Completed);
    engine.remind(10).await.unwrap();
    assert!(till.alerts("payments_unwatched").await.is_empty());
}

/// A person has named the transfer of another payment: that one's bounce is not this one's.
#[tokio::test(flavor = "multi_thread")]
async fn what_comes_back_of_another_payment_gives_nothing_back() {
    let till = Till::new().await;
    till.fund(200_000).await;
    let behaviour = Behaviour {
        deduplicates: true,
        ..Behaviour::default()
    };
    let sim = Sim::start(behaviour).await;
    let payments = wise(&till, &sim);
    let mut ids = Vec::new();
    for _ in 0..2 {
        let (alpha, intention) = (till.world.alpha, meant());
        let created = payments.create(alpha, &intention, payout(&till)).await;
        ids.push(created.unwrap().intent.id);
    }
    for _ in 0..20 {
        settle(&payments).await;
        till.world.clock.advance(super::PAST_ALL);
    }
    let [one, other] = ids.try_into().unwrap();
    let transfer = async |id| {
        let row = payments.evidence(id).await.unwrap().psp;
        row.facts.response_id.unwrap()
    };
    // As it was left where nobody had looked.
    let (of_one, of_other) = (transfer(one).await, transfer(other).await);
    for (id, named) in [(one, "x"), (other, of_one.as_str())] {
        let sql = "UPDATE pm.psp_tx_map SET response_id = $1 WHERE intent_id = $2";
        let named = sqlx::query(sql).bind(named).bind(id);
        named.execute(&till.pm).await.unwrap();
    }
    assert!(sim.bounce(&of_one).await);
    for _ in 0..10 {
        till.world.clock.advance(chrono::Duration::days(1));
        payments.engine().watch(PspName::Wise, 10).await.unwrap();
        settle(&payments).await;
    }
    assert_eq!(till.status(other).await, IntentStatus::Completed);
    assert_eq!(
        till.alerts("payment_contradicts").await,
        [other.to_string()]
    );
    assert_ne!(of_one, of_other);
}

/// A person has found it by its uid, and said no more.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_person_has_confirmed_comes_back_as_well() {
    for payment_id in [false, true] {
        let till = Till::new().await;
        till.fund(100_000).await;
        let behaviour = Behaviour {
            deduplicates: true,
            ..Behaviour::default()
        };
        let sim = Sim::start(behaviour).await;
        let payments = wise(&till, &sim);
        let alpha = till.world.alpha;
        let created = payments.create(alpha, &meant(), payout(&till)).await;
        let id = created.unwrap().intent.id;
        for _ in 0..20 {
            settle(&payments).await;
            if till.status(id).await == IntentStatus::Completed {
                break;
            }
            till.world.clock.advance(super::PAST_ALL);
        }
        let row = payments.evidence(id).await.unwrap().psp;
        let transfer = row.facts.response_id.unwrap();
        // As it is where its id was never heard of.
        for sql in [
            "UPDATE pm.psp_tx_map SET state = 'MANUAL_REVIEW', response_id = NULL",
            "UPDATE pm.intent SET status = 'manual_review'",
            "DELETE FROM pm.outbox_event WHERE action = 'post_pending'",
            "DELETE FROM pm.psp_watch",
        ] {
            sqlx::query(sql).execute(&till.pm).await.unwrap();
        }
        let bad = Finding {
            payment_id: Some("../1"),
            ..finding(Verdict::Confirmed)
        };
        let refused = payments.resolve(id, &bad).await;
        assert_eq!(state_of(refused), "payment_id");
        let odd = Finding {
            payment_id: Some(&transfer),
            ..finding(Verdict::Failed)
        };
        let refused = payments.resolve(id, &odd).await;
        assert_eq!(state_of(refused), "payment_id");
        let said = Finding {
            payment_id: payment_id.then_some(transfer.as_str()),
            ..finding(Verdict::Confirmed)
        };
        payments.resolve(id, &said).await.unwrap();
        settle(&payments).await;
        assert_eq!(till.status(id).await, IntentStatus::Completed);
        assert!(sim.bounce(&transfer).await);
        for _ in 0..10 {
            till.world.clock.advance(chrono::Duration::days(1));
            payments.engine().watch(PspName::Wise, 10).await.unwrap();
            settle(&payments).await;
        }
        assert_eq!(till.status(id).await, IntentStatus::Returned);
    }
}

/// Nobody leaves with payments under way or money on a wallet. A payment that comes back after that
/// is on the wallet, and somebody is told that the archived book has it not.
#[tokio::test(flavor = "multi_thread")]
async fn who_leaves_has_no_payments_and_what_comes_back_later_is_told() {
    let till = Till::new().await;
    let world = &till.world;
    let (alpha, exits) = (world.alpha, &world.app.offboarding);
    till.fund(40_600).await;
    let account = world
        .funded(world.client(alpha, "FO-0000000000aa"), 40_600)
        .await;
    let new = NewIntent {
        book_account: Some(account.id()),
        ..till.payout(40_000)
    };
    let id = till.create(new).await;
    let open = exits.look(alpha).await.unwrap().outstanding;
    assert_eq!((open.intents.count, open.wallets.count), (1, 1));
    assert_eq!(open.intents.first[0].id, id);
    assert_eq!(open.wallets.first[0].available(), 40_600);
    till.payments.outbox().serve(10).await.unwrap();
    let open = exits.look(alpha).await.unwrap().outstanding;
    assert_eq!((open.intents.count, open.wallets.count), (1, 1));
    assert_eq!(open.wallets.first[0].available(), 0);
    let now = world.clock.now();
    let stays = exits.begin(alpha, "US-1", now).await.unwrap();
    assert_eq!(stays.broker.state, BrokerState::Active);
    till.until(id, IntentStatus::Completed).await;
    let leaving = exits.begin(alpha, "US-1", now).await.unwrap();
    assert_eq!(leaving.broker.state, BrokerState::Leaving, "{leaving:?}");
    exits.freeze(alpha, now).await.unwrap();

    let mut tx = pm::begin(&till.pm).await.unwrap();
    let (event, action) = (uuid::Uuid::new_v4(), OutboxAction::Return);
    let asked = outbox::insert(&mut tx, event, id, action, world.clock.now()).await;
    assert!(asked.unwrap());
    pm::commit(tx).await.unwrap();
    till.settle_outbox().await;
    assert!(
        till.alerts("payment_stuck").await.is_empty(),
        "it may stay after all"
    );
    let archived = sqlx::query("UPDATE broker SET state = 'archived' WHERE broker_id = ?");
    let master = &world.app.systems.master;
    archived.bind(alpha).execute(master).await.unwrap();
    for _ in 0..3 {
        world.clock.advance(super::PAST_ALL);
        till.settle_outbox().await;
    }
    assert_eq!(till.status(id).await, IntentStatus::Completed);
    let why: Vec<(String, String, Option<String>)> =
        sqlx::query_as("SELECT action, status, last_error FROM pm.outbox_event")
            .fetch_all(&till.pm)
            .await
            .unwrap();
    assert_eq!(
        till.alerts("payment_stuck").await,
        [id.to_string()],
        "{why:?}"
    );
    assert_eq!(till.wallet().await.posted(), 40_000);
    let amount = Amount::from_minor(5).unwrap();
    let funded = till
        .payments
        .fund(&till.wallet, amount, &meant().key, "US-1")
        .await;
    assert_eq!(state_of(funded), "has left");
}
