//! OR-tools' min-cost flow, in a process of its own.

use std::io::{BufWriter, Write as _};
use std::path::PathBuf;
use std::process::Command;

use anyhow::Context as _;
use serde::Deserialize;

use crate::domain::netting::Claim;

const SCRIPT: &str = include_str!("../../../../scripts/netting_floor.py");
/// Where `scripts/ortools.sh` puts it.
const FOLDER: &str = ".local/toolchain/ortools";

pub(super) struct OrTools {
    folder: PathBuf,
}

/// Medians of one graph.
#[derive(Deserialize)]
pub(super) struct Floor {
    pub(super) building_ms: f64,
    pub(super) solving_ms: f64,
    pub(super) both_ms: f64,
    /// Minor units.
    #[serde(deserialize_with = "from_u64")]
    pub(super) optimum: u128,
}

fn from_u64<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u128, D::Error> {
    u64::deserialize(deserializer).map(u128::from)
}

impl OrTools {
    /// Where the checkout has it.
    pub(super) fn find() -> Option<Self> {
        let folder = PathBuf::from(FOLDER);
        folder.is_dir().then_some(Self { folder })
    }

    /// Solves a graph `repeats` times.
    ///
    /// # Errors
    /// It does not run, or finds no optimum.
    pub(super) fn measure(&self, claims: &[Claim], repeats: usize) -> anyhow::Result<Floor> {
        let graph = std::env::temp_dir().join(format!("settlenet-{}.csv", uuid::Uuid::new_v4()));
        let found = write(&graph, claims).and_then(|()| self.solve(&graph, repeats));
        let _ = std::fs::remove_file(&graph);
        found.with_context(|| format!("OR-tools in {}", self.folder.display()))
    }

    fn solve(&self, graph: &PathBuf, repeats: usize) -> anyhow::Result<Floor> {
        let output = Command::new("python3")
            .args(["-c", SCRIPT])
            .arg(graph)
            .arg(repeats.to_string())
            .env("PYTHONPATH", &self.folder)
            .output()
            .context("python3")?;
        let told = String::from_utf8_lossy(&output.stderr);
        anyhow::ensure!(output.status.success(), "{}", told.trim_end());
        Ok(serde_json::from_slice(&output.stdout)?)
    }
}

fn write(file: &PathBuf, claims: &[Claim]) -> anyhow::Result<()> {
    let mut out = BufWriter::new(std::fs::File::create(file)?);
    writeln!(out, "debtor,creditor,amount")?;
    for claim in claims {
        writeln!(out, "{},{},{}", claim.debtor, claim.creditor, claim.amount)?;
    }
    Ok(out.flush()?)
}
