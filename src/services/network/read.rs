//! Reading requests: what a broker may see of them.

use super::{NetworkError, NetworkService};
use crate::domain::canonical::Hash;
use crate::domain::ids::{BrokerId, RequestId};
use crate::domain::request::{Refusal, Request};
use crate::domain::request_event::Event;
use crate::stores::master::requests::{self, After, Filter};

/// A page of requests, and where the next begins.
#[derive(Clone, Debug)]
pub struct Page {
    pub requests: Vec<Request>,
    pub next: Option<After>,
}

impl NetworkService {
    /// A request, for a broker that may see it.
    ///
    /// # Errors
    /// [`Refusal::NotFound`] for everybody else; the master's.
    pub async fn request(&self, broker: BrokerId, id: RequestId) -> Result<Request, NetworkError> {
        let request = self.load(id).await?;
        if request.visible_to(broker) {
            Ok(request)
        } else {
            Err(Refusal::NotFound.into())
        }
    }

    /// # Errors
    /// The master's.
    pub async fn requests(
        &self,
        broker: BrokerId,
        filter: Filter,
        after: Option<After>,
        limit: u32,
    ) -> Result<Page, NetworkError> {
        let mut found = requests::list(
            self.master(),
            broker,
            filter,
            after,
            limit.saturating_add(1),
        )
        .await?;
        let more = found.len() > limit as usize;
        found.truncate(limit as usize);
        let next = found.last().filter(|_| more).map(|last| After {
            created_at: last.created_at,
            id: last.id,
        });
        Ok(Page {
            requests: found,
            next,
        })
    }

    /// The events of a request, for its parties.
    ///
    /// # Errors
    /// [`Refusal::NotFound`] for everybody else; the master's.
    pub async fn events(
        &self,
        broker: BrokerId,
        id: RequestId,
    ) -> Result<Vec<(Event, Hash)>, NetworkError> {
        let request = self.load(id).await?;
        if request.party(broker).is_none() {
            return Err(Refusal::NotFound.into());
        }
        Ok(requests::events(self.master(), id).await?)
    }
}
