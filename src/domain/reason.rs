//! Why somebody did something, in words of their own.

use super::text;

/// The longest reason, in characters.
pub const MAX_REASON: usize = 500;

/// A text that is no reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a reason is 1 to {MAX_REASON} characters without control characters but newline and tab")]
pub struct NotAReason;

/// A reason, without the spaces around it.
///
/// # Errors
/// [`NotAReason`]
pub fn checked(reason: &str) -> Result<String, NotAReason> {
    let reason = reason.trim();
    text::prose(reason, MAX_REASON).map_err(|_| NotAReason)?;
    Ok(reason.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_says_something() {
        assert_eq!(
            checked(" its disk is gone\n").as_deref(),
            Ok("its disk is gone")
        );
        for bad in ["", " \t\n", "a\u{0}b", &"x".repeat(MAX_REASON + 1)] {
            assert_eq!(checked(bad), Err(NotAReason));
        }
        assert!(checked(&"ж".repeat(MAX_REASON)).is_ok());
    }
}
