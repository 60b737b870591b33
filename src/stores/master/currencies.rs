//! `currency`: the registry, kept in memory.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, Instant};

use super::failed;
use crate::domain::money::{Currency, CurrencyCode};
use crate::stores::StoreError;
use crate::stores::error::corrupt;
use crate::stores::pool::Pool;

/// A code that is not known is asked for again after this time, not sooner: unknown codes come
/// from outside.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// The currencies of the network. One per process.
pub struct CurrencyRegistry {
    master: Pool,
    known: RwLock<Known>,
}

#[derive(Default)]
struct Known {
    currencies: HashMap<CurrencyCode, Currency>,
    loaded: Option<Instant>,
}

impl CurrencyRegistry {
    #[must_use]
    pub fn new(master: Pool) -> Self {
        Self {
            master,
            known: RwLock::default(),
        }
    }

    /// The currency of a code; `None` where the network has none.
    ///
    /// # Errors
    /// The master's.
    pub async fn get(&self, code: &CurrencyCode) -> Result<Option<Currency>, StoreError> {
        {
            let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(currency) = known.currencies.get(code) {
                return Ok(Some(currency.clone()));
            }
            if known.loaded.is_some_and(|at| at.elapsed() < ASK_AGAIN) {
                return Ok(None);
            }
        }
        self.load().await?;
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        Ok(known.currencies.get(code).cloned())
    }

    /// All currencies, by code.
    ///
    /// # Errors
    /// The master's.
    pub async fn all(&self) -> Result<Vec<Currency>, StoreError> {
        self.load().await?;
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<Currency> = known.currencies.values().cloned().collect();
        all.sort_by(|a, b| a.code.cmp(&b.code));
        Ok(all)
    }

    async fn load(&self) -> Result<(), StoreError> {
        let rows: Vec<(String, u8, u32)> =
            sqlx::query_as("SELECT code, exponent, ledger FROM currency")
                .fetch_all(&self.master)
                .await
                .map_err(failed)?;
        let currencies = rows
            .into_iter()
            .map(|(code, exponent, ledger)| {
                let code: CurrencyCode = code
                    .parse()
                    .map_err(|error| corrupt("currency", format!("{code}: {error}")))?;
                let currency = Currency {
                    code: code.clone(),
                    exponent,
                    ledger,
                };
                Ok((code, currency))
            })
            .collect::<Result<_, StoreError>>()?;
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = Known {
            currencies,
            loaded: Some(Instant::now()),
        };
        Ok(())
    }
}
