//! Processes that a test kills and stops: this very test program, doing one thing through the
//! services, and the real `settlenet worker`. They die and stop at the failpoints that
//! `SETTLENET_FAILPOINTS` names, and go by a clock that the test moves.

use std::fs::File;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use settlenet::app::App;
use settlenet::config::Config;
use settlenet::domain::ids::{AccountId, BrokerId, RequestId};
use settlenet::domain::netting_proposal::Act;
use settlenet::domain::netting_round::Answer;
use settlenet::runtime::{Clock, Entropy};
use settlenet::services::network::Judgment;
use tokio_util::sync::CancellationToken;

use super::{SOON, World, program, until};

/// Says what the program does as a child: `confirm`, `accept` or `cancel`, the broker, the
/// request, and for an acceptance the account; `decide`, a zero, the request, the verdict and the
/// amount; or `approve` or `decline`, the broker and the
/// netting round; or `net`, the broker and the proposal that it approves.
const MARKER: &str = "SETTLENET_TEST_CHILD";

/// A clock that the test and its children share, moved by what is written in a file.
pub struct MovedClock {
    file: PathBuf,
    by: std::sync::Mutex<chrono::Duration>,
}

impl MovedClock {
    pub fn new() -> Self {
        let name = format!("settlenet-clock-{}", uuid::Uuid::new_v4());
        let file = std::env::temp_dir().join(name);
        std::fs::write(&file, "0").expect("a clock file");
        Self {
            file,
            by: std::sync::Mutex::default(),
        }
    }

    pub fn clock(&self, skew: chrono::Duration) -> Clock {
        let file = self.file.clone();
        Clock::Shifted { file, skew }
    }

    /// In one step, since others read it at any moment.
    pub fn advance(&self, by: chrono::Duration) {
        let mut moved = self.by.lock().expect("no test panics here");
        *moved += by;
        let micros = moved.num_microseconds().expect("fits");
        let next = self.file.with_extension("next");
        std::fs::write(&next, micros.to_string()).expect("a clock file");
        std::fs::rename(&next, &self.file).expect("a clock file");
    }
}

impl Drop for MovedClock {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.file));
    }
}

/// A child process; killed when dropped.
pub struct Child {
    process: std::process::Child,
    log: PathBuf,
}

impl Child {
    /// Does one thing through the services and ends when its saga has, or where it is told to.
    pub fn acts(world: &World, clock: &MovedClock, what: &str, failpoints: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command
            .args(["--exact", "harness::children::child_entry", "--nocapture"])
            .env(MARKER, what);
        Self::start(command, world, clock, failpoints)
    }

    /// The real program, doing what its arguments say.
    pub fn program(world: &World, clock: &MovedClock, args: &[&str], failpoints: &str) -> Self {
        let mut command = Command::new(program());
        command.args(args);
        Self::start(command, world, clock, failpoints)
    }

    /// The real background work.
    pub fn worker(world: &World, clock: &MovedClock, failpoints: &str) -> Self {
        let mut command = Command::new(program());
        command.arg("worker");
        Self::start(command, world, clock, failpoints)
    }

    /// The real background work, with more in its environment.
    pub fn worker_with(
        world: &World,
        clock: &MovedClock,
        env: &[(&str, &str)],
        failpoints: &str,
    ) -> Self {
        let mut command = Command::new(program());
        command.arg("worker").envs(env.iter().copied());
        Self::start(command, world, clock, failpoints)
    }

    /// The real server, once it listens, and where.
    pub async fn serve(
        world: &World,
        clock: &MovedClock,
        args: &[&str],
        failpoints: &str,
    ) -> (Self, String) {
        let mut command = Command::new(program());
        command
            .arg("serve")
            .args(args)
            .env("SETTLENET_HTTP__LISTEN", "127.0.0.1:0");
        let mut child = Self::start(command, world, clock, failpoints);
        let mut address = None;
        until("the server listens", SOON, async || {
            let log = std::fs::read_to_string(&child.log).unwrap_or_default();
            let ended = child.process.try_wait().expect("may be waited for");
            assert!(ended.is_none(), "the server ended: {ended:?}\n{log}");
            address = log
                .lines()
                .find_map(|line| line.strip_prefix("listening on "))
                .map(ToOwned::to_owned);
            address.is_some()
        })
        .await;
        (child, address.expect("was found"))
    }

    fn start(mut command: Command, world: &World, clock: &MovedClock, failpoints: &str) -> Self {
        let log = clock
            .file
            .with_extension(format!("{}.log", uuid::Uuid::new_v4()));
        let out = File::create(&log).expect("a log");
        let process = command
            .env("SETTLENET_CONFIG", world.databases.config_file())
            .env(
                "SETTLENET_MASTER__URL",
                world.databases.master_url().expose(),
            )
            .env(
                "SETTLENET_POSTGRES__URL",
                world.databases.payments_url().expose(),
            )
            .env("SETTLENET_HTTP__CONFIRM_WAIT_MS", "20000")
            .env("SETTLENET_SAGA__POLL_MS", "20")
            .env("SETTLENET_TEST_CLOCK", &clock.file)
            .env("SETTLENET_FAILPOINTS", failpoints)
            .env(
                "SETTLENET_CHECKPOINTS__NAME",
                &world.config.checkpoints.name,
            )
            .stdin(Stdio::null())
            .stderr(out.try_clone().expect("a log"))
            .stdout(out)
            .spawn()
            .expect("the program starts");
        Self { process, log }
    }

