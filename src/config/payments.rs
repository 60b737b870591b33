//! Payments through providers.

use serde::{Deserialize, Serialize};

use super::check::{within, wrong};
use super::error::ConfigError;
use super::values::{Millis, Seconds, SecretText};

/// Payments: the work on them, and the providers.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Payments {
    /// How often workers look for work that they were not woken for.
    pub poll_ms: Millis,
    /// Turns at one provider that a process makes at once.
    pub concurrency: usize,
    /// Rows that are picked up at once.
    pub batch: u32,
    /// How long what was picked up is left to whoever has it.
    pub lease_ms: Millis,
    /// The same for what has come to nothing before.
    pub retry_lease_ms: Millis,
    /// The wait after a turn that came to nothing; it doubles with each further one.
    pub backoff_ms: Millis,
    pub backoff_max_ms: Millis,
    /// How long an action at the ledger or in a book is left to whoever has it.
    pub outbox_lease_ms: Millis,
    /// How long a payment may go on before admins are told. A provider that has it and works on it
    /// may take longer.
    pub alert_after_ms: Millis,
    /// How long calls to providers and what they send of themselves are kept of payments that are
    /// over: the payments themselves are never deleted.
    pub calls_kept_days: u32,
    /// Thai interbank transfers: payouts.
    pub ipps: Option<Box<Provider>>,
    /// `PromptPay` QR codes: top-ups.
    pub qp: Option<Box<Provider>>,
    /// International transfers: payouts.
    pub wise: Option<Box<Provider>>,
}

/// One provider.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Provider {
    /// Without the paths of its API.
    pub url: String,
    pub token: SecretText,
    /// Codes of the currencies that it takes.
    pub currencies: Vec<String>,
    /// Whether it pays one uid once, however often it is asked to. Where that is not sure, what it
    /// says that it doesn't know goes to a person.
    #[serde(default)]
    pub deduplicates: bool,
    #[serde(default = "connect_timeout")]
    pub connect_timeout_ms: Millis,
    /// Of a whole call.
    #[serde(default = "timeout")]
    pub timeout_ms: Millis,
    /// Calls that fail one after the other before it is left alone for a while.
    #[serde(default = "breaker_failures")]
    pub breaker_failures: u32,
    #[serde(default = "breaker_pause")]
    pub breaker_pause_ms: Millis,
    /// Charged for a payment, in minor units of its currency.
    #[serde(default)]
    pub fee_fixed: u64,
    /// Charged besides, in hundredths of a percent of the amount, rounded up.
    #[serde(default)]
    pub fee_basis_points: u32,
    /// Of WISE: the profile that pays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<u64>,
    /// Of WISE: for so many days after a transfer was sent it is asked whether it has come back.
    #[serde(default = "watch_days")]
    pub watch_days: u32,
    /// Of QP: our number with `PromptPay`, 1 to 15 digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub biller: Option<String>,
    /// Of QP: how long a payer has.
    #[serde(default = "valid_for")]
    pub valid_for_s: Seconds,
    /// Of QP: what callbacks are signed with, the one in use and others while it is changed.
    #[serde(default)]
    pub callback_secrets: Vec<SecretText>,
}

const fn connect_timeout() -> Millis {
    Millis(2_000)
}

const fn timeout() -> Millis {
    Millis(10_000)
}

const fn breaker_failures() -> u32 {
    5
}

const fn breaker_pause() -> Millis {
    Millis(30_000)
}

const fn valid_for() -> Seconds {
    Seconds(900)
}

const fn watch_days() -> u32 {
    60
}

impl Default for Payments {
    fn default() -> Self {
        Self {
            poll_ms: Millis(1_000),
            concurrency: 16,
            batch: 10,
            lease_ms: Millis(30_000),
            retry_lease_ms: Millis(300_000),
            backoff_ms: Millis(1_000),
            backoff_max_ms: Millis(300_000),
            outbox_lease_ms: Millis(30_000),
            alert_after_ms: Millis(600_000),
            calls_kept_days: 400,
            ipps: None,
            qp: None,
            wise: None,
        }
    }
}

