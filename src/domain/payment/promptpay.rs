//! `PromptPay` QR payloads: `EMVCo` merchant-presented mode, as Thai banks read them. A payload is
//! a list of fields, each a two-digit tag, a two-digit length in characters, and a value; some
//! values are such lists themselves. The last field is a CRC over all before it.

/// The application of a transfer to somebody's proxy, and of the payment of a bill.
const TRANSFER: &str = "A000000677010111";
const BILL: &str = "A000000677010112";
/// Baht, by ISO 4217.
const BAHT: &str = "764";
/// The longest value that two digits of length allow.
const MAX_VALUE: usize = 99;

/// Whom a transfer goes to, by what they have registered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Proxy {
    /// A mobile number as dialled in Thailand: 0 and nine digits.
    Mobile(String),
    /// A national id or tax number: 13 digits.
    NationalId(String),
    /// An e-wallet: 15 digits.
    EWallet(String),
}

/// What a payload asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payee {
    Proxy(Proxy),
    Bill {
        /// 15 digits or fewer.
        biller: String,
        /// Up to 20 capital letters and digits each.
        reference_1: String,
        reference_2: Option<String>,
    },
}

/// A payload as read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payload {
    pub payee: Payee,
    /// In satang; `None` where the payer chooses.
    pub amount: Option<u64>,
    /// To be used once.
    pub dynamic: bool,
}

/// Why a text is no payload, or a payee can't be in one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PromptPayError {
    #[error(
        "{0:?} is no proxy: a mobile number is 0 and nine digits, a national id 13 digits, an e-wallet 15"
    )]
    Proxy(String),
    #[error("a biller is 1 to 15 digits")]
    Biller,
    #[error("a reference is 1 to 20 capital letters and digits")]
    Reference,
    #[error("the payload is cut off, or a length in it is wrong")]
    Fields,
    #[error("the checksum is {found}, and {computed} was computed")]
    Checksum { found: String, computed: String },
    #[error("field {tag} is missing or is not what PromptPay has there")]
    Field { tag: &'static str },
}

impl Proxy {
    /// Reads one by its length.
    ///
    /// # Errors
    /// [`PromptPayError::Proxy`]
    pub fn parse(text: &str) -> Result<Self, PromptPayError> {
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        match text.len() {
            10 if digits && text.starts_with('0') => Ok(Self::Mobile(text.to_owned())),
            13 if digits => Ok(Self::NationalId(text.to_owned())),
            15 if digits => Ok(Self::EWallet(text.to_owned())),
            _ => Err(PromptPayError::Proxy(text.to_owned())),
        }
    }

    /// As it was registered.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Mobile(text) | Self::NationalId(text) | Self::EWallet(text) => text,
        }
    }

    fn field(&self) -> String {
        match self {
            // The country's code instead of the 0.
            Self::Mobile(text) => field("01", &format!("0066{}", &text[1..])),
            Self::NationalId(text) => field("02", text),
            Self::EWallet(text) => field("03", text),
        }
    }

    fn read(fields: &[(&str, &str)]) -> Option<Self> {
        let of = |tag| value(fields, tag);
        if let Some(mobile) = of("01") {
            let number = mobile.strip_prefix("0066")?;
            return Self::parse(&format!("0{number}")).ok();
        }
        Self::parse(of("02").or_else(|| of("03"))?).ok()
    }
}

impl Payload {
    /// The text that a QR code shows.
    ///
    /// # Errors
    /// A payee with what `PromptPay` doesn't take.
    pub fn encode(&self) -> Result<String, PromptPayError> {
        let account = match &self.payee {
            Payee::Proxy(proxy) => {
                let proxy = Proxy::parse(proxy.as_str())?;
                field("29", &(field("00", TRANSFER) + &proxy.field()))
            }
            Payee::Bill {
                biller,
                reference_1,
                reference_2,
            } => {
                let digits = biller.bytes().all(|byte| byte.is_ascii_digit());
                if !digits || !(1..=15).contains(&biller.len()) {
                    return Err(PromptPayError::Biller);
                }
                let mut inner = field("00", BILL) + &field("01", biller);
                inner += &field("02", checked_reference(reference_1)?);
                if let Some(second) = reference_2 {
                    inner += &field("03", checked_reference(second)?);
                }
                field("30", &inner)
            }
        };
        let mut text = field("00", "01") + &field("01", if self.dynamic { "12" } else { "11" });
        text += &account;
        text += &field("58", "TH");
        text += &field("53", BAHT);
        if let Some(satang) = self.amount {
            text += &field("54", &format!("{}.{:02}", satang / 100, satang % 100));
        }
        text += "6304";
        let crc = crc16(text.as_bytes());
        Ok(format!("{text}{crc:04X}"))
    }

