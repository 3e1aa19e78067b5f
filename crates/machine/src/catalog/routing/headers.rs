//! Headers: the arguments of a binding are compared with the headers of the message.
//!
//! `x-match` says how: `all` (the default) or `any` of the binding's headers must agree; names that
//! begin with `x-` are left out, but for `all-with-x` and `any-with-x`. A void in the binding only
//! asks for the header to be there.

use std::collections::BTreeMap;

use super::{Dest, Dests, Found, RouteError, Steps};
use crate::value::{Arguments, Headers, Value};

const MATCH: &str = "x-match";

#[derive(Clone, Debug, Default)]
pub(in crate::catalog) struct HeaderRules {
    rules: BTreeMap<Arguments, (Rule, Dests)>,
}

#[derive(Clone, Debug)]
struct Rule {
    is_any: bool,
    with_x: bool,
}

/// The four words that `x-match` may be.
pub(in crate::catalog) fn is_known_match(value: &Value) -> bool {
    matches!(value.text(), Some("all" | "any" | "all-with-x" | "any-with-x"))
}

impl Rule {
    fn new(arguments: &Arguments) -> Self {
        let word = arguments.find(MATCH).and_then(Value::text).unwrap_or("all");
        Self { is_any: word.starts_with("any"), with_x: word.ends_with("-with-x") }
    }

    fn matches(
        &self,
        arguments: &Arguments,
        headers: &dyn Headers,
        steps: &mut Steps,
    ) -> Result<bool, RouteError> {
        for (name, wanted) in &arguments.0 {
            if name == MATCH || (!self.with_x && name.starts_with("x-")) {
                continue;
            }
            steps.count(1)?;
            let is_equal = headers
                .find(name)
                .is_some_and(|header| *wanted == Value::Void || header == wanted.view());
            if is_equal == self.is_any {
                return Ok(is_equal);
            }
        }
        Ok(!self.is_any)
    }
}

impl HeaderRules {
    pub(super) fn insert(&mut self, arguments: &Arguments, dest: Dest) {
        if let Some((_, dests)) = self.rules.get_mut(arguments) {
            dests.insert(dest);
            return;
        }
        let mut dests = Dests::default();
        dests.insert(dest);
        self.rules.insert(arguments.clone(), (Rule::new(arguments), dests));
    }

    pub(super) fn remove(&mut self, arguments: &Arguments, dest: &Dest) {
        if let Some((_, dests)) = self.rules.get_mut(arguments) {
            dests.remove(dest);
            if dests.is_empty() {
                self.rules.remove(arguments);
            }
        }
    }

    pub(super) fn find<'c>(
        &'c self,
        headers: &dyn Headers,
        steps: &mut Steps,
        found: &mut Found<'c, '_>,
    ) -> Result<(), RouteError> {
        for (arguments, (rule, dests)) in &self.rules {
            steps.count(1)?;
            if rule.matches(arguments, headers, steps)? {
                found.add(dests);
            }
        }
        Ok(())
    }
}
