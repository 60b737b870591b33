//! The canonical JSON of brokers and obligations, in a certificate and in its root. A round may have
//! a million of them, so it is put together here from its digits: with these fields there is
//! nothing to sort and nothing to escape.

use super::certificate::Line;
use crate::domain::ids::BrokerId;

/// Appends the line that the certificate has of a broker, with its line feed.
pub(super) fn broker(out: &mut Vec<u8>, broker: BrokerId, price: i64) {
    out.extend_from_slice(b"{\"broker\":\"");
    decimal(out, broker);
    out.extend_from_slice(b"\",\"price\":\"");
    decimal(out, price);
    out.extend_from_slice(b"\"}\n");
}

/// Appends the leaf that the root of the first format has of an obligation: all but its reduction.
pub(super) fn leaf(out: &mut Vec<u8>, line: &Line) {
    input(out, line);
    out.push(b'}');
}

/// Appends the line that the certificate has of it, with its line feed.
pub(super) fn whole(out: &mut Vec<u8>, line: &Line) {
    input(out, line);
    out.extend_from_slice(b",\"reduction\":\"");
    decimal(out, line.reduction);
    out.extend_from_slice(b"\"}\n");
}

/// Appends what the digest covers of it.
pub(super) fn reduced(out: &mut Vec<u8>, line: &Line) {
    decimal(out, line.reduction);
    out.push(b'\n');
}

fn input(out: &mut Vec<u8>, line: &Line) {
    out.extend_from_slice(b"{\"amount\":\"");
    decimal(out, line.amount);
    out.extend_from_slice(b"\",\"creditor\":\"");
    decimal(out, line.creditor);
    out.extend_from_slice(b"\",\"debtor\":\"");
    decimal(out, line.debtor);
    out.extend_from_slice(b"\",\"id\":\"OB-");
    let mut digits = [0; 12];
    let [_, _, id @ ..] = line.id.bits().to_be_bytes();
    // Six bytes are twelve digits.
    let _ = hex::encode_to_slice(id, &mut digits);
    out.extend_from_slice(&digits);
    out.push(b'"');
}

fn decimal(out: &mut Vec<u8>, number: impl itoa::Integer) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use serde_json::{Value, json};

    use super::*;
    use crate::domain::ids::ObligationId;

    proptest! {
        #[test]
        fn is_what_a_general_writer_writes(
            id in any::<u64>(),
            debtor in any::<u64>(),
            creditor in 0_u64..20,
            amount in any::<u64>(),
            reduction in 0_u64..20,
            price in any::<i64>(),
        ) {
            let id = ObligationId::from_bits(id);
            let line = Line { id, debtor, creditor, amount, reduction };
            let mut general = json!({
                "id": id,
                "debtor": debtor.to_string(),
                "creditor": creditor.to_string(),
                "amount": amount.to_string(),
            });
            let canonical = |value: &Value| serde_json_canonicalizer::to_vec(value).unwrap();
            let mut written = Vec::new();
            leaf(&mut written, &line);
            prop_assert_eq!(&written, &canonical(&general));
            general["reduction"] = json!(reduction.to_string());
            written.clear();
            whole(&mut written, &line);
            prop_assert_eq!(&written, &[canonical(&general), b"\n".to_vec()].concat());
            let general = json!({ "price": price.to_string(), "broker": debtor.to_string() });
            written.clear();
            broker(&mut written, debtor, price);
            prop_assert_eq!(&written, &[canonical(&general), b"\n".to_vec()].concat());
        }
    }
}
