//! Members of the network: their plan, how they stand, and where their book is.

use chrono::{DateTime, Utc};

use super::ids::BrokerId;
use super::text;
use super::words::words;

/// The longest name, in characters.
pub const MAX_NAME: usize = 120;

words!(
    BrokerMode {
        /// The book is in a shared shard.
        Solo = "SOLO",
        /// The book is in a database of its own.
        Full = "FULL",
    }
);

words!(
    BrokerPlan {
        Starter = "starter",
        Growth = "growth",
        Pro = "pro",
    }
);

impl BrokerPlan {
    /// Where a broker of the plan belongs. Its book is there from the start where the broker is
    /// made with the plan; after a change of plan it gets there by a move, so that until then
    /// [`Broker::mode`] says another.
    #[must_use]
    pub const fn mode(self) -> BrokerMode {
        match self {
            Self::Starter | Self::Growth => BrokerMode::Solo,
            Self::Pro => BrokerMode::Full,
        }
    }
}

words!(
    BrokerState {
        /// Its book is being made.
        Provisioning = "provisioning",
        Active = "active",
        /// Paused: finishes what is in flight and starts nothing new.
        Suspended = "suspended",
        /// On its way out: finishes and settles what there is, and starts nothing new.
        Leaving = "leaving",
        /// Gone: its book is kept and only read, by the network's operator.
        Archived = "archived",
    }
);

/// Where a broker's book is, by the names of the registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    Shard(u32),
    Own { server: String, database: String },
}

/// A broker as the master holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broker {
    pub id: BrokerId,
    pub name: String,
    pub mode: BrokerMode,
    pub plan: BrokerPlan,
    /// While a change of plan is under way: the plan that it leads to.
    pub plan_wanted: Option<BrokerPlan>,
    /// Changes of plan until now: the number of the last.
    pub plan_number: u64,
    pub state: BrokerState,
    /// `None` until a place was found.
    pub placement: Option<Placement>,
    /// What the fence of the book must say.
    pub route_epoch: u64,
    pub referred_by: Option<BrokerId>,
    pub created_at: DateTime<Utc>,
}

impl Broker {
    /// The plan by which people and domains are counted: while a change is under way, the one that
    /// it leads to, so that nothing comes that would not fit it.
    #[must_use]
    pub fn plan_to_fit(&self) -> BrokerPlan {
        self.plan_wanted.unwrap_or(self.plan)
    }
}

/// A name as it is kept: trimmed, one line, at most [`MAX_NAME`] characters; `None` where that
/// leaves nothing or the text breaks it.
#[must_use]
pub fn name(given: &str) -> Option<&str> {
    let name = given.trim();
    text::line(name, MAX_NAME).is_ok().then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        assert_eq!(name("  Альфа Обмен "), Some("Альфа Обмен"));
        assert_eq!(name(&"я".repeat(MAX_NAME)), Some(&*"я".repeat(MAX_NAME)));
        for text in [
            "",
            "  ",
            "a\nb",
            "Al\u{200b}pha",
            "\u{202e}Alpha",
            &"я".repeat(MAX_NAME + 1),
        ] {
            assert_eq!(name(text), None, "{text:?}");
        }
    }
}
