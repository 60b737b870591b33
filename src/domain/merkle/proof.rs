//! Proofs over a tree that only grows (RFC 6962, section 2.1; checked as RFC 9162, section 2.1,
//! says): that a leaf is in it, and that a later tree begins with an earlier one.
//!
//! Whoever keeps the roots of all full subtrees makes a proof of a few of them: [`inclusion`] and
//! [`consistency`] say which, [`Parts::resolve`] puts them together. Checking needs nothing but
//! the proof.

use std::collections::HashMap;
use std::hash::BuildHasher;

use super::node;
use crate::domain::canonical::Hash;

/// No proof is longer: a tree has fewer than 2^64 leaves, and a proof of consistency one hash
/// more than the tree has levels.
pub const PROOF_MAX: usize = 65;

/// The root of a full subtree: the leaves from `index << level`, `1 << level` of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeAt {
    /// 0 for a leaf.
    pub level: u8,
    pub index: u64,
}

/// What a proof is made of: each of its hashes as the full subtrees that it is computed from,
/// largest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parts(Vec<Vec<NodeAt>>);

impl Parts {
    /// All that has to be read.
    pub fn nodes(&self) -> impl Iterator<Item = NodeAt> {
        self.0.iter().flatten().copied()
    }

    /// The proof; `None` where a node is missing.
    #[must_use]
    pub fn resolve<S: BuildHasher>(&self, nodes: &HashMap<NodeAt, Hash, S>) -> Option<Vec<Hash>> {
        let mut proof = Vec::with_capacity(self.0.len());
        for parts in &self.0 {
            proof.push(folded(parts, nodes)?);
        }
        Some(proof)
    }
}

/// The root of the tree of those parts, largest first; of none, the hash of nothing.
#[must_use]
pub fn folded<S: BuildHasher>(parts: &[NodeAt], nodes: &HashMap<NodeAt, Hash, S>) -> Option<Hash> {
    let mut hashes = parts.iter().rev().map(|part| nodes.get(part).copied());
    let Some(last) = hashes.next() else {
        return Some(Hash::of_bytes(&[]));
    };
    hashes.try_fold(last?, |right, left| Some(node(left?, right)))
}

/// The full subtrees of the leaves from `start` to before `end`, largest first. `start` must be
/// where a subtree of that size may begin, as it always is in a tree.
#[must_use]
pub fn full_parts(start: u64, end: u64) -> Vec<NodeAt> {
    let mut parts = Vec::new();
    let mut at = start;
    while at < end {
        let level = (end - at).ilog2();
        let index = at >> level;
        parts.push(NodeAt {
            level: u8::try_from(level).unwrap_or(u8::MAX),
            index,
        });
        at += 1 << level;
    }
    parts
}

/// What shows that the leaf `index` is in the tree of `size` leaves; `None` where it is not.
#[must_use]
pub fn inclusion(index: u64, size: u64) -> Option<Parts> {
    if index >= size {
        return None;
    }
    let mut parts = Vec::new();
    let (mut start, mut end) = (0, size);
    while end - start > 1 {
        let middle = split(start, end);
        if index < middle {
            parts.push(full_parts(middle, end));
            end = middle;
        } else {
            parts.push(full_parts(start, middle));
            start = middle;
        }
    }
    parts.reverse();
    Some(Parts(parts))
}

/// What shows that the tree of `new` leaves begins with that of `old`; `None` where it can't,
/// being smaller. Of the empty tree and of the same one nothing needs to be shown.
#[must_use]
pub fn consistency(old: u64, new: u64) -> Option<Parts> {
    if old > new {
        return None;
    }
    if old == 0 || old == new {
        return Some(Parts::default());
    }
    let mut parts = Vec::new();
    let (mut start, mut end) = (0, new);
    while end != old {
        let middle = split(start, end);
        if old <= middle {
            parts.push(full_parts(middle, end));
            end = middle;
        } else {
            parts.push(full_parts(start, middle));
            start = middle;
        }
    }
    // The old tree as a whole is known to whoever asks.
    if start != 0 {
        parts.push(full_parts(start, end));
    }
    parts.reverse();
    Some(Parts(parts))
}

/// Where the right side of a tree begins: its left is the largest full one that leaves something.
const fn split(start: u64, end: u64) -> u64 {
    start + (1 << (end - start - 1).ilog2())
}

/// Whether a leaf is in a tree (RFC 9162, section 2.1.3.2).
#[must_use]
pub fn includes(leaf: Hash, index: u64, size: u64, root: Hash, proof: &[Hash]) -> bool {
    if index >= size {
        return false;
    }
    let (mut at, mut last) = (index, size - 1);
    let mut found = leaf;
    for hash in proof {
        if last == 0 {
            return false;
        }
        if at & 1 == 1 || at == last {
            found = node(*hash, found);
            while at & 1 == 0 && at != 0 {
                at >>= 1;
                last >>= 1;
            }
        } else {
            found = node(found, *hash);
        }
        at >>= 1;
        last >>= 1;
    }
    last == 0 && found == root
}