    /// Waits until the child has ended by itself.
    pub async fn ended(&mut self) -> ExitStatus {
        let mut status = None;
        let what = format!("the child ends; its log is {}", self.log.display());
        until(&what, SOON, async || {
            status = self.process.try_wait().expect("may be waited for");
            status.is_some()
        })
        .await;
        status.expect("has ended")
    }

    /// Waits for the death that a failpoint means; `place` is for the message.
    pub async fn killed(&mut self, place: &str) {
        let status = self.ended().await;
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        assert_eq!(status.signal(), Some(9), "{place}: {status}\n{log}");
    }

    /// Whether it has been killed already.
    pub fn is_killed(&mut self) -> bool {
        let status = self.process.try_wait().expect("may be waited for");
        status.is_some_and(|status| status.signal() == Some(9))
    }

    /// Waits until the child has stopped itself.
    pub async fn stopped(&mut self, place: &str) {
        until(place, SOON, async || {
            let ended = self.process.try_wait().expect("may be waited for");
            assert!(
                ended.is_none(),
                "{place}: it did not stop but ended: {ended:?}"
            );
            state_of(self.process.id()) == Some('T')
        })
        .await;
    }

    pub fn is_stopped(&self) -> bool {
        state_of(self.process.id()) == Some('T')
    }

    pub fn go_on(&self) {
        self.signal(rustix::process::Signal::CONT);
    }

    /// Stops it wherever it is.
    pub fn stand_still(&self) {
        self.signal(rustix::process::Signal::STOP);
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = i32::try_from(self.process.id()).expect("a pid");
        let pid = rustix::process::Pid::from_raw(pid).expect("a pid");
        rustix::process::kill_process(pid, signal).expect("is there");
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
        if !std::thread::panicking() {
            drop(std::fs::remove_file(&self.log));
        }
    }
}

fn state_of(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat"));
    stat.ok()?.rsplit_once(')')?.1.trim_start().chars().next()
}

/// Works on the moves that are due, each once, as a worker does.
async fn go_on_with_a_move() {
    let file = std::env::var_os("SETTLENET_CONFIG").map(PathBuf::from);
    let config = Config::load(file.as_deref()).expect("a configuration");
    let app = App::assemble(&config, Clock::from_env(), Entropy::from_env()).expect("assembles");
    for claim in app.move_engine.claim(10).await.expect("claims") {
        app.move_engine.run(claim, &CancellationToken::new()).await;
    }
    eprintln!("moved on");
}

/// Answers a round of netting, or approves a proposal.
async fn answer_a_netting(words: &[&str]) {
    let broker: BrokerId = words[1].parse().expect("a broker");
    let file = std::env::var_os("SETTLENET_CONFIG").map(PathBuf::from);
    let config = Config::load(file.as_deref()).expect("a configuration");
    let app = App::assemble(&config, Clock::from_env(), Entropy::from_env()).expect("assembles");
    let actor = World::actor(broker);
    let answer = async |said| {
        let id = words[2].parse().expect("a round");
        app.netting.answer(&actor, id, said).await.map(drop)
    };
    let done = match words[0] {
        "approve" => answer(Answer::Approve).await,
        "decline" => answer(Answer::Decline).await,
        _ => {
            let id = words[2].parse().expect("a proposal");
            app.netting.act_on(&actor, id, Act::Approve).await.map(drop)
        }
    };
    eprintln!("{words:?}: {done:?}");
}

/// No test of its own: what a [`Child`] runs. It does nothing where nobody asks it to.
#[tokio::test(flavor = "multi_thread")]
async fn child_entry() {
    let Ok(what) = std::env::var(MARKER) else {
        return;
    };
    let words: Vec<&str> = what.split(' ').collect();
    if words[0] == "move" {
        return go_on_with_a_move().await;
    }
    if ["approve", "decline", "net"].contains(&words[0]) {
        return answer_a_netting(&words).await;
    }
    let broker: BrokerId = words[1].parse().expect("a broker");
    let id: RequestId = words[2].parse().expect("a request");
    let file = std::env::var_os("SETTLENET_CONFIG").map(PathBuf::from);
    let config = Config::load(file.as_deref()).expect("a configuration");
    let app = App::assemble(&config, Clock::from_env(), Entropy::from_env()).expect("assembles");
    let actor = World::actor(broker);
    let answer = match words[0] {
        "confirm" => app.network.confirm_received(&actor, id, None).await,
        "cancel" => app.network.cancel_request(&actor, id).await,
        "accept" => {
            let account = words
                .get(3)
                .map(|id| id.parse::<AccountId>().expect("an account"));
            app.network.accept_request(&actor, id, account).await
        }
        "decide" => {
            let judgment = Judgment {
                verdict: words[3].parse().expect("a verdict"),
                amount: words.get(4).map(|amount| (*amount).to_owned()),
                reason: "the slip says so".to_owned(),
            };
            let arbiter = crate::disputes::ARBITER;
            app.network.decide(arbiter, id, &judgment).await
        }
        other => panic!("{other} is nothing to do"),
    };
    let drained = app.engine.drain(Duration::from_secs(20)).await;
    eprintln!("{what}: {answer:?}, all ended: {drained}");
}
