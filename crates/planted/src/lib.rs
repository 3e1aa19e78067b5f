//! Bugs planted on purpose in the product, each of which the trials must find: a suite that misses one is no evidence.
//!
//! Without `--cfg planted` [`is`] is `false` while the compiler runs, so the product holds nothing of any bug. With it,
//! which only our own crates get and only for a hunt, one program holds all bugs, and its start chooses one of them by
//! name. Cores of several crates ask, in the middle of their work. Hence a static, the only one that the cores read: a
//! bug that is handed in would be an argument of half the product's functions.

/// The bug that was chosen.
#[cfg(planted)]
static CHOSEN: std::sync::OnceLock<String> = std::sync::OnceLock::new();

/// Whether this bug is at work.
#[cfg(not(planted))]
#[inline(always)]
pub const fn is(_bug: &str) -> bool {
    false
}

/// Whether this bug is at work.
#[cfg(planted)]
pub fn is(bug: &str) -> bool {
    CHOSEN.get().is_some_and(|chosen| chosen == bug)
}

/// Chooses a bug, before anything else runs and once in the life of the process. False where the program has none.
#[cfg(not(planted))]
pub fn choose(_bug: &str) -> bool {
    false
}

/// Chooses a bug, before anything else runs and once in the life of the process.
#[cfg(planted)]
pub fn choose(bug: &str) -> bool {
    CHOSEN.set(bug.to_owned()).is_ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_product_has_no_bug_to_choose() {
        let was_chosen = super::choose("purge_dropped");
        assert_eq!(was_chosen, cfg!(planted));
        assert_eq!(super::is("purge_dropped"), cfg!(planted));
        assert!(!super::is("purge_forgotten"));
    }
}
