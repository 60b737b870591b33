//! Lists: newest first, a page at a time, by a cursor that says where the next one begins.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::{DateTime, Utc};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

use super::problem::Problem;

/// Rows of a page where the caller doesn't say.
pub const LIMIT_DEFAULT: u32 = 50;
/// Most rows of a page.
pub const LIMIT_MAX: u32 = 200;

const CHECK: usize = 6;

/// Where a row is in a list by time: when it was made, and the bits of its id.
pub type Place = (DateTime<Utc>, u64);

/// What of a list is asked for. `K` is the place of a row in its order, such as
/// [`Place`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRequest<K> {
    list: &'static str,
    limit: u32,
    /// The last row that the caller has.
    pub after: Option<K>,
}

impl<K: Serialize + DeserializeOwned> PageRequest<K> {
    /// From the query parameters `limit` and `cursor`. A cursor of another `list` is refused.
    /// It isn't secret and grants nothing: it only says where to go on, so a digest keeps it
    /// from being made up by mistake, and lists are confined by the caller's seat anyway.
    ///
    /// # Errors
    /// A 422 for a limit out of bounds or a cursor that isn't one of this list.
    pub fn read(
        list: &'static str,
        limit: Option<u32>,
        cursor: Option<&str>,
    ) -> Result<Self, Problem> {
        let limit = limit.unwrap_or(LIMIT_DEFAULT);
        if !(1..=LIMIT_MAX).contains(&limit) {
            return Err(Problem::invalid("limit", format!("1 to {LIMIT_MAX}")));
        }
        let after = match cursor {
            None => None,
            Some(cursor) => {
                let key = decode(list, cursor);
                Some(key.ok_or_else(|| Problem::invalid("cursor", "not a cursor of this list"))?)
            }
        };
        Ok(Self { list, limit, after })
    }

    /// How many rows to fetch: one more than the page has, to know whether there is another.
    #[must_use]
    pub const fn fetch(&self) -> u32 {
        self.limit + 1
    }

    /// Makes the page of the rows that were fetched.
    pub fn page<R, T>(
        &self,
        mut rows: Vec<R>,
        key: impl Fn(&R) -> K,
        show: impl Fn(R) -> T,
    ) -> Page<T> {
        let next_cursor = self.cut(&mut rows, key);
        Page {
            items: rows.into_iter().map(show).collect(),
            next_cursor,
        }
    }

    /// As [`Self::page`], where something is asked for to show a row.
    ///
    /// # Errors
    /// Those of `show`.
    pub async fn page_asking<R, T, F>(
        &self,
        mut rows: Vec<R>,
        key: impl Fn(&R) -> K,
        show: impl Fn(R) -> F,
    ) -> Result<Page<T>, Problem>
    where
        F: Future<Output = Result<T, Problem>>,
    {
        let next_cursor = self.cut(&mut rows, key);
        let mut items = Vec::with_capacity(rows.len());
        for row in rows {
            items.push(show(row).await?);
        }
        Ok(Page { items, next_cursor })
    }

    /// Leaves the page's rows, and gives the cursor of the next page where there is one.
    fn cut<R>(&self, rows: &mut Vec<R>, key: impl Fn(&R) -> K) -> Option<String> {
        let limit = self.limit as usize;
        let more = rows.len() > limit;
        rows.truncate(limit);
        let last = rows.last().filter(|_| more);
        last.map(|row| encode(self.list, &key(row)))
    }
}

/// One page of a list.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct Page<T> {
    /// Newest first.
    pub items: Vec<T>,
    /// What `cursor` is to be for the next page; null on the last one.
    #[schema(required)]
    pub next_cursor: Option<String>,
}

fn encode<K: Serialize>(list: &str, key: &K) -> String {
    // A key that can't be JSON would give a cursor that isn't taken: seen by its first test.
    let key = serde_json::to_vec(key).unwrap_or_default();
    let mut bytes = check(list, &key).to_vec();
    bytes.extend(key);
    URL_SAFE_NO_PAD.encode(bytes)
}

fn decode<K: DeserializeOwned>(list: &str, cursor: &str) -> Option<K> {
    let bytes = URL_SAFE_NO_PAD.decode(cursor).ok()?;
    let (given, key) = bytes.split_at_checked(CHECK)?;
    (given == check(list, key)).then(|| serde_json::from_slice(key).ok())?
}

fn check(list: &str, key: &[u8]) -> [u8; CHECK] {
    let digest: [u8; 32] = Sha256::new()
        .chain_update(list.as_bytes())
        .chain_update([0])
        .chain_update(key)
        .finalize()
        .into();
    let mut check = [0; CHECK];
    check.copy_from_slice(&digest[..CHECK]);
    check
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_through_a_list_once() {
        let all: Vec<u64> = (0..7).rev().collect();
        let mut seen = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let page = PageRequest::<u64>::read("numbers", Some(3), cursor.as_deref()).unwrap();
            let rows = all
                .iter()
                .copied()
                .filter(|n| page.after.is_none_or(|after| *n < after));
            let rows: Vec<u64> = rows.take(page.fetch() as usize).collect();
            let page = page.page(rows, |n| *n, |n| n);
            seen.extend(page.items);
            cursor = page.next_cursor;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(seen, all);
    }

    #[test]
    fn refuses_what_is_not_its_own() {
        let key: Place = (
            chrono::DateTime::from_timestamp_micros(1_700_000_000_123_456).unwrap(),
            7,
        );
        let cursor = encode("a", &key);
        let read = |list, cursor: &str| PageRequest::<Place>::read(list, None, Some(cursor));
        assert_eq!(read("a", &cursor).unwrap().after, Some(key));
        assert!(read("b", &cursor).is_err());
        for bad in ["", "x", "AAAA", &cursor[1..], &format!("{cursor}A"), "é"] {
            assert!(read("a", bad).is_err(), "{bad}");
        }
        for limit in [0, LIMIT_MAX + 1] {
            assert!(PageRequest::<Place>::read("a", Some(limit), None).is_err());
        }
    }
}
