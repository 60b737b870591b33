use std::future::{Future, IntoFuture};
use std::io;
use std::net::SocketAddr;

use tokio::net::TcpListener;

use super::state::AppState;

/// Serves until `stop`, then stops in order: `/readyz` says so, no connection is taken any more,
/// answers that are under way are finished, and so is all that goes on without its caller. Each
/// of the last two has the drain time.
///
/// # Errors
/// The listener's.
pub async fn serve(
    listener: TcpListener,
    state: AppState,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let lifecycle = state.lifecycle.clone();
    let drain = state.config.drain;
    let app = super::app(state).into_make_service_with_connect_info::<SocketAddr>();

    let stopping = lifecycle.stopping().clone();
    let told = lifecycle.clone();
    tokio::spawn(async move {
        tokio::select! {
            () = stop => told.stop(),
            () = told.stopping().cancelled() => {}
        }
    });
    let server = axum::serve(listener, app)
        .with_graceful_shutdown(stopping.clone().cancelled_owned())
        .into_future();
    let patience = async {
        stopping.cancelled().await;
        tokio::time::sleep(drain).await;
    };
    tokio::select! {
        result = server => result?,
        () = patience => tracing::warn!("some answers were broken off"),
    }
    if !lifecycle.finished(drain).await {
        tracing::warn!("some work was left to whoever finds it");
    }
    Ok(())
}
