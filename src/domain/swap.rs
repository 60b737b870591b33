//! A client's exchange of one currency for another at a stated rate: two entries in one book,
//! together or not at all.
//!
//! The rate is units of what is bought for one unit of what is sold, both in major units, as an
//! exact decimal. What comes of it is rounded down to the bought currency's minor unit, so nobody
//! ever gets more than the rate says; what is cut off is less than one minor unit, and is told.

use std::fmt;
use std::str::FromStr;

use super::money::{Amount, AmountError, Currency};

/// The most decimals of a rate.
pub const MAX_DECIMALS: usize = 12;
/// The most digits of a rate in all.
pub const MAX_DIGITS: usize = 18;

/// An exact rate above zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    digits: u64,
    decimals: u32,
}

/// Why a text is no rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a rate is decimal digits with at most one point, above zero: at most {MAX_DIGITS} digits, {MAX_DECIMALS} of them decimals"
)]
pub struct RateError;

impl FromStr for Rate {
    type Err = RateError;

    fn from_str(text: &str) -> Result<Self, RateError> {
        let (whole, decimals) = match text.split_once('.') {
            Some((_, "")) => return Err(RateError),
            Some(parts) => parts,
            None => (text, ""),
        };
        let all = format!("{whole}{decimals}");
        if whole.is_empty()
            || decimals.len() > MAX_DECIMALS
            || all.len() > MAX_DIGITS
            || !all.bytes().all(|byte| byte.is_ascii_digit())
        {
            return Err(RateError);
        }
        let digits: u64 = all.parse().map_err(|_| RateError)?;
        if digits == 0 {
            return Err(RateError);
        }
        let decimals = u32::try_from(decimals.len()).map_err(|_| RateError)?;
        Ok(Self { digits, decimals })
    }
}

impl fmt::Display for Rate {
    /// Without zeros that say nothing, so that one rate is one text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scale = 10_u64.pow(self.decimals);
        let (whole, rest) = (self.digits / scale, self.digits % scale);
        if rest == 0 {
            return write!(f, "{whole}");
        }
        let width = self.decimals as usize;
        let rest = format!("{rest:0width$}");
        write!(f, "{whole}.{}", rest.trim_end_matches('0'))
    }
}

/// What a sold amount comes to. `bought` and the part that is cut off are together exactly what the
/// rate says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchanged {
    pub bought: Amount,
    /// `cut_off / of` minor units of the bought currency; less than one.
    pub cut_off: u128,
    pub of: u128,
}

/// Why an amount can't be exchanged at a rate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExchangeError {
    #[error("comes to less than the smallest unit of {0} at this rate")]
    Nothing(String),
    #[error("comes to more than an amount can be at this rate")]
    TooLarge,
}

impl Rate {
    /// What `sold` comes to.
    ///
    /// # Errors
    /// Less than one minor unit, or more than an amount can be.
    pub fn exchange(
        self,
        sold: Amount,
        from: &Currency,
        to: &Currency,
    ) -> Result<Exchanged, ExchangeError> {
        let power = |exponent: u32| 10_u128.checked_pow(exponent).ok_or(ExchangeError::TooLarge);
        // Of the two exponents only the difference counts; it is in the one or the other.
        let up = u32::from(to.exponent.saturating_sub(from.exponent));
        let down = u32::from(from.exponent.saturating_sub(to.exponent));
        let of = power(self.decimals + down)?;
        let exact = u128::from(sold.minor())
            .checked_mul(u128::from(self.digits))
            .and_then(|product| product.checked_mul(power(up).ok()?))
            .ok_or(ExchangeError::TooLarge)?;
        let whole = u64::try_from(exact / of).map_err(|_| ExchangeError::TooLarge)?;
        match Amount::from_minor(whole) {
            Ok(bought) => Ok(Exchanged {
                bought,
                cut_off: exact % of,
                of,
            }),
            Err(AmountError::Zero) => Err(ExchangeError::Nothing(to.code.to_string())),
            Err(_) => Err(ExchangeError::TooLarge),
        }
    }
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

    fn amount(minor: u64) -> Amount {
        Amount::from_minor(minor).unwrap()
    }

