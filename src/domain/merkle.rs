//! Merkle trees as in RFC 6962, section 2.1: a leaf is SHA-256 of 0x00 and its bytes, a node of
//! 0x01 and its two children, and the left side of a tree is the largest full one that leaves
//! something for the right.

use sha2::{Digest as _, Sha256};

use super::canonical::Hash;

pub mod proof;

use proof::NodeAt;

/// The hash of a leaf.
#[must_use]
pub fn leaf(bytes: &[u8]) -> Hash {
    leaf_of([bytes])
}

/// The hash of a leaf whose bytes are in several places.
#[must_use]
pub fn leaf_of<const N: usize>(parts: [&[u8]; N]) -> Hash {
    let mut sha256 = Sha256::new_with_prefix([0]);
    for part in parts {
        sha256.update(part);
    }
    Hash(sha256.finalize().into())
}

/// The hash of a node.
#[must_use]
pub fn node(left: Hash, right: Hash) -> Hash {
    let mut bytes = [1; 65];
    bytes[1..33].copy_from_slice(&left.0);
    bytes[33..].copy_from_slice(&right.0);
    Hash::of_bytes(&bytes)
}

/// A tree that only grows, held as the roots of its full parts, largest first: it knows its own
/// root and its size, and takes the memory of a few hashes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Growing {
    size: u64,
    full: Vec<Hash>,
}

impl Growing {
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// A tree that has grown to `size` before, from the roots of its full parts, largest first
    /// ([`proof::full_parts`]); `None` where that is another number of them.
    #[must_use]
    pub fn from_full(size: u64, full: Vec<Hash>) -> Option<Self> {
        (full.len() == size.count_ones() as usize).then_some(Self { size, full })
    }

    /// Appends the hash of a leaf.
    pub fn push(&mut self, leaf: Hash) {
        self.push_noting(leaf, |_, _| {});
    }

    /// The same; `note` is told of every full subtree that comes of it, the leaf first.
    pub fn push_noting(&mut self, leaf: Hash, mut note: impl FnMut(NodeAt, Hash)) {
        // Each full part of the size's binary digits that are 1 at its end grows together with
        // the new leaf, as in adding one.
        let mut right = leaf;
        let mut rest = self.size;
        let mut level = 0;
        note(NodeAt { level, index: rest }, right);
        while rest & 1 == 1 {
            if let Some(left) = self.full.pop() {
                right = node(left, right);
            }
            rest >>= 1;
            level += 1;
            note(NodeAt { level, index: rest }, right);
        }
        self.full.push(right);
        self.size += 1;
    }

    /// The root; of an empty tree, the hash of nothing.
    #[must_use]
    pub fn root(&self) -> Hash {
        let mut parts = self.full.iter().rev().copied();
        let Some(last) = parts.next() else {
            return Hash::of_bytes(&[]);
        };
        parts.fold(last, |right, left| node(left, right))
    }
}

impl FromIterator<Hash> for Growing {
    fn from_iter<T: IntoIterator<Item = Hash>>(leaves: T) -> Self {
        let mut tree = Self::default();
        leaves.into_iter().for_each(|leaf| tree.push(leaf));
        tree
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 6962's definition, word for word.
    fn by_definition(leaves: &[Hash]) -> Hash {
        match leaves {
            [] => Hash::of_bytes(&[]),
            [one] => *one,
            many => {
                let split = (many.len() - 1).ilog2();
                let (left, right) = many.split_at(1 << split);
                node(by_definition(left), by_definition(right))
            }
        }
    }

    #[test]
    fn growing_is_the_tree_of_the_definition() {
        let leaves: Vec<Hash> = (0..70_u8).map(|n| leaf(&[n])).collect();
        let mut tree = Growing::default();
        for (size, next) in leaves.iter().enumerate() {
            assert_eq!(tree.root(), by_definition(&leaves[..size]), "{size}");
            tree.push(*next);
        }
        assert_eq!(tree.size(), 70);
    }

    #[test]
    fn known_roots() {
        // From the RFC's own reference implementation.
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Growing::default().root().to_hex(), empty);
        let one = "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d";
        assert_eq!(leaf(&[]).to_hex(), one);
    }
}
