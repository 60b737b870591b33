//! The program itself, as an operator runs it.

mod admin;
mod book_file;
mod chain;
mod evidence;
mod ledger;
mod moves;
mod netting;
mod reconcile;

use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::harness::{Databases, World, program};

/// Runs the program on a test's databases, off the runtime.
pub async fn run(databases: &Databases, args: &[&str]) -> Output {
    run_with(databases, args, "").await
}

/// The same with something on standard input.
pub async fn run_with(databases: &Databases, args: &[&str], input: &'static str) -> Output {
    started(databases, args, &[], input).await
}

/// The same with more in its environment.
pub async fn run_env(databases: &Databases, args: &[&str], env: &[(&str, &str)]) -> Output {
    started(databases, args, env, "").await
}

async fn started(
    databases: &Databases,
    args: &[&str],
    env: &[(&str, &str)],
    input: &'static str,
) -> Output {
    let mut command = Command::new(program());
    command
        .args(args)
        .env("SETTLENET_CONFIG", databases.config_file())
        .env("SETTLENET_MASTER__URL", databases.master_url().expose())
        .env("SETTLENET_POSTGRES__URL", databases.payments_url().expose())
        .env("SETTLENET_BOOKS__DATABASE_PREFIX", &databases.prefix)
        .env(
            "SETTLENET_CHECKPOINTS__NAME",
            &databases.config().checkpoints.name,
        )
        .env_remove("SETTLENET_PASSWORD")
        .envs(env.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let work = move || {
        use std::io::Write as _;
        let mut child = command.spawn().unwrap();
        // A program that doesn't read is no failure.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        child.wait_with_output().unwrap()
    };
    tokio::task::spawn_blocking(work).await.unwrap()
}

/// The exit code, and what `--json` prints.
pub async fn json(databases: &Databases, args: &[&str]) -> (Option<i32>, Value) {
    let output = run(databases, &[args, &["--json"]].concat()).await;
    let printed = serde_json::from_slice(&output.stdout).unwrap_or_default();
    (output.status.code(), printed)
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// A world with a completed request from Gamma to Delta, both on the shard.
pub async fn settled() -> World {
    let world = World::new().await;
    let id = world.sent(world.gamma, world.delta).await;
    world.confirm(id).await.unwrap();
    world
}

/// Every subcommand says what it is for and how it ends.
#[test]
fn help_is_there_for_all() {
    let help = |args: &[&str]| {
        let output = Command::new(program()).args(args).arg("--help").output();
        let output = output.unwrap();
        assert!(output.status.success(), "{args:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    for args in [&["admin"][..], &["reconcile"], &["verify", "chain"]] {
        assert!(help(args).contains("Exit codes: 0 "), "{args:?}");
    }
    for (what, verbs) in [
        (
            "broker",
            &[
                "create", "list", "show", "move", "export", "import", "offboard", "plan",
            ][..],
        ),
        ("pause", &["network", "broker", "currency", "list"]),
        ("resume", &["network", "broker", "currency"]),
        ("server", &["add", "list"]),
        ("shard", &["create", "list"]),
        ("user", &["create"]),
        ("arbiter", &["tie", "untie", "ties"]),
        ("log", &["show", "begin"]),
        ("witness", &["list", "add", "withdraw"]),
        ("invite", &["create", "list", "revoke"]),
        ("domain", &["list", "activate", "release"]),
        (
            "netting",
            &[
                "propose",
                "list",
                "show",
                "cancel",
                "certificate",
                "preview",
            ],
        ),
        ("saga", &["list", "show", "retry", "compensate"]),
        ("alert", &["list", "resolve"]),
    ] {
        let whole = help(&["admin", what]);
        for verb in verbs {
            assert!(whole.contains(&format!("\n  {verb}")), "{what} {verb}");
            assert!(
                help(&["admin", what, verb]).contains("--json"),
                "{what} {verb}"
            );
        }
    }
}