    #[test]
    fn rates_that_are_read_and_written() {
        for (text, shown) in [
            ("1", "1"),
            ("92.35", "92.35"),
            ("0.0108", "0.0108"),
            ("1.0800", "1.08"),
            ("007.5", "7.5"),
            ("0.000000000001", "0.000000000001"),
            ("999999999999999999", "999999999999999999"),
        ] {
            assert_eq!(text.parse::<Rate>().unwrap().to_string(), shown);
        }
        for text in [
            "",
            "0",
            "0.0",
            ".5",
            "5.",
            "-1",
            "+1",
            "1e3",
            "1,5",
            " 1",
            "1 ",
            "1.2.3",
            "٣",
            "0.0000000000001",
            "1000000000000000000",
            "1234567.123456789012",
        ] {
            assert_eq!(text.parse::<Rate>(), Err(RateError), "{text}");
        }
    }

    #[test]
    fn what_an_amount_comes_to() {
        let (usd, rub) = (currency("USD", 2), currency("RUB", 2));
        let (usdt, btc, jpy) = (
            currency("USDT-TRC20", 6),
            currency("BTC", 8),
            currency("JPY", 0),
        );
        for (sold, from, rate, to, bought, cut_off) in [
            (10_000, &usd, "92.35", &rub, 923_500, (0, 100)),
            (101, &usd, "92.351", &rub, 9_327, (451, 1_000)),
            (923_550, &rub, "0.0108", &usd, 9_974, (3_400, 10_000)),
            (10_000, &usd, "0.9985", &usdt, 99_850_000, (0, 10_000)),
            (1_234_567, &usdt, "1", &usd, 123, (4_567, 10_000)),
            (
                5_000_000,
                &usd,
                "0.0000105",
                &btc,
                52_500_000,
                (0, 10_000_000),
            ),
            (999, &usd, "150.2", &jpy, 1_500, (498, 1_000)),
            (1, &btc, "97000.5", &usd, 0, (0, 0)),
        ] {
            let rate: Rate = rate.parse().unwrap();
            let exchanged = rate.exchange(amount(sold), from, to);
            if bought == 0 {
                assert!(matches!(exchanged, Err(ExchangeError::Nothing(_))));
                continue;
            }
            let exchanged = exchanged.unwrap();
            assert_eq!(exchanged.bought.minor(), bought, "{sold} at {rate}");
            assert_eq!(
                (exchanged.cut_off, exchanged.of),
                cut_off,
                "{sold} at {rate}"
            );
        }
        let most = amount(crate::domain::money::MAX_MINOR);
        let rate: Rate = "999999999999999999".parse().unwrap();
        assert_eq!(
            rate.exchange(most, &jpy, &btc),
            Err(ExchangeError::TooLarge)
        );
        let rate: Rate = "1.0000001".parse().unwrap();
        assert_eq!(
            rate.exchange(most, &usd, &rub),
            Err(ExchangeError::TooLarge)
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1_000))]
        /// A thousand swaps a case.
        #[test]
        fn no_unit_is_unaccounted_for(seed in any::<u64>(), from in 0_u8..9, to in 0_u8..9) {
            let (from, to) = (currency("AAA", from), currency("BBB", to));
            let mut state = seed | 1;
            let mut next = || {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state
            };
            for _ in 0..1_000 {
                let sold = amount(1 + next() % crate::domain::money::MAX_MINOR);
                let decimals = u32::try_from(next() % 13).unwrap();
                let rate = Rate { digits: 1 + next() % 10_u64.pow(1 + u32::try_from(next() % 17).unwrap()), decimals };
                let exact = |exponent: u8| 10_u128.pow(u32::from(exponent));
                match rate.exchange(sold, &from, &to) {
                    Ok(exchanged) => {
                        prop_assert!(exchanged.cut_off < exchanged.of);
                        // bought + cut off = sold × rate, with both sides multiplied until whole;
                        // modulo 2^128, which such a small difference can't hide behind.
                        let common = to.exponent.min(from.exponent);
                        let bought = u128::from(exchanged.bought.minor());
                        let left = bought
                            .wrapping_mul(exchanged.of)
                            .wrapping_add(exchanged.cut_off)
                            .wrapping_mul(exact(from.exponent - common));
                        let scale = exchanged.of / 10_u128.pow(decimals);
                        let right = u128::from(sold.minor())
                            .wrapping_mul(u128::from(rate.digits))
                            .wrapping_mul(exact(to.exponent - common))
                            .wrapping_mul(scale);
                        prop_assert_eq!(left, right);
                    }
                    Err(ExchangeError::Nothing(_)) => {
                        let value = u128::from(sold.minor()) * u128::from(rate.digits) * exact(to.exponent);
                        prop_assert!(value < 10_u128.pow(decimals) * exact(from.exponent));
                    }
                    Err(ExchangeError::TooLarge) => {}
                }
            }
        }
    }
}