/// Whether a tree begins with an older one (RFC 9162, section 2.1.4.2). Every tree begins with
/// the empty one, and a tree of the same size must be the same; neither has anything to show.
#[must_use]
pub fn extends(old: (u64, Hash), new: (u64, Hash), proof: &[Hash]) -> bool {
    let ((old_size, old_root), (new_size, new_root)) = (old, new);
    if old_size > new_size {
        return false;
    }
    if old_size == new_size {
        return proof.is_empty() && old_root == new_root;
    }
    if old_size == 0 {
        return proof.is_empty() && old_root == Hash::of_bytes(&[]);
    }
    let mut hashes = proof.iter().copied();
    let first = if old_size.is_power_of_two() {
        Some(old_root)
    } else {
        hashes.next()
    };
    let Some(first) = first else {
        return false;
    };
    let (mut at, mut last) = (old_size - 1, new_size - 1);
    while at & 1 == 1 {
        at >>= 1;
        last >>= 1;
    }
    let (mut before, mut after) = (first, first);
    for hash in hashes {
        if last == 0 {
            return false;
        }
        if at & 1 == 1 || at == last {
            before = node(hash, before);
            after = node(hash, after);
            while at & 1 == 0 && at != 0 {
                at >>= 1;
                last >>= 1;
            }
        } else {
            after = node(after, hash);
        }
        at >>= 1;
        last >>= 1;
    }
    last == 0 && before == old_root && after == new_root
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::domain::merkle::{Growing, leaf};

    struct Tree {
        nodes: HashMap<NodeAt, Hash>,
        /// By size.
        roots: Vec<Hash>,
    }

    fn tree(size: u64) -> Tree {
        let mut growing = Growing::default();
        let mut nodes = HashMap::new();
        let mut roots = vec![growing.root()];
        for index in 0..size {
            growing.push_noting(leaf(&index.to_be_bytes()), |at, hash| {
                assert!(nodes.insert(at, hash).is_none(), "{at:?} is made once");
            });
            roots.push(growing.root());
        }
        Tree { nodes, roots }
    }

    impl Tree {
        fn root(&self, size: u64) -> Hash {
            self.roots[usize::try_from(size).unwrap()]
        }

        fn leaf(&self, index: u64) -> Hash {
            self.nodes[&NodeAt { level: 0, index }]
        }
    }

    /// Each bit of the first and the last byte of each hash, each hash left out, doubled or
    /// exchanged with its neighbour.
    fn altered(proof: &[Hash]) -> Vec<Vec<Hash>> {
        let mut all = vec![[proof, &[Hash([7; 32])]].concat()];
        for place in 0..proof.len() {
            for (byte, bit) in [(0, 1), (31, 128)] {
                let mut other = proof.to_vec();
                other[place].0[byte] ^= bit;
                all.push(other);
            }
            let mut shorter = proof.to_vec();
            shorter.remove(place);
            all.push(shorter);
            let mut doubled = proof.to_vec();
            doubled.insert(place, proof[place]);
            all.push(doubled);
            if place > 0 {
                let mut exchanged = proof.to_vec();
                exchanged.swap(place - 1, place);
                all.push(exchanged);
            }
        }
        all
    }

    fn check_inclusion(tree: &Tree, index: u64, size: u64) {
        let (leaf, root) = (tree.leaf(index), tree.root(size));
        let parts = inclusion(index, size).unwrap();
        assert!(parts.nodes().count() <= 2 * 64);
        let proof = parts.resolve(&tree.nodes).unwrap();
        assert!(proof.len() <= PROOF_MAX);
        assert!(includes(leaf, index, size, root, &proof), "{index}/{size}");
        for other in altered(&proof) {
            assert!(!includes(leaf, index, size, root, &other), "{index}/{size}");
        }
        assert!(!includes(root, index, size, root, &proof) || size == 1);
        assert!(!includes(leaf, index, size, tree.root(0), &proof));
        if index > 0 {
            assert!(!includes(leaf, index - 1, size, root, &proof));
        }
        assert!(!includes(leaf, size, size, root, &proof));
    }

    fn check_consistency(tree: &Tree, old: u64, new: u64) {
        let (before, after) = ((old, tree.root(old)), (new, tree.root(new)));
        let proof = consistency(old, new).unwrap();
        let proof = proof.resolve(&tree.nodes).unwrap();
        assert!(proof.len() <= PROOF_MAX);
        assert!(extends(before, after, &proof), "{old} to {new}");
        for other in altered(&proof) {
            assert!(!extends(before, after, &other), "{old} to {new}");
        }
        let wrong = Hash([9; 32]);
        assert!(!extends((old, wrong), after, &proof), "{old} to {new}");
        if old > 0 {
            assert!(!extends(before, (new, wrong), &proof), "{old} to {new}");
            assert!(!extends((new + 1, after.1), before, &proof));
        }
    }

    #[test]
    fn roots_of_the_reference_implementation() {
        let leaves = [
            "",
            "00",
            "10",
            "2021",
            "3031",
            "40414243",
            "5051525354555657",
            "606162636465666768696a6b6c6d6e6f",
        ];
        let roots = [
            "6e340b9c", "fac54203", "aeb6bcfe", "d37ee418", "4e3bbb1f", "76e67dad", "ddb89be4",
            "5dc9da79",
        ];
        let mut growing = Growing::default();
        for (bytes, root) in leaves.into_iter().zip(roots) {
            growing.push(leaf(&hex::decode(bytes).unwrap()));
            assert!(growing.root().to_hex().starts_with(root), "{root}");
        }
    }

    #[test]
    fn all_small_proofs_hold_and_no_altered_one_does() {
        let tree = tree(64);
        for size in 0..=64 {
            (0..size).for_each(|index| check_inclusion(&tree, index, size));
            (0..=size).for_each(|old| check_consistency(&tree, old, size));
            assert!(inclusion(size, size).is_none());
            assert!(consistency(size + 1, size).is_none());
        }
    }

    /// Between any two of a thousand sizes; with one hash of each proof altered, and of every 64th
    /// proof each one in turn.
    #[test]
    fn any_size_continues_any_before_and_nothing_else() {
        let tree = tree(1_000);
        let check = |first: u64| {
            let pairs = (first..=1_000).step_by(2);
            let pairs = pairs.flat_map(|new| (1..=new).map(move |old| (old, new)));
            for (old, new) in pairs {
                let (before, after) = ((old, tree.root(old)), (new, tree.root(new)));
                let proof = consistency(old, new).unwrap();
                let mut proof = proof.resolve(&tree.nodes).unwrap();
                assert!(extends(before, after, &proof), "{old} to {new}");
                let turn = usize::try_from(old * 7 + new).unwrap();
                for place in 0..proof.len() {
                    if turn % 64 > 0 && place != turn % proof.len() {
                        continue;
                    }
                    proof[place].0[turn % 32] ^= 1 << (turn % 8);
                    assert!(!extends(before, after, &proof), "{old} to {new}: {place}");
                    proof[place].0[turn % 32] ^= 1 << (turn % 8);
                }
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| check(1));
            check(2);
        });
    }

    #[test]
    fn proofs_of_larger_trees_hold_and_no_altered_one_does() {
        let tree = tree(1_000);
        // Fixed steps that share nothing with powers of two reach every size and many places.
        for step in 0..1_000_u64 {
            let size = 1 + (step * 617) % 1_000;
            let index = (step * 389 + 17) % size;
            check_inclusion(&tree, index, size);
            check_consistency(&tree, index, size);
        }
        for (old, new) in [(1, 1_000), (512, 1_000), (999, 1_000), (511, 513)] {
            check_consistency(&tree, old, new);
        }
    }

    #[test]
    fn a_tree_goes_on_from_its_full_parts() {
        let tree = tree(300);
        for size in [0, 1, 2, 3, 127, 128, 200, 299] {
            let parts = full_parts(0, size);
            let hashes = parts.iter().map(|part| tree.nodes[part]).collect();
            let mut growing = Growing::from_full(size, hashes).unwrap();
            assert_eq!(growing.root(), tree.root(size));
            growing.push(tree.leaf(size));
            assert_eq!(growing.root(), tree.root(size + 1));
        }
        assert!(Growing::from_full(3, vec![]).is_none());
    }

    proptest! {
        /// Whatever is given as a proof, checking it ends and says no.
        #[test]
        fn nonsense_proves_nothing(
            index: u64,
            size: u64,
            old: u64,
            proof in prop::collection::vec(any::<[u8; 32]>(), 0..80),
        ) {
            let proof: Vec<Hash> = proof.into_iter().map(Hash).collect();
            prop_assert!(!includes(Hash([1; 32]), index, size, Hash([2; 32]), &proof));
            prop_assert!(!extends((old, Hash([1; 32])), (size, Hash([2; 32])), &proof));
            if let Some(parts) = inclusion(index, size) {
                prop_assert!(parts.0.len() <= PROOF_MAX);
            }
            if let Some(parts) = consistency(old, size) {
                prop_assert!(parts.0.len() <= PROOF_MAX);
            }
        }
    }
}
