//! Clearing against a solver that has nothing to do with ours: networkx's network simplex.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use settlenet::domain::ids::ObligationId;
use settlenet::domain::netting::certificate;
use settlenet::domain::netting::sample::{Shape, graph};
use settlenet::domain::netting::verify::verify;
use settlenet::domain::netting::{Claim, Clearing, clear};

/// Amounts of a few units, so that many clearings are the largest.
fn small_amounts(random: &mut StdRng, brokers: u64, obligations: u64) -> Vec<Claim> {
    let claim = |number| {
        let debtor = random.random_range(0..brokers);
        Claim {
            id: ObligationId::from_bits(number),
            debtor,
            creditor: (debtor + random.random_range(1..brokers)) % brokers,
            amount: random.random_range(1..=5),
        }
    };
    (0..obligations).map(claim).collect()
}

/// 450 graphs of up to 40 brokers and 300 obligations.
fn graphs() -> Vec<Vec<Claim>> {
    let mut graphs = Vec::new();
    for seed in 1..=150 {
        let mut random = StdRng::seed_from_u64(seed);
        let brokers = random.random_range(2..=40);
        let obligations = random.random_range(1..=300);
        // Its weights leave a creditor to each debtor only among more than a few.
        let skewed = brokers.max(5);
        graphs.push(graph(brokers, obligations, Shape::Core, seed));
        graphs.push(graph(skewed, obligations, Shape::Skew, seed));
        graphs.push(small_amounts(&mut random, brokers, obligations));
    }
    graphs
}

/// What networkx clears of each graph, all in one process.
fn by_networkx(graphs: &[Vec<Claim>]) -> Vec<u128> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = root.join(".local/toolchain/networkx");
    assert!(folder.is_dir(), "networkx is missing: run scripts/setup.sh");
    let mut python = Command::new("python3")
        .arg(root.join("tests/it/netting_solver.py"))
        .env("PYTHONPATH", folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = python.stdin.take().unwrap();
    let lines: String = graphs
        .iter()
        .map(|claims| {
            let edges = claims.iter().map(|c| (c.debtor, c.creditor, c.amount));
            serde_json::to_string(&edges.collect::<Vec<_>>()).unwrap() + "\n"
        })
        .collect();
    let writes = std::thread::spawn(move || input.write_all(lines.as_bytes()));
    let output = python.wait_with_output().unwrap();
    writes.join().unwrap().unwrap();
    assert!(output.status.success());
    let printed = String::from_utf8(output.stdout).unwrap();
    printed.lines().map(|line| line.parse().unwrap()).collect()
}

#[test]
fn clears_what_an_independent_solver_clears() {
    let graphs = graphs();
    let largest = by_networkx(&graphs);
    assert_eq!(largest.len(), graphs.len());
    for (number, (claims, largest)) in graphs.iter().zip(largest).enumerate() {
        let clearing = clear(claims);
        assert_eq!(clearing.cleared(), largest, "graph {number}");
        assert_stands(claims, &clearing);
    }
}

/// The lines are those obligations, each cleared by no more than it has, and nobody's net position
/// moves; and the certificate says so too.
fn assert_stands(claims: &[Claim], clearing: &Clearing) {
    let mut by_id: BTreeMap<_, _> = claims.iter().map(|claim| (claim.id, *claim)).collect();
    let mut moved: BTreeMap<u64, i128> = BTreeMap::new();
    for line in &clearing.lines {
        let claim = by_id.remove(&line.id).unwrap();
        let same = (line.debtor, line.creditor, line.amount);
        assert_eq!(same, (claim.debtor, claim.creditor, claim.amount));
        assert!(line.reduction <= line.amount);
        *moved.entry(line.debtor).or_default() += i128::from(line.reduction);
        *moved.entry(line.creditor).or_default() -= i128::from(line.reduction);
    }
    assert!(by_id.is_empty());
    assert!(moved.values().all(|by| *by == 0));
    let mut text = Vec::new();
    let (prices, lines) = (&clearing.prices, &clearing.lines);
    let usd = "USD".parse().unwrap();
    let new = certificate::Format::NEW;
    certificate::write(&mut text, new, "NT-000000000001", &usd, prices, lines).unwrap();
    let verified = verify(text.as_slice()).unwrap();
    assert_eq!(verified.cleared, clearing.cleared());
    assert_eq!(verified.total, clearing.total());
}
