//! Reading requests: what a broker may see of them.

use super::{NetworkError, NetworkService};
use crate::domain::canonical::Hash;
use crate::domain::ids::{BrokerId, RequestId};
use crate::domain::request::{Refusal, Request};
use crate::domain::request_event::Event;
use crate::stores::master::requests::{self, After, Filter};

impl NetworkService {
    /// A request, for a broker that may see it.
    ///
    /// # Errors
    /// [`Refusal::NotFound`] for everybody else; the master's.
    pub async fn request(&self, broker: BrokerId, id: RequestId) -> Result<Request, NetworkError> {
        let request = self.load(id).await?;
        if !request.visible_to(broker) {
            return Err(Refusal::NotFound.into());
        }
        self.serves_city(broker, &request).await?;
        Ok(request)
    }

    /// A broker's requests and the open broadcasts of others, newest first.
    ///
    /// # Errors
    /// The master's.
    pub async fn requests(
        &self,
        broker: BrokerId,
        filter: Filter,
        after: Option<After>,
        limit: u32,
    ) -> Result<Vec<Request>, NetworkError> {
        Ok(requests::list(self.master(), broker, filter, after, limit).await?)
    }

    /// At most `limit` events of a request after a `seq`, oldest first, for its parties.
    ///
    /// # Errors
    /// [`Refusal::NotFound`] for everybody else; the master's.
    pub async fn events(
        &self,
        broker: BrokerId,
        id: RequestId,
        after: u32,
        limit: u32,
    ) -> Result<Vec<(Event, Hash)>, NetworkError> {
        let request = self.load(id).await?;
        if request.party(broker).is_none() {
            return Err(Refusal::NotFound.into());
        }
        Ok(requests::events_after(self.master(), id, after, limit).await?)
    }
}
