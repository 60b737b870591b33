//! `settlenet psp-sim`: the payment providers' side, to try payments with.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use secrecy::SecretString;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::{Failure, logging};
use crate::config::Log;
use crate::psp::sim::{Options, Rates, RecordError, SimError, Simulator, Target};
use crate::runtime::Clock;
use crate::stack::{Companion, record_companion};

/// Play the payment providers IPPS, WISE and QP, to try payments without them
///
/// Answers over HTTP as the providers do, on this machine alone. What it pays is on disk before it
/// says so, and is there again when it is started again. It needs no configuration and no database.
/// SIGTERM or SIGINT end it after what is under way.
///
/// Start it, point payments.ipps.url, payments.wise.url and payments.qp.url of a server's configuration at the
/// address that it prints, and give both the same token. Then ask it:
///
///   GET  /sim/payments               what it has paid: uid, intent, amount, how often
///   GET  /sim/report.csv             its statement, one line per payment
///   GET  /sim/faults                 the rates of its faults
///   POST /sim/faults                 sets them: {"error_after": 5, "latency": 20}
///   POST /sim/qp/{code}/pay          somebody scans the QR code and pays; {code} is its qrRef,
///                                    its rqUid or the intent
///   POST /sim/wise/{transfer}/bounce the receiver's bank sends the money back
///
/// as in: curl -H 'Authorization: Bearer TOKEN' http://127.0.0.1:8790/sim/payments
///
/// Faults are rates of a hundred: latency, error_before (503, nothing done), error_after (502, all
/// done), torn_after (the answer breaks off), unknown (a payment is unknown to the first questions),
/// bounce (WISE), duplicate_callback and late_callback (QP); and the sizes latency_ms, unknown_asks
/// and late_ms. The same seed gives the same faults.
///
/// Receivers whose account number, proxy or IBAN ends in 9990000 and a digit: 1 not found, 2 closed,
/// 3 over their limit when they are to be paid, 4 closed by then, 5 slow, 6 slow and then refused,
/// 7 held for compliance, 8 bounces (WISE), 9 our balance is too small twice (WISE). docs/psp.md says
/// more.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// A loopback address; port 0 takes a free one, which is printed
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8790")]
    listen: SocketAddr,
    /// Where it keeps what it has paid, one line of JSON each; made if there is none
    #[arg(long, value_name = "FILE", default_value = "psp-sim.jsonl")]
    record: PathBuf,
    /// What the faults follow from
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    seed: u64,
    /// How often it fails, as error_after=5,torn_after=5,latency=20,latency_ms=300
    #[arg(long, value_name = "RATES", default_value = "")]
    faults: Rates,
    /// Pay a uid as often as that is asked for
    #[arg(long)]
    no_deduplication: bool,
    /// The bearer token that clients must show [default: none is asked for]
    #[arg(
        long,
        value_name = "TOKEN",
        env = "SETTLENET_PSP_SIM_TOKEN",
        hide_env_values = true
    )]
    token: Option<SecretString>,
    /// Where QP tells of what was paid
    #[arg(long, value_name = "URL", requires = "callback_secret")]
    callback: Option<String>,
    /// What it signs that with
    #[arg(
        long,
        value_name = "SECRET",
        env = "SETTLENET_PSP_SIM_CALLBACK_SECRET",
        hide_env_values = true
    )]
    callback_secret: Option<SecretString>,
    /// Run as the providers of the stack in this folder: `settlenet down` ends it too
    #[arg(long, value_name = "DIR", hide = true)]
    stack: Option<PathBuf>,
}

pub(super) async fn run(args: Args) -> Result<ExitCode, Failure> {
    if !args.listen.ip().is_loopback() {
        return Err(Failure {
            code: ExitCode::from(2),
            error: anyhow::anyhow!(
                "--listen: {} is not a loopback address, and the simulator is for this machine alone",
                args.listen
            ),
        });
    }
    logging::start(&Log::default())?;
    let target = args.callback.zip(args.callback_secret);
    let opened = Simulator::open(Options {
        record: args.record.clone(),
        seed: args.seed,
        rates: args.faults,
        deduplicates: !args.no_deduplication,
        token: args.token,
        callback: target.map(|(url, secret)| Target { url, secret }),
        clock: Clock::from_env(),
    });
    let simulator = match opened {
        Err(error @ SimError::Record(RecordError::InUse { .. })) => {
            return Err(Failure {
                code: ExitCode::from(3),
                error: error.into(),
            });
        }
        opened => opened?,
    };
    let listener = TcpListener::bind(args.listen)
        .await
        .with_context(|| format!("--listen: {} can't be listened on", args.listen))?;
    let address = listener.local_addr()?;
    if let Some(stack) = &args.stack {
        record_companion(stack, Companion::Providers)?;
    }
    let stop = CancellationToken::new();
    let asked = stop.clone();
    tokio::spawn(async move {
        if let Err(error) = super::until_asked_to_end().await {
            tracing::error!(%error, "signals can't be waited for");
        }
        asked.cancel();
    });
    super::print(&format!(
        "listening on http://{address}, record {}",
        args.record.display()
    ));
    simulator.serve(listener, stop).await?;
    Ok(ExitCode::SUCCESS)
}
