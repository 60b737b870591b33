//! Payments, as the configuration says.

use std::sync::Arc;
use std::time::Duration;

use chrono::TimeDelta;
use sqlx::PgPool;

use crate::config::{Config, Millis, Provider, SecretText};
use crate::domain::money::CurrencyCode;
use crate::domain::payment::PspName;
use crate::psp::breaker::Limits;
use crate::psp::client::{Endpoint, EndpointError};
use crate::psp::ipps::{Ipps, IppsConfig};
use crate::psp::qp::{Qp, QpConfig};
use crate::psp::wise::{Wise, WiseConfig};
use crate::psp::{Driver, Registry};
use crate::services::payments::{FeeRule, PaymentRules};
use crate::stores::StoreError;
use crate::stores::pm::outbox::OutboxLeases;
use crate::stores::pm::queue::Leases;
use crate::stores::pm::{self, PmBounds};

pub(super) fn pool(config: &Config) -> Result<PgPool, StoreError> {
    let bounds = PmBounds {
        max_connections: config.postgres.max_connections,
        acquire_timeout: config.pools.acquire_timeout_ms.duration(),
        statement_timeout: config.pools.statement_timeout_ms.duration(),
    };
    pm::connect(config.postgres.url.expose(), bounds)
}

/// The providers that are configured.
pub(super) fn providers(config: &Config) -> Result<Registry, EndpointError> {
    let payments = &config.payments;
    let mut drivers: Vec<Arc<dyn Driver>> = Vec::new();
    if let Some(ipps) = &payments.ipps {
        drivers.push(Arc::new(Ipps::new(IppsConfig {
            endpoint: endpoint(ipps),
            currencies: currencies_of(ipps),
            deduplicates: ipps.deduplicates,
        })?));
    }
    if let Some(qp) = &payments.qp {
        drivers.push(Arc::new(Qp::new(QpConfig {
            endpoint: endpoint(qp),
            biller: qp.biller.clone().unwrap_or_default(),
            currencies: currencies_of(qp),
            deduplicates: qp.deduplicates,
            valid_for: qp.valid_for_s.duration(),
            callback_secrets: qp.callback_secrets.iter().map(SecretText::secret).collect(),
        })?));
    }
    if let Some(wise) = &payments.wise {
        drivers.push(Arc::new(Wise::new(WiseConfig {
            endpoint: endpoint(wise),
            profile: wise.profile.unwrap_or_default(),
            currencies: currencies_of(wise),
            deduplicates: wise.deduplicates,
            watched_for: Duration::from_hours(24) * wise.watch_days,
        })?));
    }
    Ok(Registry::new(drivers))
}

fn endpoint(provider: &Provider) -> Endpoint {
    Endpoint {
        url: provider.url.clone(),
        token: provider.token.secret(),
        connect_timeout: provider.connect_timeout_ms.duration(),
        timeout: provider.timeout_ms.duration(),
        breaker: Limits {
            failures: provider.breaker_failures,
            cool_down: provider.breaker_pause_ms.duration(),
        },
    }
}

fn currencies_of(provider: &Provider) -> Vec<CurrencyCode> {
    // The configuration was checked.
    let codes = provider.currencies.iter();
    codes.filter_map(|code| code.parse().ok()).collect()
}

pub(super) fn rules(config: &Config) -> PaymentRules {
    let payments = &config.payments;
    let span =
        |millis: Millis| TimeDelta::milliseconds(i64::try_from(millis.0).unwrap_or(i64::MAX));
    let of = |psp| match psp {
        PspName::Ipps => &payments.ipps,
        PspName::Qp => &payments.qp,
        PspName::Wise => &payments.wise,
    };
    let fee = |psp: &PspName| {
        let provider = of(*psp).as_ref()?;
        let (fixed, basis_points) = (provider.fee_fixed, provider.fee_basis_points);
        Some((
            *psp,
            FeeRule {
                fixed,
                basis_points,
            },
        ))
    };
    PaymentRules {
        fees: PspName::ALL.iter().filter_map(fee).collect(),
        queue: Leases {
            lease: span(payments.lease_ms),
            retry_lease: span(payments.retry_lease_ms),
            backoff: span(payments.backoff_ms),
            most_backoff: span(payments.backoff_max_ms),
        },
        outbox: OutboxLeases {
            lease: span(payments.outbox_lease_ms),
            backoff: span(Millis(250)),
            most_backoff: span(payments.backoff_max_ms),
        },
        batch: payments.batch,
        patience: span(payments.alert_after_ms),
        calls_kept: TimeDelta::days(payments.calls_kept_days.into()),
    }
}
