//! `/v1/accounts/{id}/statement`: what was booked on an account within a period, to read and to
//! hand out.

use axum::Json;
use axum::extract::State;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::accounts::{AccountView, view as account_view};
use super::guard::Allowed;
use super::money::exponent_of;
use super::params::{PathOf, QueryOf};
use super::problem::Problem;
use super::routes::Routes;
use super::state::AppState;
use crate::domain::access::actions;
use crate::domain::account::Side;
use crate::domain::ids::AccountId;
use crate::domain::moment::Moment;
use crate::domain::money::format_minor;
use crate::route;
use crate::services::books::Statement;

pub fn routes() -> Routes {
    Routes::new().with(route!(read))
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Format {
    #[default]
    Json,
    Csv,
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
struct PeriodQuery {
    /// The first moment of the period.
    #[param(value_type = String, example = "2026-05-01T00:00:00Z")]
    from: Moment,
    /// The first moment after it.
    #[param(value_type = String, example = "2026-06-01T00:00:00Z")]
    to: Moment,
    /// `json` where it isn't there; `csv`.
    #[param(value_type = Option<String>)]
    format: Option<Format>,
}

#[derive(Serialize, utoipa::ToSchema)]
struct LineView {
    booked_at: DateTime<Utc>,
    seq: u64,
    kind: String,
    subject: String,
    /// `debit`, `credit`
    #[schema(value_type = String)]
    side: Side,
    amount: String,
    /// After this line, within the statement.
    balance: String,
    /// The note beside the entry; null where there is none, or it was erased.
    #[schema(required)]
    note: Option<String>,
}

#[derive(Serialize, utoipa::ToSchema)]
struct StatementView {
    /// As it is now.
    account: AccountView,
    from: DateTime<Utc>,
    to: DateTime<Utc>,
    opening_balance: String,
    debits: String,
    credits: String,
    closing_balance: String,
    lines: Vec<LineView>,
}

/// Read a statement of an account: the balance before a period, what was booked in it, and the
/// balance after it.
///
/// At most 10,000 entries. With `format=csv` it comes as a file: a first line with the balance
/// before the period, a line an entry, and a last line with the balance after it.
#[utoipa::path(get, path = "/v1/accounts/{id}/statement", tag = "book",
    operation_id = "account_statement", params(("id" = String, Path), PeriodQuery),
    responses((status = 200, content((StatementView = "application/json"), (String = "text/csv")))))]
async fn read(
    me: Allowed<actions::AccountStatement>,
    State(state): State<AppState>,
    PathOf(id): PathOf<AccountId>,
    QueryOf(query): QueryOf<PeriodQuery>,
) -> Result<Response, Problem> {
    let (from, to) = (query.from.at(), query.to.at());
    let books = &state.app.books;
    let statement = books.statement(me.seat.broker_id, id, from, to).await?;
    let view = view(&state, statement, from, to).await?;
    match query.format.unwrap_or_default() {
        Format::Json => Ok(Json(view).into_response()),
        Format::Csv => {
            let name = format!("attachment; filename=\"{id}.csv\"");
            let text = as_csv(&view).map_err(|error| Problem::internal(&error))?;
            let headers = [
                (
                    CONTENT_TYPE,
                    "text/csv; charset=utf-8; header=present".to_owned(),
                ),
                (CONTENT_DISPOSITION, name),
            ];
            Ok((headers, text).into_response())
        }
    }
}

async fn view(
    state: &AppState,
    statement: Statement,
    from: DateTime<Utc>,
    to: DateTime<Utc>,
) -> Result<StatementView, Problem> {
    let exponent = exponent_of(state, statement.account.owner.currency.as_str()).await?;
    let money = |minor: i128| format_minor(minor, exponent);
    let lines = statement.lines.into_iter().map(|line| {
        let entry = line.stored.entry;
        let private = line.stored.private.as_ref();
        let note = private.and_then(|private| private.get("note")?.as_str());
        LineView {
            booked_at: entry.booked_at,
            seq: entry.seq,
            kind: entry.kind.as_str().to_owned(),
            subject: entry.subject,
            side: entry.side,
            amount: money(i128::from(entry.amount)),
            balance: money(line.balance),
            note: note.map(str::to_owned),
        }
    });
    Ok(StatementView {
        from,
        to,
        opening_balance: money(statement.opening),
        debits: money(statement.debits),
        credits: money(statement.credits),
        closing_balance: money(statement.closing),
        lines: lines.collect(),
        account: account_view(state, statement.account).await?,
    })
}

/// The lines of a statement, for a spreadsheet.
fn as_csv(view: &StatementView) -> Result<Vec<u8>, csv::Error> {
    let mut out = csv::Writer::from_writer(Vec::new());
    out.write_record([
        "booked_at",
        "seq",
        "kind",
        "subject",
        "debit",
        "credit",
        "balance",
        "currency_code",
        "note",
    ])?;
    let currency = view.account.currency_code.as_str();
    let edge = |at: &DateTime<Utc>, kind: &'static str, balance: &str| {
        let at = at.to_rfc3339_opts(chrono::SecondsFormat::Micros, true);
        let empty = String::new;
        [
            at,
            empty(),
            kind.to_owned(),
            empty(),
            empty(),
            empty(),
            balance.to_owned(),
            currency.to_owned(),
            empty(),
        ]
    };
    out.write_record(edge(&view.from, "opening_balance", &view.opening_balance))?;
    for line in &view.lines {
        let (debit, credit) = match line.side {
            Side::Debit => (line.amount.as_str(), ""),
            Side::Credit => ("", line.amount.as_str()),
        };
        out.write_record([
            &line
                .booked_at
                .to_rfc3339_opts(chrono::SecondsFormat::Micros, true),
            &line.seq.to_string(),
            &line.kind,
            &line.subject,
            debit,
            credit,
            &line.balance,
            currency,
            &as_text(line.note.as_deref().unwrap_or_default()),
        ])?;
    }
    out.write_record(edge(&view.to, "closing_balance", &view.closing_balance))?;
    out.into_inner()
        .map_err(|error| csv::Error::from(error.into_error()))
}

/// What spreadsheets take for a formula begins with one of these, also in full width.
const FORMULA: [char; 12] = [
    '=', '+', '-', '@', '\t', '\r', '\n', '＝', '＋', '－', '＠', '\u{2212}',
];

fn as_text(note: &str) -> String {
    if note.starts_with(FORMULA) {
        format!("'{note}")
    } else {
        note.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_begins_like_a_formula_is_text() {
        for first in [
            "=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠", "−",
        ] {
            let note = format!("{first}1+1");
            assert_eq!(as_text(&note), format!("'{note}"));
        }
        for note in ["", "rent", "a=b", "–1", "سلام"] {
            assert_eq!(as_text(note), note);
        }
    }
}
