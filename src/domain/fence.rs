//! The fence of a book in one database: whether the book may be written there, and how a move
//! turns it. Every write holds its row in share mode, every read sees it in its own snapshot.
//!
//! A move's try takes two epochs. Where the book had `epoch` before it:
//!
//! | | source | target |
//! |---|---|---|
//! | before | open, `epoch` | – |
//! | while it is copied | open, `epoch` | closed, the claim that may write the copy |
//! | while the tail is copied | closed, `epoch + 1` | closed, claim |
//! | moved | moved, `epoch + 2` | open, `epoch + 2` |
//! | rolled back | open, `epoch + 2` | closed, claim |
//!
//! So whoever comes late, with what he knew before, finds another epoch or another claim, and
//! turns nothing. A fence that is `moved` never opens again: its book's rows are deleted, with it.

use uuid::Uuid;

use super::words::words;

words!(
    /// Whether a book takes reads and writes here.
    Fence {
        Open = "open",
        /// It is being copied to here, or from here for the last time.
        Closed = "closed",
        /// It has gone; what is left here is kept for a while.
        Moved = "moved",
        /// Its broker has left: it is read and never written again.
        Frozen = "frozen",
    }
);

/// The fence of a book in a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FenceRow {
    pub state: Fence,
    /// While it is open, what the route must say; in a copy that is being made, the claim that
    /// may write it.
    pub epoch: u64,
    /// The move that turned it last.
    pub move_id: Option<Uuid>,
}

/// The fence is not as a move has left it: somebody else has gone on since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the fence is {found:?}, which this move can't have left")]
pub struct NotOurs {
    pub found: Option<FenceRow>,
}

impl NotOurs {
    /// Whether what was found is of that move all the same, in another state.
    #[must_use]
    pub fn is_of(self, move_id: Uuid) -> bool {
        self.found
            .is_some_and(|found| found.move_id == Some(move_id))
    }
}

/// What a fence is to become: `None` where it is so already.
pub type Turn = Result<Option<FenceRow>, NotOurs>;

/// A try of a move, as far as fences are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passage {
    pub move_id: Uuid,
    /// Of the book's route before it.
    pub epoch: u64,
}

impl Passage {
    /// Of the route, once the outcome is known, whatever it is.
    #[must_use]
    pub const fn epoch_after(self) -> u64 {
        self.epoch + 2
    }

    /// Stops the source's writers and readers.
    ///
    /// # Errors
    /// [`NotOurs`]: an outcome of this try is known already.
    pub fn close_source(self, found: Option<FenceRow>) -> Turn {
        let closed = self.closed();
        match found {
            Some(fence) if fence == closed => Ok(None),
            Some(fence) if fence.state == Fence::Open && fence.epoch == self.epoch => {
                Ok(Some(closed))
            }
            Some(_) | None => Err(NotOurs { found }),
        }
    }

    /// Lets the source's readers and writers go on, under a new epoch: a closing of this try that
    /// comes later finds it and does nothing.
    ///
    /// # Errors
    /// [`NotOurs`]
    pub fn reopen_source(self, found: Option<FenceRow>) -> Turn {
        let open = FenceRow {
            state: Fence::Open,
            epoch: self.epoch_after(),
            move_id: Some(self.move_id),
        };
        match found {
            Some(fence) if fence == open => Ok(None),
            Some(fence) if fence == self.closed() => Ok(Some(open)),
            Some(fence) if fence.state == Fence::Open && fence.epoch == self.epoch => {
                Ok(Some(open))
            }
            Some(_) | None => Err(NotOurs { found }),
        }
    }

    /// Says that the book has gone from here for good.
    ///
    /// # Errors
    /// [`NotOurs`]
    pub fn leave_source(self, found: Option<FenceRow>) -> Turn {
        let moved = FenceRow {
            state: Fence::Moved,
            epoch: self.epoch_after(),
            move_id: Some(self.move_id),
        };
        match found {
            Some(fence) if fence == moved => Ok(None),
            Some(fence) if fence == self.closed() => Ok(Some(moved)),
            Some(_) | None => Err(NotOurs { found }),
        }
    }

    /// Opens the book where it has come to.
    ///
    /// # Errors
    /// [`NotOurs`]
    pub fn open_target(self, found: Option<FenceRow>) -> Turn {
        let open = FenceRow {
            state: Fence::Open,
            epoch: self.epoch_after(),
            move_id: Some(self.move_id),
        };
        match found {
            Some(fence) if fence == open => Ok(None),
            Some(fence) if fence.state == Fence::Closed && fence.move_id == Some(self.move_id) => {
                Ok(Some(open))
            }
            Some(_) | None => Err(NotOurs { found }),
        }
    }

    const fn closed(self) -> FenceRow {
        FenceRow {
            state: Fence::Closed,
            epoch: self.epoch + 1,
            move_id: Some(self.move_id),
        }
    }
}

