//! A provider that says what a test tells it to.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use secrecy::SecretString;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use uuid::Uuid;

use super::breaker::Limits;
use super::client::Endpoint;
use super::{Driver, Lease, PspTask, Turn};
use crate::domain::payment::PspState;
use crate::domain::payment::outcome::Facts;
use crate::domain::payment::receiver::Receiver;

pub(super) const TOKEN: &str = "tok-3f9a";

/// One answer per connection, in their order; whoever comes when there is none is hung up on.
pub(super) struct Scripted {
    pub(super) url: String,
    answers: Arc<Mutex<VecDeque<Vec<u8>>>>,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Scripted {
    pub(super) async fn new(answers: impl IntoIterator<Item = Vec<u8>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let provider = Self {
            url: format!("http://{}", listener.local_addr().unwrap()),
            answers: Arc::new(Mutex::new(answers.into_iter().collect())),
            requests: Arc::default(),
        };
        let answers = Arc::clone(&provider.answers);
        let requests = Arc::clone(&provider.requests);
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let request = read(&mut stream).await;
                requests.lock().unwrap().push(request);
                let answer = answers.lock().unwrap().pop_front().unwrap_or_default();
                let _ = stream.write_all(&answer).await;
                let _ = stream.shutdown().await;
            }
        });
        provider
    }

    /// Says that too, after what it was told to before.
    pub(super) fn says(&self, status: u16, body: &Value) {
        self.gives([json(status, body)]);
    }

    pub(super) fn gives(&self, answers: impl IntoIterator<Item = Vec<u8>>) {
        self.answers.lock().unwrap().extend(answers);
    }

    /// One answer of JSON.
    pub(super) async fn saying(status: u16, body: &Value) -> Self {
        Self::new([json(status, body)]).await
    }

    /// What it was asked since this was last called.
    pub(super) fn requests(&self) -> Vec<String> {
        std::mem::take(&mut self.requests.lock().unwrap())
    }
}

/// A request with its body, as it came.
async fn read(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).to_lowercase();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "));
            let length: usize = length.map_or(0, |length| length.parse().unwrap());
            if body.len() >= length {
                return String::from_utf8(bytes).unwrap();
            }
        }
        let mut chunk = [0; 4096];
        match stream.read(&mut chunk).await {
            Ok(read) if read > 0 => bytes.extend_from_slice(&chunk[..read]),
            _ => return String::from_utf8_lossy(&bytes).into_owned(),
        }
    }
}

pub(super) fn json(status: u16, body: &Value) -> Vec<u8> {
    let body = body.to_string();
    let head = format!(
        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    (head + &body).into_bytes()
}

/// An answer that breaks off.
pub(super) fn torn() -> Vec<u8> {
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{\"code\":"
        .to_vec()
}

pub(super) fn endpoint(url: &str) -> Endpoint {
    Endpoint {
        url: url.to_owned(),
        token: SecretString::from(TOKEN),
        connect_timeout: Duration::from_secs(5),
        timeout: Duration::from_secs(10),
        breaker: Limits {
            failures: 3,
            cool_down: Duration::from_hours(1),
        },
    }
}

/// 1,234.50 baht, looked up, with a lease of a minute.
pub(super) fn task(state: PspState, receiver: Receiver) -> PspTask {
    PspTask {
        intent: Uuid::from_u128(7),
        state,
        query_rq_uid: Uuid::from_u128(8).to_string(),
        confirm_rq_uid: Uuid::from_u128(9).to_string(),
        facts: Facts {
            lookup_ref: Some("77".to_owned()),
            ..Facts::default()
        },
        currency: "THB".parse().unwrap(),
        exponent: 2,
        amount: 123_450,
        receiver,
        sender: Some("W-1".to_owned()),
        tries: 0,
        lease: Lease::lasting(Duration::from_mins(1)),
    }
}

pub(super) fn thai_account() -> Receiver {
    Receiver::ThaiAccount {
        bank_code: "004".to_owned(),
        account_no: "0123456789".to_owned(),
    }
}

/// A turn in that state with a provider that gives one answer.
pub(super) async fn turn_in(
    (provider, driver): (&Scripted, &dyn Driver),
    mut task: PspTask,
    state: PspState,
    status: u16,
    body: &Value,
) -> Turn {
    provider.says(status, body);
    task.state = state;
    driver.process(&task).await
}
