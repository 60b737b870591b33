//! What a round would clear, if one were made now.

use std::collections::BTreeMap;
use std::time::Duration;

use super::recomputing::solve;
use super::{NettingError, NettingService};
use crate::domain::ids::BrokerId;
use crate::domain::money::Currency;
use crate::domain::netting::Claim;
use crate::domain::netting_round::{Sums, falls};
use crate::services::network::FieldError;
use crate::stores::master::brokers;
use crate::stores::master::netting::{lines, rounds};

/// How long a preview waits for those of others.
const TURN_WITHIN: Duration = Duration::from_secs(10);

/// What a round would come to. Amounts are minor units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preview {
    pub currency: Currency,
    /// Brokers that are active, and how many must be before a round is offered.
    pub active: u64,
    pub needed: u64,
    pub sums: Sums,
    /// By how much each touched broker's debts would fall, and its claims.
    pub falls: BTreeMap<BrokerId, u128>,
}

/// What the network would clear with a broker and without it. Amounts are minor units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joining {
    pub broker: BrokerId,
    pub cleared_without: u128,
    /// What is cleared because the broker takes part.
    pub adds: u128,
}

impl NettingService {
    /// Works out a round that nobody is asked about; and where `without` names a broker, what its
    /// taking part adds.
    ///
    /// # Errors
    /// See [`NettingError`].
    pub async fn preview(
        &self,
        currency_code: &str,
        without: Option<BrokerId>,
    ) -> Result<(Preview, Option<Joining>), NettingError> {
        let currency = self.currency(currency_code).await?;
        if let Some(id) = without
            && brokers::get(&self.master, id).await?.is_none()
        {
            return Err(FieldError::new("without", "is no broker of the network").into());
        }
        let turn = tokio::time::timeout(TURN_WITHIN, self.preview_turn.acquire());
        let turn = turn.await.map_err(|_| NettingError::PreviewsBusy)?;
        let _turn = turn.map_err(|_| NettingError::PreviewsBusy)?;
        let claims = lines::snapshot(&self.master.patient(), &currency.code).await?;
        let others = without.map(|broker| (broker, leave_out(&claims, broker)));
        let solved = solve(claims).await?;
        let joining = match others {
            None => None,
            Some((broker, others)) => {
                let cleared_without = solve(others).await?.sums.cleared;
                Some(Joining {
                    broker,
                    cleared_without,
                    adds: solved.sums.cleared - cleared_without,
                })
            }
        };
        let preview = Preview {
            currency,
            active: rounds::active_brokers(&self.master).await?,
            needed: self.rules.min_brokers,
            sums: solved.sums,
            falls: falls(&solved.clearing.lines),
        };
        Ok((preview, joining))
    }
}

fn leave_out(claims: &[Claim], broker: BrokerId) -> Vec<Claim> {
    let others = claims.iter();
    let others = others.filter(|claim| claim.debtor != broker && claim.creditor != broker);
    others.copied().collect()
}
