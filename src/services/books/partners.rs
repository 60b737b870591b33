//! A book's partners, as its database has them; the rules are [`crate::services::partners`]'s.

use chrono::{DateTime, Utc};
use futures::FutureExt;

use super::{BooksError, BooksService};
use crate::domain::ids::{BrokerId, PartnerId};
use crate::domain::partner::{Change, Partner};
use crate::stores::book::partners::{self, PartnerFilter, Written};
use crate::stores::book::{self, AccountRow, Bound, BoundSet};
use crate::stores::master::idempotency::Intention;

impl BooksService {
    /// Records a partner, where the book has room for it.
    pub(in crate::services) async fn create_partner(
        &self,
        broker: BrokerId,
        intention: &Intention,
        partner: &Partner,
        bound: Bound,
        now: DateTime<Utc>,
    ) -> Result<Written, BooksError> {
        let (intention, partner) = (intention.clone(), partner.clone());
        self.write(broker, move |scope| {
            let (intention, partner) = (intention.clone(), partner.clone());
            async move { partners::create(&scope, &intention, &partner, bound, now).await }
        })
        .await
    }

    /// Changes a partner, where nothing is in the way.
    pub(in crate::services) async fn change_partner(
        &self,
        broker: BrokerId,
        id: PartnerId,
        change: &Change,
        bound: Bound,
        now: DateTime<Utc>,
    ) -> Result<Written, BooksError> {
        let change = change.clone();
        self.write(broker, move |scope| {
            let change = change.clone();
            async move { partners::change(&scope, id, &change, bound, now).await }
        })
        .await
    }

    /// Partners, newest first.
    pub(in crate::services) async fn partners(
        &self,
        broker: BrokerId,
        filter: PartnerFilter,
        after: Option<(DateTime<Utc>, PartnerId)>,
        limit: u32,
    ) -> Result<Vec<Partner>, BooksError> {
        self.read(broker, move |read| {
            let filter = filter.clone();
            async move { partners::partners(read, &filter, after, limit).await }.boxed()
        })
        .await
    }

    /// A partner with its accounts, as of one moment.
    pub(in crate::services) async fn partner(
        &self,
        broker: BrokerId,
        id: PartnerId,
    ) -> Result<Option<(Partner, Vec<AccountRow>)>, BooksError> {
        self.read(broker, move |read| {
            async move {
                let Some(partner) = partners::partner(read, id).await? else {
                    return Ok(None);
                };
                let accounts = partners::accounts_of_partner(read, id).await?;
                Ok(Some((partner, accounts)))
            }
            .boxed()
        })
        .await
    }

    /// Active offline partners of a book.
    pub(in crate::services) async fn offline_partners(
        &self,
        broker: BrokerId,
    ) -> Result<u64, BooksError> {
        self.read(broker, |read| book::offline_partners(read).boxed())
            .await
    }

    /// Holds a book to a bound of its partners: see [`book::bound_partners`].
    pub(in crate::services) async fn bound_partners(
        &self,
        broker: BrokerId,
        bound: Bound,
        before: Option<u32>,
        to_less: bool,
        now: DateTime<Utc>,
    ) -> Result<BoundSet, BooksError> {
        self.write(broker, move |scope| async move {
            book::bound_partners(&scope, bound, before, to_less, now).await
        })
        .await
    }
}
