//! The ledger's identities: account names, deterministic ids, codes and transfer indexes.
//!
//! Everything here is fixed for ever. Ids are computed, never stored as the truth: whoever knows
//! an account's name, or an operation's uuid and an index, computes the id alone and finds the
//! record in `TigerBeetle`. Changing a namespace, a spelling or a code would cut every record ever
//! written from its meaning, and a retry would move money twice.

mod name;

use std::fmt;

use uuid::Uuid;

pub use name::{AccountName, AccountOwner, AccountRule, NAME_PART_MAX, NameError, NamePart};

/// Namespace of account ids; the input is the account's name.
pub const TB_NS: Uuid = Uuid::from_u128(0x3e7b_4a1c_9f2d_5e8a_b6c3_4d1f_07e2_a9b5);

/// Namespace of transfer ids; the input is `{saga or intent uuid, lower case}:{index}`.
pub const TRANSFER_NS: Uuid = Uuid::from_u128(0x7a9f_3c1e_5b2d_4e8a_9f6c_3d1e_07a2_b5c4);

/// What a transfer is for: `TigerBeetle`'s `code`.
///
/// `user_data_128` of every transfer is the uuid of the saga or intent that made it, as a
/// big-endian number; a post or void inherits both from its hold. `user_data_64` and
/// `user_data_32` are 0, on accounts all three are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum TransferCode {
    /// A new obligation: debtor's position to creditor's.
    Obligation = 1,
    /// A repayment of an obligation: creditor's position to debtor's.
    Settlement = 2,
    /// What an arbiter's decision moves between positions after the fact.
    Correction = 3,
    /// A payout's amount: wallet to the channel's transit account.
    PayoutAmount = 10,
    /// A payout's fee: wallet to revenue.
    PayoutFee = 11,
    /// A paid payout leaves: transit to the provider's nostro account.
    PayoutOut = 12,
    /// A payout that bounced after success comes back to the wallet.
    PayoutReturn = 13,
    /// The network's own money on a wallet: equity to the wallet.
    Funding = 14,
    /// Money that came in: the provider's nostro account to a wallet.
    TopUp = 20,
    /// Late or doubled incoming money: the provider's nostro account to suspense.
    Suspense = 21,
    /// Money out of suspense, to whom an admin found it belongs.
    SuspenseOut = 22,
}

impl TransferCode {
    /// Every code there is, in ascending order.
    pub const ALL: [Self; 11] = [
        Self::Obligation,
        Self::Settlement,
        Self::Correction,
        Self::PayoutAmount,
        Self::PayoutFee,
        Self::PayoutOut,
        Self::PayoutReturn,
        Self::Funding,
        Self::TopUp,
        Self::Suspense,
        Self::SuspenseOut,
    ];

    /// The number that the ledger keeps.
    #[must_use]
    pub const fn number(self) -> u16 {
        self as u16
    }

    /// The code with this number, where there is one.
    #[must_use]
    pub fn from_number(number: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.number() == number)
    }
}

/// Transfer index of the hold of a saga that moves a position.
pub const HOLD_INDEX: u32 = 0;

/// Transfer index of that hold's post or void: they share one, so that the ledger itself makes
/// them exclude each other.
pub const SETTLE_INDEX: u32 = 1;

/// Transfer indexes within one payout intent with a fee.
pub mod payout_index {
    /// Hold of the amount, wallet to transit.
    pub const HOLD_AMOUNT: u32 = 0;
    /// Hold of the fee, wallet to revenue; linked with the hold of the amount.
    pub const HOLD_FEE: u32 = 1;
    /// Post or void of the amount's hold.
    pub const SETTLE_AMOUNT: u32 = 2;
    /// Post or void of the fee's hold.
    pub const SETTLE_FEE: u32 = 3;
    /// Transit to nostro; linked with both posts.
    pub const OUT: u32 = 4;
    /// Nostro back to the wallet, for a payment that the provider sent back after it had paid.
    pub const RETURN: u32 = 5;
}

/// Transfer indexes within one top-up intent with a fee.
pub mod top_up_index {
    /// Nostro to the wallet, what came in less the fee.
    pub const CREDIT: u32 = 0;
    /// Nostro to revenue; linked with the credit.
    pub const FEE: u32 = 1;
}

/// Transfer indexes within one payment that came in and that no top-up waited for.
pub mod incoming_index {
    /// Nostro to suspense.
    pub const SUSPENSE: u32 = 0;
    /// Suspense to the wallet that a person has given it to.
    pub const OUT: u32 = 1;
}

/// The id of an account: never 0, never 2^128 − 1. Printed in decimal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LedgerAccountId(u128);

/// The id of a transfer: never 0, never 2^128 − 1. Printed in decimal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TransferId(u128);

/// 0 and 2^128 − 1 are no ids: the ledger keeps them for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is no ledger id: 0 and 2^128 − 1 are refused")]
pub struct IdError(u128);

/// The id of the account with this name.
#[must_use]
pub fn account_id(name: &AccountName) -> LedgerAccountId {
    LedgerAccountId(account_uuid(name).as_u128())
}

