//! What the plans of a broker cost and allow: the one place that says so.
//!
//! | plan | a month | offline partners | people | custom domain |
//! |---|---|---|---|---|
//! | starter | $0 | 3 | 1 | no |
//! | growth | $29 | 50 | 1 | no |
//! | pro | $99 | any number | any number | yes |
//!
//! Online partners are counted on no plan. Who is disabled and what is archived take no place.

use super::broker::BrokerPlan;
use super::words::words;

words!(
    /// What a plan may bound.
    PlanLimit {
        /// Active partners without an account of the platform.
        OfflinePartners = "offline_partners",
        /// Active people of the broker's team, the first one counted in.
        TeamMembers = "team_members",
        /// Names under which the dashboard is the broker's own.
        CustomDomains = "custom_domains",
    }
);

impl PlanLimit {
    /// One of what is counted, in words.
    const fn thing(self) -> &'static str {
        match self {
            Self::OfflinePartners => "offline partner",
            Self::TeamMembers => "team member",
            Self::CustomDomains => "custom domain",
        }
    }
}

impl BrokerPlan {
    /// In whole US dollars a month.
    #[must_use]
    pub const fn price_usd(self) -> u32 {
        match self {
            Self::Starter => 0,
            Self::Growth => 29,
            Self::Pro => 99,
        }
    }

    /// How many there may be; `None`: any number.
    #[must_use]
    pub const fn most(self, limit: PlanLimit) -> Option<u32> {
        match (self, limit) {
            (Self::Starter, PlanLimit::OfflinePartners) => Some(3),
            (Self::Growth, PlanLimit::OfflinePartners) => Some(50),
            (Self::Starter | Self::Growth, PlanLimit::TeamMembers)
            | (Self::Pro, PlanLimit::CustomDomains) => Some(1),
            (Self::Starter | Self::Growth, PlanLimit::CustomDomains) => Some(0),
            (Self::Pro, PlanLimit::OfflinePartners | PlanLimit::TeamMembers) => None,
        }
    }

    /// Whether so many are within the plan.
    #[must_use]
    pub fn holds(self, limit: PlanLimit, count: u64) -> bool {
        self.most(limit).is_none_or(|most| count <= u64::from(most))
    }

    /// Whether one more may come to `there`.
    ///
    /// # Errors
    /// [`LimitReached`].
    pub fn room_for_one(self, limit: PlanLimit, there: u64) -> Result<(), LimitReached> {
        match self.most(limit) {
            Some(most) if there >= u64::from(most) => Err(LimitReached {
                plan: self,
                limit,
                most,
                there,
            }),
            Some(_) | None => Ok(()),
        }
    }
}

/// A plan has no room for one more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the plan {plan} allows {}, and there {} {there}{}", self.room(), self.verb(), self.way_out())]
pub struct LimitReached {
    pub plan: BrokerPlan,
    pub limit: PlanLimit,
    pub most: u32,
    pub there: u64,
}

impl LimitReached {
    /// The cheapest plan with room for one more than there are; none where no plan has.
    #[must_use]
    pub fn lifted_by(&self) -> Option<BrokerPlan> {
        let plans = BrokerPlan::ALL.iter().copied();
        plans
            .filter(|plan| plan.room_for_one(self.limit, self.there).is_ok())
            .min_by_key(|plan| plan.price_usd())
    }

    fn room(&self) -> String {
        match self.most {
            0 => format!("no {}", self.limit.thing()),
            most => count(u64::from(most), self.limit.thing()),
        }
    }

    const fn verb(&self) -> &'static str {
        if self.there == 1 { "is" } else { "are" }
    }

    fn way_out(&self) -> String {
        self.lifted_by().map_or_else(String::new, |plan| {
            format!("; the plan {plan} (${} a month) lifts it", plan.price_usd())
        })
    }
}

/// What a broker has of what plans bound.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub offline_partners: u64,
    pub team_members: u64,
    /// The custom domain that it has claimed, proven or not.
    pub domain: Option<String>,
}

/// What must go before a broker fits a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excess {
    pub limit: PlanLimit,
    pub there: u64,
    pub most: u32,
    /// How to get rid of it, in words.
    pub remove: String,
}

