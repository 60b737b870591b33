//! Who is paid, as each provider knows them.

use serde::{Deserialize, Serialize};

use super::PspName;
use super::promptpay::Proxy;
use crate::domain::text;
use crate::domain::words::words;

/// The longest name of somebody who is paid, in characters.
const MAX_NAME: usize = 140;
/// Thai banks by the numbers of the Bank of Thailand.
const THAI_BANKS: [(&str, &str); 20] = [
    ("002", "Bangkok Bank"),
    ("004", "Kasikornbank"),
    ("006", "Krungthai Bank"),
    ("011", "TMBThanachart Bank"),
    ("014", "Siam Commercial Bank"),
    ("017", "Citibank"),
    ("018", "Sumitomo Mitsui Banking Corporation"),
    ("020", "Standard Chartered Bank (Thai)"),
    ("022", "CIMB Thai Bank"),
    ("024", "United Overseas Bank (Thai)"),
    ("025", "Bank of Ayudhya"),
    ("030", "Government Savings Bank"),
    ("033", "Government Housing Bank"),
    ("034", "Bank for Agriculture and Agricultural Cooperatives"),
    ("066", "Islamic Bank of Thailand"),
    ("067", "Tisco Bank"),
    ("069", "Kiatnakin Phatra Bank"),
    ("070", "ICBC (Thai)"),
    ("071", "Thai Credit Bank"),
    ("073", "Land and Houses Bank"),
];

/// Who is paid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", try_from = "Fields")]
pub enum Receiver {
    /// An account at a Thai bank (IPPS).
    ThaiAccount {
        /// Three digits.
        bank_code: String,
        /// 10 to 15 digits.
        account_no: String,
    },
    /// What somebody has registered for `PromptPay` (IPPS).
    PromptPay {
        /// A mobile number, a national id or an e-wallet.
        proxy: String,
    },
    /// An account by its IBAN (WISE).
    Iban { holder_name: String, iban: String },
    /// Nobody: the money comes in (QP).
    Wallet,
}

/// A receiver as it is read: flat, so that what is wrong of it is told by its field.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    #[serde(rename = "type")]
    kind: Kind,
    bank_code: Option<String>,
    account_no: Option<String>,
    proxy: Option<String>,
    holder_name: Option<String>,
    iban: Option<String>,
}

words!(
    Kind {
        ThaiAccount = "thai_account",
        PromptPay = "prompt_pay",
        Iban = "iban",
        Wallet = "wallet",
    }
);

impl TryFrom<Fields> for Receiver {
    type Error = String;

    fn try_from(mut fields: Fields) -> Result<Self, String> {
        // In the words that a field which is missing or unknown is told by elsewhere.
        let needed = |name: &str, value: Option<String>| {
            value.ok_or_else(|| format!("missing field `{name}`"))
        };
        let receiver = match fields.kind {
            Kind::ThaiAccount => Self::ThaiAccount {
                bank_code: needed("bank_code", fields.bank_code.take())?,
                account_no: needed("account_no", fields.account_no.take())?,
            },
            Kind::PromptPay => Self::PromptPay {
                proxy: needed("proxy", fields.proxy.take())?,
            },
            Kind::Iban => Self::Iban {
                holder_name: needed("holder_name", fields.holder_name.take())?,
                iban: needed("iban", fields.iban.take())?,
            },
            Kind::Wallet => Self::Wallet,
        };
        let left = [
            ("bank_code", &fields.bank_code),
            ("account_no", &fields.account_no),
            ("proxy", &fields.proxy),
            ("holder_name", &fields.holder_name),
            ("iban", &fields.iban),
        ];
        match left.into_iter().find(|(_, value)| value.is_some()) {
            Some((name, _)) => Err(format!("unknown field `{name}`")),
            None => Ok(receiver),
        }
    }
}

/// Why somebody can't be paid through a channel. Names the field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct ReceiverError {
    pub field: &'static str,
    pub why: String,
}

impl Receiver {
    /// Whether the channel can pay them, as far as can be told from here.
    ///
    /// # Errors
    /// [`ReceiverError`]
    pub fn check(&self, channel: PspName) -> Result<(), ReceiverError> {
        match (self, channel) {
            (
                Self::ThaiAccount {
                    bank_code,
                    account_no,
                },
                PspName::Ipps,
            ) => {
                if thai_bank(bank_code).is_none() {
                    let codes: Vec<_> = THAI_BANKS.iter().map(|(code, _)| *code).collect();
                    let why = format!("is one of: {}", codes.join(", "));
                    return Err(wrong("receiver.bank_code", why));
                }
                let digits = account_no.bytes().all(|byte| byte.is_ascii_digit());
                if !digits || !(10..=15).contains(&account_no.len()) {
                    return Err(wrong("receiver.account_no", "is 10 to 15 digits"));
                }
                Ok(())
            }
            (Self::PromptPay { proxy }, PspName::Ipps) => Proxy::parse(proxy)
                .map(drop)
                .map_err(|error| wrong("receiver.proxy", error.to_string())),
            (Self::Iban { holder_name, iban }, PspName::Wise) => {
                text::line(holder_name, MAX_NAME)
                    .map_err(|error| wrong("receiver.holder_name", error.to_string()))?;
                if is_iban(iban) {
                    Ok(())
                } else {
                    let why = "is an IBAN without spaces, in capitals, with the right check digits";
                    Err(wrong("receiver.iban", why))
                }
            }
            (Self::Wallet, PspName::Qp) => Ok(()),
            (
                Self::ThaiAccount { .. }
                | Self::PromptPay { .. }
                | Self::Iban { .. }
                | Self::Wallet,
                PspName::Ipps | PspName::Qp | PspName::Wise,
            ) => {
                let types = match channel {
                    PspName::Ipps => "thai_account or prompt_pay",
                    PspName::Qp => "wallet",
                    PspName::Wise => "iban",
                };
                Err(wrong(
                    "receiver.type",
                    format!("through {channel} it is {types}"),
                ))
            }
        }
    }
}

