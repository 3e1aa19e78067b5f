//! `millrace doctor`: reads a data directory, changes nothing, and says what it holds and whether a node
//! can start from it.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use machine::QueueId;
use wal::{Damage, FileDisk, Lost, Report, inspect};

/// What was found is not as it should be.
const EXIT_FOUND: u8 = 1;
/// The directory could not be examined.
const EXIT_UNABLE: u8 = 2;

/// What `millrace doctor` takes.
#[derive(clap::Args)]
#[command(
    after_help = "Exit code 0: a node can start from the directory. 1: something in it is damaged or does not belong \
                        there. 2: it could not be read.\nYou can run it beside a running node; a torn end of the log \
                        may then be a commit in progress."
)]
pub(crate) struct Args {
    /// The data directory to check
    #[arg(long, value_name = "DIR", default_value = "millrace-data", env = "MILLRACE_DATA_DIR")]
    data_dir: PathBuf,
    /// Also read and check every message of every segment
    #[arg(long)]
    deep: bool,
    /// Print one line of JSON
    #[arg(long)]
    json: bool,
}

/// Examines the directory.
pub(crate) fn run(args: &Args) -> ExitCode {
    let disk = match FileDisk::existing(&args.data_dir) {
        Ok(disk) => disk,
        Err(error) => return unable(args, &error.to_string()),
    };
    let report = match inspect(&disk, args.deep) {
        Ok(report) => report,
        Err(error) => return unable(args, &error.to_string()),
    };
    let problems = problems(&report, names_of_lost(args, &report).as_ref());
    let text = if args.json { json(&report, &problems) } else { words(&report, &problems) };
    if std::io::stdout().write_all(text.as_bytes()).is_err() {
        return ExitCode::from(EXIT_UNABLE);
    }
    if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(EXIT_FOUND) }
}

fn unable(args: &Args, why: &str) -> ExitCode {
    let dir = args.data_dir.display();
    // Nobody is left to tell if standard error is gone.
    let _ = writeln!(std::io::stderr(), "millrace doctor: cannot examine {dir}: {why}");
    ExitCode::from(EXIT_UNABLE)
}

/// Vhost and name of queues, by number.
type Names = BTreeMap<QueueId, (String, String)>;

/// The names of the directory's queues, where they are needed and can be read.
fn names_of_lost(args: &Args, report: &Report) -> Option<Names> {
    let is_needed = report.groups.iter().any(|group| !group.lost.is_empty());
    is_needed.then(|| cluster::queue_names(&args.data_dir).ok()).flatten()
}

/// How an operator knows a queue.
fn queue_name(queue: QueueId, names: Option<&Names>) -> String {
    let number = queue.0;
    // A queue with priorities has a number for each of them.
    match names.map(|names| names.get(&queue.base())) {
        Some(Some((vhost, name))) => format!("queue {name:?} of vhost {vhost:?}"),
        Some(None) => format!("queue number {number}, which is deleted"),
        None => format!("queue number {number}"),
    }
}

/// What keeps a node from starting, or a queue from being read, and what to do about it.
fn problems(report: &Report, names: Option<&Names>) -> Vec<String> {
    let mut problems = Vec::new();
    for group in &report.groups {
        if let Some(damage) = &group.damage {
            problems.push(format!(
                "group {}: {}. The damaged part was synced once, so a node does not discard it: restore the \
                 directory from a backup",
                group.group,
                place(damage)
            ));
        }
        for Lost { path, queue, count, of } in &group.lost {
            let queue = queue_name(QueueId(*queue), names);
            problems.push(format!(
                "group {}: {count} of the {of} messages that {path} has of {queue} cannot be read",
                group.group
            ));
        }
    }
    for loss in &report.losses {
        problems.push(format!("the log: {}", place(loss)));
    }
    for (path, why) in &report.notes {
        problems.push(format!(
            "{why}. A node does not start without this file: restore {path} from a backup of this directory"
        ));
    }
    if report.is_uncounted {
        problems.push(
            "the file BOOT is missing. It counts the starts of this directory, and without it the other nodes of a \
             cluster take the directory for an old copy and refuse it. Restore BOOT from a backup of this directory, \
             or replace the node (`millrace cluster replace`). A node without a cluster starts without BOOT"
                .to_owned(),
        );
    }
    for name in &report.unknown {
        problems.push(format!(
            "{name} does not belong to Millrace: move it out of the directory. Millrace never deletes a file that it \
             does not know"
        ));
    }
    problems
}

fn place(damage: &Damage) -> String {
    format!("{} at byte {}: {}", damage.path, damage.offset, damage.what)
}

fn words(report: &Report, problems: &[String]) -> String {
    let mut text = format!("{}\n", report.identity);
    text += &format!(
        "{} in {} log files and {} groups; {} batches in the log{}\n",
        size(report.bytes),
        report.files.len(),
        report.groups.len(),
        report.batches,
        if report.is_torn {
            "; its end is torn, and the next start removes the torn part"
        } else {
            ""
        }
    );
    for group in &report.groups {
        let span = |span: Option<(u64, u64)>| match span {
            Some((first, last)) => format!("{first} to {last}"),
            None => "none".to_owned(),
        };
        let checkpoint = group
            .checkpoint
            .map_or("none".to_owned(), |(index, term)| format!("index {index}, term {term}"));
        text += &format!(
            "  group {:<3} checkpoint: {checkpoint}; entries: {}; {} messages in {} segments ({})\n",
            group.group,
            span(group.entries),
            group.messages,
            group.segments,
            size(group.segment_bytes)
        );
    }
    if problems.is_empty() {
        text += "A node can start from this directory.\n";
    } else {
        text += "Problems:\n";
        problems.iter().for_each(|problem| text += &format!("  {problem}\n"));
    }
    text
}

fn json(report: &Report, problems: &[String]) -> String {
    let groups: Vec<_> = report
        .groups
        .iter()
        .map(|group| {
            serde_json::json!({
                "group": group.group,
                "checkpoint_index": group.checkpoint.map(|(index, _)| index),
                "first_entry": group.entries.map(|(first, _)| first),
                "last_entry": group.entries.map(|(_, last)| last),
                "segments": group.segments,
                "segment_messages": group.messages,
                "segment_bytes": group.segment_bytes,
                "is_damaged": group.damage.is_some(),
            })
        })
        .collect();
    let files: Vec<_> = report
        .files
        .iter()
        .map(|file| {
            serde_json::json!({
                "path": file.path,
                "bytes": file.bytes,
                "used_bytes": file.used_bytes,
            })
        })
        .collect();
    let line = serde_json::json!({
        "cluster": format!("{:032x}", report.identity.cluster),
        "node": report.identity.node,
        "incarnation": report.identity.incarnation,
        "bytes": report.bytes,
        "batches": report.batches,
        "is_torn": report.is_torn,
        "files": files,
        "groups": groups,
        "problems": problems,
    });
    format!("{line}\n")
}

fn size(bytes: u64) -> String {
    const MIB: u64 = 1 << 20;
    if bytes < MIB { format!("{} KiB", bytes / 1024) } else { format!("{} MiB", bytes / MIB) }
}
