//! Partners: a broker's clients and counterparts, in its book.
//!
//! An *online* partner has an account of the platform: it is another broker of the network, known
//! by its number. An *offline* one is known to its broker alone. What tells who somebody is (name,
//! phone, contacts, note) stands in the partner's row only, so that it can be erased; events and
//! the chain have the uid.

use chrono::{DateTime, Utc};

use super::ids::{BrokerId, PartnerId};
use super::text;
use super::words::words;

/// The longest name, in characters.
pub const MAX_NAME: usize = 120;
/// The longest phone number, in characters.
pub const MAX_PHONE: usize = 32;
/// The longest contacts and the longest note, in characters each.
pub const MAX_PROSE: usize = 1_000;
/// As much of a name as is searched, in characters: lower case may be longer than what it is of.
const MAX_SEARCHED: usize = 240;

words!(
    PartnerKind {
        /// Another broker of the network.
        Online = "online",
        /// Known to its broker alone; plans bound how many are active.
        Offline = "offline",
    }
);

words!(
    PartnerState {
        Active = "active",
        /// Out of the daily work, without open accounts; takes no place of the plan.
        Archived = "archived",
    }
);

/// A partner as its book has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partner {
    pub id: PartnerId,
    pub kind: PartnerKind,
    pub facts: Facts,
    /// Of an online one: the broker that it is.
    pub platform_broker_id: Option<BrokerId>,
    pub state: PartnerState,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

/// What tells who a partner is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    pub display_name: String,
    pub phone: Option<String>,
    pub contacts: Option<String>,
    pub note: Option<String>,
}

/// What is wrong with a partner's facts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} {rule}")]
pub struct FactsError {
    pub field: &'static str,
    pub rule: text::TextError,
}

impl Facts {
    /// The facts as they are kept: trimmed, and nothing where nothing is left.
    ///
    /// # Errors
    /// [`FactsError`], with the field.
    pub fn checked(self) -> Result<Self, FactsError> {
        Ok(Self {
            display_name: name(&self.display_name)?,
            phone: phone(self.phone)?,
            contacts: prose("contacts", self.contacts)?,
            note: prose("note", self.note)?,
        })
    }
}

fn name(text: &str) -> Result<String, FactsError> {
    let name = text.trim();
    let field = "display_name";
    text::line(name, MAX_NAME).map_err(|rule| FactsError { field, rule })?;
    Ok(name.to_owned())
}

fn phone(text: Option<String>) -> Result<Option<String>, FactsError> {
    let phone = trimmed(text);
    let field = "phone";
    if let Some(phone) = &phone {
        text::line(phone, MAX_PHONE).map_err(|rule| FactsError { field, rule })?;
    }
    Ok(phone)
}

fn prose(field: &'static str, text: Option<String>) -> Result<Option<String>, FactsError> {
    let prose = trimmed(text);
    if let Some(prose) = &prose {
        text::prose(prose, MAX_PROSE).map_err(|rule| FactsError { field, rule })?;
    }
    Ok(prose)
}

fn trimmed(text: Option<String>) -> Option<String> {
    let text = text?.trim().to_owned();
    (!text.is_empty()).then_some(text)
}

/// What may be done to a partner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    Edit(Edit),
    Archive,
    Restore,
}

/// What becomes of a fact that need not be there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Fact {
    #[default]
    Kept,
    Erased,
    Is(String),
}

impl Fact {
    /// As it is kept, by the rule for such a fact.
    fn checked(
        self,
        rule: impl FnOnce(Option<String>) -> Result<Option<String>, FactsError>,
    ) -> Result<Self, FactsError> {
        match self {
            Self::Kept => Ok(Self::Kept),
            Self::Erased => Ok(Self::Erased),
            Self::Is(text) => Ok(rule(Some(text))?.map_or(Self::Erased, Self::Is)),
        }
    }

