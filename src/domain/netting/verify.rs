//! Checking a certificate. Nothing here knows how one is found.

use std::collections::BTreeMap;
use std::io::{self, BufRead};

use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};

use super::certificate::{
    BrokerLine, EndLine, Format, HeaderLine, Input, Line, ObligationLine, canonical,
};
use super::text;
use crate::domain::canonical::Hash;
use crate::domain::ids::{BrokerId, ObligationId};
use crate::domain::money::CurrencyCode;

/// The longest line, in bytes.
const LINE_MAX: u64 = 1_024;

/// What a certificate says, once it was found to hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    pub round: String,
    pub currency: CurrencyCode,
    pub brokers: u64,
    pub obligations: u64,
    pub total: u128,
    pub cleared: u128,
    pub root: Hash,
}

/// Why a certificate does not hold: at which line, and what.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    #[error("line {line}: {what}")]
    Wrong { line: u64, what: String },
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Checks a certificate in one pass.
///
/// # Errors
/// The first line that is wrong, and what is.
pub fn verify(input: impl BufRead) -> Result<Verified, CertificateError> {
    let mut lines = Lines {
        input,
        number: 0,
        sha256: Sha256::new(),
        text: Vec::new(),
    };
    let header: HeaderLine = lines.next()?;
    let Some(format) = Format::parse(&header.format) else {
        let known = Format::NEW.as_str();
        return Err(lines.wrong(format!("the format is {:?}, not {known}", header.format)));
    };
    let brokers: u64 = lines.number_of("brokers", &header.brokers)?;
    let obligations: u64 = lines.number_of("obligations", &header.obligations)?;
    let total: u128 = lines.number_of("total", &header.total)?;
    let cleared: u128 = lines.number_of("cleared", &header.cleared)?;
    let currency: CurrencyCode = header
        .currency
        .parse()
        .map_err(|_| lines.wrong(format!("{:?} is no currency", header.currency)))?;
    let mut accounts = BTreeMap::new();
    for _ in 0..brokers {
        let line: BrokerLine = lines.next()?;
        let broker: BrokerId = lines.number_of("broker", &line.broker)?;
        let price: i64 = lines.number_of("price", &line.price)?;
        if accounts
            .last_key_value()
            .is_some_and(|(last, _)| *last >= broker)
        {
            return Err(lines.wrong(format!(
                "broker {broker} does not come after the one before"
            )));
        }
        accounts.insert(broker, Account { price, moved: 0 });
    }
    let mut seen = Seen::new(format);
    for _ in 0..obligations {
        let line = lines.obligation(format)?;
        lines.check(&line, &mut accounts, &mut seen)?;
    }
    for (what, stated, found) in [
        ("total", total, seen.total),
        ("cleared", cleared, seen.cleared),
    ] {
        if stated != found {
            return Err(lines.wrong(format!("{what} is {stated}, and the lines come to {found}")));
        }
    }
    if let Some((broker, account)) = accounts.iter().find(|(_, account)| account.moved != 0) {
        let by = account.moved;
        return Err(lines.wrong(format!("the net position of broker {broker} moves by {by}")));
    }
    if seen.input.root() != header.root {
        return Err(lines.wrong("the root is not that of the obligations".to_owned()));
    }
    lines.end()?;
    Ok(Verified {
        round: header.round,
        currency,
        brokers,
        obligations,
        total,
        cleared,
        root: header.root,
    })
}

/// A broker as a certificate has it.
struct Account {
    price: i64,
    /// By how much its net position has moved so far.
    moved: i128,
}

struct Seen {
    last: Option<ObligationId>,
    total: u128,
    cleared: u128,
    input: Input,
}

impl Seen {
    fn new(format: Format) -> Self {
        Self {
            last: None,
            total: 0,
            cleared: 0,
            input: Input::new(format),
        }
    }
}

struct Lines<R> {
    input: R,
    number: u64,
    sha256: Sha256,
    /// What a line should be, and what the digest covers of it.
    text: Vec<u8>,
}

impl<R: BufRead> Lines<R> {
    fn wrong(&self, what: String) -> CertificateError {
        let line = self.number;
        CertificateError::Wrong { line, what }
    }

