//! `/v1/obligations` and `/v1/positions`: who owes whom.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::guard::Allowed;
use super::money::{currency_named, exponent_of};
use super::paging::{Page, PageRequest, Place};
use super::params::{PathOf, QueryOf};
use super::problem::{Code, Problem};
use super::routes::Routes;
use super::state::AppState;
use crate::domain::access::actions;
use crate::domain::ids::{BrokerId, ObligationId};
use crate::domain::money::format_minor;
use crate::domain::obligation::{DebtSide, ObligationStatus};
use crate::domain::settlement::PartStatus;
use crate::route;
use crate::services::credit_lines::CreditLine;
use crate::services::obligations::{Filter, Obligation, Position};

/// Settlements that an obligation is shown with.
const MAX_SETTLEMENTS: u32 = 1_000;

pub fn routes() -> Routes {
    Routes::new()
        .with(route!(list))
        .with(route!(ageing))
        .with(route!(read))
        .with(route!(positions))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
struct ListQuery {
    limit: Option<u32>,
    cursor: Option<String>,
    /// `pending`, `active`, `settled`, `failed`
    #[param(value_type = Option<String>)]
    status: Option<ObligationStatus>,
    /// The other side.
    counterparty_broker_id: Option<BrokerId>,
    currency_code: Option<String>,
    /// `debtor`: what one owes; `creditor`: what one is owed
    #[param(value_type = Option<String>)]
    side: Option<DebtSide>,
}

#[derive(Serialize, utoipa::ToSchema)]
struct ObligationView {
    #[schema(value_type = String, example = "OB-0a5bb4c3d2e1")]
    id: ObligationId,
    /// What it comes from: `NR-…` or `OR-…`.
    subject: String,
    debtor_broker_id: BrokerId,
    creditor_broker_id: BrokerId,
    currency_code: String,
    amount: String,
    remaining_amount: String,
    /// Promised to a settlement under way.
    reserved_amount: String,
    /// `pending` while its saga runs, `active`, `settled`, `failed`
    #[schema(value_type = String)]
    status: ObligationStatus,
    created_at: DateTime<Utc>,
    #[schema(required)]
    activated_at: Option<DateTime<Utc>>,
}

#[derive(Serialize, utoipa::ToSchema)]
struct ObligationWithSettlements {
    #[serde(flatten)]
    obligation: ObligationView,
    /// What settled it, or is promised to, oldest first; at most 1,000.
    settlements: Vec<SettlementView>,
}

#[derive(Serialize, utoipa::ToSchema)]
struct SettlementView {
    /// `NR-…`: a request that repays; `NP-…`: netting with the other side; `MN-…`: a round of netting
    /// of many.
    subject: String,
    /// What was promised.
    amount: String,
    /// What of it came about.
    settled_amount: String,
    /// `reserved`, `settled`, `released`
    #[schema(value_type = String)]
    status: PartStatus,
    created_at: DateTime<Utc>,
    #[schema(required)]
    closed_at: Option<DateTime<Utc>>,
}

#[derive(Serialize, utoipa::ToSchema)]
struct AgeingView {
    debtor_broker_id: BrokerId,
    creditor_broker_id: BrokerId,
    currency_code: String,
    /// What remains of obligations up to 7 days old.
    days_0_7: String,
    days_8_30: String,
    days_31_90: String,
    older: String,
    total: String,
    oldest_at: DateTime<Utc>,
}

#[derive(Serialize, utoipa::ToSchema)]
struct AgeingsView {
    as_of: DateTime<Utc>,
    items: Vec<AgeingView>,
}

#[derive(Serialize, utoipa::ToSchema)]
struct CreditView {
    limit: String,
    used: String,
    /// Zero where more is used than the limit.
    free: String,
}

#[derive(Serialize, utoipa::ToSchema)]
struct PositionView {
    counterparty_broker_id: BrokerId,
    currency_code: String,
    /// What the counterparty owes.
    owed: String,
    /// What is owed to it.
    owing: String,
    /// owed less owing.
    net: String,
    /// The credit line that one gives the counterparty; null where there is no bound.
    #[schema(required)]
    credit_given: Option<CreditView>,
    /// The credit line that the counterparty gives.
    #[schema(required)]
    credit_taken: Option<CreditView>,
}

#[derive(Serialize, utoipa::ToSchema)]
struct PositionsView {
    items: Vec<PositionView>,
}

/// List one's obligations, as debtor and as creditor, newest first.
#[utoipa::path(get, path = "/v1/obligations", tag = "obligations", operation_id = "obligation_list",
    params(ListQuery), responses((status = 200, body = Page<ObligationView>)))]
