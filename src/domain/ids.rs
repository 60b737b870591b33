//! Public ids: a prefix and 12 hex digits. Each is derived from what it stands for, so that a
//! repeat of the same intention arrives at the same id.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// A member of the network, numbered by the master.
pub type BrokerId = u64;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an id of this kind is {prefix} and 12 hex digits")]
pub struct IdError {
    prefix: &'static str,
}

macro_rules! public_id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(u64);

        impl $name {
            pub const PREFIX: &'static str = $prefix;

            /// Takes the low 48 bits.
            #[must_use]
            pub const fn from_bits(bits: u64) -> Self {
                Self(bits & ((1 << 48) - 1))
            }

            #[must_use]
            pub const fn bits(self) -> u64 {
                self.0
            }

            /// The id of the thing that `parts` name.
            #[must_use]
            pub fn derive(parts: &[&str]) -> Self {
                Self::from_bits(derive_bits($prefix, parts))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}{:012x}", $prefix, self.0)
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                read_bits($prefix, text)
                    .map(Self)
                    .ok_or(IdError { prefix: $prefix })
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;

            fn try_from(text: String) -> Result<Self, IdError> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.to_string()
            }
        }
    };
}

/// A network request (`NR-`) or an order (`OR-`): one life, two names. Bit 48 says which it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RequestId(u64);

impl RequestId {
    const REQUEST: &'static str = "NR-";
    const ORDER: &'static str = "OR-";
    const ORDER_BIT: u64 = 1 << 48;

    /// Takes the low 49 bits.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits & (2 * Self::ORDER_BIT - 1))
    }

    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }

    #[must_use]
    pub const fn is_order(self) -> bool {
        self.0 & Self::ORDER_BIT != 0
    }

    /// The id of the request that `parts` name.
    #[must_use]
    pub fn derive(parts: &[&str]) -> Self {
        Self(derive_bits(Self::REQUEST, parts))
    }

    /// The id of the order that `parts` name.
    #[must_use]
    pub fn derive_order(parts: &[&str]) -> Self {
        Self(derive_bits(Self::ORDER, parts) | Self::ORDER_BIT)
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = if self.is_order() {
            Self::ORDER
        } else {
            Self::REQUEST
        };
        write!(f, "{prefix}{:012x}", self.0 & (Self::ORDER_BIT - 1))
    }
}

impl FromStr for RequestId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let request = read_bits(Self::REQUEST, text);
        let order = || read_bits(Self::ORDER, text).map(|bits| bits | Self::ORDER_BIT);
        request.or_else(order).map(Self).ok_or(IdError {
            prefix: "NR- or OR-",
        })
    }
}

impl TryFrom<String> for RequestId {
    type Error = IdError;

    fn try_from(text: String) -> Result<Self, IdError> {
        text.parse()
    }
}

impl From<RequestId> for String {
    fn from(id: RequestId) -> Self {
        id.to_string()
    }
}

public_id!(
    /// What one broker owes another.
    ObligationId, "OB-"
);
public_id!(
    /// A client's exchange of currencies; unique within the book.
    SwapId, "SW-"
);
public_id!(
    /// An account in a broker's book; unique within the book.
    AccountId, "AC-"
);
public_id!(
    /// A person who logs in.
    UserId, "US-"
);
public_id!(
    /// A program that logs in: an API client.
    ClientId, "CL-"
);
public_id!(
    /// An invitation to join the network.
    InviteId, "IV-"
);

public_id!(
    /// A netting of what two brokers owe each other.
    NettingProposalId, "NP-"
);
public_id!(
    /// A round of netting over the whole network.
    NettingRoundId, "MN-"
);

public_id!(
    /// A broker's client or counterpart; unique within the book.
    PartnerId, "FO-"
);

/// Whether a text is the uid of a broker's client or counterpart: `FO-` and 12 hex digits. It
/// names an account in a book as it is written, so it is written in one way only: in lower case.
#[must_use]
pub fn is_partner_uid(text: &str) -> bool {
    let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    text.strip_prefix("FO-")
        .is_some_and(|digits| digits.len() == 12 && digits.bytes().all(hex))
}

/// The 48 bits of an id with this prefix.
fn read_bits(prefix: &str, text: &str) -> Option<u64> {
    let digits = text
        .strip_prefix(prefix)
        .filter(|digits| digits.len() == 12)
        .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
    u64::from_str_radix(digits, 16).ok()
}

/// The first 48 bits of SHA-256 over the prefix and the parts, each ended by a zero byte.
fn derive_bits(prefix: &str, parts: &[&str]) -> u64 {
    let mut hasher = Sha256::new();
    for part in std::iter::once(&prefix).chain(parts) {
        hasher.update(part.as_bytes());
        hasher.update([0]);
    }
    let digest: [u8; 32] = hasher.finalize().into();
    digest[..6]
        .iter()
        .fold(0, |bits, byte| bits << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        let id = RequestId::from_bits(0x000a_5bb4);
        assert_eq!(id.to_string(), "NR-0000000a5bb4");
        assert_eq!("NR-0000000A5BB4".parse(), Ok(id));
        let order: RequestId = "OR-0000000a5bb4".parse().unwrap();
        assert_eq!(order.to_string(), "OR-0000000a5bb4");
        assert!(order.is_order() && !id.is_order());
        assert_ne!(order, id);
        assert_eq!(RequestId::from_bits(order.bits()), order);
        assert!(RequestId::derive_order(&["a"]).is_order());
        for text in [
            "",
            "NR-",
            "NR-0a5bb4",
            "OB-0000000a5bb4",
            "NR-0000000a5bb4 ",
            "NR-+000000a5bb4",
        ] {
            assert!(text.parse::<RequestId>().is_err(), "{text}");
        }
    }

    #[test]
    fn parts_do_not_run_together() {
        assert_ne!(
            RequestId::derive(&["ab", "c"]),
            RequestId::derive(&["a", "bc"])
        );
        assert_ne!(
            RequestId::derive(&["a"]).bits(),
            ObligationId::derive(&["a"]).bits()
        );
    }
}