/// What a broker with `usage` has too much of for `plan`, in the order of [`PlanLimit`].
#[must_use]
pub fn excess(plan: BrokerPlan, usage: &Usage) -> Vec<Excess> {
    let beyond = |limit: PlanLimit, there: u64| {
        let most = plan.most(limit)?;
        let over = there
            .checked_sub(u64::from(most))
            .filter(|over| *over > 0)?;
        let remove = match limit {
            PlanLimit::OfflinePartners => {
                format!("archive {} ({there} of {most})", count(over, limit.thing()))
            }
            PlanLimit::TeamMembers => {
                format!("disable {} ({there} of {most})", count(over, limit.thing()))
            }
            PlanLimit::CustomDomains => {
                format!("release the domain {}", usage.domain.as_deref()?)
            }
        };
        Some(Excess {
            limit,
            there,
            most,
            remove,
        })
    };
    PlanLimit::ALL
        .iter()
        .filter_map(|limit| {
            let there = match limit {
                PlanLimit::OfflinePartners => usage.offline_partners,
                PlanLimit::TeamMembers => usage.team_members,
                PlanLimit::CustomDomains => u64::from(usage.domain.is_some()),
            };
            beyond(*limit, there)
        })
        .collect()
}

fn count(number: u64, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {what}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use BrokerPlan::{Growth, Pro, Starter};

    #[test]
    fn a_dearer_plan_never_allows_less() {
        let mut plans = BrokerPlan::ALL.to_vec();
        plans.sort_by_key(|plan| plan.price_usd());
        assert_eq!(plans, [Starter, Growth, Pro]);
        for pair in plans.windows(2) {
            for limit in PlanLimit::ALL {
                let most = |plan: BrokerPlan| plan.most(*limit).unwrap_or(u32::MAX);
                assert!(most(pair[0]) <= most(pair[1]), "{limit} of {}", pair[1]);
            }
        }
    }

    #[test]
    fn a_limit_names_itself_and_the_cheapest_way_out() {
        let reached = |plan: BrokerPlan, limit, there| plan.room_for_one(limit, there).unwrap_err();
        let starter = reached(Starter, PlanLimit::OfflinePartners, 3);
        assert_eq!(starter.lifted_by(), Some(Growth));
        assert_eq!(
            starter.to_string(),
            "the plan starter allows 3 offline partners, and there are 3; the plan growth ($29 a \
             month) lifts it"
        );
        assert!(Starter.room_for_one(PlanLimit::OfflinePartners, 2).is_ok());
        let growth = reached(Growth, PlanLimit::OfflinePartners, 50);
        assert_eq!(growth.lifted_by(), Some(Pro));
        // More than the next plan has room for, as after a change of what plans allow.
        let many = reached(Starter, PlanLimit::OfflinePartners, 50);
        assert_eq!(many.lifted_by(), Some(Pro));
        let alone = reached(Starter, PlanLimit::TeamMembers, 1);
        assert_eq!(alone.lifted_by(), Some(Pro));
        assert_eq!(
            alone.to_string(),
            "the plan starter allows 1 team member, and there is 1; the plan pro ($99 a month) \
             lifts it"
        );
        assert_eq!(
            reached(Growth, PlanLimit::CustomDomains, 0).lifted_by(),
            Some(Pro)
        );
        let domains = reached(Pro, PlanLimit::CustomDomains, 1);
        assert_eq!(domains.lifted_by(), None);
        assert!(
            Pro.room_for_one(PlanLimit::OfflinePartners, u64::MAX)
                .is_ok()
        );
    }

    #[test]
    fn what_does_not_fit_says_what_to_remove() {
        let usage = Usage {
            offline_partners: 62,
            team_members: 4,
            domain: Some("x.example".to_owned()),
        };
        let said = |plan| -> Vec<String> {
            excess(plan, &usage)
                .into_iter()
                .map(|excess| excess.remove)
                .collect()
        };
        assert_eq!(
            said(Growth),
            [
                "archive 12 offline partners (62 of 50)",
                "disable 3 team members (4 of 1)",
                "release the domain x.example"
            ]
        );
        assert_eq!(said(Pro), Vec::<String>::new());
        let usage = Usage {
            offline_partners: 4,
            team_members: 1,
            domain: None,
        };
        let one = excess(Starter, &usage);
        assert_eq!(one.len(), 1);
        assert_eq!(one[0].remove, "archive 1 offline partner (4 of 3)");
        assert_eq!(excess(Growth, &usage), []);
    }
}