async fn list(
    me: Allowed<actions::ObligationList>,
    State(state): State<AppState>,
    QueryOf(query): QueryOf<ListQuery>,
) -> Result<Json<Page<ObligationView>>, Problem> {
    let page = PageRequest::<Place>::read("obligations", query.limit, query.cursor.as_deref())?;
    let after = page
        .after
        .map(|(at, id)| (at.at(), ObligationId::from_bits(id)));
    let currency = match query.currency_code {
        Some(code) => Some(currency_named(&state, "currency_code", &code).await?.code),
        None => None,
    };
    let filter = Filter {
        status: query.status,
        counterparty: query.counterparty_broker_id,
        currency,
        side: query.side,
    };
    let found = state
        .app
        .obligations
        .list(me.seat.broker_id, &filter, after, page.fetch())
        .await?;
    let place = |obligation: &Obligation| (obligation.created_at.into(), obligation.id.bits());
    let page = page.page_asking(found, place, |obligation| view(&state, obligation));
    Ok(Json(page.await?))
}

/// How old one's debts and claims are, per counterparty and currency.
#[utoipa::path(get, path = "/v1/obligations/ageing", tag = "obligations",
    operation_id = "obligation_ageing", responses((status = 200, body = AgeingsView)))]
async fn ageing(
    me: Allowed<actions::ObligationList>,
    State(state): State<AppState>,
) -> Result<Json<AgeingsView>, Problem> {
    let as_of = state.app.systems.clock.now();
    let found = state
        .app
        .obligations
        .ageing(me.seat.broker_id, as_of)
        .await?;
    let mut items = Vec::with_capacity(found.len());
    for one in found {
        let exponent = exponent_of(&state, &one.currency_code).await?;
        let money = |minor: u64| format_minor(i128::from(minor), exponent);
        let [week, month, quarter, older] = one.by_age.map(money);
        items.push(AgeingView {
            debtor_broker_id: one.debtor,
            creditor_broker_id: one.creditor,
            days_0_7: week,
            days_8_30: month,
            days_31_90: quarter,
            older,
            total: money(one.by_age.iter().sum()),
            oldest_at: one.oldest_at,
            currency_code: one.currency_code,
        });
    }
    Ok(Json(AgeingsView { as_of, items }))
}

/// Read an obligation that one is a party of, with what settled it.
#[utoipa::path(get, path = "/v1/obligations/{id}", tag = "obligations", operation_id = "obligation_read",
    params(("id" = String, Path)), responses((status = 200, body = ObligationWithSettlements)))]
async fn read(
    me: Allowed<actions::ObligationRead>,
    State(state): State<AppState>,
    PathOf(id): PathOf<ObligationId>,
) -> Result<Json<ObligationWithSettlements>, Problem> {
    let obligations = &state.app.obligations;
    let found = obligations.obligation(me.seat.broker_id, id).await?;
    let obligation = found.ok_or_else(|| Problem::new(Code::NotFound))?;
    let exponent = exponent_of(&state, &obligation.currency).await?;
    let money = |minor: u64| format_minor(i128::from(minor), exponent);
    let settlements = obligations.settlements_of(id, MAX_SETTLEMENTS).await?;
    let settlements = settlements.into_iter().map(|part| SettlementView {
        subject: part.subject,
        amount: money(part.amount),
        settled_amount: money(part.settled_amount),
        status: part.status,
        created_at: part.created_at,
        closed_at: part.closed_at,
    });
    Ok(Json(ObligationWithSettlements {
        settlements: settlements.collect(),
        obligation: view(&state, obligation).await?,
    }))
}

/// What one owes and is owed, per counterparty and currency, and the credit lines between them.
#[utoipa::path(get, path = "/v1/positions", tag = "obligations", operation_id = "positions",
    responses((status = 200, body = PositionsView)))]
