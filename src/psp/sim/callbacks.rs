//! QP tells its client of payments: signed, and again until it is heard.

use std::time::Duration;

use reqwest::header::CONTENT_TYPE;
use secrecy::SecretString;

use super::faults::{Draws, number};
use crate::domain::money::CurrencyCode;
use crate::psp::qp::callback::{Callback, SIGNATURE_HEADER, TIMESTAMP_HEADER, sign};
use crate::runtime::Clock;

use super::book::{Code, Payment};

/// Of one delivery.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Deliveries before it gives up, and the pause after the first; it doubles.
const TRIES: u32 = 6;
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// Whom QP tells.
#[derive(Clone, Debug)]
pub struct Target {
    pub url: String,
    pub secret: SecretString,
}

#[derive(Clone)]
pub(super) struct Callbacks {
    target: Target,
    http: reqwest::Client,
}

impl Callbacks {
    pub(super) fn new(target: Target) -> reqwest::Result<Self> {
        let http = reqwest::Client::builder().timeout(TIMEOUT).build()?;
        Ok(Self { target, http })
    }

    /// Tells of a payment, with the faults that are drawn for it.
    pub(super) async fn tell(self, code: &Code, payment: &Payment, draws: &Draws, clock: &Clock) {
        let rates = draws.rates();
        let id = &payment.response_id;
        if draws.happens("late_callback", id, rates.late_callback) {
            tokio::time::sleep(Duration::from_millis(rates.late_ms)).await;
        }
        let Ok(currency) = payment.currency.parse::<CurrencyCode>() else {
            tracing::error!(payment = id, "a payment in what is no currency");
            return;
        };
        let callback = Callback {
            event_id: format!("E{:016x}", number(id)),
            qr_ref: code.qr_ref.clone(),
            reference: payment.intent.clone(),
            payment_id: id.clone(),
            amount: payment.amount.clone(),
            currency,
            paid_at: payment.paid_at,
        };
        self.deliver(&callback, clock).await;
        if draws.happens("duplicate_callback", id, rates.duplicate_callback) {
            self.deliver(&callback, clock).await;
        }
    }

    async fn deliver(&self, callback: &Callback, clock: &Clock) {
        let Ok(body) = serde_json::to_vec(callback) else {
            return;
        };
        let mut pause = FIRST_PAUSE;
        for _ in 0..TRIES {
            let timestamp = clock.now().timestamp().to_string();
            let signature = sign(&self.target.secret, &timestamp, &body);
            let request = self
                .http
                .post(&self.target.url)
                .header(CONTENT_TYPE, "application/json")
                .header(TIMESTAMP_HEADER, timestamp)
                .header(SIGNATURE_HEADER, signature)
                .body(body.clone());
            match request.send().await {
                Ok(answer) if answer.status().is_success() => return,
                Ok(answer) => tracing::info!(status = %answer.status(), "a callback is refused"),
                Err(error) => tracing::info!(%error, "a callback is not heard"),
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
        tracing::warn!(event = callback.event_id, "a callback was given up");
    }
}
