//! Money: whole minor units of a currency of the registry. Floating point touches it nowhere.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The largest amount of one operation, in minor units: 10^15 (ten trillion dollars, a billion
/// USDT, ten million BTC). It leaves a balance, a signed 64-bit number, room for more than
/// nine thousand of the largest.
pub const MAX_MINOR: u64 = 1_000_000_000_000_000;

/// A currency's code, as `USD`, `RUB-CASH` or `USDT-TRC20`. Held in place, since every entry has one;
/// the bytes after its end are zero, so that codes are in the order of their texts.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CurrencyCode([u8; 16]);

impl CurrencyCode {
    #[must_use]
    pub fn as_str(&self) -> &str {
        let end = self.0.iter().position(|byte| *byte == 0);
        let text = &self.0[..end.unwrap_or(self.0.len())];
        // It is ASCII, as it was read.
        std::str::from_utf8(text).unwrap_or_default()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a currency code is 2 to 16 of A-Z, 0-9 and '-', and begins with a letter")]
pub struct CurrencyCodeError;

impl FromStr for CurrencyCode {
    type Err = CurrencyCodeError;

    fn from_str(text: &str) -> Result<Self, CurrencyCodeError> {
        let allowed = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'-';
        let begins = text
            .bytes()
            .next()
            .is_some_and(|byte| byte.is_ascii_uppercase());
        if begins && (2..=16).contains(&text.len()) && text.bytes().all(allowed) {
            let mut code = [0; 16];
            code[..text.len()].copy_from_slice(text.as_bytes());
            Ok(Self(code))
        } else {
            Err(CurrencyCodeError)
        }
    }
}

impl TryFrom<String> for CurrencyCode {
    type Error = CurrencyCodeError;

    fn try_from(text: String) -> Result<Self, CurrencyCodeError> {
        text.parse()
    }
}

impl From<CurrencyCode> for String {
    fn from(code: CurrencyCode) -> Self {
        code.as_str().to_owned()
    }
}

impl fmt::Debug for CurrencyCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CurrencyCode").field(&self.as_str()).finish()
    }
}

impl fmt::Display for CurrencyCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A row of the registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Currency {
    pub code: CurrencyCode,
    /// Decimal places of the minor unit.
    pub exponent: u8,
    /// The currency's ledger number in TigerBeetle.
    pub ledger: u32,
}

/// A positive amount in minor units, at most [`MAX_MINOR`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct Amount(u64);

/// Why a text is no amount. Each says what is allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AmountError {
    #[error(
        "an amount is decimal digits with at most one point, as \"10000.00\": no sign, exponent, space or separator"
    )]
    Malformed,
    #[error("{currency} has {allowed} decimal places, {found} were given")]
    TooManyDecimals {
        currency: CurrencyCode,
        allowed: u8,
        found: usize,
    },
    #[error("an amount is greater than zero")]
    Zero,
    #[error("an amount is at most {MAX_MINOR} minor units")]
    TooLarge,
}

impl Amount {
    /// # Errors
    /// Zero, or more than [`MAX_MINOR`].
    pub const fn from_minor(minor: u64) -> Result<Self, AmountError> {
        match minor {
            0 => Err(AmountError::Zero),
            1..=MAX_MINOR => Ok(Self(minor)),
            _ => Err(AmountError::TooLarge),
        }
    }

    #[must_use]
    pub const fn minor(self) -> u64 {
        self.0
    }

    /// Reads a decimal string in major units, the form of the wire.
    ///
    /// # Errors
    /// Anything but plain digits with at most as many decimals as the currency has; zero; more
    /// than [`MAX_MINOR`].
    pub fn parse(text: &str, currency: &Currency) -> Result<Self, AmountError> {
        let (whole, decimals) = match text.split_once('.') {
            Some((_, "")) => return Err(AmountError::Malformed),
            Some(parts) => parts,
            None => (text, ""),
        };
        let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty() || !digits(whole) || !digits(decimals) {
            return Err(AmountError::Malformed);
        }
        let exponent = usize::from(currency.exponent);
        if decimals.len() > exponent {
            return Err(AmountError::TooManyDecimals {
                currency: currency.code.clone(),
                allowed: currency.exponent,
                found: decimals.len(),
            });
        }
        let padding = "0".repeat(exponent - decimals.len());
        let minor = format!("{whole}{decimals}{padding}");
        let minor = minor.trim_start_matches('0');
        if minor.is_empty() {
            return Err(AmountError::Zero);
        }
        let minor = minor.parse().map_err(|_| AmountError::TooLarge)?;
        Self::from_minor(minor)
    }
}

