use proptest::prelude::*;

use super::certificate::write;
use super::sample::{Shape, graph};
use super::verify::{CertificateError, verify};
use super::*;
use crate::domain::canonical::Hash;

fn claim(id: u64, debtor: BrokerId, creditor: BrokerId, amount: u64) -> Claim {
    Claim {
        id: ObligationId::from_bits(id),
        debtor,
        creditor,
        amount,
    }
}

fn certificate(clearing: &Clearing) -> Vec<u8> {
    let mut bytes = Vec::new();
    let currency = "USD".parse().unwrap();
    write(
        &mut bytes,
        "NT-000000000001",
        &currency,
        &clearing.prices,
        &clearing.lines,
    )
    .unwrap();
    bytes
}

fn assert_holds(clearing: &Clearing) {
    let verified = verify(certificate(clearing).as_slice()).unwrap();
    assert_eq!(verified.cleared, clearing.cleared());
    assert_eq!(verified.total, clearing.total());
}

/// Each proved the largest by two solvers that have nothing to do with this one.
#[test]
fn known_graphs_clear_what_they_can() {
    for (shape, brokers, obligations, digest, total, largest) in [
        (
            Shape::Core,
            100,
            1_000,
            "022798453b07ef75",
            107_311_747,
            32_800_492,
        ),
        (
            Shape::Skew,
            100,
            1_000,
            "21b6364398cecbd3",
            123_029_517,
            25_947_296,
        ),
        (
            Shape::Core,
            1_000,
            20_000,
            "3cce1346d913ef30",
            2_182_389_550,
            1_394_744_789,
        ),
    ] {
        let claims = graph(brokers, obligations, shape, 1);
        let rows = claims
            .iter()
            .map(|claim| format!("{},{},{}\n", claim.debtor, claim.creditor, claim.amount));
        let csv: String = std::iter::once("debtor,creditor,amount\n".to_owned())
            .chain(rows)
            .collect();
        assert_eq!(
            &Hash::of_bytes(csv.as_bytes()).to_hex()[..16],
            digest,
            "the graph is that one"
        );
        let clearing = clear(&claims);
        assert_eq!((clearing.total(), clearing.cleared()), (total, largest));
        assert_holds(&clearing);
    }
}

#[test]
fn other_seeds_hold_too() {
    for seed in 2..30 {
        for shape in [Shape::Core, Shape::Skew] {
            assert_holds(&clear(&graph(40, 300, shape, seed)));
        }
    }
}

#[test]
fn small_ones_by_hand() {
    assert_eq!(clear(&[]).lines, []);
    let chain = clear(&[claim(1, 7, 8, 100), claim(2, 8, 9, 50)]);
    assert_eq!(chain.cleared(), 0, "nothing comes back");
    // 7 owes 8 a hundred, 8 owes 9 fifty, 9 owes 7 thirty: thirty of each.
    let ring = clear(&[claim(1, 7, 8, 100), claim(2, 8, 9, 50), claim(3, 9, 7, 30)]);
    assert_eq!(ring.cleared(), 90);
    // Two debts of one on another: the one that was given first goes first.
    let two = clear(&[claim(5, 7, 8, 10), claim(4, 7, 8, 10), claim(3, 8, 7, 15)]);
    let reductions: Vec<_> = two
        .lines
        .iter()
        .map(|line| (line.id.bits(), line.reduction))
        .collect();
    assert_eq!(reductions, [(3, 15), (4, 5), (5, 10)]);
    for clearing in [chain, ring, two] {
        assert_holds(&clearing);
    }
}

/// More than fits into one number between two brokers.
#[test]
fn sums_beyond_64_bits_are_cleared_exactly() {
    let most = i64::MAX.unsigned_abs();
    let claims: Vec<Claim> = (0..6)
        .map(|id| {
            if id % 2 == 0 {
                claim(id, 1, 2, most)
            } else {
                claim(id, 2, 1, most)
            }
        })
        .collect();
    let clearing = clear(&claims);
    assert_eq!(clearing.cleared(), 6 * u128::from(most));
    assert_holds(&clearing);
}

/// Every way to reduce the claims, one by one.
fn largest_by_trying(claims: &[Claim]) -> u128 {
    fn go(claims: &[Claim], net: &mut BTreeMap<BrokerId, i64>) -> Option<u128> {
        let Some((claim, rest)) = claims.split_first() else {
            return net.values().all(|moved| *moved == 0).then_some(0);
        };
        let mut best = None;
        for reduction in 0..=claim.amount {
            let by = i64::try_from(reduction).unwrap();
            *net.entry(claim.debtor).or_default() += by;
            *net.entry(claim.creditor).or_default() -= by;
            let found = go(rest, net).map(|cleared| cleared + u128::from(reduction));
            best = best.max(found);
            *net.entry(claim.debtor).or_default() -= by;
            *net.entry(claim.creditor).or_default() += by;
        }
        best
    }
    go(claims, &mut BTreeMap::new()).unwrap()
}

