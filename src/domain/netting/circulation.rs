//! The largest total of debts that can be cleared with every net position unchanged.
//!
//! What is left of the debts after clearing is a flow too: each broker still owes on balance what
//! it owed before. So the largest circulation is found as the smallest flow that carries every
//! broker's net position, at a cost of one per unit on each debt: prices (potentials) that rise
//! from phase to phase, and in each phase a largest flow over the arcs that are tight at these
//! prices (primal-dual; Ford and Fulkerson 1962, with Dinic's blocking flows). The costs are all
//! one, so there are as many phases as the longest detour is long, which is few.
//!
//! The prices at the end prove that nothing larger is possible: see [`super::certificate`].

use std::collections::VecDeque;

/// A debt between two nodes, or the sum of all between them in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arc {
    pub debtor: u32,
    pub creditor: u32,
    /// Minor units.
    pub amount: u64,
}

/// What is left of each arc, and the price of each node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cleared {
    pub left: Vec<u64>,
    pub prices: Vec<i64>,
}

/// One direction of an arc in the residual graph.
#[derive(Clone, Copy)]
struct Half {
    to: u32,
    /// The other direction.
    twin: u32,
    /// How much more can go this way.
    room: u64,
}

struct Residual {
    /// Of each node, where its halves begin; one more at the end.
    first: Vec<u32>,
    /// Of each node, where its halves against a debt begin; those along one are before.
    against: Vec<u32>,
    halves: Vec<Half>,
    /// Of each node: what it has yet to send (above zero) or to take.
    excess: Vec<i128>,
    prices: Vec<i64>,
    level: Vec<u32>,
    /// Of each node, the half that is to be tried next.
    next: Vec<u32>,
}

const UNSEEN: u32 = u32::MAX;

/// Clears as much as can be. Nodes are below `nodes`; no arc leads from a node to itself.
#[must_use]
pub fn clear(nodes: usize, arcs: &[Arc]) -> Cleared {
    let (mut residual, places) = Residual::of(nodes, arcs);
    while residual.reprice() {
        while residual.layer() {
            residual.block();
        }
    }
    let left = arcs.iter().zip(&places);
    let left = left.map(|(arc, place)| arc.amount - residual.halves[*place as usize].room);
    Cleared {
        left: left.collect(),
        prices: residual.prices,
    }
}

impl Residual {
    /// With nothing carried yet; and where each arc's forward half is.
    fn of(nodes: usize, arcs: &[Arc]) -> (Self, Vec<u32>) {
        let mut first = vec![0_u32; nodes + 1];
        let mut along = vec![0_u32; nodes];
        for arc in arcs {
            first[arc.debtor as usize + 1] += 1;
            first[arc.creditor as usize + 1] += 1;
            along[arc.debtor as usize] += 1;
        }
        for node in 0..nodes {
            first[node + 1] += first[node];
        }
        let against: Vec<u32> = along
            .iter()
            .zip(&first)
            .map(|(along, at)| at + along)
            .collect();
        let (mut free, mut free_against) = (first.clone(), against.clone());
        let take = |free: &mut [u32], node: u32| {
            let place = free[node as usize];
            free[node as usize] += 1;
            place
        };
        let empty = Half {
            to: 0,
            twin: 0,
            room: 0,
        };
        let mut halves = vec![empty; 2 * arcs.len()];
        let mut excess = vec![0_i128; nodes];
        let mut places = Vec::with_capacity(arcs.len());
        for arc in arcs {
            let there = take(&mut free, arc.debtor);
            let back = take(&mut free_against, arc.creditor);
            halves[there as usize] = Half {
                to: arc.creditor,
                twin: back,
                room: arc.amount,
            };
            halves[back as usize] = Half {
                to: arc.debtor,
                twin: there,
                room: 0,
            };
            excess[arc.debtor as usize] += i128::from(arc.amount);
            excess[arc.creditor as usize] -= i128::from(arc.amount);
            places.push(there);
        }
        let residual = Self {
            first,
            against,
            halves,
            excess,
            prices: vec![0; nodes],
            level: vec![UNSEEN; nodes],
            next: vec![0; nodes],
        };
        (residual, places)
    }

    fn halves_of(&self, node: u32) -> std::ops::Range<usize> {
        self.first[node as usize] as usize..self.first[node as usize + 1] as usize
    }

