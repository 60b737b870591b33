//! `settlenet demo`: the main job on a stack of its own, step by step.

mod api;
mod job;
mod network;
mod payments;
mod providers;
mod schemes;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

use self::providers::Providers;
use super::Failure;
use crate::app::App;
use crate::config::Config;
use crate::runtime::{Clock, Entropy};
use crate::stack::{end_companions, start_detached};

/// Show the main job on this machine, and leave the server running
///
/// Starts a stack as `settlenet dev` does, makes four brokers (Alpha and Beta with databases of
/// their own, Gamma and Delta on a shared shard), serves the API, settles a request between two of
/// them through it, has one take cash from a client of the other and pay it out, repays and nets
/// debts, pays a client out and takes money in through simulated payment providers, and prints
/// every step. The server and the log-ins stay; `settlenet down` stops it all. Can be run again:
/// the network and its history are kept.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The folder for all data; made if there is none
    #[arg(long, value_name = "DIR", default_value = ".local/dev")]
    dir: PathBuf,
}

/// How long the API server may take until it is ready.
const START: Duration = Duration::from_mins(1);

pub(super) async fn run(args: Args) -> Result<ExitCode, Failure> {
    let program = std::env::current_exe()?;
    let dir = std::path::absolute(&args.dir)?;
    say("starting MariaDB (two servers), PostgreSQL and TigerBeetle");
    let (stack_program, stack_dir) = (program.clone(), dir.clone());
    let start = move || start_detached(&stack_program, &stack_dir, None);
    // The connection holds the stack up until the demonstration is over.
    let (description, _hold, _) = tokio::task::spawn_blocking(start).await??;
    let config = Config::load(Some(&description.config))?;

    end_companions(&dir).await;
    let app = App::assemble(&config, Clock::System, Entropy::from_env())?;
    let network = network::make(&app, &config, &dir).await?;
    let address = format!("http://{}", config.http.listen);
    let providers = Providers::start(&program, &dir, &address)?;
    serve(&program, &dir, &description.config, &address, &providers).await?;
    job::run(&app, &address, &network).await?;
    schemes::run(&address, &network).await?;
    payments::run(&app, &address, &network, &providers).await?;
    print_end(&address, &network, &providers, &args.dir);
    Ok(ExitCode::SUCCESS)
}

/// Starts the API server in the background, and waits until it is ready.
async fn serve(
    program: &Path,
    dir: &Path,
    file: &Path,
    address: &str,
    providers: &Providers,
) -> anyhow::Result<()> {
    let log = dir.join("serve.log");
    let output = File::create(&log).with_context(|| log.display().to_string())?;
    let mut command = std::process::Command::new(program);
    command
        .arg("serve")
        .arg("--config")
        .arg(file)
        .arg("--stack")
        .arg(dir)
        .envs(providers.settings())
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output);
    // A Ctrl-C in this terminal is not for the server.
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let mut child = command.spawn()?;
    let ready = format!("{address}/readyz");
    let client = reqwest::Client::new();
    let until = Instant::now() + START;
    loop {
        if let Some(status) = child.try_wait()? {
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            let end = text.lines().rev().take(5).collect::<Vec<_>>();
            let end = end.into_iter().rev().collect::<Vec<_>>().join("\n");
            bail!(
                "the server ended ({status}); the end of {}:\n{end}",
                log.display()
            );
        }
        let answered = client.get(&ready).send().await;
        if answered.is_ok_and(|answer| answer.status().is_success()) {
            return Ok(());
        }
        if Instant::now() > until {
            bail!(
                "the server is not ready after {} s; see {}",
                START.as_secs(),
                log.display()
            );
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn print_end(address: &str, network: &network::Network, providers: &Providers, dir: &Path) {
    println!();
    println!("The server runs on {address} and its documentation on {address}/docs.");
    println!(
        "What the simulated providers have paid: {}/sim/payments.",
        providers.address
    );
    println!("Log-ins, all with the password {}:", network.password);
    for (login, what) in network.logins() {
        println!("  {login:<8} {what}");
    }
    let dir = dir.display();
    println!("`make down` stops it (or `settlenet down --dir {dir}`); the data stays in {dir}.");
}

fn say(line: &str) {
    println!("• {line}");
}
