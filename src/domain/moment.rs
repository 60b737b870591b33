//! Times that come from outside: only such as every system here keeps as they are.

use chrono::{DateTime, Datelike, SubsecRound, Utc};
use serde::{Deserialize, Deserializer, Serialize};

/// The years, in UTC, that a time from outside may be of. A database's own go to 9999, and a
/// time that it can't hold becomes another one without a word.
const YEARS: std::ops::RangeInclusive<i32> = 1970..=2999;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "is an RFC 3339 time of the years 1970 to 2999 in UTC, without a leap second, as 2026-01-31T12:00:00Z"
)]
pub struct MomentError;

/// A point in time, in whole microseconds: what is finer is cut off, so that it reads the same
/// before it is kept and after. Everything that a client states as a time is read by this.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Moment(DateTime<Utc>);

impl Moment {
    /// # Errors
    /// What is no time, has 60 seconds, or is of a year before 1970 or after 2999.
    pub fn parse(text: &str) -> Result<Self, MomentError> {
        let at = DateTime::parse_from_rfc3339(text).map_err(|_| MomentError)?;
        let at = at.to_utc();
        if !YEARS.contains(&at.year()) || at.timestamp_subsec_nanos() >= 1_000_000_000 {
            return Err(MomentError);
        }
        Ok(Self::from(at))
    }

    #[must_use]
    pub const fn at(self) -> DateTime<Utc> {
        self.0
    }
}

/// One of our own times.
impl From<DateTime<Utc>> for Moment {
    fn from(at: DateTime<Utc>) -> Self {
        Self(at.trunc_subsecs(6))
    }
}

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_every_system_keeps() {
        for (text, kept) in [
            ("2027-06-30T23:59:59Z", "2027-06-30T23:59:59Z"),
            (
                "2027-06-30T23:59:59.9999999Z",
                "2027-06-30T23:59:59.999999Z",
            ),
            ("2027-07-01T02:00:00+03:00", "2027-06-30T23:00:00Z"),
            ("2999-12-31T23:59:59.999999Z", "2999-12-31T23:59:59.999999Z"),
        ] {
            let moment = Moment::parse(text).unwrap();
            assert_eq!(serde_json::to_value(moment).unwrap(), kept);
            assert_eq!(Moment::parse(kept), Ok(moment));
        }
    }

    #[test]
    fn what_some_system_would_not_keep() {
        for text in [
            "+10000-01-01T00:00:00Z",
            "+200000-01-01T00:00:00Z",
            "+262000-01-01T00:00:00Z",
            "-0001-01-01T00:00:00Z",
            "0000-01-01T00:00:00Z",
            "1969-12-31T23:59:59Z",
            "9999-12-31T23:59:59-12:00",
            "2999-12-31T23:59:59-12:00",
            "2027-06-30T23:59:60Z",
            "2027-02-30T00:00:00Z",
            "2027-06-30",
            "tomorrow",
            "",
        ] {
            assert_eq!(Moment::parse(text), Err(MomentError), "{text}");
        }
    }
}
