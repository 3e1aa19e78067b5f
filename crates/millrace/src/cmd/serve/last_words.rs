//! What a node says when it ends by itself, and its exit code.

use cluster::Cause;

/// Exit code of a node whose disk failed, or was written to behind its back: what `EX_IOERR` is in `sysexits.h`.
const EXIT_DISK: i32 = 74;

/// Exit code of a node whose program is too old for what its cluster writes: what `EX_CONFIG` is there.
const EXIT_OUTDATED: i32 = 78;

/// What happened, to what, and what to do. Where the disk did not fail, `why` says what to do.
pub(super) fn of(cause: Cause, why: &str, data_dir: &str) -> String {
    // `why` names files as they lie in the data directory.
    match cause {
        Cause::Disk => format!(
            "the disk failed, so the node stops: {why}. The data directory is {data_dir}: check the disk, then start \
             the node again"
        ),
        Cause::Directory => format!(
            "something else changed the data directory {data_dir} while the node ran, so the node stops: {why}"
        ),
        Cause::Outdated => {
            format!("this program is too old for the log in {data_dir}, so the node stops: {why}")
        }
    }
}

pub(super) fn exit_code(cause: Cause) -> i32 {
    match cause {
        Cause::Disk | Cause::Directory => EXIT_DISK,
        Cause::Outdated => EXIT_OUTDATED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_disk_is_told_with_its_file_its_directory_and_what_to_do() {
        assert_eq!(
            of(Cause::Disk, "sync of wal/00000002.wal failed: EIO", "/data"),
            "the disk failed, so the node stops: sync of wal/00000002.wal failed: EIO. The data directory is /data: check \
             the disk, then start the node again"
        );
    }

    #[test]
    fn other_ends_name_the_directory_and_leave_what_to_do_to_the_reason() {
        for cause in [Cause::Directory, Cause::Outdated] {
            let words = of(cause, "do this", "/data");
            assert!(
                words.contains("/data") && words.ends_with("so the node stops: do this"),
                "{words}"
            );
        }
    }
}