    /// Raises prices until something that has to be sent can be taken somewhere; gives whether
    /// anything is left to send. No half with room becomes cheaper than nothing by it.
    fn reprice(&mut self) -> bool {
        let nodes = self.excess.len();
        let mut distance = vec![i64::MAX; nodes];
        let mut buckets: Vec<Vec<u32>> = vec![Vec::new()];
        for ((node, excess), distance) in (0..).zip(&self.excess).zip(&mut distance) {
            if *excess > 0 {
                *distance = 0;
                buckets[0].push(node);
            }
        }
        let mut near = 0;
        let found = 'search: loop {
            let Some(bucket) = buckets.get_mut(near) else {
                break None;
            };
            let Some(node) = bucket.pop() else {
                near += 1;
                continue;
            };
            let at = i64::try_from(near).unwrap_or(i64::MAX);
            if distance[node as usize] != at {
                continue;
            }
            if self.excess[node as usize] < 0 {
                break 'search Some(at);
            }
            for place in self.halves_of(node) {
                let half = self.halves[place];
                if half.room == 0 {
                    continue;
                }
                let further = at + self.price_along(node, place) - self.prices[half.to as usize];
                if further < distance[half.to as usize] {
                    distance[half.to as usize] = further;
                    let bucket = usize::try_from(further).unwrap_or(usize::MAX);
                    if buckets.len() <= bucket {
                        buckets.resize(bucket + 1, Vec::new());
                    }
                    buckets[bucket].push(half.to);
                }
            }
        };
        let Some(nearest) = found else {
            return false;
        };
        for (price, distance) in self.prices.iter_mut().zip(&distance) {
            *price += (*distance).min(nearest);
        }
        true
    }

    /// The price of a node and the cost of a half of it: 1 along a debt, -1 against it.
    fn price_along(&self, node: u32, place: usize) -> i64 {
        let cost = if place < self.against[node as usize] as usize {
            1
        } else {
            -1
        };
        self.prices[node as usize] + cost
    }

    fn is_tight(&self, node: u32, place: usize) -> bool {
        let half = self.halves[place];
        half.room > 0 && self.price_along(node, place) == self.prices[half.to as usize]
    }

    /// Numbers nodes by how many tight halves lead to them from whoever has to send; gives whether
    /// anybody who has to take is among them.
    fn layer(&mut self) -> bool {
        self.level.fill(UNSEEN);
        let mut queue = VecDeque::new();
        for node in 0..self.excess.len() {
            if self.excess[node] > 0 {
                self.level[node] = 0;
                queue.push_back(u32::try_from(node).unwrap_or(u32::MAX));
            }
        }
        let mut last = UNSEEN;
        while let Some(node) = queue.pop_front() {
            let level = self.level[node as usize];
            if level >= last {
                break;
            }
            for at in self.halves_of(node) {
                let half = self.halves[at];
                if self.level[half.to as usize] == UNSEEN && self.is_tight(node, at) {
                    self.level[half.to as usize] = level + 1;
                    queue.push_back(half.to);
                    if self.excess[half.to as usize] < 0 {
                        last = level + 1;
                    }
                }
            }
        }
        last != UNSEEN
    }

    /// Sends along paths of tight halves, each to the next level, until every one is blocked.
    fn block(&mut self) {
        self.next.copy_from_slice(&self.first[..self.excess.len()]);
        let mut path: Vec<u32> = Vec::new();
        for root in 0..self.excess.len() {
            let root = u32::try_from(root).unwrap_or(u32::MAX);
            if self.level[root as usize] != 0 {
                continue;
            }
            let mut node = root;
            path.clear();
            while self.excess[root as usize] > 0 {
                if self.excess[node as usize] < 0 {
                    node = self.send(root, node, &mut path);
                    continue;
                }
                if let Some(half) = self.step(node) {
                    node = self.halves[half as usize].to;
                    path.push(half);
                    continue;
                }
                // Nothing leads on from here.
                self.level[node as usize] = UNSEEN;
                let Some(half) = path.pop() else {
                    break;
                };
                node = self.halves[self.halves[half as usize].twin as usize].to;
                self.next[node as usize] += 1;
            }
        }
    }

    /// The next half of a node that leads on.
    fn step(&mut self, node: u32) -> Option<u32> {
        let end = self.first[node as usize + 1];
        let beyond = self.level[node as usize] + 1;
        let mut at = self.next[node as usize];
        while at < end {
            let half = self.halves[at as usize];
            if self.level[half.to as usize] == beyond && self.is_tight(node, at as usize) {
                break;
            }
            at += 1;
        }
        self.next[node as usize] = at;
        (at < end).then_some(at)
    }

    /// Sends what can be sent along a path; gives the node from where to go on: the last that is
    /// still reached.
    fn send(&mut self, root: u32, taker: u32, path: &mut Vec<u32>) -> u32 {
        let wanted = self.excess[root as usize].min(-self.excess[taker as usize]);
        let mut amount = u64::try_from(wanted).unwrap_or(u64::MAX);
        for half in path.iter() {
            amount = amount.min(self.halves[*half as usize].room);
        }
        let mut full = path.len();
        for (place, half) in path.iter().enumerate().rev() {
            let half = *half as usize;
            self.halves[half].room -= amount;
            let twin = self.halves[half].twin as usize;
            self.halves[twin].room += amount;
            if self.halves[half].room == 0 {
                full = place;
            }
        }
        self.excess[root as usize] -= i128::from(amount);
        self.excess[taker as usize] += i128::from(amount);
        if full == path.len() {
            // The taker has all that it wanted, or the root is empty.
            return taker;
        }
        let half = path[full];
        path.truncate(full);
        self.halves[self.halves[half as usize].twin as usize].to
    }
}
