//! Amounts on the wire: decimal strings in major units beside a `currency_code`.

use super::problem::Problem;
use super::state::AppState;
use crate::domain::money::{Currency, CurrencyCode};
use crate::services::StoreError;

/// The decimals of a currency that something here is in.
///
/// # Errors
/// The master's. A currency that the registry lacks is a fault of ours: an amount that can't be
/// written in major units is not shown at all.
pub(super) async fn exponent_of(state: &AppState, code: &str) -> Result<u8, Problem> {
    let currency = match code.parse::<CurrencyCode>() {
        Ok(code) => state.app.currencies.get(&code).await?,
        Err(_) => None,
    };
    let unknown = || StoreError::Corrupt {
        table: "currency",
        what: format!("{code} is not in the registry"),
    };
    Ok(currency.ok_or_else(unknown)?.exponent)
}

/// The currency that a caller names.
///
/// # Errors
/// A 422 that names `field` where the network has none of that code.
pub(super) async fn currency_named(
    state: &AppState,
    field: &'static str,
    code: &str,
) -> Result<Currency, Problem> {
    let unknown = || Problem::invalid(field, format!("{code:?} is not a currency of the network"));
    let code: CurrencyCode = code.parse().map_err(|_| unknown())?;
    state.app.currencies.get(&code).await?.ok_or_else(unknown)
}
