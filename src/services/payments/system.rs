//! The network's own accounts in the ledger: what payments pass through.

use super::{PaymentError, PaymentService};
use crate::domain::ledger::{AccountName, AccountOwner, NamePart};
use crate::domain::money::Currency;
use crate::domain::payment::PspName;
use crate::stores::ledger::AccountSpec;

impl PaymentService {
    /// Creates the accounts of every currency and provider that are not there yet: equity, revenue
    /// and suspense, and of each provider transit and nostro. Gives how many there are to be.
    ///
    /// # Errors
    /// The master's and the ledger's; the same again goes on.
    pub async fn seed_accounts(&self) -> Result<usize, PaymentError> {
        let currencies = self.0.currencies.all().await?;
        let providers: Vec<PspName> = self.0.providers.names().collect();
        let mut specs = Vec::new();
        for currency in &currencies {
            specs.extend(accounts_of(currency, &providers));
        }
        self.0.ledger.ensure_accounts(&specs).await?;
        Ok(specs.len())
    }
}

fn accounts_of(currency: &Currency, providers: &[PspName]) -> Vec<AccountSpec> {
    let part = |text: &str| NamePart::new(text).ok();
    let of_provider = providers.iter().flat_map(|psp| {
        let transit = part(psp.as_str()).map(AccountOwner::Transit);
        let nostro = part(psp.nostro()).map(AccountOwner::Nostro);
        transit.into_iter().chain(nostro)
    });
    let network = [
        AccountOwner::Equity,
        AccountOwner::Revenue,
        AccountOwner::Suspense,
    ];
    let owners = network.into_iter().chain(of_provider);
    owners
        .map(|owner| AccountSpec {
            name: AccountName::new(owner, currency.code.clone()),
            ledger: currency.ledger,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_currency_has_its_own_and_each_provider_two() {
        let currency = Currency {
            code: "THB".parse().unwrap(),
            exponent: 2,
            ledger: 764,
        };
        let names: Vec<String> = accounts_of(&currency, PspName::ALL)
            .iter()
            .map(|spec| spec.name.to_string())
            .collect();
        assert_eq!(
            names,
            [
                "system.equity.THB",
                "system.revenue.THB",
                "system.suspense.THB",
                "system.transit.IPPS.THB",
                "system.nostro.ipps.THB",
                "system.transit.QP.THB",
                "system.nostro.qp.THB",
                "system.transit.WISE.THB",
                "system.nostro.wise.THB",
            ]
        );
    }
}
