//! Two workers at once, one that stood still, steps done twice, and the ledger's last word.

use settlenet::domain::payment::{IntentStatus, OutboxAction, PspName};
use settlenet::services::payments::PaymentService;
use settlenet::stores::pm::{self, outbox, queue};
use sqlx::{AssertSqlSafe, Row as _};
use uuid::Uuid;

use super::desk::{Desk, Fate};
use super::{PAST_ALL, Till};
use crate::harness::MovedClock;

#[tokio::test(flavor = "multi_thread")]
async fn one_that_stood_still_writes_nothing_and_pays_nothing() {
    let till = Till::new().await;
    till.fund(1_000_000).await;
    let id = till.create(till.payout(40_000)).await;
    till.payments.outbox().serve(10).await.unwrap();
    let (slow, next) = (till.payments.engine(), till.another(PAST_ALL));
    let looked = slow.pick_up(PspName::Ipps, 10).await.unwrap().remove(0);
    slow.serve(looked).await;
    // It has the right to ask for the payment, and stands still.
    let stale = slow.pick_up(PspName::Ipps, 10).await.unwrap().remove(0);
    assert_eq!(
        till.payments.evidence(id).await.unwrap().psp.state.as_str(),
        "CONFIRM_PENDING"
    );
    let taken_over = next
        .engine()
        .pick_up(PspName::Ipps, 10)
        .await
        .unwrap()
        .remove(0);
    let row = till.payments.evidence(id).await.unwrap().psp;
    assert_eq!(
        row.state.as_str(),
        "INQUIRING",
        "what may have been sent is asked about"
    );
    next.engine().serve(taken_over).await;
    let reviewed = till.status(id).await;
    assert_eq!(
        reviewed,
        IntentStatus::ManualReview,
        "this provider can't say"
    );
    // It goes on: its word counts no more, whatever it has heard.
    slow.serve(stale).await;
    let now = till.payments.evidence(id).await.unwrap();
    assert_eq!(now.psp.state.as_str(), "MANUAL_REVIEW");
    assert_eq!(now.intent.unwrap().status, IntentStatus::ManualReview);
    assert!(till.desk.times_asked() <= 1);
    assert_eq!(till.wallet().await.debits_pending, 40_600);
}

/// The clocks of two machines are never the same, and no lease runs out for that.
#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_ahead_takes_nothing_away() {
    let moved = MovedClock::new();
    let clock = |hours| moved.clock(chrono::Duration::hours(hours));
    let till = Till::by(clock(0), Desk::default()).await;
    till.fund(1_000_000).await;
    for (mine, other) in [(0, 1), (1, 0), (0, -1), (-1, 0)] {
        let (mine, other) = (till.going_by(clock(mine)), till.going_by(clock(other)));
        let id = till.create(till.payout(40_000)).await;
        let taken = async |payments: &PaymentService| {
            let rows = payments.engine().pick_up(PspName::Ipps, 10).await.unwrap();
            rows.len()
        };
        mine.outbox().serve(10).await.unwrap();
        // Whoever is behind sees it once its own clock is there, which is no matter of leases.
        assert_eq!(taken(&mine).await, 1);
        assert_eq!(taken(&other).await, 0, "it is somebody's");
        moved.advance(chrono::Duration::seconds(29));
        assert_eq!(taken(&other).await, 0, "until the lease has run out");
        moved.advance(chrono::Duration::seconds(2));
        assert_eq!(taken(&other).await, 1);
        moved.advance(PAST_ALL);
        till.until(id, IntentStatus::Completed).await;
    }
    till.assert_paid().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_workers_pay_each_once() {
    let till = Till::with(Desk::with_fates(
        (0..40).map(|n| match n % 4 {
            0 => Fate::Paid,
            1 => Fate::PaidUnheard,
            2 => Fate::Unheard,
            _ => Fate::Refused,
        }),
        true,
    ))
    .await;
    till.fund(10_000_000).await;
    let mut ids = Vec::new();
    for n in 0..40 {
        ids.push(till.create(till.payout(1_000 + n)).await);
    }
    let second = till.another(chrono::Duration::seconds(1));
    for _ in 0..40 {
        let both = tokio::join!(till.work(&till.payments), till.work(&second));
        if both == (false, false) {
            if futures::future::join_all(ids.iter().map(|id| till.status(*id)))
                .await
                .iter()
                .all(|status| status.is_over())
            {
                break;
            }
            till.world.clock.advance(PAST_ALL);
        }
    }
    let (mut paid, mut failed) = (0, 0);
    for id in &ids {
        match till.status(*id).await {
            IntentStatus::Completed => paid += 1,
            IntentStatus::Failed => failed += 1,
            other => panic!("{other}"),
        }
    }
    assert_eq!(paid + failed, 40);
    assert_eq!(till.desk.paid().len(), paid);
    till.assert_paid().await;
    assert_eq!(till.wallet().await.debits_pending, 0);
}

/// Every action is done a second time by somebody whose lease has come, while the first has done
/// it and not yet said so.
#[tokio::test(flavor = "multi_thread")]
async fn actions_that_are_done_twice_are_done_once() {
    let till = Till::with(Desk::with_fates([Fate::Paid, Fate::Refused], false)).await;
    till.fund(1_000_000).await;
    for ends in [IntentStatus::Completed, IntentStatus::Failed] {
        let id = till.create(till.payout(40_000)).await;
        for _ in 0..4 {
            forget_the_outcome(&till, id).await;
            till.settle().await;
        }
        assert_eq!(till.status(id).await, ends);
        // Once more from the end.
        reopen(&till, id).await;
        till.settle().await;
        assert_eq!(till.status(id).await, ends);
    }
    assert_eq!(till.assert_paid().await, 40_000);
    assert_eq!(till.wallet().await.posted(), 1_000_000 - 40_600);
    assert_eq!(till.wallet().await.debits_pending, 0);
}

