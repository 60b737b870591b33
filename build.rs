//! Tells the crate which commit it is built from, and cargo what to watch.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if Path::new("migrations").exists() {
        println!("cargo::rerun-if-changed=migrations");
    }
    println!("cargo::rerun-if-env-changed=SETTLENET_COMMIT");
    println!("cargo::rustc-env=SETTLENET_COMMIT={}", commit());
}

/// The commit as the builder states it, or as git knows it, or `unknown` where
/// there is neither (a source archive).
fn commit() -> String {
    if let Ok(stated) = std::env::var("SETTLENET_COMMIT") {
        return stated;
    }
    // Moves with every commit, also in a linked worktree.
    for file in ["logs/HEAD", "HEAD"] {
        if let Some(path) = git(&["rev-parse", "--git-path", file])
            && Path::new(&path).exists()
        {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    git(&["rev-parse", "--short=12", "HEAD"]).unwrap_or_else(|| "unknown".into())
}

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    (output.status.success() && !text.trim().is_empty()).then(|| text.trim().to_owned())
}