/// Takes a copy that is to be made, or goes on with one: from here on only this claim writes it.
/// `orphan` is a fence that a move which has ended has left closed: somebody who stood still while
/// it was given up has come late.
///
/// # Errors
/// [`NotOurs`] where a later claim has it, or it is a book.
pub fn take_copy(
    move_id: Uuid,
    claim: u64,
    orphan: Option<FenceRow>,
    found: Option<FenceRow>,
) -> Turn {
    let taken = FenceRow {
        state: Fence::Closed,
        epoch: claim,
        move_id: Some(move_id),
    };
    match found {
        None => Ok(Some(taken)),
        Some(fence) if fence == taken => Ok(None),
        Some(fence) if fence.state == Fence::Closed && Some(fence) == orphan => Ok(Some(taken)),
        Some(fence)
            if fence.state == Fence::Closed
                && fence.move_id == Some(move_id)
                && fence.epoch < claim =>
        {
            Ok(Some(taken))
        }
        Some(_) => Err(NotOurs { found }),
    }
}

/// Whether a claim may still write its copy.
#[must_use]
pub fn may_copy(move_id: Uuid, claim: u64, found: &FenceRow) -> bool {
    found.state == Fence::Closed && found.move_id == Some(move_id) && found.epoch == claim
}

/// Whether what is here is only what a move has left: its copy, or the book that has gone. To ask
/// once it is decided that the book is elsewhere.
#[must_use]
pub fn is_leavings(move_id: Uuid, found: &FenceRow) -> bool {
    found.move_id == Some(move_id) && matches!(found.state, Fence::Closed | Fence::Moved)
}

/// The fence of a book that an import takes in: nobody reads or writes it but the import, whose
/// name is the file's.
#[must_use]
pub const fn closed_for_import(import: Uuid, epoch: u64) -> FenceRow {
    FenceRow {
        state: Fence::Closed,
        epoch,
        move_id: Some(import),
    }
}

/// Closes a book, or the place where there is none, for an import; one that it has begun stays.
///
/// # Errors
/// [`NotOurs`] for a book that is moving, has moved, is frozen, or is another import's.
pub fn close_for_import(closed: FenceRow, found: Option<FenceRow>) -> Turn {
    match found {
        None => Ok(Some(closed)),
        Some(fence) if fence == closed => Ok(None),
        Some(fence) if fence.state == Fence::Open && fence.epoch == closed.epoch => {
            Ok(Some(closed))
        }
        Some(_) => Err(NotOurs { found }),
    }
}

/// Opens the book that an import has closed.
///
/// # Errors
/// [`NotOurs`] where it is not closed by this import.
pub fn open_after_import(closed: FenceRow, found: Option<FenceRow>) -> Turn {
    let open = FenceRow {
        state: Fence::Open,
        ..closed
    };
    match found {
        Some(fence) if fence == open => Ok(None),
        Some(fence) if fence == closed => Ok(Some(open)),
        Some(_) | None => Err(NotOurs { found }),
    }
}

/// Freezes the book of a broker that leaves.
///
/// # Errors
/// [`NotOurs`] for one that is not open here, of this epoch.
pub fn freeze(epoch: u64, found: Option<FenceRow>) -> Turn {
    turn_open(epoch, [Fence::Open, Fence::Frozen], found)
}

/// Opens a frozen book again, for a broker that stays after all.
///
/// # Errors
/// [`NotOurs`] for one that is neither frozen nor open here, of this epoch.
pub fn thaw(epoch: u64, found: Option<FenceRow>) -> Turn {
    turn_open(epoch, [Fence::Frozen, Fence::Open], found)
}