proptest! {
    #[test]
    fn nothing_larger_is_possible(
        edges in prop::collection::vec((0_u64..4, 1_u64..4, 1_u64..4), 0..7)
    ) {
        let claims: Vec<Claim> = (0..)
            .zip(edges)
            .map(|(id, (debtor, step, amount))| claim(id, debtor, (debtor + step) % 4, amount))
            .collect();
        let clearing = clear(&claims);
        prop_assert_eq!(clearing.cleared(), largest_by_trying(&claims));
        assert_holds(&clearing);
    }
}

/// The places of all runs of digits that are numbers of the certificate.
fn numbers(text: &str) -> Vec<std::ops::Range<usize>> {
    let mut found = Vec::new();
    let mut begin = None;
    for (at, byte) in text.bytes().enumerate() {
        match (byte.is_ascii_digit(), begin) {
            (true, None) => begin = Some(at),
            (false, Some(from)) => {
                begin = None;
                let quoted = text.as_bytes()[from - 1] == b'"' || text.as_bytes()[from - 1] == b'-';
                if quoted && byte == b'"' {
                    found.push(from..at);
                }
            }
            (true, Some(_)) | (false, None) => {}
        }
    }
    found
}

#[test]
fn no_number_of_a_certificate_can_be_another() {
    let clearing = clear(&graph(30, 260, Shape::Core, 3));
    let sound = String::from_utf8(certificate(&clearing)).unwrap();
    assert!(verify(sound.as_bytes()).is_ok());
    let places = numbers(&sound);
    assert!(places.len() >= 1_000, "{}", places.len());
    for (number, place) in places.iter().enumerate() {
        let value: i128 = sound[place.clone()].parse().unwrap();
        let other = match number % 3 {
            0 => value + 1,
            1 if value > 0 => value - 1,
            _ => value * 10 + 7,
        };
        let mut wrong = sound.clone();
        wrong.replace_range(place.clone(), &other.to_string());
        assert!(verify(wrong.as_bytes()).is_err(), "{value} -> {other}");
        // Nor by somebody who makes it look whole again: at most another proof of the same.
        let resealed = resealed(&wrong);
        if let Ok(verified) = verify(resealed.as_bytes()) {
            assert_eq!(verified.cleared, clearing.cleared());
        }
    }
}

fn resealed(text: &str) -> String {
    let body = text.trim_end().rfind('\n').map_or("", |at| &text[..=at]);
    let digest = Hash::of_bytes(body.as_bytes());
    format!("{body}{{\"sha256\":\"{digest}\"}}\n")
}

/// Numbers that are changed so that all others agree with them.
#[test]
fn what_does_not_hold_is_named() {
    let base = clear(&[claim(1, 7, 8, 100), claim(2, 8, 9, 50), claim(3, 9, 7, 30)]);
    let refused = |change: &dyn Fn(&mut Clearing), why: &str| {
        let mut clearing = base.clone();
        change(&mut clearing);
        match verify(certificate(&clearing).as_slice()) {
            Err(CertificateError::Wrong { what, .. }) => assert!(what.contains(why), "{what}"),
            other => panic!("{why}: {other:?}"),
        }
    };
    refused(&|c| c.lines[0].reduction = 29, "net position");
    refused(&|c| c.lines[0].reduction = 101, "can't be");
    refused(&|c| c.lines[0].creditor = 7, "can't be");
    refused(&|c| c.lines[0].creditor = 77, "no price");
    refused(&|c| c.lines.swap(0, 1), "come after");
    // A smaller clearing that moves nobody either.
    refused(
        &|c| c.lines.iter_mut().for_each(|line| line.reduction = 20),
        "prove",
    );
    refused(&|c| *c.prices.get_mut(&7).unwrap() -= 2, "prove");
    for (broken, why) in [
        ("", "ends here"),
        ("{}\n", "missing field"),
        ("{\"format\": 1}\n", "invalid type"),
    ] {
        let error = verify(broken.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    let sound = String::from_utf8(certificate(&base)).unwrap();
    for wrong in [
        sound.replace("settlenet-netting-v1", "settlenet-netting-v2"),
        format!("{sound}{{}}\n"),
        sound.replace(":\"100\"", ": \"100\""),
        sound.replace(":\"100\"", ":\"0100\""),
        sound[..sound.len() - 1].to_owned(),
        sound.replacen('\n', "\r\n", 1),
    ] {
        assert!(verify(wrong.as_bytes()).is_err());
    }
    let long = format!("{{\"format\":\"{}\"}}\n", "x".repeat(10_000));
    assert!(verify(long.as_bytes()).is_err());
}
