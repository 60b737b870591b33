//! `TigerBeetle`: one replica of cluster 0.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use tokio::net::TcpStream;

use super::server::{Instance, Launch, ServerError, find_program, rename};

pub(super) const CLUSTER_ID: u128 = 0;

/// Where `scripts/setup.sh` puts what it built; the folder is named by version.
fn program() -> Result<PathBuf, ServerError> {
    if let Some(path) = std::env::var_os("SETTLENET_TIGERBEETLE") {
        return Ok(path.into());
    }
    let mut folders = vec![PathBuf::from(".local/toolchain")];
    // Also beside the checkout that this binary was built in.
    if let Ok(exe) = std::env::current_exe() {
        folders.extend(
            exe.ancestors()
                .skip(1)
                .map(|folder| folder.join(".local/toolchain")),
        );
    }
    let program = folders
        .into_iter()
        .map(|folder| folder.join("tigerbeetle"))
        .find(|candidate| candidate.is_file());
    match program {
        // The server is started in its own folder: a relative path would miss.
        Some(path) => {
            std::path::absolute(&path).map_err(|source| ServerError::File { path, source })
        }
        None => find_program("tigerbeetle", &[]),
    }
}

pub(super) async fn prepare(server: &Instance) -> Result<(), ServerError> {
    check_release(server).await?;
    let data = server.home.join("data");
    if data.exists() {
        return Ok(());
    }
    let scratch = server.home.join("data.new");
    if scratch.exists() {
        std::fs::remove_file(&scratch).map_err(|source| ServerError::File {
            path: scratch.clone(),
            source,
        })?;
    }
    let args: [OsString; 6] = [
        "format".into(),
        format!("--cluster={CLUSTER_ID}").into(),
        "--replica=0".into(),
        "--replica-count=1".into(),
        "--development".into(),
        scratch.clone().into(),
    ];
    server.run(&program()?, &args).await?;
    rename(&scratch, &data)
}

/// Another release would accept no session, and clients would wait for ever.
async fn check_release(server: &Instance) -> Result<(), ServerError> {
    let program = program()?;
    let output = server
        .command(&program)
        .arg("version")
        .output()
        .await
        .map_err(|source| ServerError::Spawn {
            program: program.clone(),
            source,
        })?;
    let found = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let release = found.rsplit(' ').next().and_then(|v| v.split('+').next());
    if release == Some(crate::TIGERBEETLE_RELEASE) {
        Ok(())
    } else {
        Err(ServerError::WrongRelease { found })
    }
}

pub(super) fn launch(server: &Instance, port: u16) -> Result<Launch, ServerError> {
    let args = vec![
        "start".into(),
        // Small caches, and direct I/O only where the filesystem can.
        "--development".into(),
        // What follows is not in the stable set of flags.
        "--experimental".into(),
        // Batches of 8,189 events; `--development` alone allows 253.
        "--limit-request=1MiB".into(),
        // 8 clients and as many more as requests may queue: 64, the most it can.
        "--limit-pipeline-requests=56".into(),
        "--memory-lsm-manifest=64MiB".into(),
        format!("--addresses=127.0.0.1:{port}").into(),
        server.home.join("data").into(),
    ];
    Ok(Launch {
        program: program()?,
        args,
    })
}

/// It listens only once the replica is open. No session is made: it would take
/// one of the few that a replica keeps.
pub(super) async fn probe(port: u16) -> Result<(), String> {
    tokio::time::timeout(
        Duration::from_secs(1),
        TcpStream::connect(("127.0.0.1", port)),
    )
    .await
    .map_err(|_| "no connection within 1 s".to_owned())?
    .map(drop)
    .map_err(|e| e.to_string())
}
