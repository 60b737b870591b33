//! The feeds' sequencer: a reader that resumes misses nothing, whoever commits first.

use chrono::Utc;
use serde_json::json;
use settlenet::stores::master::feed::{self, NewEvent};
use settlenet::stores::master::{begin, commit};

use crate::harness::World;

fn event(broker: u64, subject: &str) -> NewEvent {
    NewEvent {
        broker,
        kind: "test".to_owned(),
        subject: subject.to_owned(),
        payload: json!({}),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_commits_late_gets_a_late_position() {
    let world = World::new().await;
    let (master, broker) = (&world.app.systems.master, world.alpha);
    let mut slow = begin(master).await.unwrap();
    feed::insert(&mut slow, &[event(broker, "slow")], Utc::now())
        .await
        .unwrap();
    let mut quick = begin(master).await.unwrap();
    feed::insert(&mut quick, &[event(broker, "quick")], Utc::now())
        .await
        .unwrap();
    commit(quick).await.unwrap();
    assert_eq!(feed::sequence(master, 100).await.unwrap(), 1);
    let read = feed::after(master, broker, 0, 10).await.unwrap();
    assert_eq!(
        (read.len(), read[0].position, read[0].subject.as_str()),
        (1, 1, "quick")
    );

    commit(slow).await.unwrap();
    let both = tokio::join!(feed::sequence(master, 100), feed::sequence(master, 100));
    assert_eq!(
        both.0.unwrap() + both.1.unwrap(),
        1,
        "two sequencers give one position"
    );
    let read = feed::after(master, broker, 1, 10).await.unwrap();
    assert_eq!(
        (read.len(), read[0].position, read[0].subject.as_str()),
        (1, 2, "slow")
    );
}
