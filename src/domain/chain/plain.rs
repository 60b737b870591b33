//! Entries as texts, and texts that JSON writes as they stand: what a chain consists of nearly always,
//! read, written and hashed without a JSON library in between.

use serde_json::Value;

use super::CanonicalEntry;
use crate::domain::canonical::Hash;

/// Texts that stand in canonical JSON in their order.
macro_rules! texts {
    ($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) struct $name<'a> { $(pub(super) $field: $type),+ }

        impl<'a> $name<'a> {
            fn scan(scan: &mut Scan<'a>) -> Option<Self> {
                let mut before = "{";
                $(
                    scan.skip(before)?;
                    before = ",";
                    scan.skip(concat!("\"", stringify!($field), "\":"))?;
                    let $field = <$type>::scan(scan)?;
                )+
                let _ = before;
                scan.skip("}")?;
                Some(Self { $($field),+ })
            }

            /// The canonical form, as the JSON library would write it; nothing where it would escape
            /// something.
            pub(super) fn canonical(&self) -> Option<String> {
                let mut out = String::with_capacity(CANONICAL);
                let mut before = "{";
                $(
                    out.push_str(before);
                    before = ",";
                    out.push_str(concat!("\"", stringify!($field), "\":"));
                    self.$field.write(&mut out);
                )+
                let _ = before;
                out.push('}');
                // Those around the names and the texts, and none within.
                (is_plain(out.as_bytes()) && quotes(&out) == self.quotes()).then_some(out)
            }

            fn quotes(&self) -> usize {
                0 $(+ 2 + self.$field.quotes())+
            }
        }
    };
}

texts! {
    /// The fields of an entry as its canonical form has them.
    Texts {
        account: &'a str,
        amount: &'a str,
        at: &'a str,
        balance: &'a str,
        broker: &'a str,
        currency: &'a str,
        diverted_from: Option<&'a str>,
        kind: &'a str,
        leg: &'a str,
        op_digest: &'a str,
        prev_hash: &'a str,
        private_digest: Option<&'a str>,
        reverses_seq: Option<&'a str>,
        saga: &'a str,
        seq: &'a str,
        side: &'a str,
        step: &'a str,
        subject: &'a str,
        v: u16,
    }
}

/// More than the canonical form of an entry has, in bytes.
const CANONICAL: usize = 768;

/// A field of canonical JSON.
trait Field<'a>: Sized {
    fn scan(scan: &mut Scan<'a>) -> Option<Self>;
    fn write(&self, out: &mut String);
    /// Quotation marks around it.
    fn quotes(&self) -> usize;
}

impl<'a> Field<'a> for &'a str {
    fn scan(scan: &mut Scan<'a>) -> Option<Self> {
        scan.skip("\"")?;
        let (text, rest) = scan.0.split_once('"')?;
        scan.0 = rest;
        Some(text)
    }

    fn write(&self, out: &mut String) {
        out.push('"');
        out.push_str(self);
        out.push('"');
    }

    fn quotes(&self) -> usize {
        2
    }
}

impl<'a> Field<'a> for Option<&'a str> {
    fn scan(scan: &mut Scan<'a>) -> Option<Self> {
        if scan.skip("null").is_some() {
            return Some(None);
        }
        <&str>::scan(scan).map(Some)
    }

    fn write(&self, out: &mut String) {
        match self {
            Some(text) => text.write(out),
            None => out.push_str("null"),
        }
    }

    fn quotes(&self) -> usize {
        self.map_or(0, |text| text.quotes())
    }
}

impl<'a> Field<'a> for u16 {
    fn scan(scan: &mut Scan<'a>) -> Option<Self> {
        let length = scan.0.bytes().position(|byte| !byte.is_ascii_digit())?;
        let (digits, rest) = scan.0.split_at(length);
        scan.0 = rest;
        let is_canonical = digits == "0" || !digits.starts_with('0');
        digits.parse().ok().filter(|_| is_canonical)
    }

    fn write(&self, out: &mut String) {
        out.push_str(itoa::Buffer::new().format(*self));
    }

    fn quotes(&self) -> usize {
        0
    }
}

/// What is left to read.
struct Scan<'a>(&'a str);

impl Scan<'_> {
    fn skip(&mut self, literal: &str) -> Option<()> {
        self.0 = self.0.strip_prefix(literal)?;
        Some(())
    }
}

/// Nothing but printable ASCII and no backslash.
fn is_plain(text: &[u8]) -> bool {
    let is_odd = |byte: &u8| !(0x20..0x7f).contains(byte) || *byte == b'\\';
    // Looked at to the end, which is done many bytes at a time.
    let odd = |odd, byte| odd | u8::from(is_odd(byte));
    text.iter().fold(0, odd) == 0
}

fn quotes(text: &str) -> usize {
    text.bytes().filter(|byte| *byte == b'"').count()
}

