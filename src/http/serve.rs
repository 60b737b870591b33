//! Connections: as many at once as the configuration says, none that only sits there (it says
//! nothing, or takes nothing of what it is told), and an orderly end. HTTP/1.1: who wants more
//! between itself and its users has a proxy that speaks it.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request};
use hyper::body::Incoming;
use hyper::server::conn::http1::Builder;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_io_timeout::TimeoutStream;
use tower::ServiceExt as _;

use super::state::{AppState, HttpConfig};

/// After an accept that failed for want of something (file descriptors), before the next.
const BREATH: Duration = Duration::from_millis(200);

/// Serves until `stop`, then stops in order: `/readyz` says so, no connection is taken any more,
/// answers that are under way are finished, and so is all that goes on without its caller. Each
/// of the last two has the drain time. A connection that fails concerns its client alone.
pub async fn serve(
    listener: TcpListener,
    state: AppState,
    stop: impl Future<Output = ()> + Send + 'static,
) {
    let lifecycle = state.lifecycle.clone();
    let config = state.config.clone();
    let connections = Connections::new(&config, super::app(state));
    let told = lifecycle.clone();
    tokio::spawn(async move {
        tokio::select! {
            () = stop => told.stop(),
            () = told.stopping().cancelled() => {}
        }
    });
    tokio::select! {
        () = connections.take(listener) => {}
        () = lifecycle.stopping().cancelled() => {}
    }
    // The listener is closed by now.
    if tokio::time::timeout(config.drain, connections.graceful.shutdown())
        .await
        .is_err()
    {
        tracing::warn!("some answers were broken off");
    }
    if !lifecycle.finished(config.drain).await {
        tracing::warn!("some work was left to whoever finds it");
    }
}

struct Connections {
    app: Router,
    builder: Builder,
    graceful: GracefulShutdown,
    room: Arc<Semaphore>,
    /// How long a client may take nothing of an answer.
    unread: Duration,
}

impl Connections {
    fn new(config: &HttpConfig, app: Router) -> Self {
        let mut builder = Builder::new();
        // A client has this long for the head of a request, the next one of a connection too.
        builder
            .timer(TokioTimer::new())
            .header_read_timeout(config.idle_timeout);
        Self {
            app,
            builder,
            graceful: GracefulShutdown::new(),
            room: Arc::new(Semaphore::new(config.max_connections)),
            unread: config.idle_timeout,
        }
    }

    /// Takes connections while there is room; the others wait in the system's queue.
    async fn take(&self, listener: TcpListener) {
        loop {
            // Never closed.
            let Ok(room) = Arc::clone(&self.room).acquire_owned().await else {
                return;
            };
            match listener.accept().await {
                Ok((stream, address)) => self.serve(stream, address, room),
                Err(error) if concerns_one(&error) => {}
                Err(error) => {
                    tracing::warn!(%error, "no connection can be taken now");
                    tokio::time::sleep(BREATH).await;
                }
            }
        }
    }

    fn serve(&self, stream: TcpStream, address: SocketAddr, room: OwnedSemaphorePermit) {
        // Answers are small and whole; waiting for more to send only delays them.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "a connection is gone already");
        }
        let mut stream = TimeoutStream::new(stream);
        stream.set_write_timeout(Some(self.unread));
        let app = self.app.clone();
        let service = tower::service_fn(move |request: Request<Incoming>| {
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(ConnectInfo(address));
            let answer = app.clone().oneshot(request);
            async move { answer.await.map_err(|never: Infallible| never) }
        });
        let connection = self.builder.serve_connection(
            TokioIo::new(Box::pin(stream)),
            TowerToHyperService::new(service),
        );
        let watched = self.graceful.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = watched.await {
                tracing::debug!(%error, "a connection has ended badly");
            }
            drop(room);
        });
    }
}

/// Whether an accept failed because of the one connection that it would have given.
fn concerns_one(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
    )
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    async fn started(idle_ms: u64, max_connections: usize) -> SocketAddr {
        let config = HttpConfig {
            idle_timeout: Duration::from_millis(idle_ms),
            max_connections,
            ..HttpConfig::default()
        };
        let app = Router::new()
            .route("/", get(async || "here"))
            .route("/much", get(async || "x".repeat(1_000_000)));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Connections::new(&config, app);
        tokio::spawn(async move { connections.take(listener).await });
        address
    }

    async fn read_to_end(stream: &mut TcpStream) -> String {
        let mut text = Vec::new();
        let reading = stream.read_to_end(&mut text);
        let ended = tokio::time::timeout(Duration::from_secs(20), reading).await;
        // Broken off is ended too.
        drop(ended.expect("the connection is closed"));
        String::from_utf8(text).unwrap()
    }

    #[tokio::test]
    async fn connections_that_say_nothing_half_a_head_or_nothing_more_are_closed() {
        let address = started(150, 16).await;
        let mut silent = TcpStream::connect(address).await.unwrap();
        let mut half = TcpStream::connect(address).await.unwrap();
        half.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n")
            .await
            .unwrap();
        let mut idle = TcpStream::connect(address).await.unwrap();
        idle.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            .await
            .unwrap();
        assert!(read_to_end(&mut idle).await.ends_with("here"));
        read_to_end(&mut silent).await;
        read_to_end(&mut half).await;
    }

    #[tokio::test]
    async fn who_does_not_read_its_answers_gives_its_place_to_others() {
        let address = started(300, 1).await;
        let mut deaf = TcpStream::connect(address).await.unwrap();
        // More answers than the buffers of both sides hold.
        let asking = tokio::spawn(async move {
            let ask = b"GET /much HTTP/1.1\r\nHost: x\r\n\r\n".repeat(200);
            drop(deaf.write_all(&ask).await);
            tokio::time::sleep(Duration::from_secs(20)).await;
            drop(deaf);
        });
        let mut next = TcpStream::connect(address).await.unwrap();
        let ask = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        next.write_all(ask).await.unwrap();
        assert!(read_to_end(&mut next).await.ends_with("here"));
        assert!(!asking.is_finished(), "the other would have kept its place");
        asking.abort();
    }

    #[tokio::test]
    async fn beyond_the_bound_connections_wait_until_others_end() {
        let address = started(60_000, 1).await;
        let first = TcpStream::connect(address).await.unwrap();
        let mut second = TcpStream::connect(address).await.unwrap();
        let ask = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        second.write_all(ask).await.unwrap();
        let mut byte = [0; 1];
        let early = tokio::time::timeout(Duration::from_millis(200), second.peek(&mut byte)).await;
        assert!(early.is_err(), "answered while there was no room");
        drop(first);
        assert!(read_to_end(&mut second).await.ends_with("here"));
    }
}