/// The same id as a uuid, the form that outside auditors know.
#[must_use]
pub fn account_uuid(name: &AccountName) -> Uuid {
    Uuid::new_v5(&TB_NS, name.to_string().as_bytes())
}

/// The id of an operation's transfer; `operation` is the saga's or intent's uuid.
#[must_use]
pub fn transfer_id(operation: Uuid, index: u32) -> TransferId {
    TransferId(transfer_uuid(operation, index).as_u128())
}

/// The same id as a uuid, the form that outside auditors know.
#[must_use]
pub fn transfer_uuid(operation: Uuid, index: u32) -> Uuid {
    Uuid::new_v5(&TRANSFER_NS, transfer_input(operation, index).as_bytes())
}

/// What a transfer's id is derived from.
#[must_use]
pub fn transfer_input(operation: Uuid, index: u32) -> String {
    format!("{}:{index}", operation.hyphenated())
}

/// The debit account of a burn: no account has this id, because no account's name is this text.
/// See `stores::ledger` for what a burn is.
#[must_use]
pub fn nobody() -> LedgerAccountId {
    LedgerAccountId(Uuid::new_v5(&TB_NS, b"nobody").as_u128())
}

macro_rules! ledger_id {
    ($id:ident) => {
        impl $id {
            /// The number itself.
            #[must_use]
            pub const fn get(self) -> u128 {
                self.0
            }

            /// As kept in a BINARY(16): big-endian, the bytes of the uuid.
            #[must_use]
            pub const fn to_be_bytes(self) -> [u8; 16] {
                self.0.to_be_bytes()
            }
        }

        impl TryFrom<u128> for $id {
            type Error = IdError;

            fn try_from(number: u128) -> Result<Self, IdError> {
                match number {
                    0 | u128::MAX => Err(IdError(number)),
                    _ => Ok(Self(number)),
                }
            }
        }

        impl fmt::Display for $id {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

ledger_id!(LedgerAccountId);
ledger_id!(TransferId);

/// The four sums that the ledger keeps per account, in minor units of its currency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Balances {
    pub debits_pending: u128,
    pub debits_posted: u128,
    pub credits_pending: u128,
    pub credits_posted: u128,
}

impl Balances {
    /// Credits less debits of what is posted: a broker's position, or a wallet's balance.
    /// Saturates at the ends of the range, which no amount of `u64` transfers reaches.
    #[must_use]
    pub fn posted(&self) -> i128 {
        net(self.credits_posted, self.debits_posted)
    }

    /// Credits less debits of what is held and neither posted nor voided.
    #[must_use]
    pub fn pending(&self) -> i128 {
        net(self.credits_pending, self.debits_pending)
    }
}

fn net(credits: u128, debits: u128) -> i128 {
    if credits >= debits {
        i128::try_from(credits - debits).unwrap_or(i128::MAX)
    } else {
        i128::try_from(debits - credits).map_or(i128::MIN, |debt| -debt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// (name, id as a uuid, id in decimal), computed by another implementation of RFC 9562.
    const ACCOUNTS: [(&str, &str, &str); 16] = [
        (
            "user.1042.THB",
            "3dd5e662-d022-5e76-bd2d-721ef5cdf704",
            "82193539756730984427615357685818324740",
        ),
        (
            "system.transit.IPPS.THB",
            "d02c95a8-6845-59d5-8fc6-7a4b84face46",
            "276710919606670561608055956349197667910",
        ),
        (
            "system.revenue.THB",
            "a33fa48f-09a0-5718-a6f0-4e0d4824b2f7",
            "216994615662810424357833289458730185463",
        ),
        (
            "system.nostro.ipps.THB",
            "413fcb53-ad21-5bdf-9303-4c9b2a52121a",
            "86731058386775490963088205948038287898",
        ),
        (
            "merchant.7.THB",
            "c67f828f-cc42-54ad-ad3e-9318cdfb52e6",
            "263849212972538111190936382287969473254",
        ),
        (
            "merchant.7.settlement.THB",
            "333b931c-81e5-557f-81ac-1a1a378a1f5f",
            "68099957072485365576007909477142110047",
        ),
        (
            "agent.42.THB",
            "1686f2af-fa98-5cd7-b7e1-7449fb72e1cb",
            "29943705971919787423542606049750213067",
        ),
        (
            "agent.42.settlement.THB",
            "b29ccbab-9f34-58c3-896d-169991a00c90",
            "237416712486083189594708213496239099024",
        ),
        (
            "service.99.THB",
            "560dc760-9d01-5931-9e2e-6d7b33d26558",
            "114385151350669222554365471631611159896",
        ),
        (
            "system.equity.THB",
            "add2726c-9c64-53bf-bcb2-43bd77b79df5",
            "231049146410820077252761310350663982581",
        ),
        (
            "merchant.1.settlement.USD",
            "2d0538fe-d501-5777-95ae-4775e34853b0",
            "59842377299426900605097765427869143984",
        ),
        (
            "merchant.2.settlement.USDT-TRC20",
            "6f517869-ef16-5d54-be6b-72fdc7d0a6a6",
            "147967325859770439587103464345746581158",
        ),
        (
            "user.1.RUB-CASH",
            "ac9b445a-cbd6-57bf-b2d7-52225142c1cc",
            "229433407685550684520485819629556646348",
        ),
        (
            "broker.1.position.USD",
            "bf6bd73a-36a7-5f3f-965a-e1440cb825e3",
            "254442488288994900157375886284639708643",
        ),
        (
            "broker.2.position.USDT-TRC20",
            "4c095af5-d3b3-52e6-95e9-aac636586a02",
            "101069903244662690716066890055975201282",
        ),
        (
            "system.suspense.THB",
            "2a7a0a21-6cd1-5718-8f73-7f5e53cc729c",
            "56461241512010572976015335104210301596",
        ),
    ];

    /// (uuid:index, id as a uuid, id in decimal), likewise.
    const TRANSFERS: [(&str, &str, &str); 5] = [
        (
            "00000000-0000-4000-8000-000000000001:0",
            "9d298733-aecf-5539-b1af-0c275613a080",
            "208904421729465543000649100910465884288",
        ),
        (
            "00000000-0000-4000-8000-000000000001:1",
            "2fac2922-4136-58ca-a163-941f5ba0599d",
            "63367625154292538520829753605455108509",
        ),
        (
            "00000000-0000-4000-8000-000000000001:2",
            "29127ab6-3f4f-52b2-a9cf-b9af47817419",
            "54594298063725852074573340335805658137",
        ),
        (
            "00000000-0000-4000-8000-000000000001:3",
            "d351b54a-e7d3-5e0c-a215-4d75e91445ce",
            "280891360206927421980681018936478942670",
        ),
        (
            "0193a5b0-7c3e-7abc-8def-0123456789ab:0",
            "7ab8bbdc-343d-52a8-a472-9e580413ca17",
            "163125008364689136109098364712323893783",
        ),
    ];

    /// These may never change: every id ever written is derived from them.
    #[test]
    fn namespaces_are_fixed_for_ever() {
        assert_eq!(TB_NS.to_string(), "3e7b4a1c-9f2d-5e8a-b6c3-4d1f07e2a9b5");
        assert_eq!(
            TRANSFER_NS.to_string(),
            "7a9f3c1e-5b2d-4e8a-9f6c-3d1e07a2b5c4"
        );
    }

    #[test]
    fn account_ids_follow_the_vectors() {
        for (text, uuid, id) in ACCOUNTS {
            let name: AccountName = text.parse().unwrap();
            assert_eq!(account_uuid(&name).to_string(), uuid, "{text}");
            assert_eq!(account_id(&name).to_string(), id, "{text}");
        }
    }

    #[test]
    fn transfer_ids_follow_the_vectors() {
        for (text, uuid, id) in TRANSFERS {
            let (operation, index) = text.split_once(':').unwrap();
            // An operation's uuid may come in upper case; the input to the id never does.
            for operation in [operation.to_owned(), operation.to_uppercase()] {
                let (operation, index) = (operation.parse().unwrap(), index.parse().unwrap());
                assert_eq!(transfer_uuid(operation, index).to_string(), uuid, "{text}");
                assert_eq!(transfer_id(operation, index).to_string(), id, "{text}");
            }
        }
    }

    #[test]
    fn zero_and_the_greatest_number_are_no_ids() {
        for number in [0, u128::MAX] {
            assert_eq!(LedgerAccountId::try_from(number), Err(IdError(number)));
            assert_eq!(TransferId::try_from(number), Err(IdError(number)));
        }
        assert_eq!(TransferId::try_from(1).map(TransferId::get), Ok(1));
    }

    #[test]
    fn nobody_has_no_name() {
        assert!("nobody".parse::<AccountName>().is_err());
        assert_eq!(nobody().get(), Uuid::new_v5(&TB_NS, b"nobody").as_u128());
    }

    #[test]
    fn codes_are_fixed_for_ever() {
        let numbers = TransferCode::ALL.map(TransferCode::number);
        assert_eq!(numbers, [1, 2, 3, 10, 11, 12, 13, 14, 20, 21, 22]);
        for code in TransferCode::ALL {
            assert_eq!(TransferCode::from_number(code.number()), Some(code));
        }
        assert_eq!(TransferCode::from_number(0), None);
    }

    #[test]
    fn a_position_is_credits_less_debits() {
        let balances = Balances {
            debits_pending: 1,
            debits_posted: 10_000,
            credits_pending: 5,
            credits_posted: 7_000,
        };
        assert_eq!((balances.posted(), balances.pending()), (-3_000, 4));
        let greatest = Balances {
            credits_posted: u128::MAX,
            debits_pending: u128::MAX,
            ..Balances::default()
        };
        assert_eq!(
            (greatest.posted(), greatest.pending()),
            (i128::MAX, i128::MIN)
        );
    }
}