    fn apply(&self, fact: &mut Option<String>) {
        match self {
            Self::Kept => {}
            Self::Erased => *fact = None,
            Self::Is(text) => *fact = Some(text.clone()),
        }
    }
}

/// Other facts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edit {
    /// `None` keeps it.
    pub display_name: Option<String>,
    pub phone: Fact,
    pub contacts: Fact,
    pub note: Fact,
    /// The broker of the network that the partner has turned out to be, or has become: it is online
    /// from now on, and stays so.
    pub platform_broker_id: Option<BrokerId>,
}

impl Edit {
    /// As [`Facts::checked`].
    ///
    /// # Errors
    /// [`FactsError`], with the field.
    pub fn checked(self) -> Result<Self, FactsError> {
        Ok(Self {
            display_name: self.display_name.as_deref().map(name).transpose()?,
            phone: self.phone.checked(phone)?,
            contacts: self.contacts.checked(|text| prose("contacts", text))?,
            note: self.note.checked(|text| prose("note", text))?,
            platform_broker_id: self.platform_broker_id,
        })
    }
}

impl Change {
    /// What the feed calls it.
    #[must_use]
    pub const fn event(&self) -> &'static str {
        match self {
            Self::Edit(_) => "partner.changed",
            Self::Archive => "partner.archived",
            Self::Restore => "partner.restored",
        }
    }
}

impl Partner {
    /// Whether it takes one of the places that plans bound.
    #[must_use]
    pub const fn takes_place(&self) -> bool {
        matches!(
            (self.kind, self.state),
            (PartnerKind::Offline, PartnerState::Active)
        )
    }

    /// The partner after a change that was checked; `None` where it changes nothing.
    #[must_use]
    pub fn after(&self, change: &Change, now: DateTime<Utc>) -> Option<Self> {
        let mut new = self.clone();
        match change {
            Change::Archive => new.state = PartnerState::Archived,
            Change::Restore => new.state = PartnerState::Active,
            Change::Edit(edit) => {
                let facts = &mut new.facts;
                if let Some(name) = &edit.display_name {
                    facts.display_name.clone_from(name);
                }
                edit.phone.apply(&mut facts.phone);
                edit.contacts.apply(&mut facts.contacts);
                edit.note.apply(&mut facts.note);
                if let Some(broker) = edit.platform_broker_id {
                    new.platform_broker_id = Some(broker);
                    new.kind = PartnerKind::Online;
                }
            }
        }
        (new != *self).then(|| {
            new.updated_at = now;
            new
        })
    }
}

/// A name, or its beginning, as it is searched for.
#[must_use]
pub fn searched(name: &str) -> String {
    name.trim()
        .to_lowercase()
        .chars()
        .take(MAX_SEARCHED)
        .collect()
}

/// What is looked for in a book's partners.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Search {
    /// Uids from the first to the last.
    Uids(PartnerId, PartnerId),
    /// Names that begin so, in lower case.
    Name(String),
}

