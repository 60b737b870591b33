//! A request's terms in words, as both sides read them before the acceptance fixes them.

use super::{Request, RequestKind};
use crate::domain::ids::BrokerId;
use crate::domain::money::format_minor;
use crate::domain::terms::Party;

impl Request {
    /// What will happen when the request completes in full: who owes whom, which book moves which
    /// way, who pays a commission. Amounts are in major units of a currency with `exponent`
    /// decimals.
    #[must_use]
    pub fn terms_in_words(&self, exponent: u8) -> Vec<String> {
        let money = |minor: u64| {
            format!(
                "{} {}",
                format_minor(i128::from(minor), exponent),
                self.currency
            )
        };
        let amount = self.settled_amount();
        let sender = self.sender();
        let mut words = Vec::new();
        words.push(match self.terms.obligation_on(amount) {
            _ if self.settles.is_some() => format!(
                "When this completes, what {} owes {} falls by {}.",
                self.name(sender),
                self.name(sender.other()),
                money(amount.minor())
            ),
            Some((debtor, owed)) => format!(
                "When this completes, {} owes {} {}.",
                self.name(debtor),
                self.name(debtor.other()),
                money(owed)
            ),
            None => "When this completes, nobody owes anybody.".to_owned(),
        });
        let (from, to, sum) = (
            self.name(sender),
            self.name(sender.other()),
            money(amount.minor()),
        );
        words.push(match self.kind {
            RequestKind::Send | RequestKind::Receive | RequestKind::Settlement => {
                format!("The book of {from} is debited {sum}, the book of {to} is credited it.")
            }
            RequestKind::Collect => format!(
                "The client's account in the book of {to} is credited {sum}, the cashier's in the book of {from} is credited it."
            ),
            RequestKind::Payout => format!(
                "The client's account in the book of {to} is debited {sum}, the cashier's in the book of {from} is debited it."
            ),
        });
        if let Some(commission) = self.terms.commission {
            let fee = commission.on(amount);
            let how = match self.terms.obligation.debtor() {
                None => "booked only",
                Some(debtor) if debtor == commission.payer => "added to what it owes",
                Some(_) => "taken from what it is owed",
            };
            words.push(format!(
                "{} pays {} a commission of {}, {how}.",
                capital(&self.name(commission.payer)),
                self.name(commission.payer.other()),
                money(fee)
            ));
        }
        words
    }

    fn name(&self, party: Party) -> String {
        let number = |broker: BrokerId| format!("broker {broker}");
        self.broker_of(party)
            .map_or_else(|| "the broker that accepts".to_owned(), number)
    }
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars
        .next()
        .map(|first| first.to_uppercase().collect::<String>() + chars.as_str())
        .unwrap_or_default()
}
