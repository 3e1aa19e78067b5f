//! One of all bindings, by a number: chance, or a hash of the key.

use super::{Dest, Dests, Found, RouteError, Steps};

#[derive(Clone, Debug, Default)]
pub(in crate::catalog) struct Choice {
    all: Dests,
    /// Bindings, of which a destination may have several.
    count: u32,
}

impl Choice {
    pub(super) fn insert(&mut self, dest: Dest) {
        self.all.insert(dest);
        self.count += 1;
    }

    pub(super) fn remove(&mut self, dest: &Dest) {
        self.all.remove(dest);
        self.count -= 1;
    }

    /// The number modulo the count of those that are meant, or of all if none is.
    pub(in crate::catalog) fn find_among<'c>(
        &'c self,
        number: u64,
        is_meant: impl Fn(&Dest) -> bool,
        steps: &mut Steps,
        found: &mut Found<'c, '_>,
    ) -> Result<(), RouteError> {
        steps.count(self.all.0.len())?;
        let meant: Vec<&(Dest, u32)> =
            self.all.0.iter().filter(|(dest, _)| is_meant(dest)).collect();
        let count: u32 = meant.iter().map(|(_, bindings)| bindings).sum();
        if count == 0 {
            self.find(number, found);
            return Ok(());
        }
        let nth = number % u64::from(count);
        let mut before = 0;
        let chosen = meant.into_iter().find(|(_, bindings)| {
            before += u64::from(*bindings);
            nth < before
        });
        chosen.into_iter().for_each(|(dest, _)| found.add_one(dest));
        Ok(())
    }

    /// The number modulo the count.
    pub(in crate::catalog) fn find<'c>(&'c self, number: u64, found: &mut Found<'c, '_>) {
        if self.count > 0 {
            let nth = number % u64::from(self.count);
            self.all.nth(nth as u32, self.count).into_iter().for_each(|dest| found.add_one(dest));
        }
    }
}
