//! What goes into a netting round, as the Merkle root over it (RFC 6962) has it: of each obligation
//! all but its reduction, so that parties know before anything is solved what is to be cleared.

use std::num::NonZero;
use std::thread;

use super::certificate::Line;
use super::text;
use crate::domain::canonical::Hash;
use crate::domain::merkle;
use crate::domain::words::words;

words! {
    /// What a round was proposed in stays its format: its root is part of what was approved.
    Format {
        /// A leaf of the root is the canonical JSON of one obligation's line without its
        /// `reduction`, and `sha256` is the digest of all bytes before its line.
        V1 = "settlenet-netting-v1",
        V2 = "settlenet-netting-v2",
    }
}

impl Format {
    /// Of new rounds.
    pub const NEW: Self = Self::V2;

    /// The format in which some lines have a root, if any has it.
    #[must_use]
    pub fn of(lines: &[Line], of_lines: Hash) -> Option<Self> {
        let has = |format: &Self| root(*format, lines) == of_lines;
        [Self::V2, Self::V1].into_iter().find(has)
    }
}

/// The root in the making, one line after the other.
pub struct Input {
    format: Format,
    /// The leaf that is not whole yet.
    leaf: Vec<u8>,
    tree: merkle::Growing,
}

impl Input {
    #[must_use]
    pub fn new(format: Format) -> Self {
        Self {
            format,
            leaf: Vec::with_capacity(LEAF),
            tree: merkle::Growing::default(),
        }
    }

    /// Appends an obligation. They are by id, rising.
    pub fn push(&mut self, line: &Line) {
        match self.format {
            Format::V1 => text::leaf(&mut self.leaf, line),
            Format::V2 => {
                let numbers = [line.id.bits(), line.debtor, line.creditor, line.amount];
                for number in numbers {
                    self.leaf.extend_from_slice(&number.to_be_bytes());
                }
                if self.leaf.len() < LEAF {
                    return;
                }
            }
        }
        self.end_leaf();
    }

    fn end_leaf(&mut self) {
        self.tree.push(merkle::leaf(&self.leaf));
        self.leaf.clear();
    }

    /// The root over all that was appended.
    #[must_use]
    pub fn root(mut self) -> Hash {
        if !self.leaf.is_empty() {
            self.end_leaf();
        }
        self.tree.root()
    }
}

/// Bytes of a leaf: 32 obligations of 32 bytes each.
const LEAF: usize = 32 * 32;

/// Obligations of a part of the tree that is made by itself. As many leaves as a power of two in
/// each format, so that the parts' roots are leaves of the rest of the tree.
const PART: usize = 256;

/// Obligations below which another processor would cost more than it saves.
const FEW: usize = 4_096;

/// The root over a round's input, by id. Made on all processors, where there is enough of it.
#[must_use]
pub fn root(format: Format, lines: &[Line]) -> Hash {
    let roots = on_all_processors(lines, |lines| roots(format, lines));
    let roots = roots.into_iter().flatten();
    roots.collect::<merkle::Growing>().root()
}

/// The roots of the parts of some lines, which begin a part.
pub(super) fn roots(format: Format, lines: &[Line]) -> Vec<Hash> {
    let of_part = |lines: &[Line]| {
        let mut input = Input::new(format);
        for line in lines {
            input.push(line);
        }
        input.root()
    };
    lines.chunks(PART).map(of_part).collect()
}

/// Does a piece of work on all lines, a share of them on each processor; in their order.
pub(super) fn on_all_processors<T: Send>(
    lines: &[Line],
    work: impl Fn(&[Line]) -> T + Sync,
) -> Vec<T> {
    let processors = match lines.len() {
        0..FEW => 1,
        FEW.. => thread::available_parallelism().map_or(1, NonZero::get),
    };
    let share = lines.len().div_ceil(PART).div_ceil(processors).max(1) * PART;
    let mut shares = lines.chunks(share);
    let Some(first) = shares.next() else {
        return Vec::new();
    };
    thread::scope(|scope| {
        let work = &work;
        let workers: Vec<_> = shares
            .map(|lines| scope.spawn(move || work(lines)))
            .collect();
        let mut done = vec![work(first)];
        done.extend(workers.into_iter().map(|worker| {
            let given = worker.join();
            given.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        }));
        done
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::ObligationId;

    fn lines(count: u64) -> Vec<Line> {
        let line = |n| Line {
            id: ObligationId::from_bits(n),
            debtor: n % 7,
            creditor: n % 11 + 7,
            amount: n * n + 1,
            reduction: n,
        };
        (1..=count).map(line).collect()
    }

    #[test]
    fn roots_made_in_parts_are_those_made_line_by_line() {
        for format in [Format::V1, Format::V2] {
            for count in [0, 1, 31, 32, 33, 255, 256, 257, 8_191, 8_192, 9_000] {
                let lines = lines(count);
                let mut input = Input::new(format);
                for line in &lines {
                    input.push(line);
                }
                assert_eq!(root(format, &lines), input.root(), "{format:?} {count}");
            }
        }
    }

    #[test]
    fn every_number_of_the_input_is_in_the_root_and_no_reduction() {
        for format in [Format::V1, Format::V2] {
            let sound = lines(70);
            let of_sound = root(format, &sound);
            assert_eq!(Format::of(&sound, of_sound), Some(format));
            let changed = |at: usize, change: fn(&mut Line)| {
                let mut lines = sound.clone();
                change(&mut lines[at]);
                root(format, &lines)
            };
            for at in [0, 31, 32, 63, 64, 69] {
                for change in [
                    (|line| line.id = ObligationId::from_bits(line.id.bits() + 1_000))
                        as fn(&mut Line),
                    |line| line.debtor += 1,
                    |line| line.creditor += 1,
                    |line| line.amount += 1,
                ] {
                    assert_ne!(changed(at, change), of_sound);
                }
                assert_eq!(changed(at, |line| line.reduction += 1), of_sound);
            }
            assert_ne!(root(format, &sound[..69]), of_sound);
            assert_eq!(Format::of(&sound[..69], of_sound), None);
        }
    }
}