impl Payments {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        within("payments.poll_ms", self.poll_ms.0, 10..=60_000)?;
        within("payments.concurrency", self.concurrency, 1..=1_000)?;
        within("payments.batch", self.batch, 1..=1_000)?;
        within("payments.lease_ms", self.lease_ms.0, 3_000..=3_600_000)?;
        let least = self.lease_ms.0;
        within(
            "payments.retry_lease_ms",
            self.retry_lease_ms.0,
            least..=86_400_000,
        )?;
        within("payments.backoff_ms", self.backoff_ms.0, 10..=60_000)?;
        let least = self.backoff_ms.0;
        within(
            "payments.backoff_max_ms",
            self.backoff_max_ms.0,
            least..=86_400_000,
        )?;
        within(
            "payments.outbox_lease_ms",
            self.outbox_lease_ms.0,
            1_000..=600_000,
        )?;
        within(
            "payments.alert_after_ms",
            self.alert_after_ms.0,
            1_000..=86_400_000,
        )?;
        within(
            "payments.calls_kept_days",
            self.calls_kept_days,
            30..=36_500,
        )?;
        for (name, provider) in [("ipps", &self.ipps), ("qp", &self.qp), ("wise", &self.wise)] {
            if let Some(provider) = provider {
                self.check_provider(name, provider)?;
            }
        }
        Ok(())
    }

    fn check_provider(&self, name: &str, provider: &Provider) -> Result<(), ConfigError> {
        let key = |field: &str| format!("payments.{name}.{field}");
        if !["https://", "http://"]
            .iter()
            .any(|scheme| provider.url.starts_with(scheme))
        {
            let allowed = "an http or https URL".to_owned();
            return Err(wrong(&key("url"), format!("{:?}", provider.url), allowed));
        }
        let codes = &provider.currencies;
        let bad = codes
            .iter()
            .find(|code| code.parse::<crate::domain::money::CurrencyCode>().is_err());
        if let Some(found) = bad
            .cloned()
            .or_else(|| codes.is_empty().then(|| "none".to_owned()))
        {
            let allowed = "codes of currencies, at least one".to_owned();
            return Err(wrong(&key("currencies"), found, allowed));
        }
        within(
            &key("connect_timeout_ms"),
            provider.connect_timeout_ms.0,
            10..=60_000,
        )?;
        // What moves money is sent only where the lease lasts for the call and 2 seconds more.
        let most = self.lease_ms.0.saturating_sub(2_500);
        within(&key("timeout_ms"), provider.timeout_ms.0, 50..=most)?;
        within(
            &key("breaker_failures"),
            provider.breaker_failures,
            1..=10_000,
        )?;
        within(
            &key("breaker_pause_ms"),
            provider.breaker_pause_ms.0,
            10..=3_600_000,
        )?;
        within(
            &key("fee_basis_points"),
            provider.fee_basis_points,
            0..=10_000,
        )?;
        within(&key("watch_days"), provider.watch_days, 1..=400)?;
        match name {
            "wise" if provider.profile.is_none() => Err(wrong(
                &key("profile"),
                "none".to_owned(),
                "a profile's number".to_owned(),
            )),
            "qp" => {
                let digits = |text: &String| {
                    (1..=15).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit())
                };
                if !provider.biller.as_ref().is_some_and(digits) {
                    let found = provider.biller.clone().unwrap_or_else(|| "none".to_owned());
                    return Err(wrong(&key("biller"), found, "1 to 15 digits".to_owned()));
                }
                if provider.callback_secrets.is_empty() {
                    let allowed = "at least one secret".to_owned();
                    return Err(wrong(&key("callback_secrets"), "none".to_owned(), allowed));
                }
                within(&key("valid_for_s"), provider.valid_for_s.0, 30..=86_400)
            }
            _ => Ok(()),
        }
    }
}