impl CanonicalEntry {
    pub(super) fn texts(&self) -> Texts<'_> {
        Texts {
            account: &self.account,
            amount: &self.amount,
            at: &self.at,
            balance: &self.balance,
            broker: &self.broker,
            currency: &self.currency,
            diverted_from: self.diverted_from.as_deref(),
            kind: &self.kind,
            leg: &self.leg,
            op_digest: &self.op_digest,
            prev_hash: &self.prev_hash,
            private_digest: self.private_digest.as_deref(),
            reverses_seq: self.reverses_seq.as_deref(),
            saga: &self.saga,
            seq: &self.seq,
            side: &self.side,
            step: &self.step,
            subject: &self.subject,
            v: self.v,
        }
    }
    /// The hash of the canonical form.
    pub(super) fn hash(&self) -> Hash {
        match self.texts().canonical() {
            Some(text) => Hash::of_bytes(text.as_bytes()),
            None => Hash::of_json(self),
        }
    }
}

/// A line of an exported chain whose entry has nothing in it that JSON escapes. It is canonical as it
/// stands, so that its bytes are what the hash covers.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlainLine<'a> {
    pub(super) texts: Texts<'a>,
    /// The entry as it stands in the line.
    pub(super) entry: &'a str,
    /// The digest of the free text beside it.
    pub(super) private: Option<Hash>,
    pub(super) tx_hash: Hash,
}

/// After the entry and the free text: the hash of 64 digits, and the end.
const TAIL: usize = r#","tx_hash":""}"#.len() + 64;

impl<'a> PlainLine<'a> {
    /// Nothing where the line is anything else than that, right or wrong.
    pub(super) fn scan(line: &'a [u8]) -> Option<Self> {
        let line = std::str::from_utf8(line).ok()?;
        let line = line.strip_suffix('\n').unwrap_or(line);
        let (head, tail) = line.split_at_checked(line.len().checked_sub(TAIL)?)?;
        let tx_hash = tail.strip_prefix(r#","tx_hash":""#)?.strip_suffix("\"}")?;

        let head = head.strip_prefix(r#"{"entry":"#)?;
        let mut scan = Scan(head);
        let texts = Texts::scan(&mut scan)?;
        let entry = &head[..head.len() - scan.0.len()];
        if !is_plain(entry.as_bytes()) {
            return None;
        }
        let private = match scan.0 {
            "" => None,
            rest => Some(digest_of_canonical(rest.strip_prefix(r#","private":"#)?)?),
        };
        Some(Self {
            texts,
            entry,
            private,
            tx_hash: Hash::from_hex(tx_hash)?,
        })
    }
}

/// The digest of a value that is written in canonical form and is not null, which would be left out.
fn digest_of_canonical(text: &str) -> Option<Hash> {
    let value: Value = serde_json::from_str(text).ok()?;
    let canonical = serde_json_canonicalizer::to_string(&value).ok()?;
    (!value.is_null() && canonical == text).then(|| Hash::of_bytes(text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::super::ExportedEntry;
    use super::*;

    fn entry(text: &str, optional: Option<&str>, v: u16) -> CanonicalEntry {
        let text = || text.to_owned();
        let optional = || optional.map(ToOwned::to_owned);
        CanonicalEntry {
            account: text(),
            amount: "100".to_owned(),
            at: text(),
            balance: text(),
            broker: "1".to_owned(),
            currency: text(),
            diverted_from: optional(),
            kind: text(),
            leg: text(),
            op_digest: text(),
            prev_hash: text(),
            private_digest: optional(),
            reverses_seq: optional(),
            saga: text(),
            seq: text(),
            side: text(),
            step: text(),
            subject: text(),
            v,
        }
    }

    proptest! {
        /// What is scanned is what the JSON library reads, in the same bytes.
        #[test]
        fn reads_what_the_library_reads(
            text in prop_oneof!["[ -~]{0,20}", "[a-z0-9:.-]{0,20}", "\\PC{0,8}"],
            optional in prop::option::of("[a-z]{0,4}"),
            v in any::<u16>(),
            private in prop::option::of("\\PC{0,8}"),
            change in prop::option::of((any::<prop::sample::Index>(), any::<u8>())),
        ) {
            let exported = ExportedEntry {
                entry: entry(&text, optional.as_deref(), v),
                private: private.map(|note| json!({ "note": note })),
                tx_hash: Hash([7; 32]),
            };
            let mut line = exported.to_line().unwrap().into_bytes();
            let is_plain = text.bytes().all(|byte| matches!(byte, b' '..b'\x7f' if !b"\\\"".contains(&byte)));
            prop_assert_eq!(PlainLine::scan(&line).is_some(), is_plain);
            let canonical = serde_json_canonicalizer::to_string(&exported.entry).unwrap();
            prop_assert_eq!(exported.entry.texts().canonical(), is_plain.then_some(canonical));
            prop_assert_eq!(exported.entry.hash(), Hash::of_json(&exported.entry));
            if let Some((at, byte)) = change {
                let at = at.index(line.len());
                line[at] = byte;
            }
            if let Some(plain) = PlainLine::scan(&line) {
                let read = ExportedEntry::from_line(&line).unwrap();
                prop_assert_eq!(plain.texts, read.entry.texts());
                prop_assert_eq!(Hash::of_bytes(plain.entry.as_bytes()), Hash::of_json(&read.entry));
                prop_assert_eq!(plain.private, read.private.map(|private| Hash::of_json(&private)));
                prop_assert_eq!(plain.tx_hash, read.tx_hash);
            }
        }
    }
}