/// The name of a Thai bank.
#[must_use]
pub fn thai_bank(code: &str) -> Option<&'static str> {
    let known = THAI_BANKS.iter().find(|(known, _)| *known == code);
    known.map(|(_, name)| *name)
}

/// ISO 13616: two letters, two check digits, up to 30 letters and digits; the whole, turned and
/// read as a number, is 1 modulo 97.
fn is_iban(text: &str) -> bool {
    let bytes = text.as_bytes();
    let shape = (15..=34).contains(&bytes.len())
        && bytes[..2].iter().all(u8::is_ascii_uppercase)
        && bytes[2..4].iter().all(u8::is_ascii_digit)
        && bytes[4..]
            .iter()
            .all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit());
    if !shape {
        return false;
    }
    let turned = bytes[4..].iter().chain(&bytes[..4]);
    let rest = turned.fold(0, |rest: u32, byte| match byte {
        b'0'..=b'9' => (rest * 10 + u32::from(byte - b'0')) % 97,
        letter => (rest * 100 + u32::from(letter - b'A') + 10) % 97,
    });
    rest == 1
}

fn wrong(field: &'static str, why: impl Into<String>) -> ReceiverError {
    ReceiverError {
        field,
        why: why.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(receiver: &Receiver, channel: PspName) -> Option<&'static str> {
        receiver.check(channel).err().map(|error| error.field)
    }

    #[test]
    fn each_channel_takes_its_own() {
        let account = |bank: &str, no: &str| Receiver::ThaiAccount {
            bank_code: bank.to_owned(),
            account_no: no.to_owned(),
        };
        let proxy = |proxy: &str| Receiver::PromptPay {
            proxy: proxy.to_owned(),
        };
        let iban = |name: &str, iban: &str| Receiver::Iban {
            holder_name: name.to_owned(),
            iban: iban.to_owned(),
        };
        for (receiver, channel, wrong) in [
            (account("004", "0123456789"), PspName::Ipps, None),
            (
                account("999", "0123456789"),
                PspName::Ipps,
                Some("receiver.bank_code"),
            ),
            (
                account("004", "012345678"),
                PspName::Ipps,
                Some("receiver.account_no"),
            ),
            (
                account("004", "01234 6789"),
                PspName::Ipps,
                Some("receiver.account_no"),
            ),
            (
                account("004", "0123456789"),
                PspName::Wise,
                Some("receiver.type"),
            ),
            (proxy("0801234567"), PspName::Ipps, None),
            (proxy("801234567"), PspName::Ipps, Some("receiver.proxy")),
            (proxy("0801234567"), PspName::Qp, Some("receiver.type")),
            (iban("Jo Do", "DE89370400440532013000"), PspName::Wise, None),
            (iban("Jo Do", "GB82WEST12345698765432"), PspName::Wise, None),
            (
                iban("Jo Do", "DE89370400440532013001"),
                PspName::Wise,
                Some("receiver.iban"),
            ),
            (
                iban("Jo Do", "de89370400440532013000"),
                PspName::Wise,
                Some("receiver.iban"),
            ),
            (iban("Jo Do", "DE89"), PspName::Wise, Some("receiver.iban")),
            (
                iban("", "DE89370400440532013000"),
                PspName::Wise,
                Some("receiver.holder_name"),
            ),
            (Receiver::Wallet, PspName::Qp, None),
            (Receiver::Wallet, PspName::Ipps, Some("receiver.type")),
        ] {
            assert_eq!(field(&receiver, channel), wrong, "{receiver:?} {channel}");
        }
    }

    #[test]
    fn what_is_not_known_is_not_read() {
        for bad in [
            r#"{"type":"iban","holder_name":"A","iban":"X","swift":"Y"}"#,
            r#"{"type":"card","number":"4111"}"#,
            r#"{"holder_name":"A"}"#,
            r#"{"type":"prompt_pay","proxy":"0801234567","iban":"X"}"#,
            r#"{"type":"prompt_pay","proxy":1}"#,
            r#"{"type":"iban","iban":"X"}"#,
            r#"{"type":"wallet","proxy":"0801234567"}"#,
        ] {
            assert!(serde_json::from_str::<Receiver>(bad).is_err(), "{bad}");
        }
    }
}
