//! Headers: the arguments of a binding are compared with the headers of the message.
//!
//! `x-match` says how: `all` (the default) or `any` of the binding's headers must agree; names that
//! begin with `x-` are left out, but for `all-with-x` and `any-with-x`. A void in the binding only
//! asks for the header to be there.
//!
//! A message is compared only with rules that have a header and value in common with it: each rule is found by
//! those without which it cannot match. Rules that ask for no value at all are compared with every message.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::sync::Arc;

use super::{Dest, Dests, Found};
use crate::value::{Arguments, Headers, Value, ValueView};

const MATCH: &str = "x-match";

#[derive(Clone, Debug, Default)]
pub(in crate::catalog) struct HeaderRules {
    rules: BTreeMap<u64, Rule>,
    ids: BTreeMap<Arc<Arguments>, u64>,
    next_id: u64,
    /// Rules by what a message needs for them: hashes of a name and value.
    by_pair: BTreeMap<u64, Vec<u64>>,
    /// Rules that ask for no value.
    others: Vec<u64>,
}

#[derive(Clone, Debug)]
struct Rule {
    arguments: Arc<Arguments>,
    is_any: bool,
    with_x: bool,
    dests: Dests,
}

/// A message's headers, by name: the first of each.
type Sent<'m> = BTreeMap<&'m str, ValueView<'m>>;

impl Rule {
    fn new(arguments: Arc<Arguments>) -> Self {
        let word = arguments.find(MATCH).and_then(Value::text).unwrap_or("all");
        let (is_any, with_x) = (word.starts_with("any"), word.ends_with("-with-x"));
        Self { arguments, is_any, with_x, dests: Dests::default() }
    }

    /// What is compared.
    fn pairs(&self) -> impl Iterator<Item = (&str, &Value)> {
        let is_compared = |name: &str| name != MATCH && (self.with_x || !name.starts_with("x-"));
        let all = self.arguments.0.iter().map(|(name, value)| (name.as_str(), value));
        all.filter(move |(name, _)| is_compared(name))
    }

    /// A message that matches has one of these. None: it need not have any value.
    fn needs(&self) -> Option<Vec<u64>> {
        let of = |(name, value): (&str, &Value)| pair(name, &value.view());
        match self.is_any {
            false => {
                self.pairs().find(|(_, value)| **value != Value::Void).map(|one| vec![of(one)])
            }
            true if self.pairs().any(|(_, value)| *value == Value::Void) => None,
            true => Some(self.pairs().map(of).collect()),
        }
    }

    fn matches(&self, sent: &Sent<'_>) -> bool {
        for (name, wanted) in self.pairs() {
            let is_equal = sent
                .get(name)
                .is_some_and(|header| *wanted == Value::Void || *header == wanted.view());
            if is_equal == self.is_any {
                return is_equal;
            }
        }
        !self.is_any
    }
}

/// A name and value as one number. Others may have the same: it only finds what is then compared.
fn pair(name: &str, value: &ValueView<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    std::mem::discriminant(value).hash(&mut hasher);
    match value {
        ValueView::Void | ValueView::Nested(_) => {}
        ValueView::Bool(value) => value.hash(&mut hasher),
        ValueView::Int(value) => value.hash(&mut hasher),
        ValueView::F32(value) => value.hash(&mut hasher),
        ValueView::F64(value) | ValueView::Timestamp(value) => value.hash(&mut hasher),
        ValueView::Decimal { scale, value } => (scale, value).hash(&mut hasher),
        ValueView::LongStr(value) | ValueView::Bytes(value) => value.hash(&mut hasher),
    }
    hasher.finish()
}

impl HeaderRules {
    pub(super) fn insert(&mut self, arguments: &Arguments, dest: Dest) {
        let known = self.ids.get(arguments).and_then(|id| self.rules.get_mut(id));
        if let Some(rule) = known {
            rule.dests.insert(dest);
            return;
        }
        let id = self.next_id;
        self.next_id += 1;
        let arguments = Arc::new(arguments.clone());
        let mut rule = Rule::new(Arc::clone(&arguments));
        rule.dests.insert(dest);
        match rule.needs() {
            Some(pairs) => {
                pairs.iter().for_each(|pair| self.by_pair.entry(*pair).or_default().push(id));
            }
            None => self.others.push(id),
        }
        self.ids.insert(arguments, id);
        self.rules.insert(id, rule);
    }

    pub(super) fn remove(&mut self, arguments: &Arguments, dest: &Dest) {
        let Some(&id) = self.ids.get(arguments) else { return };
        let Some(rule) = self.rules.get_mut(&id) else { return };
        rule.dests.remove(dest);
        if !rule.dests.is_empty() {
            return;
        }
        match rule.needs() {
            Some(pairs) => pairs.iter().for_each(|pair| {
                let Some(ids) = self.by_pair.get_mut(pair) else { return };
                remove_id(ids, id);
                if ids.is_empty() {
                    self.by_pair.remove(pair);
                }
            }),
            None => remove_id(&mut self.others, id),
        }
        self.ids.remove(arguments);
        self.rules.remove(&id);
    }

    pub(in crate::catalog) fn find<'c>(&'c self, headers: &dyn Headers, found: &mut Found<'c, '_>) {
        let mut sent = Sent::new();
        headers.each(&mut |name, value| {
            sent.entry(name).or_insert(value);
        });
        let pairs = sent.iter().filter_map(|(name, value)| self.by_pair.get(&pair(name, value)));
        for id in pairs.flatten().chain(&self.others) {
            if let Some(rule) = self.rules.get(id)
                && rule.matches(&sent)
            {
                found.add(&rule.dests);
            }
        }
    }
}

/// Ids are in the order in which they were given.
fn remove_id(ids: &mut Vec<u64>, id: u64) {
    if let Ok(place) = ids.binary_search(&id) {
        ids.remove(place);
    }
}