    /// Reads a payload by its tags, whatever their order.
    ///
    /// # Errors
    /// See [`PromptPayError`].
    pub fn decode(text: &str) -> Result<Self, PromptPayError> {
        let cut = text.len().checked_sub(4).ok_or(PromptPayError::Fields)?;
        let (covered, found) = text.split_at_checked(cut).ok_or(PromptPayError::Fields)?;
        let computed = format!("{:04X}", crc16(covered.as_bytes()));
        if found != computed || !covered.ends_with("6304") {
            let found = found.to_owned();
            return Err(PromptPayError::Checksum { found, computed });
        }
        let fields = fields(text)?;
        let is = |tag: &'static str, wanted: &str| match value(&fields, tag) {
            Some(found) if found == wanted => Ok(()),
            Some(_) | None => Err(PromptPayError::Field { tag }),
        };
        is("00", "01")?;
        is("58", "TH")?;
        is("53", BAHT)?;
        let dynamic = match value(&fields, "01") {
            Some("12") => true,
            Some("11") | None => false,
            Some(_) => return Err(PromptPayError::Field { tag: "01" }),
        };
        let amount = match value(&fields, "54") {
            None => None,
            Some(text) => Some(satang(text).ok_or(PromptPayError::Field { tag: "54" })?),
        };
        let payee = match (value(&fields, "29"), value(&fields, "30")) {
            (Some(inner), _) => {
                let inner = self::fields(inner)?;
                let proxy = Proxy::read(&inner).filter(|_| value(&inner, "00") == Some(TRANSFER));
                Payee::Proxy(proxy.ok_or(PromptPayError::Field { tag: "29" })?)
            }
            (None, Some(inner)) => {
                let inner = self::fields(inner)?;
                let owned = |tag| value(&inner, tag).map(str::to_owned);
                let known = value(&inner, "00") == Some(BILL);
                let both = owned("01").zip(owned("02")).filter(|_| known);
                let (biller, reference_1) = both.ok_or(PromptPayError::Field { tag: "30" })?;
                Payee::Bill {
                    biller,
                    reference_1,
                    reference_2: owned("03"),
                }
            }
            (None, None) => return Err(PromptPayError::Field { tag: "29" }),
        };
        Ok(Self {
            payee,
            amount,
            dynamic,
        })
    }
}

fn checked_reference(text: &str) -> Result<&str, PromptPayError> {
    let allowed = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit();
    if (1..=20).contains(&text.len()) && text.bytes().all(allowed) {
        Ok(text)
    } else {
        Err(PromptPayError::Reference)
    }
}

fn field(tag: &str, value: &str) -> String {
    debug_assert!(value.len() <= MAX_VALUE);
    format!("{tag}{:02}{value}", value.len())
}

fn fields(mut text: &str) -> Result<Vec<(&str, &str)>, PromptPayError> {
    let mut all = Vec::new();
    while !text.is_empty() {
        let cut = |text, at| str::split_at_checked(text, at).ok_or(PromptPayError::Fields);
        let (tag, rest) = cut(text, 2)?;
        let (length, rest) = cut(rest, 2)?;
        if !tag
            .bytes()
            .chain(length.bytes())
            .all(|byte| byte.is_ascii_digit())
        {
            return Err(PromptPayError::Fields);
        }
        let (value, rest) = cut(rest, length.parse().map_err(|_| PromptPayError::Fields)?)?;
        all.push((tag, value));
        text = rest;
    }
    Ok(all)
}

