use proptest::prelude::*;

use super::certificate::{Format, write};
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
    certificate_of(Format::NEW, clearing)
}

fn certificate_of(format: Format, clearing: &Clearing) -> Vec<u8> {
    let mut bytes = Vec::new();
    let currency = "USD".parse().unwrap();
    write(
        &mut bytes,
        format,
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

/// A number of a certificate: where it is, and what it is called.
struct Number {
    field: String,
    place: std::ops::Range<usize>,
}

/// All of them but the version in the format's name, which is part of a word.
fn numbers(text: &str) -> Vec<Number> {
    let mut found = Vec::new();
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let fields: BTreeMap<String, String> = serde_json::from_str(line).unwrap();
        for (field, value) in fields {
            if field == "format" || field == "currency" {
                continue;
            }
            let begin = at + line.find(&format!("\"{field}\":")).unwrap() + field.len() + 4;
            let place = begin..begin + value.len();
            assert_eq!(text[place.clone()], value);
            found.push(Number { field, place });
        }
        at += line.len();
    }
    found
}

/// What a number could be instead: a little more or less, much more, the other sign, nothing, its
/// digits the other way round.
fn others(field: &str, value: &str) -> Vec<String> {
    let mut others = match (field, value.split_once('-')) {
        ("root" | "sha256", _) => (0..value.len())
            .map(|at| {
                let digit = value[at..=at].chars().next().unwrap().to_digit(16).unwrap();
                let other = char::from_digit(digit ^ 1, 16).unwrap();
                format!("{}{other}{}", &value[..at], &value[at + 1..])
            })
            .collect(),
        ("id" | "round", Some((prefix, number))) => {
            let number = u64::from_str_radix(number, 16).unwrap();
            [
                number + 1,
                number.wrapping_sub(1),
                number + 1_000,
                number ^ (1 << 40),
            ]
            .map(|other| format!("{prefix}-{:012x}", other & ((1 << 48) - 1)))
            .to_vec()
        }
        _ => {
            let number: i128 = value.parse().unwrap();
            let mut others = vec![number + 1, number - 1, number * 10 + 7, -number, 0];
            others.extend([number + 1_000_000, number + (1 << 64)]);
            let mut others: Vec<String> = others.iter().map(ToString::to_string).collect();
            others.push(value.chars().rev().collect());
            others
        }
    };
    others.sort_unstable();
    others.dedup();
    others.retain(|other| other != value);
    others
}

/// Thousands of certificates of which one number is another.
#[test]
fn no_number_of_a_certificate_can_be_another() {
    let clearing = clear(&graph(12, 80, Shape::Core, 3));
    for format in [Format::V1, Format::V2] {
        let sound = String::from_utf8(certificate_of(format, &clearing)).unwrap();
        no_number_can_be_another(&sound);
    }
}

fn no_number_can_be_another(sound: &str) {
    let verified = verify(sound.as_bytes()).unwrap();
    let mut tried: BTreeMap<String, usize> = BTreeMap::new();
    for Number { field, place } in numbers(sound) {
        let value = &sound[place.clone()];
        for other in others(&field, value) {
            let mut wrong = sound.to_owned();
            wrong.replace_range(place.clone(), &other);
            let what = format!("{field} {value} -> {other}");
            assert!(verify(wrong.as_bytes()).is_err(), "{what}");
            *tried.entry(field.clone()).or_default() += 1;
            // Nor by somebody who makes it look whole again. Other prices may prove the same; the
            // round is a name, which nothing but the digest has.
            match (field.as_str(), verify(resealed(&wrong).as_bytes())) {
                ("price", Ok(other)) => assert_eq!(other, verified, "{what}"),
                ("round" | "sha256", Ok(other)) => assert_eq!(other.root, verified.root),
                (_, Ok(_)) => panic!("{what} holds, sealed anew"),
                (_, Err(_)) => {}
            }
        }
    }
    let fields: Vec<&str> = tried.keys().map(String::as_str).collect();
    assert_eq!(
        fields,
        [
            "amount",
            "broker",
            "brokers",
            "cleared",
            "creditor",
            "debtor",
            "id",
            "obligations",
            "price",
            "reduction",
            "root",
            "round",
            "sha256",
            "total"
        ]
    );
    assert!(tried.values().sum::<usize>() >= 1_000, "{tried:?}");
}

/// With the digest of what it is now.
fn resealed(text: &str) -> String {
    let body = text.trim_end().rfind('\n').map_or("", |at| &text[..=at]);
    let covered: String = if text.contains(Format::V1.as_str()) {
        body.to_owned()
    } else {
        let covered = body.split_inclusive('\n');
        let covered = covered.map(|line| match line.split_once("\"reduction\":\"") {
            Some((_, rest)) => format!("{}\n", rest.split_once('"').unwrap().0),
            None => line.to_owned(),
        });
        covered.collect()
    };
    let digest = Hash::of_bytes(covered.as_bytes());
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
        sound.replace("settlenet-netting-v2", "settlenet-netting-v1"),
        resealed(&sound.replace("settlenet-netting-v2", "settlenet-netting-v1")),
        sound.replace("settlenet-netting-v2", "settlenet-netting-v3"),
        format!("{sound}{{}}\n"),
        sound.replace(":\"100\"", ": \"100\""),
        sound.replace(":\"100\"", ":\"0100\""),
        sound[..sound.len() - 1].to_owned(),
        sound.replacen('\n', "\r\n", 1),
    ] {
        assert!(verify(wrong.as_bytes()).is_err());
    }
    // White space before the end of a line, also where the digest takes it in.
    for space in [" ", "\t", "\r", " \r"] {
        for at in sound.match_indices('\n').map(|(at, _)| at) {
            let (before, after) = sound.split_at(at);
            let wrong = format!("{before}{space}{after}");
            assert!(verify(wrong.as_bytes()).is_err(), "{wrong:?}");
            let last = at + 1 == sound.len();
            let whole = if last { wrong } else { resealed(&wrong) };
            let error = verify(whole.as_bytes()).unwrap_err().to_string();
            assert!(error.contains("canonical form"), "{whole:?}: {error}");
        }
        assert!(verify(format!("{sound}{space}").as_bytes()).is_err());
        assert!(verify(format!("{sound}{space}\n").as_bytes()).is_err());
    }
    let long = format!("{{\"format\":\"{}\"}}\n", "x".repeat(10_000));
    assert!(verify(long.as_bytes()).is_err());
}