    fn read(&mut self) -> Result<Vec<u8>, CertificateError> {
        self.number += 1;
        let mut line = Vec::new();
        io::Read::take(&mut self.input, LINE_MAX).read_until(b'\n', &mut line)?;
        if line.last() != Some(&b'\n') {
            return Err(self.wrong("the file ends here, or the line is too long".to_owned()));
        }
        Ok(line)
    }

    fn parsed<T: DeserializeOwned + Serialize>(&self, line: &[u8]) -> Result<T, CertificateError> {
        let value: T =
            serde_json::from_slice(line).map_err(|error| self.wrong(error.to_string()))?;
        // With nothing but the line's end after it.
        let text = line.strip_suffix(b"\n").unwrap_or(line);
        if canonical(&value)?.as_slice() != text {
            return Err(self.wrong("is not in canonical form".to_owned()));
        }
        Ok(value)
    }

    fn next<T: DeserializeOwned + Serialize>(&mut self) -> Result<T, CertificateError> {
        let line = self.read()?;
        self.sha256.update(&line);
        self.parsed(&line)
    }

    fn end(mut self) -> Result<(), CertificateError> {
        let line = self.read()?;
        let end: EndLine = self.parsed(&line)?;
        if end.sha256 != Hash(self.sha256.clone().finalize().into()) {
            return Err(self.wrong("sha256 is not that of the lines before".to_owned()));
        }
        if self.input.fill_buf()?.is_empty() {
            return Ok(());
        }
        self.number += 1;
        Err(self.wrong("nothing follows the last line".to_owned()))
    }

    /// A number as it is written: no sign but a minus, no zero before it.
    fn number_of<N: std::str::FromStr + ToString>(
        &self,
        name: &str,
        text: &str,
    ) -> Result<N, CertificateError> {
        let number = text.parse::<N>().ok();
        let number = number.filter(|number| number.to_string() == text);
        number.ok_or_else(|| self.wrong(format!("{name} is {text:?}, which is no such number")))
    }

    fn obligation(&mut self, format: Format) -> Result<Line, CertificateError> {
        let bytes = self.read()?;
        let stated: ObligationLine =
            serde_json::from_slice(&bytes).map_err(|error| self.wrong(error.to_string()))?;
        let id = stated.id.parse();
        let line = Line {
            id: id.map_err(|_| self.wrong(format!("{:?} is no id", stated.id)))?,
            debtor: self.number_of("debtor", stated.debtor)?,
            creditor: self.number_of("creditor", stated.creditor)?,
            amount: self.number_of("amount", stated.amount)?,
            reduction: self.number_of("reduction", stated.reduction)?,
        };
        self.text.clear();
        text::whole(&mut self.text, &line);
        if self.text != bytes {
            return Err(self.wrong("is not in canonical form".to_owned()));
        }
        if format == Format::V2 {
            self.text.clear();
            text::reduced(&mut self.text, &line);
        }
        self.sha256.update(&self.text);
        Ok(line)
    }

    fn check(
        &mut self,
        line: &Line,
        accounts: &mut BTreeMap<BrokerId, Account>,
        seen: &mut Seen,
    ) -> Result<(), CertificateError> {
        let id = line.id;
        if seen.last.is_some_and(|last| last >= id) {
            return Err(self.wrong(format!("{id} does not come after the one before")));
        }
        seen.last = Some(id);
        if line.debtor == line.creditor || line.amount == 0 || line.reduction > line.amount {
            return Err(self.wrong(format!("{id} can't be as it says")));
        }
        let mut price_of = |broker: BrokerId, moves: i128| {
            let account = accounts.get_mut(&broker);
            let account =
                account.ok_or_else(|| self.wrong(format!("broker {broker} has no price")))?;
            account.moved += moves;
            Ok::<i64, CertificateError>(account.price)
        };
        let reduced = i128::from(line.reduction);
        let debtor = i128::from(price_of(line.debtor, reduced)?);
        let worth = 1 + debtor - i128::from(price_of(line.creditor, -reduced)?);
        if (worth > 0 && line.reduction < line.amount) || (worth < 0 && line.reduction > 0) {
            return Err(self.wrong(format!("{id}: the prices don't prove its reduction")));
        }
        seen.total += u128::from(line.amount);
        seen.cleared += u128::from(line.reduction);
        seen.input.push(line);
        Ok(())
    }
}