fn turn_open(epoch: u64, [from, to]: [Fence; 2], found: Option<FenceRow>) -> Turn {
    match found {
        Some(fence) if fence.epoch == epoch && fence.state == to => Ok(None),
        Some(fence) if fence.epoch == epoch && fence.state == from => {
            Ok(Some(FenceRow { state: to, ..fence }))
        }
        Some(_) | None => Err(NotOurs { found }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THIS: Passage = Passage {
        move_id: Uuid::from_u128(1),
        epoch: 7,
    };

    fn fence(state: Fence, epoch: u64, move_id: u128) -> FenceRow {
        FenceRow {
            state,
            epoch,
            move_id: Some(Uuid::from_u128(move_id)),
        }
    }

    /// Turns it, and once more; gives what it is then.
    fn turned(turn: impl Fn(Option<FenceRow>) -> Turn, was: Option<FenceRow>) -> FenceRow {
        let now = turn(was).unwrap().unwrap();
        assert_eq!(turn(Some(now)), Ok(None), "a repeat changes nothing");
        now
    }

    #[test]
    fn there() {
        let open = FenceRow {
            state: Fence::Open,
            epoch: 7,
            move_id: None,
        };
        let copy = turned(|was| take_copy(THIS.move_id, 3, None, was), None);
        assert!(may_copy(THIS.move_id, 3, &copy));
        let closed = turned(|was| THIS.close_source(was), Some(open));
        assert_eq!(closed, fence(Fence::Closed, 8, 1));
        let moved = turned(|was| THIS.leave_source(was), Some(closed));
        assert_eq!(moved, fence(Fence::Moved, 9, 1));
        let opened = turned(|was| THIS.open_target(was), Some(copy));
        assert_eq!(opened, fence(Fence::Open, 9, 1));
    }

    #[test]
    fn and_back() {
        for was in [fence(Fence::Open, 7, 9), fence(Fence::Closed, 8, 1)] {
            let open = turned(|was| THIS.reopen_source(was), Some(was));
            assert_eq!(open, fence(Fence::Open, 9, 1));
            // The closing that was on its way comes too late.
            assert!(THIS.close_source(Some(open)).is_err());
            assert!(THIS.leave_source(Some(open)).is_err());
        }
    }

    #[test]
    fn what_has_moved_never_opens() {
        for epoch in 0..12 {
            let moved = Some(fence(Fence::Moved, epoch, 1));
            assert!(THIS.reopen_source(moved).is_err());
            assert!(THIS.open_target(moved).is_err());
            assert!(THIS.close_source(moved).is_err());
            assert!(take_copy(THIS.move_id, 99, moved, moved).is_err());
        }
    }

    #[test]
    fn only_for_this_move_and_epoch() {
        for other in [
            None,
            Some(fence(Fence::Closed, 8, 2)),
            Some(fence(Fence::Closed, 9, 1)),
            Some(fence(Fence::Open, 8, 1)),
        ] {
            assert!(THIS.close_source(other).is_err(), "{other:?}");
            assert!(THIS.leave_source(other).is_err(), "{other:?}");
            assert!(THIS.reopen_source(other).is_err(), "{other:?}");
        }
        assert!(THIS.open_target(Some(fence(Fence::Closed, 3, 2))).is_err());
        assert!(THIS.open_target(Some(fence(Fence::Open, 7, 1))).is_err());
    }

    #[test]
    fn an_import_closes_and_opens_what_is_open_or_not_there() {
        let closed = closed_for_import(THIS.move_id, 7);
        let book = Some(fence(Fence::Open, 7, 9));
        for was in [None, book] {
            let now = turned(|was| close_for_import(closed, was), was);
            assert!(may_copy(THIS.move_id, 7, &now));
            let open = turned(|was| open_after_import(closed, was), Some(now));
            assert_eq!(open, fence(Fence::Open, 7, 1));
        }
        for other in [
            fence(Fence::Open, 8, 9),
            fence(Fence::Closed, 7, 2),
            fence(Fence::Moved, 7, 1),
            fence(Fence::Frozen, 7, 1),
        ] {
            assert!(close_for_import(closed, Some(other)).is_err(), "{other:?}");
            assert!(open_after_import(closed, book).is_err());
        }
    }

    #[test]
    fn what_a_move_leaves_is_neither_a_book_nor_anothers() {
        for state in Fence::ALL {
            let closed = matches!(state, Fence::Closed | Fence::Moved);
            assert_eq!(is_leavings(THIS.move_id, &fence(*state, 8, 1)), closed);
            assert!(!is_leavings(THIS.move_id, &fence(*state, 8, 2)));
        }
    }

    #[test]
    fn what_is_frozen_is_thawed_and_never_moves() {
        let open = fence(Fence::Open, 7, 9);
        let book = Some(open);
        let frozen = turned(|was| freeze(7, was), book);
        assert_eq!(frozen, fence(Fence::Frozen, 7, 9));
        assert!(THIS.close_source(Some(frozen)).is_err());
        assert_eq!(turned(|was| thaw(7, was), Some(frozen)), open);
        assert!(freeze(8, book).is_err() && thaw(8, Some(frozen)).is_err());
        assert!(freeze(7, Some(fence(Fence::Closed, 7, 1))).is_err());
    }

    #[test]
    fn what_a_late_one_has_closed_is_taken_over() {
        let late = fence(Fence::Closed, 9, 2);
        let taken = turned(
            |was| take_copy(THIS.move_id, 1, Some(late), was),
            Some(late),
        );
        assert_eq!(taken, fence(Fence::Closed, 1, 1));
        for other in [fence(Fence::Closed, 10, 2), fence(Fence::Closed, 9, 3)] {
            assert!(take_copy(THIS.move_id, 1, Some(late), Some(other)).is_err());
        }
    }

    #[test]
    fn the_last_claim_writes_the_copy() {
        let first = take_copy(THIS.move_id, 1, None, None).unwrap().unwrap();
        let second = take_copy(THIS.move_id, 2, None, Some(first))
            .unwrap()
            .unwrap();
        assert!(!may_copy(THIS.move_id, 1, &second));
        assert!(may_copy(THIS.move_id, 2, &second));
        assert!(take_copy(THIS.move_id, 1, None, Some(second)).is_err());
        let open = THIS.open_target(Some(second)).unwrap().unwrap();
        assert!(!may_copy(THIS.move_id, open.epoch, &open));
        assert!(take_copy(THIS.move_id, 99, Some(open), Some(open)).is_err());
    }
}
