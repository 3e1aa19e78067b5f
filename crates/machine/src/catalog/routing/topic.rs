//! Topic: words between dots; `*` in a binding key is one word, `#` any number of them.
//!
//! Binding keys stand in a tree of words. A routing key is matched by walking all branches it can
//! take at once, word by word, each node at most once per word: the cost is words times branches,
//! whatever the wildcards, and never a product of them. `#.#` means `#` and is kept as that.

use std::collections::BTreeMap;

use super::{Dest, Dests, Found, RouteError, Steps};

#[derive(Clone, Debug)]
pub(in crate::catalog) struct Topic {
    /// The first is the root; no words yet.
    nodes: Vec<Node>,
    free: Vec<u32>,
}

#[derive(Clone, Debug, Default)]
struct Node {
    words: BTreeMap<Box<str>, u32>,
    star: Option<u32>,
    hash: Option<u32>,
    /// Reached by `#`: stays where it is for any word.
    is_hash: bool,
    dests: Dests,
}

impl Node {
    fn child(&self, word: &str) -> Option<u32> {
        match word {
            "*" => self.star,
            "#" => self.hash,
            word => self.words.get(word).copied(),
        }
    }

    fn set_child(&mut self, word: &str, child: Option<u32>) {
        match (word, child) {
            ("*", child) => self.star = child,
            ("#", child) => self.hash = child,
            (word, Some(child)) => {
                self.words.insert(word.into(), child);
            }
            (word, None) => {
                self.words.remove(word);
            }
        }
    }

    fn is_unused(&self) -> bool {
        self.words.is_empty() && self.star.is_none() && self.hash.is_none() && self.dests.is_empty()
    }
}

const ROOT: u32 = 0;

impl Default for Topic {
    fn default() -> Self {
        Self { nodes: vec![Node::default()], free: Vec::new() }
    }
}

/// The empty key has no words; `a.` has two, the second empty.
fn words(key: &str) -> impl Iterator<Item = &str> {
    key.split('.').filter(move |_| !key.is_empty())
}

/// The words of a binding key, `#.#` being `#`.
fn pattern(key: &str) -> impl Iterator<Item = &str> {
    let mut was_hash = false;
    words(key).filter(move |word| {
        let is_hash = *word == "#";
        let is_again = is_hash && was_hash;
        was_hash = is_hash;
        !is_again
    })
}

impl Topic {
    pub(super) fn insert(&mut self, key: &str, dest: Dest) {
        let mut at = ROOT;
        for word in pattern(key) {
            at = match self.nodes[at as usize].child(word) {
                Some(child) => child,
                None => {
                    let child = self.make_node(word == "#");
                    self.nodes[at as usize].set_child(word, Some(child));
                    child
                }
            };
        }
        self.nodes[at as usize].dests.insert(dest);
    }

    fn make_node(&mut self, is_hash: bool) -> u32 {
        let node = Node { is_hash, ..Node::default() };
        match self.free.pop() {
            Some(place) => {
                self.nodes[place as usize] = node;
                place
            }
            None => {
                self.nodes.push(node);
                (self.nodes.len() - 1) as u32
            }
        }
    }

    pub(super) fn remove(&mut self, key: &str, dest: &Dest) {
        let mut at = ROOT;
        let mut path = Vec::new();
        for word in pattern(key) {
            let Some(child) = self.nodes[at as usize].child(word) else { return };
            path.push((at, word));
            at = child;
        }
        self.nodes[at as usize].dests.remove(dest);
        // Branches that lead nowhere any more are cut, from the tip.
        while let Some((parent, word)) = path.pop() {
            if !self.nodes[at as usize].is_unused() {
                return;
            }
            self.nodes[parent as usize].set_child(word, None);
            self.free.push(at);
            at = parent;
        }
    }

    pub(in crate::catalog) fn find<'c>(
        &'c self,
        key: &str,
        steps: &mut Steps,
        found: &mut Found<'c, '_>,
    ) -> Result<(), RouteError> {
        let mut here = Vec::with_capacity(8);
        let mut there = Vec::with_capacity(8);
        self.enter(ROOT, &mut here);
        for word in words(key) {
            steps.count(here.len())?;
            for place in here.drain(..) {
                let node = &self.nodes[place as usize];
                if node.is_hash {
                    self.enter(place, &mut there);
                }
                if let Some(child) = node.words.get(word) {
                    self.enter(*child, &mut there);
                }
                if let Some(child) = node.star {
                    self.enter(child, &mut there);
                }
            }
            // Only a `#` can be come to in two ways.
            if there.len() > 1 {
                there.sort_unstable();
                there.dedup();
            }
            if there.is_empty() {
                return Ok(());
            }
            std::mem::swap(&mut here, &mut there);
        }
        steps.count(here.len())?;
        for place in here {
            found.add(&self.nodes[place as usize].dests);
        }
        Ok(())
    }

    /// A node, and the `#` below it, which may take no word.
    fn enter(&self, place: u32, places: &mut Vec<u32>) {
        places.push(place);
        if let Some(hash) = self.nodes[place as usize].hash {
            places.push(hash);
        }
    }
}
