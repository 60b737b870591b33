//! `settlenet admin`: what the network's operator does, straight on the databases.

mod alert;
mod arbiter;
mod audit;
mod book_file;
mod broker;
mod domain;
mod incoming;
mod invite;
mod log;
mod moves;
mod netting;
mod offboard;
mod pause;
mod payment;
mod place;
mod saga;
mod user;

use std::process::ExitCode;

use clap::Subcommand;
use serde_json::Value;

use super::{ConfigFile, Failure, print};

/// Ends a process that was asked about something that there is not.
const NO_SUCH_THING: u8 = 4;

/// Set up and look after the network: brokers, servers, people, stuck work
///
/// Works on the databases of the configuration and needs no server of ours to
/// run; the same is done over REST under /v1/admin. On a new network:
///
///   settlenet migrate
///   settlenet admin server add b --capacity 500
///   settlenet admin shard create --server a --database settlenet_shard_1 --capacity 5000
///   settlenet admin broker create Alpha --plan pro
///   settlenet admin user create alpha-admin --role broker_admin --broker 1
///   settlenet admin user create root --role platform_admin
#[derive(Debug, clap::Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Exit codes: 0 done, or so already; 1 failed, the reason on standard error; 2 the \
command line or the configuration is wrong; 4 there is no such broker, move, currency, shard, saga, \
round, invitation, host name, payment, wallet, witness, arbiter, tie or alert, or a book does not hold; 5 something must be settled before a broker can leave."
)]
pub(super) struct Args {
    #[command(subcommand)]
    what: What,
    #[command(flatten)]
    file: ConfigFile,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Members of the network
    #[command(subcommand)]
    Broker(broker::What),
    /// Pause the network, a broker or a currency; list what is paused
    #[command(subcommand)]
    Pause(pause::Pause),
    /// Lift a pause
    #[command(subcommand)]
    Resume(pause::Resume),
    /// Books that go from one database to another
    #[command(subcommand)]
    Move(moves::What),
    /// Rounds that clear what goes round in the network's debts
    #[command(subcommand)]
    Netting(netting::What),
    /// Database servers that may hold books
    #[command(subcommand)]
    Server(place::Server),
    /// Databases that hold the books of many SOLO brokers
    #[command(subcommand)]
    Shard(place::Shard),
    /// People who log in
    #[command(subcommand)]
    User(user::What),
    /// Invitations, by which brokers join the network themselves
    #[command(subcommand)]
    Invite(invite::What),
    /// Host names under which dashboards are brokers' own
    #[command(subcommand)]
    Domain(domain::What),
    /// Operations across several databases: what is stuck, and what can be done
    #[command(subcommand)]
    Saga(saga::What),
    /// Payments of which only a person can tell whether they were made
    #[command(subcommand)]
    Review(payment::Review),
    /// Money that came in for nobody
    #[command(subcommand)]
    Incoming(incoming::What),
    /// What payments go out of and come into
    #[command(subcommand)]
    Wallet(payment::Wallet),
    /// What a person must look at
    #[command(subcommand)]
    Alert(alert::What),
    Audit(audit::Args),
    /// Who hears no dispute of whom
    #[command(subcommand)]
    Arbiter(arbiter::What),
    /// The log of chain heads, by which anybody sees what was rewritten
    #[command(subcommand)]
    Log(log::What),
    /// Those who cosign checkpoints of the log
    #[command(subcommand)]
    Witness(log::Witnesses),
}

pub(super) async fn run(args: &Args) -> Result<ExitCode, Failure> {
    let config = args.file.load()?;
    let mut code = ExitCode::SUCCESS;
    let shown = match &args.what {
        What::Broker(what) => {
            let (shown, ended) = broker::run(what, &config).await?;
            code = ended;
            shown
        }
        What::Pause(what) => pause::pause(what, &config).await?,
        What::Resume(what) => pause::resume(what, &config).await?,
        What::Move(what) => moves::run(what, &config).await?,
        What::Netting(what) => netting::run(what, &config).await?,
        What::Server(what) => place::servers(what, &config).await?,
        What::Shard(what) => place::shards(what, &config).await?,
        What::User(what) => user::run(what, &config).await?,
        What::Invite(what) => invite::run(what, &config).await?,
        What::Domain(what) => domain::run(what, &config).await?,
        What::Saga(what) => saga::run(what, &config).await?,
        What::Review(what) => payment::review(what, &config).await?,
        What::Incoming(what) => incoming::run(what, &config).await?,
        What::Wallet(what) => payment::wallet(what, &config).await?,
        What::Alert(what) => alert::run(what, &config).await?,
        What::Arbiter(what) => arbiter::run(what, &config).await?,
        What::Log(what) => log::run(what, &config).await?,
        What::Witness(what) => log::witnesses(what, &config).await?,
        What::Audit(args) => {
            let (shown, ended) = audit::run(args, &config).await?;
            code = ended;
            shown
        }
    };
    if args.json {
        print(&serde_json::to_string_pretty(&shown.json)?);
    } else {
        print(&shown.text);
    }
    Ok(code)
}

/// What a command has to say, for people and for programs.
struct Shown {
    text: String,
    json: Value,
}

/// An argument that is none, as far as only the databases can tell.
fn usage(argument: &str, error: &impl std::fmt::Display) -> Failure {
    Failure {
        code: ExitCode::from(2),
        error: anyhow::anyhow!("{argument} {error}"),
    }
}

fn no_such(what: impl std::fmt::Display) -> Failure {
    Failure {
        code: ExitCode::from(NO_SUCH_THING),
        error: anyhow::anyhow!("there is no {what}"),
    }
}
