//! The lives of payouts: paid, refused, not covered, booked, in doubt.

use serde_json::json;
use settlenet::domain::account::AccountRef;
use settlenet::domain::ledger::AccountOwner;
use settlenet::domain::payment::receiver::Receiver;
use settlenet::domain::payment::{IntentStatus, PspName};
use settlenet::services::payments::{
    Finding, IntentFilter, NewIntent, NewWallet, Verdict, wallet_name,
};

use super::desk::{Desk, Fate};
use super::{Till, finding, meant, state_of, transit};

#[tokio::test(flavor = "multi_thread")]
async fn a_payout_is_held_paid_and_posted_with_its_fee() {
    let till = Till::new().await;
    till.fund(100_000).await;
    let id = till.create(till.payout(40_000)).await;
    assert_eq!(till.status(id).await, IntentStatus::Created);
    assert_eq!(till.payments.outbox().serve(10).await.unwrap(), 1);
    assert_eq!(till.status(id).await, IntentStatus::Held);
    // 5.00 and a quarter of a percent of 400.00.
    let held = till.wallet().await;
    assert_eq!((held.debits_pending, held.debits_posted), (40_600, 0));
    till.settle().await;
    let paid = till.get(id).await;
    assert_eq!(paid.intent.status, IntentStatus::Completed);
    assert_eq!(paid.intent.fee, 600);
    let wallet = till.wallet().await;
    assert_eq!((wallet.debits_pending, wallet.posted()), (0, 59_400));
    assert_eq!(till.balances(AccountOwner::Revenue).await.posted(), 600);
    assert_eq!(till.balances(transit()).await.credits_posted, 40_000);
    assert_eq!(till.assert_paid().await, 40_000);
    let ways: Vec<_> = paid
        .events
        .iter()
        .map(|event| {
            (
                event.status_from.as_deref().unwrap_or("-"),
                event.status_to.as_str(),
            )
        })
        .collect();
    assert_eq!(
        ways,
        [
            ("-", "created"),
            ("created", "held"),
            ("held", "processing"),
            ("processing", "processing"),
            ("processing", "processing"),
            ("processing", "completed"),
        ]
    );
    let psp = &paid.events[4].payload["psp"];
    assert_eq!(
        (&psp["state_from"], &psp["state_to"]),
        (&json!("CONFIRM_PENDING"), &json!("CONFIRMED"))
    );
    let evidence = till.payments.evidence(id).await.unwrap();
    assert_eq!(
        evidence.psp.facts.receiver_name_en.as_deref(),
        Some("Somchai J.")
    );
    assert_eq!(evidence.psp.confirm_rq_uid, Some(id.to_string()));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_wallet_has_not_got_is_not_asked_for() {
    let till = Till::new().await;
    till.fund(40_599).await;
    let id = till.create(till.payout(40_000)).await;
    till.settle().await;
    let failed = till.get(id).await.intent;
    assert_eq!(failed.status, IntentStatus::Failed);
    assert_eq!(failed.reason.as_deref(), Some("insufficient_funds"));
    assert_eq!(
        till.wallet().await.debits_pending,
        0,
        "the amount alone is not held either"
    );
    assert_eq!(till.desk.times_asked(), 0);
    assert!(
        till.payments.evidence(id).await.is_err(),
        "nobody is to be asked"
    );
    // What would do goes through.
    let id = till.create(till.payout(39_900)).await;
    till.until(id, IntentStatus::Completed).await;
    till.assert_paid().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_provider_refuses_is_given_back() {
    let till = Till::with(Desk::with_fates([Fate::Refused], false)).await;
    till.fund(100_000).await;
    let id = till.create(till.payout(40_000)).await;
    till.until(id, IntentStatus::Failed).await;
    let wallet = till.wallet().await;
    assert_eq!((wallet.debits_pending, wallet.posted()), (0, 100_000));
    assert_eq!(till.balances(AccountOwner::Revenue).await.posted(), 0);
    assert_eq!(till.assert_paid().await, 0);
    let evidence = till.payments.evidence(id).await.unwrap();
    assert_eq!(evidence.psp.last_error.as_deref(), Some("account_closed"));
    let intent = evidence.intent.unwrap();
    assert_eq!(intent.reason.as_deref(), Some("account_closed"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_not_heard_is_asked_about_and_never_paid_twice() {
    for (fate, deduplicates, ends) in [
        (Fate::PaidUnheard, false, IntentStatus::Completed),
        (Fate::PaidUnheard, true, IntentStatus::Completed),
        (Fate::Unheard, true, IntentStatus::Completed),
        (Fate::Unheard, false, IntentStatus::ManualReview),
    ] {
        let till = Till::with(Desk::with_fates([fate], deduplicates)).await;
        till.fund(100_000).await;
        let id = till.create(till.payout(40_000)).await;
        till.until(id, ends).await;
        let asked = till.desk.times_asked();
        let again = usize::from(fate == Fate::Unheard && deduplicates);
        assert_eq!(asked, 1 + again, "{fate:?} {deduplicates}");
        if ends == IntentStatus::ManualReview {
            let held = till.wallet().await;
            assert_eq!(held.debits_pending, 40_600, "the money stays held");
        }
        till.assert_paid().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_resolves_what_nobody_else_can() {
    for (verdict, ends, left) in [
        (Verdict::Confirmed, IntentStatus::Completed, 59_400),
        (Verdict::Failed, IntentStatus::Failed, 100_000),
    ] {
        let till = Till::with(Desk::with_fates([Fate::Unheard], false)).await;
        till.fund(100_000).await;
        let id = till.create(till.payout(40_000)).await;
        till.until(id, IntentStatus::ManualReview).await;
        let waiting = till.payments.reviews(None, 10).await.unwrap();
        assert_eq!(waiting.len(), 1);
        assert_eq!(
            waiting[0].0.last_error.as_deref(),
            Some("unknown_to_provider")
        );
        let alerts = till.world.app.alerts.list(true, None, 10).await.unwrap();
        assert_eq!(
            (alerts[0].kind.as_str(), alerts[0].subject.clone()),
            ("payment_review", id.to_string())
        );

        let unsaid = Finding {
            reason: " ",
            ..finding(verdict)
        };
        let unsaid = till.payments.resolve(id, &unsaid).await;
        assert_eq!(state_of(unsaid), "reason");
        let resolved = till.payments.resolve(id, &finding(verdict)).await.unwrap();
        assert_eq!(resolved.psp.state.as_str(), verdict.as_str());
        let again = till.payments.resolve(id, &finding(verdict)).await;
        assert_eq!(
            again.unwrap().psp.state,
            resolved.psp.state,
            "a repeat changes nothing"
        );
        let other = match verdict {
            Verdict::Confirmed => Verdict::Failed,
            Verdict::Failed => Verdict::Confirmed,
        };
        let late = till.payments.resolve(id, &finding(other)).await;
        assert_eq!(state_of(late), "state");
        till.until(id, ends).await;
        assert_eq!(till.wallet().await.posted(), left);
        assert_eq!(till.wallet().await.debits_pending, 0);
        assert!(till.payments.reviews(None, 10).await.unwrap().is_empty());
        assert!(
            till.world
                .app
                .alerts
                .list(true, None, 10)
                .await
                .unwrap()
                .is_empty()
        );
        let history = till.get(id).await.events;
        let verdicts: Vec<_> = history
            .iter()
            .filter(|e| e.payload["review"].is_object())
            .collect();
        assert_eq!(verdicts.len(), 1);
        assert_eq!(verdicts[0].reason.as_deref(), Some("asked them"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sender_whom_the_provider_does_not_know_is_a_persons_matter() {
    let till = Till::new().await;
    let new = NewWallet {
        partner: None,
        currency: till.currency.clone(),
        ipps_wallet_id: None,
    };
    let beta = till
        .payments
        .open_wallet(till.world.beta, new)
        .await
        .unwrap();
    let amount = settlenet::domain::money::Amount::from_minor(50_000).unwrap();
    till.payments
        .fund(&beta.wallet.name, amount, &meant().key, "US-1")
        .await
        .unwrap();
    let new = NewIntent {
        wallet: beta.wallet.name,
        ..till.payout(1_000)
    };
    let created = till
        .payments
        .create(till.world.beta, &meant(), new)
        .await
        .unwrap();
    let id = created.intent.id;
    till.settle().await;
    let waiting = till.payments.reviews(None, 10).await.unwrap();
    assert_eq!(waiting[0].0.intent, id);
    assert_eq!(
        waiting[0].0.last_error.as_deref(),
        Some("wallet_not_registered")
    );
    assert_eq!(till.desk.times_asked(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_booked_in_a_book_is_reserved_then_booked_or_released() {
    let till = Till::with(Desk::with_fates([Fate::Paid, Fate::Refused], false)).await;
    till.fund(1_000_000).await;
    let world = &till.world;
    let account: AccountRef = world
        .funded(world.client(world.alpha, "FO-0000000000aa"), 100_000)
        .await;
    let state = async || {
        world
            .app
            .books
            .account(world.alpha, account.id())
            .await
            .unwrap()
            .balance
    };
    let booked = || NewIntent {
        book_account: Some(account.id()),
        ..till.payout(40_000)
    };

    let id = till.create(booked()).await;
    till.payments.outbox().serve(10).await.unwrap();
    assert_eq!(
        (state().await.balance, state().await.reserved),
        (100_000, 40_600)
    );
    till.until(id, IntentStatus::Completed).await;
    assert_eq!((state().await.balance, state().await.reserved), (59_400, 0));
    let entries = world
        .app
        .books
        .transactions(world.alpha, Some(account.id()), None, 10)
        .await;
    let entries = entries.unwrap();
    let kinds: Vec<_> = entries
        .iter()
        .map(|e| (e.entry.kind.as_str(), e.entry.amount))
        .collect();
    assert_eq!(
        kinds[..2],
        [("payment.fee", 600), ("payment.amount", 40_000)]
    );
    assert!(
        entries[..2]
            .iter()
            .all(|e| e.entry.subject == id.simple().to_string())
    );

    let refused = till.create(booked()).await;
    till.until(refused, IntentStatus::Failed).await;
    assert_eq!((state().await.balance, state().await.reserved), (59_400, 0));
    // What the book hasn't got is not held in the ledger either.
    let short = till
        .create(NewIntent {
            book_account: Some(account.id()),
            ..till.payout(59_000)
        })
        .await;
    till.until(short, IntentStatus::Failed).await;
    let reason = till.get(short).await.intent.reason.unwrap();
    assert!(reason.starts_with("book: "), "{reason}");
    assert_eq!((state().await.balance, state().await.reserved), (59_400, 0));
    assert_eq!(till.wallet().await.debits_pending, 0);
    let walked = world
        .app
        .books
        .verify(world.alpha, None, &|_, _| {})
        .await
        .unwrap();
    assert!(walked.result.is_ok());
    assert_eq!(till.assert_paid().await, 40_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_pays_what_to_whom_is_checked_before_anything_is_written() {
    let till = Till::new().await;
    till.fund(100_000).await;
    let (alpha, beta) = (till.world.alpha, till.world.beta);
    let create = async |broker, new| till.payments.create(broker, &meant(), new).await;
    let payout = || till.payout(1_000);
    let wise = NewIntent {
        channel: PspName::Wise,
        ..payout()
    };
    assert_eq!(state_of(create(alpha, wise).await), "channel");
    let iban = Receiver::Iban {
        holder_name: "Jo".to_owned(),
        iban: "DE89370400440532013000".to_owned(),
    };
    let iban = NewIntent {
        receiver: iban,
        ..payout()
    };
    assert_eq!(state_of(create(alpha, iban).await), "receiver.type");
    assert_eq!(state_of(create(beta, payout()).await), "no wallet");
    let partner = Some("FO-0000000000aa");
    let theirs = wallet_name(alpha, partner, &till.currency).unwrap();
    let unopened = NewIntent {
        wallet: theirs,
        ..payout()
    };
    assert_eq!(state_of(create(alpha, unopened).await), "no wallet");
    let world = &till.world;
    let account = world
        .funded(world.client(beta, "FO-0000000000bb"), 100_000)
        .await;
    let foreign = NewIntent {
        book_account: Some(account.id()),
        ..payout()
    };
    assert!(
        create(alpha, foreign).await.is_err(),
        "another broker's account"
    );
    let most = settlenet::domain::money::MAX_MINOR;
    assert_eq!(state_of(create(alpha, till.payout(most)).await), "amount");
    assert!(
        till.payments
            .list(alpha, &IntentFilter::default(), None, 10)
            .await
            .unwrap()
            .is_empty()
    );

    // One intention is one intent; the same wish under another key is another.
    let intention = meant();
    let first = till
        .payments
        .create(alpha, &intention, payout())
        .await
        .unwrap();
    let again = till
        .payments
        .create(alpha, &intention, payout())
        .await
        .unwrap();
    assert_eq!(first.intent.id, again.intent.id);
    let mut other = intention.clone();
    other.fingerprint.0[0] ^= 1;
    assert_eq!(
        state_of(till.payments.create(alpha, &other, till.payout(2)).await),
        "key"
    );
    till.world.clock.advance(chrono::Duration::seconds(1));
    let second = create(alpha, payout()).await.unwrap();
    assert_ne!(first.intent.id, second.intent.id);
    till.settle().await;
    assert_eq!(till.assert_paid().await, 2_000);
    assert!(!super::other_broker_sees(&till, beta, first.intent.id).await);
    let page = till
        .payments
        .list(alpha, &IntentFilter::default(), None, 1)
        .await
        .unwrap();
    assert_eq!(page[0].id, second.intent.id);
    let last = Some((page[0].created_at, page[0].id));
    let page = till
        .payments
        .list(alpha, &IntentFilter::default(), last, 1)
        .await
        .unwrap();
    assert_eq!(page[0].id, first.intent.id);
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_of_one_intention_are_one_intent() {
    let till = Till::new().await;
    till.fund(100_000).await;
    let intention = meant();
    let all = (0..20).map(|_| {
        till.payments
            .create(till.world.alpha, &intention, till.payout(1_000))
    });
    let all = futures::future::join_all(all).await;
    let mut ids: Vec<_> = all.into_iter().map(|one| one.unwrap().intent.id).collect();
    ids.dedup();
    assert_eq!(ids.len(), 1);
    till.settle().await;
    assert_eq!(till.assert_paid().await, 1_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_come_on_is_told_until_it_does() {
    let till = Till::with(Desk::with_fates([Fate::Unheard], false)).await;
    till.fund(100_000).await;
    let id = till.create(till.payout(40_000)).await;
    let engine = till.payments.engine();
    let later = async |minutes| {
        till.world.clock.advance(chrono::Duration::minutes(minutes));
        engine.remind(10).await.unwrap();
        till.alerts("payments_waiting").await
    };
    assert!(later(9).await.is_empty());
    assert_eq!(later(2).await, ["ledger"]);
    till.payments.outbox().serve(10).await.unwrap();
    assert_eq!(later(0).await, Vec::<String>::new());
    // It is held, and no worker has it.
    assert_eq!(later(11).await, ["IPPS"]);
    let alert = &till.world.app.alerts.list(true, None, 1).await.unwrap()[0];
    assert_eq!(alert.details["oldest"], json!(id));
    assert_eq!(alert.details["count"], 1);
    assert_eq!(later(11).await, ["IPPS"], "once");
    till.until(id, IntentStatus::ManualReview).await;
    assert!(later(11).await.is_empty(), "a review is told of as one");
    assert_eq!(till.alerts("payment_review").await, [id.to_string()]);
    till.assert_paid().await;
}

/// A database that was restored to an older time.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_without_its_intent_is_shown_and_never_resolved() {
    let till = Till::new().await;
    till.fund(100_000).await;
    let id = till.create(till.payout(40_000)).await;
    till.payments.outbox().serve(10).await.unwrap();
    let lost = sqlx::query("DELETE FROM pm.intent WHERE id = $1").bind(id);
    lost.execute(&till.pm).await.unwrap();
    let engine = till.payments.engine();
    let row = engine.pick_up(PspName::Ipps, 10).await.unwrap().remove(0);
    engine.serve(row).await;
    let found = till.payments.evidence(id).await.unwrap();
    assert_eq!(found.intent, None);
    assert_eq!(found.psp.state.as_str(), "MANUAL_REVIEW");
    assert_eq!(found.psp.last_error.as_deref(), Some("intent_not_found"));
    assert_eq!(till.alerts("payment_review").await, [id.to_string()]);
    for verdict in [Verdict::Confirmed, Verdict::Failed] {
        let refused = till.payments.resolve(id, &finding(verdict)).await;
        assert_eq!(state_of(refused), "state");
    }
    let found = till.payments.evidence(id).await.unwrap();
    assert_eq!(found.psp.state.as_str(), "MANUAL_REVIEW");
    assert_eq!(till.desk.times_asked(), 0);
    assert_eq!(till.wallet().await.debits_pending, 40_600);
}
