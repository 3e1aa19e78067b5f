//! One topic pattern: words between dots, `*` for any one word, `#` for any number of words.
//!
//! The topic exchange finds all bindings of a key at once, in a tree (`catalog::routing::topic`). Here one key is held
//! against a few patterns, and no answer costs memory.

#[derive(Clone, Debug, PartialEq, Eq)]
enum Word {
    Is(Box<[u8]>),
    One,
    Many,
}

#[derive(Clone, Debug)]
pub(super) struct Pattern {
    words: Vec<Word>,
}

impl Pattern {
    pub(super) fn new(text: &str) -> Self {
        let mut words = Vec::new();
        for word in text.split('.').filter(|_| !text.is_empty()) {
            let word = match word {
                "*" => Word::One,
                "#" => Word::Many,
                word => Word::Is(word.as_bytes().into()),
            };
            // `#.#` is `#`.
            if word != Word::Many || words.last() != Some(&Word::Many) {
                words.push(word);
            }
        }
        Self { words }
    }

    /// Whether the key matches. What follows the last `#` that was met is tried at each later word in turn, so it costs
    /// at most the words of the pattern times those of the key.
    pub(super) fn matches(&self, key: &[u8]) -> bool {
        // The words of the key that are left, if any are: the empty key has none.
        let mut left = (!key.is_empty()).then_some(key);
        let mut at = 0;
        // Behind the last `#`, and the first word that it has not taken.
        let mut again: Option<(usize, Option<&[u8]>)> = None;
        loop {
            if self.words.get(at) == Some(&Word::Many) {
                at += 1;
                if at == self.words.len() {
                    return true;
                }
                again = Some((at, left));
                continue;
            }
            let next = left.map(first_word);
            match (self.words.get(at), next) {
                (None, None) => return true,
                (Some(word), Some((first, rest))) if word.takes(first) => {
                    (at, left) = (at + 1, rest);
                }
                (Some(_), Some(_)) | (Some(_), None) | (None, Some(_)) => {
                    let Some((behind, Some(from))) = again else { return false };
                    let (_, rest) = first_word(from);
                    (at, left) = (behind, rest);
                    again = Some((behind, rest));
                }
            }
        }
    }
}

impl Word {
    fn takes(&self, word: &[u8]) -> bool {
        match self {
            Self::Is(own) => **own == *word,
            Self::One | Self::Many => true,
        }
    }
}

/// The first word of a key, and what follows its dot.
fn first_word(key: &[u8]) -> (&[u8], Option<&[u8]>) {
    match key.iter().position(|byte| *byte == b'.') {
        Some(dot) => (&key[..dot], Some(&key[dot + 1..])),
        None => (key, None),
    }
}

#[cfg(test)]
mod tests {
    use super::Pattern;

    /// Slow, and plain enough to be right.
    fn is_match(pattern: &[&str], key: &[&str]) -> bool {
        match pattern.split_first() {
            None => key.is_empty(),
            Some((&"#", rest)) => (0..=key.len()).any(|taken| is_match(rest, &key[taken..])),
            Some((word, rest)) => key.split_first().is_some_and(|(first, left)| {
                (*word == "*" || word == first) && is_match(rest, left)
            }),
        }
    }

    fn words(text: &str) -> Vec<&str> {
        text.split('.').filter(|_| !text.is_empty()).collect()
    }

    /// All texts of up to so many of these words.
    fn texts(of: &[&str], count: usize) -> Vec<String> {
        let mut all = vec![Vec::new()];
        for _ in 0..count {
            let longer: Vec<Vec<&str>> = all
                .iter()
                .flat_map(|text| of.iter().map(move |word| [&text[..], &[*word]].concat()))
                .collect();
            all.extend(longer);
            all.sort();
            all.dedup();
        }
        all.into_iter().map(|words| words.join(".")).collect()
    }

    #[test]
    fn patterns_match_what_the_definition_says() {
        let keys = texts(&["a", "b", ""], 4);
        for pattern in texts(&["a", "b", "*", "#"], 4) {
            let compiled = Pattern::new(&pattern);
            for key in &keys {
                let expected = is_match(&words(&pattern), &words(key));
                assert_eq!(compiled.matches(key.as_bytes()), expected, "{pattern} and {key}");
            }
        }
    }

    #[test]
    fn a_pattern_of_many_hashes_costs_no_product_of_them() {
        let pattern = Pattern::new(&"#.a.".repeat(60));
        let key = "a.".repeat(100) + "b";
        assert!(!pattern.matches(key.as_bytes()));
    }
}
