//! The shared stack, and stacks for tests that stop servers.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use settlenet::config::Config;
use settlenet::stack::{
    Control, Description, ServerName, ServerStatus, StackStatus, start_detached,
};

/// How long a stack outlives the last test process that holds it: long enough
/// for a runner that starts a process per test.
const LINGER: Duration = Duration::from_secs(20);

/// The program under test.
pub fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_settlenet"))
}

fn local() -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(".local");
    std::fs::create_dir_all(&folder).expect("a writable checkout");
    folder
}

/// Servers that answer, held up as long as this lives.
pub struct Stack {
    pub description: Description,
    _hold: Control,
}

impl Stack {
    fn start(dir: &Path) -> Self {
        let (description, hold, _) =
            start_detached(program(), dir, Some(LINGER)).expect("the stack starts");
        Self {
            description,
            _hold: hold,
        }
    }

    pub fn dir(&self) -> &Path {
        &self.description.dir
    }

    /// With the password; no database for MariaDB, `IP:PORT` for TigerBeetle.
    pub fn url(&self, name: ServerName) -> &str {
        self.description.url(name)
    }

    /// The configuration that fits these servers.
    pub fn config(&self) -> Config {
        Config::from_sources(Some(&self.description.config), [])
            .expect("the stack writes a configuration that is right")
    }

    pub fn status(&self) -> StackStatus {
        let mut control = Control::connect(self.dir()).expect("the supervisor answers");
        control.status().expect("the supervisor tells its status")
    }

    pub fn server(&self, name: ServerName) -> ServerStatus {
        let status = self.status();
        status
            .servers
            .into_iter()
            .find(|s| s.name == name)
            .expect("all servers are listed")
    }

    /// Gives an order such as `stop mariadb-a`, and returns when it is carried
    /// out. Everything else that the test does goes on meanwhile.
    pub async fn order(&self, line: impl Into<String>) {
        let (dir, line) = (self.dir().to_owned(), line.into());
        tokio::task::spawn_blocking(move || {
            let mut control = Control::connect(&dir).expect("the supervisor answers");
            control
                .request(&line)
                .unwrap_or_else(|e| panic!("{line}: {e}"));
        })
        .await
        .expect("the order is carried out");
    }
}

/// The stack that all tests share, in this process and in others. The first to
/// ask starts it; it ends by itself some time after the last has gone. Nobody
/// stops, kills or pauses its servers: see [`private_stack`].
pub fn stack() -> &'static Stack {
    static STACK: OnceLock<Stack> = OnceLock::new();
    STACK.get_or_init(|| Stack::start(&local().join("test")))
}

/// A stack of the test's own, whose servers it may stop, kill and pause. One at
/// a time in a checkout: it takes 2.5 GB of memory. Gone with its data when
/// dropped.
pub struct PrivateStack {
    stack: Stack,
    _one_at_a_time: File,
}

impl std::ops::Deref for PrivateStack {
    type Target = Stack;

    fn deref(&self) -> &Stack {
        &self.stack
    }
}

impl Drop for PrivateStack {
    fn drop(&mut self) {
        end_and_remove(self.stack.dir());
    }
}

/// See [`PrivateStack`]. Waits for other tests' private stacks to end.
pub async fn private_stack() -> PrivateStack {
    tokio::task::spawn_blocking(|| {
        let lock = one_at_a_time();
        PrivateStack {
            stack: Stack::start(&new_folder()),
            _one_at_a_time: lock,
        }
    })
    .await
    .expect("the private stack starts")
}

/// A folder for a test that runs supervisors itself, under the same lock as
/// [`private_stack`]; whatever runs there is ended and removed when dropped.
pub struct OwnFolder {
    pub dir: PathBuf,
    _one_at_a_time: File,
}

impl Drop for OwnFolder {
    fn drop(&mut self) {
        end_and_remove(&self.dir);
    }
}

/// See [`OwnFolder`].
pub async fn own_folder() -> OwnFolder {
    tokio::task::spawn_blocking(|| {
        let lock = one_at_a_time();
        OwnFolder {
            dir: new_folder(),
            _one_at_a_time: lock,
        }
    })
    .await
    .expect("a folder")
}

fn one_at_a_time() -> File {
    let lock = File::create(local().join("private.lock")).expect("a lock file");
    lock.lock().expect("the lock");
    // Under the lock, every folder there is belongs to a test that was killed.
    for entry in std::fs::read_dir(local())
        .expect("a readable checkout")
        .flatten()
    {
        if entry.file_name().to_string_lossy().starts_with("private-") && entry.path().is_dir() {
            end_and_remove(&entry.path());
        }
    }
    lock
}

fn new_folder() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    local().join(format!("private-{}-{number}", std::process::id()))
}

fn end_and_remove(dir: &Path) {
    let down = Command::new(program())
        .arg("down")
        .arg("--remove")
        .arg("--dir")
        .arg(dir)
        .output();
    let down = down.expect("the program runs");
    assert!(
        down.status.success(),
        "{}",
        String::from_utf8_lossy(&down.stderr)
    );
}

/// Waits until `condition` holds, looking every 20 ms; panics with `what` when
/// it does not within `limit`.
pub async fn until(what: &str, limit: Duration, mut condition: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + limit;
    while !condition().await {
        assert!(Instant::now() < deadline, "not within {limit:?}: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
