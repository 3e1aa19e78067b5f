//! One exposition made of several: OpenMetrics has each family once, with the samples of all.

use std::collections::BTreeMap;

/// Families by their names, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Families {
    names: Vec<String>,
    texts: BTreeMap<String, Family>,
}

#[derive(Debug, Default)]
struct Family {
    /// Name, type, unit, and what it is.
    head: Vec<String>,
    samples: String,
}

impl Families {
    /// Adds an exposition whose samples have labels that no other has.
    pub(super) fn add(&mut self, exposition: &str) {
        let mut current = String::new();
        for line in exposition.lines().filter(|line| *line != "# EOF") {
            let told = line.strip_prefix("# ");
            if let Some(name) = told.and_then(|told| told.split(' ').nth(1)) {
                name.clone_into(&mut current);
            }
            let family = self.texts.entry(current.clone()).or_insert_with(|| {
                self.names.push(current.clone());
                Family::default()
            });
            if told.is_none() {
                family.samples += line;
                family.samples.push('\n');
            } else if !family.head.iter().any(|known| known == line) {
                family.head.push(line.to_owned());
            }
        }
    }

    /// All of them as one.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for family in self.names.iter().filter_map(|name| self.texts.get(name)) {
            for line in &family.head {
                text += line;
                text.push('\n');
            }
            text += &family.samples;
        }
        text + "# EOF\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_family_is_told_once_with_the_samples_of_all() {
        let of = |source: &str| {
            format!(
                "# HELP a What it is.\n# TYPE a counter\na_total{{source=\"{source}\"}} 1\n# HELP b_seconds Time.\n\
                 # TYPE b_seconds gauge\n# UNIT b_seconds seconds\nb_seconds{{source=\"{source}\"}} 2\n# EOF\n"
            )
        };
        let mut families = Families::default();
        assert_eq!(families.text(), "# EOF\n");
        families.add(&of("x"));
        families.add(&of("y"));
        assert_eq!(
            families.text(),
            "# HELP a What it is.\n# TYPE a counter\na_total{source=\"x\"} 1\na_total{source=\"y\"} 1\n\
             # HELP b_seconds Time.\n# TYPE b_seconds gauge\n# UNIT b_seconds seconds\n\
             b_seconds{source=\"x\"} 2\nb_seconds{source=\"y\"} 2\n# EOF\n"
        );
    }
}
