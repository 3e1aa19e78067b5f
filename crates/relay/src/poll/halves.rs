//! Finding the few of many that fail: what fails together is halved, until the failing stand alone.

/// What is still to be tried, and what is known.
#[derive(Debug)]
pub struct Halves {
    chunks: Vec<Vec<usize>>,
    done: Vec<usize>,
    failing: Vec<(usize, String)>,
}

impl Halves {
    /// All of `rows` are to be tried together first.
    pub fn of(rows: Vec<usize>) -> Self {
        let chunks = if rows.is_empty() { Vec::new() } else { vec![rows] };
        Self { chunks, done: Vec::new(), failing: Vec::new() }
    }

    /// The rows to be tried next; [`Halves::tried`] must follow. None: every row is known.
    pub fn take_next(&mut self) -> Option<Vec<usize>> {
        self.chunks.pop()
    }

    /// What came of them together: done, or the words of a refusal.
    pub fn tried(&mut self, mut rows: Vec<usize>, outcome: Result<(), String>) {
        match (outcome, rows.len()) {
            (Ok(()), _) => self.done.append(&mut rows),
            (Err(words), 0 | 1) => self.failing.extend(rows.pop().map(|row| (row, words))),
            (Err(_), count) => {
                let later = rows.split_off(count / 2);
                self.chunks.extend([later, rows]);
            }
        }
    }

    /// Something is known already.
    pub fn has_some(&self) -> bool {
        !self.done.is_empty() || !self.failing.is_empty()
    }

    /// Rows that are done; rows that are not, each with its own words; rows that nobody knows of.
    pub fn end(self) -> (Vec<usize>, Vec<(usize, String)>, Vec<usize>) {
        (self.done, self.failing, self.chunks.into_iter().flatten().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(count: usize, failing: &[usize], tries_max: usize) -> (Halves, usize) {
        let mut halves = Halves::of((0..count).collect());
        let mut tries = 0;
        while tries < tries_max
            && let Some(rows) = halves.take_next()
        {
            tries += 1;
            let found = rows.iter().find(|row| failing.contains(row));
            let outcome = found.map_or(Ok(()), |row| Err(format!("no {row}")));
            halves.tried(rows, outcome);
        }
        (halves, tries)
    }

    #[test]
    fn only_the_failing_fail_each_with_its_own_words_and_soon() {
        for (count, failing) in
            [(1000, &[0, 499, 999][..]), (1, &[0]), (7, &[]), (0, &[]), (2, &[0, 1])]
        {
            let (halves, tries) = run(count, failing, usize::MAX);
            let (mut done, mut found, rest) = halves.end();
            done.sort_unstable();
            found.sort_unstable();
            let words: Vec<(usize, String)> =
                failing.iter().map(|&row| (row, format!("no {row}"))).collect();
            assert_eq!(found, words);
            assert!(done.iter().copied().eq((0..count).filter(|row| !failing.contains(row))));
            assert!(rest.is_empty());
            assert!(tries <= 1 + failing.len() * 20, "{tries} tries for {failing:?} of {count}");
        }
    }

    #[test]
    fn whoever_has_no_time_left_knows_which_rows_nobody_knows_of() {
        let (halves, _) = run(100, &[3], 6);
        assert!(halves.has_some());
        let (done, failing, mut rest) = halves.end();
        rest.extend(done);
        rest.extend(failing.into_iter().map(|(row, _)| row));
        rest.sort_unstable();
        assert!(rest.into_iter().eq(0..100));
    }
}
