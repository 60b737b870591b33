use uuid::Uuid;

use super::SagaEngine;
use crate::stores::StoreError;
use crate::stores::master::sagas::{self, Lease};

impl SagaEngine {
    /// Leases sagas that are due to this process, oldest first, at most `limit`: those whose
    /// lease has run out, and those whose retry is due. [`Self::take_on`] runs them.
    ///
    /// # Errors
    /// The master's.
    pub async fn claim(&self, limit: u32) -> Result<(Lease, Vec<Uuid>), StoreError> {
        let systems = &self.0.systems;
        let now = systems.clock.now();
        let lease = self.lease(now);
        let claimed = sagas::claim(&systems.master, &lease, now, limit).await?;
        Ok((lease, claimed))
    }
}
