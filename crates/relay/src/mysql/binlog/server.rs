//! Whether a server's binlog can be read, and what to do where not. `run` refuses what `doctor` finds.

use crate::admin::Finding;

/// What the server says of its binlog.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Binlog {
    /// What it calls itself.
    pub version: String,
    pub is_on: bool,
    pub format: String,
    pub row_image: String,
    pub row_metadata: String,
    pub is_compressed: bool,
    /// Files are removed after so many seconds; none: never by themselves.
    pub expires_seconds: Option<u64>,
    /// Why this user may not read it. None: it may.
    pub refused: Option<String>,
}

impl Binlog {
    /// What keeps the relay from reading it, and what to do.
    pub(crate) fn problems(&self) -> Vec<(String, &'static str)> {
        let mut problems = Vec::new();
        let mut check = |is_right: bool, what: String, advice| {
            if !is_right {
                problems.push((what, advice));
            }
        };
        check(
            self.version.to_lowercase().contains("mariadb"),
            format!("{} is no MariaDB, and the relay reads only MariaDB's binlog", self.version),
            "Use --source poll",
        );
        check(
            self.is_on,
            "the server writes no binlog".into(),
            "Start it with log_bin (and a server_id of its own), or use --source poll",
        );
        check(
            self.format.eq_ignore_ascii_case("ROW"),
            format!("binlog_format is {}: rows may be written as statements", self.format),
            "SET GLOBAL binlog_format = ROW, and in the server's file; sessions that are open keep theirs",
        );
        check(
            self.row_image.eq_ignore_ascii_case("FULL"),
            format!("binlog_row_image is {}: columns may be missing", self.row_image),
            "SET GLOBAL binlog_row_image = FULL, and in the server's file; sessions that are open keep theirs",
        );
        check(
            self.row_metadata.eq_ignore_ascii_case("FULL"),
            format!("binlog_row_metadata is {}: columns have no names", self.row_metadata),
            "SET GLOBAL binlog_row_metadata = FULL, and in the server's file",
        );
        check(
            !self.is_compressed,
            "log_bin_compress is on, and the relay reads rows that are not compressed".into(),
            "SET GLOBAL log_bin_compress = OFF, and in the server's file",
        );
        problems
    }

    /// For `doctor`.
    pub(crate) fn findings(&self) -> Vec<Finding> {
        let problems = self.problems();
        let mut findings: Vec<Finding> = problems
            .into_iter()
            .map(|(what, advice)| Finding::fail("binlog", what, advice))
            .collect();
        if let Some(why) = &self.refused {
            findings.push(Finding::fail(
                "privileges",
                format!("reading the binlog is refused: {why}"),
                "GRANT REPLICATION SLAVE ON *.* TO the relay's user",
            ));
        }
        if findings.is_empty() {
            findings.push(Finding::ok(
                "binlog",
                "rows are written whole, with the names of their columns",
            ));
        }
        if self.is_on && self.expires_seconds.is_some_and(|after| after < 24 * 3600) {
            findings.push(Finding::warn(
                "binlog-kept",
                "files of the binlog are removed within a day: a relay that is down for longer loses its place",
                "Raise binlog_expire_logs_seconds above the longest time the relay may be down",
            ));
        }
        findings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Binlog {
        Binlog {
            version: "10.11.6-MariaDB-log".into(),
            is_on: true,
            format: "ROW".into(),
            row_image: "FULL".into(),
            row_metadata: "FULL".into(),
            ..Binlog::default()
        }
    }

    #[test]
    fn each_setting_that_would_lose_rows_is_told_with_its_cure() {
        assert_eq!(good().problems(), []);
        type Spoil = fn(&mut Binlog);
        let cases: [(Spoil, &str); 6] = [
            (|it| it.version = "8.0.36".into(), "no MariaDB"),
            (|it| it.is_on = false, "no binlog"),
            (|it| it.format = "MIXED".into(), "binlog_format is MIXED"),
            (|it| it.row_image = "MINIMAL".into(), "binlog_row_image"),
            (|it| it.row_metadata = "NO_LOG".into(), "binlog_row_metadata"),
            (|it| it.is_compressed = true, "log_bin_compress"),
        ];
        for (spoil, word) in cases {
            let mut binlog = good();
            spoil(&mut binlog);
            let told = binlog.problems();
            assert!(told.len() == 1 && told[0].0.contains(word), "{told:?}");
        }
    }
}