/// Reads a bound in the form of an amount; it may be zero. In minor units.
///
/// # Errors
/// As [`Amount::parse`], but for zero.
pub fn limit_of(text: &str, currency: &Currency) -> Result<u64, AmountError> {
    match Amount::parse(text, currency) {
        Ok(amount) => Ok(amount.minor()),
        Err(AmountError::Zero) => Ok(0),
        Err(error) => Err(error),
    }
}

impl TryFrom<u64> for Amount {
    type Error = AmountError;

    fn try_from(minor: u64) -> Result<Self, AmountError> {
        Self::from_minor(minor)
    }
}

impl From<Amount> for u64 {
    fn from(amount: Amount) -> Self {
        amount.0
    }
}

/// Writes minor units as a decimal string in major units, with all the currency's decimals:
/// `1000000` of USD is `10000.00`.
#[must_use]
pub fn format_minor(minor: i128, exponent: u8) -> String {
    let sign = if minor < 0 { "-" } else { "" };
    let digits = minor.unsigned_abs().to_string();
    let exponent = usize::from(exponent);
    if exponent == 0 {
        return format!("{sign}{digits}");
    }
    let padded = format!("{digits:0>width$}", width = exponent + 1);
    let (whole, decimals) = padded.split_at(padded.len() - exponent);
    format!("{sign}{whole}.{decimals}")
}

/// Writes the amounts of a book's refusal (`available`, `needed`) in major units, as people read them.
#[must_use]
pub fn reason_in_major(mut reason: Value, exponent: u8) -> Value {
    for name in ["available", "needed"] {
        let minor = reason.get(name).and_then(Value::as_str);
        if let Some(minor) = minor.and_then(|text| text.parse().ok()) {
            reason[name] = format_minor(minor, exponent).into();
        }
    }
    reason
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn currency(code: &str, exponent: u8) -> Currency {
        Currency {
            code: code.parse().unwrap(),
            exponent,
            ledger: 1,
        }
    }

    #[test]
    fn amounts_that_are_read() {
        let usd = currency("USD", 2);
        for (text, minor) in [
            ("10000.00", 1_000_000),
            ("10000", 1_000_000),
            ("0.01", 1),
            ("1.5", 150),
            ("007.10", 710),
            ("10000000000000", MAX_MINOR),
        ] {
            assert_eq!(
                Amount::parse(text, &usd).map(Amount::minor),
                Ok(minor),
                "{text}"
            );
        }
        let btc = currency("BTC", 8);
        assert_eq!(Amount::parse("0.00000001", &btc).map(Amount::minor), Ok(1));
    }

    #[test]
    fn amounts_that_are_refused() {
        let usd = currency("USD", 2);
        for text in [
            "-1", "+1", "1e3", "NaN", "", ".", "1.", ".5", "1,000.00", " 1", "1 ", "0x10", "١",
            "1.0.0", "Infinity", "\u{0}",
        ] {
            assert_eq!(
                Amount::parse(text, &usd),
                Err(AmountError::Malformed),
                "{text:?}"
            );
        }
        for text in ["0", "0.00", "000"] {
            assert_eq!(Amount::parse(text, &usd), Err(AmountError::Zero), "{text}");
        }
        for text in ["10000000000000.01", "123456789012345678901234567890"] {
            assert_eq!(
                Amount::parse(text, &usd),
                Err(AmountError::TooLarge),
                "{text}"
            );
        }
        assert_eq!(
            Amount::parse("0.001", &usd),
            Err(AmountError::TooManyDecimals {
                currency: usd.code.clone(),
                allowed: 2,
                found: 3
            })
        );
    }

    #[test]
    fn codes() {
        for text in ["USD", "RUB-CASH", "USDT-TRC20", "BTC"] {
            assert!(text.parse::<CurrencyCode>().is_ok(), "{text}");
        }
        for text in [
            "",
            "U",
            "usd",
            "-USD",
            "USD CASH",
            "ABCDEFGHIJKLMNOPQ",
            "РУБ",
        ] {
            assert!(text.parse::<CurrencyCode>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(minor in 1..=MAX_MINOR, exponent in 0u8..=8) {
            let currency = currency("USD", exponent);
            let text = format_minor(i128::from(minor), exponent);
            prop_assert_eq!(Amount::parse(&text, &currency).map(Amount::minor), Ok(minor));
        }
    }
}
