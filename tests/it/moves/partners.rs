//! What a plan bounds in a book goes with the book.

use settlenet::domain::broker::BrokerPlan;
use settlenet::domain::ids::BrokerId;
use settlenet::domain::partner::{Facts, Partner, PartnerKind};
use settlenet::services::moves::Destination;
use settlenet::services::partners::{NewPartner, PartnerError, PartnerFilter};
use settlenet::services::plans::{AskedBy, PlanError};

use super::Stage;
use crate::harness::World;

impl Stage {
    async fn partner(&self, broker: BrokerId, name: &str) -> Result<Partner, PartnerError> {
        let new = NewPartner {
            kind: PartnerKind::Offline,
            facts: Facts {
                display_name: name.to_owned(),
                phone: Some("+971 50".to_owned()),
                contacts: None,
                note: None,
            },
            platform_broker_id: None,
        };
        let now = self.world.clock.now();
        let meant = World::intention();
        self.app().partners.create(broker, &meant, new, now).await
    }

    async fn plan(&self, broker: BrokerId, to: BrokerPlan) -> Result<(), PlanError> {
        let now = self.world.clock.now();
        let changed = self.app().plans.change(broker, to, AskedBy::Platform, now);
        changed.await.map(drop)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn partners_and_their_bound_go_with_the_book() {
    let stage = Stage::new().await;
    let broker = stage.world.gamma;
    stage.plan(broker, BrokerPlan::Starter).await.unwrap();
    let mut made = Vec::new();
    for name in ["Anna", "Boris", "Vera"] {
        made.push(stage.partner(broker, name).await.unwrap());
    }
    stage.moved(broker, Destination::Own(None)).await;
    let list = stage
        .app()
        .partners
        .list(broker, PartnerFilter::default(), None, 10);
    let mut there = list.await.unwrap();
    there.sort_by_key(|partner| partner.id);
    made.sort_by_key(|partner| partner.id);
    assert_eq!(there, made);
    let full = stage.partner(broker, "Fourth").await;
    assert!(matches!(full, Err(PartnerError::Plan(_))), "{full:?}");
    stage.plan(broker, BrokerPlan::Growth).await.unwrap();
    stage.partner(broker, "Fourth").await.unwrap();
    stage.moved(broker, Destination::Shard(Some(1))).await;
    let less = stage.plan(broker, BrokerPlan::Starter).await;
    assert!(
        matches!(less, Err(PlanError::DoesNotFit { .. })),
        "{less:?}"
    );
    stage.partner(broker, "Fifth").await.unwrap();
}
