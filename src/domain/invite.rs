//! Invitations, by which brokers join the network.

use chrono::{DateTime, Duration, Utc};

use super::text;
use super::words::words;

words!(
    /// Who may join the network by themselves.
    SignupMode {
        /// Nobody: the platform makes brokers.
        Closed = "closed",
        /// Who has the code of an invitation.
        Invite = "invite",
        /// Anybody.
        Open = "open",
    }
);

/// Most brokers that one invitation brings.
pub const MAX_USES: u32 = 1_000;
/// Longest life of an invitation, in days.
pub const MAX_DAYS: u32 = 365;
/// Days that one lives where nobody says.
pub const DEFAULT_DAYS: u32 = 30;
/// Longest note, in characters.
pub const MAX_NOTE: usize = 120;

/// An invitation as it is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    pub max_uses: u32,
    pub days: u32,
    pub note: Option<String>,
}

/// What an invitation can't be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TermsError {
    #[error("an invitation has 1 to {MAX_USES} uses")]
    Uses,
    #[error("an invitation lives 1 to {MAX_DAYS} days")]
    Days,
    #[error(
        "a note is one line of 1 to {MAX_NOTE} characters without invisible ones and ones that turn the direction of writing"
    )]
    Note,
}

impl Terms {
    /// When an invitation of now ends.
    ///
    /// # Errors
    /// See [`TermsError`].
    pub fn expiry(&self, now: DateTime<Utc>) -> Result<DateTime<Utc>, TermsError> {
        if !(1..=MAX_USES).contains(&self.max_uses) {
            return Err(TermsError::Uses);
        }
        if !(1..=MAX_DAYS).contains(&self.days) {
            return Err(TermsError::Days);
        }
        let note = self.note.as_deref();
        if note.is_some_and(|note| text::line(note, MAX_NOTE).is_err()) {
            return Err(TermsError::Note);
        }
        Ok(now + Duration::days(i64::from(self.days)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invitations_are_bounded() {
        let now = DateTime::from_timestamp(1_800_000_000, 0).unwrap();
        let of = |max_uses, days, note: Option<&str>| {
            let note = note.map(ToOwned::to_owned);
            Terms {
                max_uses,
                days,
                note,
            }
            .expiry(now)
        };
        assert_eq!(of(1, 1, Some("for Ivan")), Ok(now + Duration::days(1)));
        assert!(of(MAX_USES, MAX_DAYS, None).is_ok());
        for (uses, days, note, error) in [
            (0, 1, None, TermsError::Uses),
            (MAX_USES + 1, 1, None, TermsError::Uses),
            (1, 0, None, TermsError::Days),
            (1, MAX_DAYS + 1, None, TermsError::Days),
            (1, 1, Some(""), TermsError::Note),
            (1, 1, Some("a\nb"), TermsError::Note),
        ] {
            assert_eq!(of(uses, days, note), Err(error));
        }
    }
}