/// The ledger has it, and the process died before it could say so.
async fn forget_the_outcome(till: &Till, id: Uuid) {
    let systems = &till.world.app.systems;
    let intent = till.get(id).await.intent;
    // As the worker would, straight at the ledger.
    let before = systems
        .ledger
        .transfer(settlenet::domain::ledger::transfer_id(id, 0))
        .await;
    if before.unwrap().is_none() && intent.status == IntentStatus::Created {
        let twin = till.another(PAST_ALL);
        let leases = settlenet::services::payments::PaymentRules::default().outbox;
        let clock = &till.world.clock;
        let look = outbox::Look {
            from: chrono::DateTime::UNIX_EPOCH,
            by: "dies",
            limit: 10,
        };
        let taken = outbox::take(&till.pm, &look, &leases, clock).await.unwrap();
        assert_eq!(taken.len(), 1);
        twin.outbox().serve(10).await.unwrap();
        // The one that stood still can't end it any more.
        let mut tx = pm::begin(&till.pm).await.unwrap();
        let ended = outbox::end(&mut tx, &taken[0], outbox::Ended::Done, None, clock.now()).await;
        assert!(!ended.unwrap());
    }
}

async fn reopen(till: &Till, id: Uuid) {
    let sql = "UPDATE pm.outbox_event SET status = 'pending' WHERE intent_id = $1 AND action = 'hold_pending'";
    sqlx::query(sql).bind(id).execute(&till.pm).await.unwrap();
    till.world.clock.advance(chrono::Duration::seconds(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_post_and_a_void_one_wins_and_the_other_is_told() {
    for _ in 0..5 {
        let till = Till::with(Desk::with_fates([Fate::Unheard], false)).await;
        till.fund(100_000).await;
        let id = till.create(till.payout(40_000)).await;
        till.until(id, IntentStatus::ManualReview).await;
        let now = till.world.clock.now();
        let mut tx = pm::begin(&till.pm).await.unwrap();
        for action in [OutboxAction::Post, OutboxAction::Void] {
            outbox::insert(&mut tx, Uuid::new_v4(), id, action, now)
                .await
                .unwrap();
        }
        pm::commit(tx).await.unwrap();
        till.settle().await;
        let status = till.status(id).await;
        let wallet = till.wallet().await;
        assert_eq!(wallet.debits_pending, 0);
        match status {
            IntentStatus::Completed => assert_eq!(wallet.posted(), 59_400),
            IntentStatus::Failed => assert_eq!(wallet.posted(), 100_000),
            other => panic!("{other}"),
        }
        let alerts = till.world.app.alerts.list(true, None, 10).await.unwrap();
        assert!(
            alerts.iter().any(|alert| alert.kind == "payment_raced"),
            "{alerts:?}"
        );
        let actions: Vec<String> = sqlx::query_scalar(
            "SELECT status FROM pm.outbox_event WHERE intent_id = $1 AND action <> 'hold_pending' ORDER BY 1",
        )
        .bind(id)
        .fetch_all(&till.pm)
        .await
        .unwrap();
        assert_eq!(actions, ["done", "refused"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_stuck_is_tried_again_when_somebody_asks_for_it() {
    let till = Till::new().await;
    till.fund(100_000).await;
    let id = till.create(till.payout(40_000)).await;
    let early = till.payments.retry(id, "US-1").await;
    assert_eq!(super::state_of(early), "state");
    sqlx::query("UPDATE pm.outbox_event SET status = 'stuck'")
        .execute(&till.pm)
        .await
        .unwrap();
    till.settle().await;
    assert_eq!(till.status(id).await, IntentStatus::Created);
    till.payments.retry(id, "US-1").await.unwrap();
    till.until(id, IntentStatus::Completed).await;
    till.assert_paid().await;
}

/// What has ended is not looked at when something is picked up, however much there is.
#[tokio::test(flavor = "multi_thread")]
async fn the_queue_reads_only_what_is_work() {
    let till = Till::new().await;
    let many = "INSERT INTO pm.psp_tx_map (intent_id, psp_name, state, created_at)
                SELECT gen_random_uuid(), 'IPPS', 'CONFIRMED', now() - make_interval(secs => n)
                FROM generate_series(1, 20000) n";
    sqlx::query(many).execute(&till.pm).await.unwrap();
    sqlx::query("ANALYZE pm.psp_tx_map")
        .execute(&till.pm)
        .await
        .unwrap();
    let sql = queue::PICK_UP
        .replace("$10", "NULL")
        .replace("$1", "'IPPS'")
        .replace("$2", "now()")
        .replace("$3", "30")
        .replace("$4", "300")
        .replace("$5", "1")
        .replace("$6", "300")
        .replace("$7", "10")
        .replace("$8", "'me'")
        .replace("$9", "'epoch'");
    let plan: Vec<String> = sqlx::query(AssertSqlSafe(format!("EXPLAIN {sql}")))
        .fetch_all(&till.pm)
        .await
        .unwrap()
        .iter()
        .map(|row| row.get(0))
        .collect();
    let plan = plan.join("\n");
    assert!(plan.contains("psp_tx_map_active_idx"), "{plan}");
    assert!(!plan.contains("Seq Scan on psp_tx_map"), "{plan}");
}