impl Search {
    /// Reads what somebody has typed: `FO-` and up to 12 hex digits is the beginning of a uid, all
    /// else of a name. `None` for what is nothing.
    #[must_use]
    pub fn parse(typed: &str) -> Option<Self> {
        let typed = typed.trim();
        if typed.is_empty() {
            return None;
        }
        let digits = typed
            .get(..3)
            .filter(|start| start.eq_ignore_ascii_case("FO-"));
        let digits = digits.map(|_| &typed[3..]).filter(|digits| {
            (1..=12).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_hexdigit())
        });
        let bits = digits.and_then(|digits| {
            let rest = 4 * (12 - digits.len());
            let bits = u64::from_str_radix(digits, 16).ok()? << rest;
            Some((bits, bits | ((1 << rest) - 1)))
        });
        Some(match bits {
            Some((first, last)) => {
                Self::Uids(PartnerId::from_bits(first), PartnerId::from_bits(last))
            }
            None => Self::Name(searched(typed)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(name: &str) -> Facts {
        Facts {
            display_name: name.to_owned(),
            phone: Some(" +971 50 000 ".to_owned()),
            contacts: Some("  ".to_owned()),
            note: Some("one\ntwo".to_owned()),
        }
    }

    #[test]
    fn facts_are_kept_trimmed() {
        let kept = facts(" Анна Иванова ").checked().unwrap();
        assert_eq!(kept.display_name, "Анна Иванова");
        assert_eq!(kept.phone.as_deref(), Some("+971 50 000"));
        assert_eq!(kept.contacts, None, "nothing but blanks is nothing");
        for (field, change) in [
            (
                "display_name",
                Facts {
                    display_name: " ".into(),
                    ..facts("a")
                },
            ),
            (
                "display_name",
                Facts {
                    display_name: "a\nb".into(),
                    ..facts("a")
                },
            ),
            (
                "phone",
                Facts {
                    phone: Some("1".repeat(33)),
                    ..facts("a")
                },
            ),
            (
                "contacts",
                Facts {
                    contacts: Some("\0".into()),
                    ..facts("a")
                },
            ),
            (
                "note",
                Facts {
                    note: Some("x".repeat(1_001)),
                    ..facts("a")
                },
            ),
        ] {
            assert_eq!(change.checked().unwrap_err().field, field);
        }
    }

    #[test]
    fn a_change_says_what_it_does_and_nothing_else() {
        let made = DateTime::from_timestamp(1_800_000_000, 0).unwrap();
        let now = made + chrono::Duration::seconds(1);
        let partner = Partner {
            id: PartnerId::from_bits(7),
            kind: PartnerKind::Offline,
            facts: facts("Anna").checked().unwrap(),
            platform_broker_id: None,
            state: PartnerState::Active,
            created_at: made,
            updated_at: made,
        };
        assert!(partner.takes_place());
        assert_eq!(partner.after(&Change::Restore, now), None);
        assert_eq!(partner.after(&Change::Edit(Edit::default()), now), None);
        let archived = partner.after(&Change::Archive, now).unwrap();
        assert!(!archived.takes_place());
        assert_eq!((archived.updated_at, archived.created_at), (now, made));
        let edit = Edit {
            phone: Fact::Is(" ".to_owned()),
            ..Edit::default()
        };
        let erased = partner
            .after(&Change::Edit(edit.checked().unwrap()), now)
            .unwrap();
        assert_eq!(erased.facts.phone, None);
        assert_eq!(erased.facts.note, partner.facts.note);
        let joined = Edit {
            platform_broker_id: Some(9),
            ..Edit::default()
        };
        let online = partner.after(&Change::Edit(joined), now).unwrap();
        assert_eq!(online.kind, PartnerKind::Online);
        assert!(!online.takes_place());
    }

    #[test]
    fn a_search_is_the_beginning_of_a_uid_or_of_a_name() {
        let uids = |first: u64, last: u64| {
            Some(Search::Uids(
                PartnerId::from_bits(first),
                PartnerId::from_bits(last),
            ))
        };
        assert_eq!(
            Search::parse("FO-0a5bb4c3d2e1"),
            uids(0x0a5b_b4c3_d2e1, 0x0a5b_b4c3_d2e1)
        );
        assert_eq!(
            Search::parse(" fo-0A "),
            uids(0x0a00_0000_0000, 0x0aff_ffff_ffff)
        );
        for (typed, name) in [
            ("  АННА ", "анна"),
            ("FO-", "fo-"),
            ("FO-xyz", "fo-xyz"),
            ("FO-0a5bb4c3d2e12", "fo-0a5bb4c3d2e12"),
            ("ы", "ы"),
        ] {
            assert_eq!(
                Search::parse(typed),
                Some(Search::Name(name.to_owned())),
                "{typed}"
            );
        }
        assert_eq!(Search::parse("  "), None);
        assert_eq!(
            searched(&"İ".repeat(MAX_NAME)).chars().count(),
            MAX_SEARCHED
        );
    }
}