async fn positions(
    me: Allowed<actions::PositionRead>,
    State(state): State<AppState>,
) -> Result<Json<PositionsView>, Problem> {
    let broker = me.seat.broker_id;
    let found = state.app.obligations.positions(broker).await?;
    let lines = state.app.credit_lines.of_broker(broker).await?;
    let all = between(broker, found, lines);
    let mut items = Vec::with_capacity(all.len());
    for ((counterparty, code), one) in all {
        let exponent = exponent_of(&state, &code).await?;
        let money = |minor: u64| format_minor(i128::from(minor), exponent);
        let credit = |line: CreditLine| CreditView {
            limit: money(line.limit_amount),
            used: money(line.used_amount),
            free: money(line.free_amount()),
        };
        items.push(PositionView {
            counterparty_broker_id: counterparty,
            credit_given: one.given.map(credit),
            credit_taken: one.taken.map(credit),
            owed: money(one.owed),
            owing: money(one.owing),
            net: format_minor(i128::from(one.owed) - i128::from(one.owing), exponent),
            currency_code: code,
        });
    }
    Ok(Json(PositionsView { items }))
}

/// What there is between a broker and a counterparty in a currency. Amounts are minor units.
#[derive(Debug, Default, PartialEq, Eq)]
struct Between {
    owed: u64,
    owing: u64,
    given: Option<CreditLine>,
    taken: Option<CreditLine>,
}

/// Puts a broker's positions and credit lines together, by counterparty and currency. Looks at
/// each once.
fn between(
    broker: BrokerId,
    positions: Vec<Position>,
    lines: Vec<CreditLine>,
) -> BTreeMap<(BrokerId, String), Between> {
    let mut all: BTreeMap<(BrokerId, String), Between> = BTreeMap::new();
    for line in lines {
        let given = line.creditor == broker;
        let counterparty = if given { line.debtor } else { line.creditor };
        let one = all.entry((counterparty, line.currency_code.clone()));
        let one = one.or_default();
        *(if given {
            &mut one.given
        } else {
            &mut one.taken
        }) = Some(line);
    }
    for position in positions {
        let one = all.entry((position.counterparty, position.currency_code));
        let one = one.or_default();
        (one.owed, one.owing) = (position.owed, position.owing);
    }
    all
}

async fn view(state: &AppState, obligation: Obligation) -> Result<ObligationView, Problem> {
    let exponent = exponent_of(state, &obligation.currency).await?;
    let money = |minor: u64| format_minor(i128::from(minor), exponent);
    Ok(ObligationView {
        id: obligation.id,
        subject: obligation.subject,
        debtor_broker_id: obligation.debtor,
        creditor_broker_id: obligation.creditor,
        currency_code: obligation.currency,
        amount: money(obligation.amount),
        remaining_amount: money(obligation.remaining_amount),
        reserved_amount: money(obligation.reserved_amount),
        status: obligation.status,
        created_at: obligation.created_at,
        activated_at: obligation.activated_at,
    })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    fn line(creditor: BrokerId, debtor: BrokerId, limit_amount: u64) -> CreditLine {
        CreditLine {
            creditor,
            debtor,
            currency_code: "USD".to_owned(),
            limit_amount,
            used_amount: 0,
            updated_at: DateTime::UNIX_EPOCH,
        }
    }

    fn position(counterparty: BrokerId, owed: u64, owing: u64) -> Position {
        Position {
            counterparty,
            currency_code: "USD".to_owned(),
            owed,
            owing,
        }
    }

    #[test]
    fn positions_and_lines_of_a_counterparty_come_together() {
        let lines = vec![line(1, 2, 50), line(2, 1, 60), line(3, 1, 70)];
        let found = between(1, vec![position(2, 5, 6), position(4, 7, 0)], lines);
        let two = Between {
            owed: 5,
            owing: 6,
            given: Some(line(1, 2, 50)),
            taken: Some(line(2, 1, 60)),
        };
        assert_eq!(found[&(2, "USD".to_owned())], two);
        assert_eq!(found[&(3, "USD".to_owned())].taken, Some(line(3, 1, 70)));
        assert_eq!(found[&(3, "USD".to_owned())].given, None);
        assert_eq!(found[&(4, "USD".to_owned())].owed, 7);
        assert_eq!(found.len(), 3);
    }

    /// Looking through all lines for each would take minutes.
    #[test]
    fn tens_of_thousands_of_lines_are_put_together_at_once() {
        let others = 2..50_002;
        let lines = others.clone().map(|other| line(1, other, 1));
        let lines = lines.chain(others.clone().map(|other| line(other, 1, 2)));
        let positions = others.map(|other| position(other, 1, 1)).collect();
        let start = Instant::now();
        let found = between(1, positions, lines.collect());
        assert!(start.elapsed() < Duration::from_secs(5));
        assert_eq!(found.len(), 50_000);
        assert!(
            found
                .values()
                .all(|one| one.given.is_some() && one.taken.is_some())
        );
    }
}
