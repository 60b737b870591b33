//! Rounds as they stand, for admins and for the brokers that they touch, and their certificates.

use super::{NettingError, NettingService, corrupt};
use crate::domain::ids::{BrokerId, NettingRoundId, ObligationId};
use crate::domain::netting::certificate::{self, Format, Line};
use crate::domain::netting_round::{Party, PartyState, Round};
use crate::stores::StoreError;
use crate::stores::master::netting::rounds::After;
use crate::stores::master::netting::{lines, parties, rounds};
use crate::stores::master::obligations;

/// A round, and how many of its parties are in which state.
pub type Counted = (Round, Vec<(PartyState, u64)>);

impl NettingService {
    /// # Errors
    /// See [`NettingError`].
    pub async fn round(&self, id: NettingRoundId) -> Result<Round, NettingError> {
        let found = rounds::get(&self.master, id).await?;
        found.ok_or(NettingError::NoRound)
    }

    /// A round, and how many of its parties are in which state.
    ///
    /// # Errors
    /// See [`NettingError`].
    pub async fn round_counted(&self, id: NettingRoundId) -> Result<Counted, NettingError> {
        let round = self.round(id).await?;
        Ok((round, parties::counts(&self.master, id).await?))
    }

    /// Rounds, newest first; `after` is the last of the page before.
    ///
    /// # Errors
    /// The master's.
    pub async fn rounds(&self, after: Option<After>, limit: u32) -> Result<Vec<Round>, StoreError> {
        rounds::list(&self.master, after, limit).await
    }

    /// The parties of a round by broker, after one.
    ///
    /// # Errors
    /// The master's.
    pub async fn parties(
        &self,
        id: NettingRoundId,
        after: Option<BrokerId>,
        limit: u32,
    ) -> Result<Vec<Party>, NettingError> {
        self.round(id).await?;
        Ok(parties::list(&self.master, id, after, limit).await?)
    }

    /// A round that touches a broker or has touched it, and what the broker has to do with it; for
    /// everybody else there is none.
    ///
    /// # Errors
    /// See [`NettingError`].
    pub async fn round_of(
        &self,
        broker: BrokerId,
        id: NettingRoundId,
    ) -> Result<(Round, Party), NettingError> {
        let found = rounds::of_broker(&self.master, broker, Some(id), None, 1).await?;
        found.into_iter().next().ok_or(NettingError::NoRound)
    }

    /// Such rounds, newest first; `after` is the last of the page before.
    ///
    /// # Errors
    /// The master's.
    pub async fn rounds_of(
        &self,
        broker: BrokerId,
        after: Option<After>,
        limit: u32,
    ) -> Result<Vec<(Round, Party)>, StoreError> {
        rounds::of_broker(&self.master, broker, None, after, limit).await
    }

    /// What a round reduces of one broker's obligations, by obligation, after one.
    ///
    /// # Errors
    /// See [`NettingError`].
    pub async fn lines_of(
        &self,
        broker: BrokerId,
        id: NettingRoundId,
        after: Option<ObligationId>,
        limit: u32,
    ) -> Result<Vec<Line>, NettingError> {
        let (round, _) = self.round_of(broker, id).await?;
        let key = (id, round.revision);
        Ok(lines::of_broker(&self.master, key, broker, after, limit).await?)
    }

    /// What a broker is owed less what it owes in a currency, in minor units.
    ///
    /// # Errors
    /// The master's.
    pub async fn net_position(&self, broker: BrokerId, round: &Round) -> Result<i128, StoreError> {
        obligations::net(&self.master, broker, &round.currency).await
    }

    /// The certificate of a round, or of an earlier revision of it: the bytes that
    /// `settlenet verify netting` checks, the same each time.
    ///
    /// # Errors
    /// See [`NettingError`]; corrupt where the lines are not those of the recorded root.
    pub async fn certificate(
        &self,
        id: NettingRoundId,
        revision: Option<u32>,
    ) -> Result<Vec<u8>, NettingError> {
        let round = self.round(id).await?;
        let key = (id, revision.unwrap_or(round.revision));
        let patient = self.master.patient();
        let sums = rounds::sums(&patient, key).await?;
        let sums = sums.ok_or(NettingError::NoRevision)?;
        let prices = lines::prices(&patient, key).await?;
        let lines = lines::all(&patient, key).await?;
        let work = tokio::task::spawn_blocking(move || {
            let Some(format) = Format::of(&lines, sums.root) else {
                return Ok(None);
            };
            let mut bytes = Vec::new();
            let (name, currency) = (id.to_string(), &round.currency);
            certificate::write(&mut bytes, format, &name, currency, &prices, &lines)?;
            Ok::<_, std::io::Error>(Some(bytes))
        });
        match work.await {
            Ok(Ok(Some(bytes))) => Ok(bytes),
            Ok(Ok(None)) => Err(not_of_the_root(id).into()),
            Ok(Err(error)) => Err(corrupt(error).into()),
            Err(_) => Err(NettingError::Lost),
        }
    }
}

pub(super) fn not_of_the_root(id: NettingRoundId) -> StoreError {
    let what = format!("the lines of {id} are not those of its root");
    corrupt(what)
}
