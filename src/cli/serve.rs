//! `settlenet serve`: the API, and the background work beside it.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use tokio::net::TcpListener;

use super::{ConfigFile, Failure, logging, settings};
use crate::app::App;
use crate::config::Config;
use crate::http::{self, AppState, ReadyCheck, Services, TokenRate};
use crate::runtime::{Clock, Entropy, Lifecycle};
use crate::services::auth::AuthService;
use crate::services::team::TeamService;
use crate::stack::{Companion, record_companion};
use crate::workers;

/// Serve the REST API and do the background work
///
/// Any number of processes may serve one network. /docs describes the API, /healthz and /readyz
/// tell how it is, /metrics what it measures. SIGTERM or SIGINT end it after what is running.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    config: ConfigFile,
    /// Leave the background work to other processes
    #[arg(long)]
    no_workers: bool,
    /// Serve as the one server of the stack in this folder: `settlenet down` ends it too
    #[arg(long, value_name = "DIR", hide = true)]
    stack: Option<std::path::PathBuf>,
}

pub(super) async fn run(args: Args) -> Result<ExitCode, Failure> {
    let config = args.config.load()?;
    logging::start(&config.log)?;
    super::check_schema(&config).await?;
    raise_files(config.http.max_connections);
    let app = App::assemble(&config, Clock::from_env(), Entropy::from_env())?;
    let state = state(&config, app.clone()).await?;
    let lifecycle = state.lifecycle.clone();

    let listener = TcpListener::bind(config.http.listen)
        .await
        .with_context(|| format!("http.listen: {} can't be listened on", config.http.listen))?;
    let address = listener.local_addr()?;
    if let Some(stack) = &args.stack {
        record_companion(stack, Companion::Server)?;
    }
    let mut background = if args.no_workers {
        tokio::task::JoinSet::new()
    } else {
        workers::start(&app, &config, lifecycle.stopping())
    };
    workers::keep_access(&mut background, &state.auth, lifecycle.stopping());
    workers::measure(&mut background, &app, lifecycle.stopping());
    tracing::info!(%address, "serving");
    super::print(&format!("listening on http://{address}"));

    let asked = async {
        if let Err(error) = super::until_asked_to_end().await {
            tracing::error!(%error, "signals can't be waited for");
        }
    };
    http::serve(listener, state, asked).await;
    let grace = config.http.shutdown_grace_ms.duration();
    let all = async { while background.join_next().await.is_some() {} };
    if tokio::time::timeout(grace, all).await.is_err() || !app.engine.drain(grace).await {
        tracing::warn!("some work has not ended in time; another process takes it over");
    }
    Ok(ExitCode::SUCCESS)
}

/// Descriptors beside those of clients: databases, the ledger, files.
const OWN_FILES: u64 = 1_024;

/// Asks the system for as many open files as the connections need, up to what it allows: the
/// usual first bound is 1,024.
fn raise_files(connections: usize) {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let wanted = u64::try_from(connections)
        .unwrap_or(u64::MAX)
        .saturating_add(OWN_FILES);
    let mut limit = getrlimit(Resource::Nofile);
    let Some(now) = limit.current.filter(|now| *now < wanted) else {
        return;
    };
    let most = limit.maximum.unwrap_or(wanted).min(wanted);
    limit.current = Some(most.max(now));
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "the bound of open files stays");
    }
    if most < wanted {
        tracing::warn!(
            allowed = most,
            wanted,
            "http.max_connections is more than the bound of open files (nofile) allows"
        );
    }
}

async fn state(config: &Config, app: App) -> anyhow::Result<AppState> {
    let systems = app.systems.clone();
    let (clock, entropy) = (systems.clock.clone(), systems.entropy.clone());
    let auth = AuthService::open(
        settings::auth(&config.auth),
        systems.master.clone(),
        clock.clone(),
        entropy.clone(),
    )
    .await?;
    let http = settings::http(&config.http);
    Ok(AppState::new(Services {
        token_rate: TokenRate::new(&http, clock.clone()),
        callback_rate: TokenRate::new(&http, clock.clone()),
        config: http,
        lifecycle: Lifecycle::default(),
        ready: ready_checks(config, &app),
        team: TeamService::new(systems.master.clone(), clock.clone(), auth.passwords()),
        auth,
        app,
        clock,
        entropy,
    }))
}

/// Everything that the API can't do its work without.
fn ready_checks(config: &Config, app: &App) -> Vec<ReadyCheck> {
    let master = app.systems.master.clone();
    let (ledger, pm) = (app.systems.ledger.clone(), app.systems.pm.clone());
    let mut checks = vec![
        ReadyCheck::new("master", move || {
            let master = master.clone();
            async move { sqlx::query("SELECT 1").execute(&master).await.is_ok() }
        }),
        ReadyCheck::new("ledger", move || {
            let ledger = ledger.clone();
            async move { ledger.ping().await.is_ok() }
        }),
    ];
    checks.push(ReadyCheck::new("payments", move || {
        let pm = pm.clone();
        async move { sqlx::query("SELECT 1").execute(&pm).await.is_ok() }
    }));
    for name in config.servers.keys() {
        let router = Arc::clone(&app.systems.router);
        let server = name.clone();
        checks.push(ReadyCheck::new(format!("server {name}"), move || {
            let router = Arc::clone(&router);
            let server = server.clone();
            async move { router.answers(&server).await }
        }));
    }
    checks
}