fn value<'a>(fields: &[(&str, &'a str)], wanted: &str) -> Option<&'a str> {
    fields
        .iter()
        .find(|(tag, _)| *tag == wanted)
        .map(|(_, value)| *value)
}

/// Baht with at most two decimals.
fn satang(text: &str) -> Option<u64> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || decimals.len() > 2 || !digits(whole) || !digits(decimals) {
        return None;
    }
    format!("{whole}{decimals:0<2}").parse().ok()
}

/// CRC-16/CCITT-FALSE: polynomial 1021, from FFFF.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0xffff, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc: u16, _| {
            let carry = crc & 0x8000 != 0;
            (crc << 1) ^ if carry { 0x1021 } else { 0 }
        })
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// As other programs make them.
    const MOBILE: &str =
        "00020101021129370016A000000677010111011300668012345675802TH530376463046197";
    const WITH_AMOUNT: &str =
        "00020101021229370016A000000677010111011300660000000005802TH530376454044.226304E469";
    const OF_A_BILL: &str = "00020101021130530016A00000067701011201130000000000001020412340304234553037645802TH6304E5DA";

    fn mobile(number: &str, amount: Option<u64>) -> Payload {
        let payee = Payee::Proxy(Proxy::Mobile(number.to_owned()));
        Payload {
            payee,
            amount,
            dynamic: amount.is_some(),
        }
    }

    #[test]
    fn what_others_write_is_written_and_read() {
        for (text, payload) in [
            (MOBILE, mobile("0801234567", None)),
            (WITH_AMOUNT, mobile("0000000000", Some(422))),
        ] {
            assert_eq!(payload.encode().unwrap(), text);
            assert_eq!(Payload::decode(text).unwrap(), payload);
        }
        let bill = Payload::decode(OF_A_BILL).unwrap();
        let payee = Payee::Bill {
            biller: "0000000000001".to_owned(),
            reference_1: "1234".to_owned(),
            reference_2: Some("2345".to_owned()),
        };
        assert_eq!(
            bill,
            Payload {
                payee,
                amount: None,
                dynamic: false
            }
        );
        assert_eq!(Payload::decode(&bill.encode().unwrap()).unwrap(), bill);
    }

    #[test]
    fn a_text_that_was_changed_is_not_read() {
        for at in 0..WITH_AMOUNT.len() {
            for digit in ['0', '7', 'A'] {
                let mut changed = WITH_AMOUNT.to_owned();
                changed.replace_range(at..=at, &digit.to_string());
                if changed != WITH_AMOUNT {
                    assert!(Payload::decode(&changed).is_err(), "{changed}");
                }
            }
            assert!(Payload::decode(&WITH_AMOUNT[..at]).is_err());
        }
    }

    #[test]
    fn who_is_no_payee_is_told_why() {
        for bad in [
            "",
            "080123456",
            "80123456789",
            "08012345678",
            "080-123456",
            "๐๘๐๑๒๓๔๕๖๗",
        ] {
            assert!(Proxy::parse(bad).is_err(), "{bad}");
        }
        let bill = |biller: &str, first: &str| Payload {
            payee: Payee::Bill {
                biller: biller.to_owned(),
                reference_1: first.to_owned(),
                reference_2: None,
            },
            amount: None,
            dynamic: false,
        };
        assert_eq!(bill("1x", "A").encode(), Err(PromptPayError::Biller));
        assert_eq!(bill("1", "a").encode(), Err(PromptPayError::Reference));
        assert_eq!(
            bill("1", &"A".repeat(21)).encode(),
            Err(PromptPayError::Reference)
        );
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            number in "0[0-9]{9}|[0-9]{13}|[0-9]{15}",
            amount in prop::option::of(1..100_000_000_000_u64),
        ) {
            let payee = Payee::Proxy(Proxy::parse(&number).unwrap());
            let payload = Payload { payee, amount, dynamic: true };
            prop_assert_eq!(Payload::decode(&payload.encode().unwrap()).unwrap(), payload);
        }

        #[test]
        fn nothing_makes_the_reader_stumble(text in "\\PC{0,120}") {
            drop(Payload::decode(&text));
        }
    }
}
