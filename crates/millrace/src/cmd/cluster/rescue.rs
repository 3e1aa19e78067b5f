//! `millrace cluster rescue`: goes on with what is left when a majority is gone for good. Works on the data
//! directory of a node that does not run, and changes nothing before it is told to.

mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cluster::rescue::{Fate, GroupCopy, Plan, Survey, Voters, plan};
use machine::{GroupId, NodeId};
use serde::{Deserialize, Serialize};

use super::super::terminal::{remark, say};

/// What has to be typed.
const WORD: &str = "rescue";

/// What `millrace cluster rescue` takes.
#[derive(clap::Args)]
#[command(after_help = "\
A group (or the catalog, where all nodes vote) whose voters are mostly gone for good waits for them for ever. This
command lets one surviving node continue the group alone, with the data that this node has.
Use it only if the lost nodes will never come back. If they can come back, start them: that loses nothing.

  1. Stop all surviving nodes. Copy their data directories if there is room.
  2. On one of them, name all lost nodes. This shows the plan and changes nothing:
       millrace cluster rescue --data-dir DIR --lost 2,3
  3. If more nodes survive, let each print what it has, then pass each what the others printed:
       millrace cluster rescue --data-dir DIR --lost 3,4,5 --json > node1.json   (on each)
       millrace cluster rescue --data-dir DIR --lost 3,4,5 --with node2.json     (on each)
  4. Repeat the last command with --yes on each of them. Then start them as usual.
  5. Add new nodes with new numbers: millrace cluster add, serve --join, rebalance.

You lose confirmed messages that only lost nodes had, and all messages of groups without a copy on a surviving node;
the queues of such groups are empty afterwards. You lose acknowledgements that only lost nodes had: those messages are
delivered again. The lost nodes are no longer members and are refused if they come back: delete their directories.
Exit code 0: the plan was shown, or carried out. 1: refused, with the reason; nothing was changed.")]
pub(super) struct Args {
    /// Numbers of all nodes that are lost for good
    #[arg(long, value_name = "NODES", value_delimiter = ',', required = true)]
    lost: Vec<u64>,
    /// Output of the same command with --json on another surviving node (repeat for each of them)
    #[arg(long, value_name = "FILE")]
    with: Vec<PathBuf>,
    /// Carry the plan out without asking
    #[arg(long)]
    yes: bool,
    /// Also rescue groups that could continue without a rescue
    #[arg(long)]
    force: bool,
    /// Print one line of JSON
    #[arg(long)]
    json: bool,
}

/// Shows what would be done, and does it if somebody says so.
pub(super) fn run(data_dir: &Path, args: &Args) -> ExitCode {
    match rescue(data_dir, args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            remark(&format!("millrace: {why}"));
            ExitCode::FAILURE
        }
    }
}

fn rescue(data_dir: &Path, args: &Args) -> Result<(), String> {
    let lost: BTreeSet<NodeId> = args.lost.iter().copied().map(NodeId).collect();
    let others: Vec<Survey> = args.with.iter().map(|path| load(path)).collect::<Result<_, _>>()?;
    let ours = cluster::survey_directory(data_dir)?;
    let mut surveys = vec![ours.clone()];
    surveys.extend_from_slice(&others);
    let planned = plan(&surveys, &lost, args.force);
    let has_work = planned.as_ref().is_ok_and(|plan| plan.is_for(ours.node));
    if args.json {
        // Without others' surveys this is what others are given.
        let is_done = args.yes && has_work;
        if args.yes {
            planned.clone()?;
        }
        if is_done {
            cluster::rescue_directory(data_dir, &others, &lost, args.force)?;
        }
        let shown = Shown::of(&ours, &lost, planned.as_ref(), is_done);
        say(&serde_json::to_string(&shown).map_err(|error| error.to_string())?);
        return Ok(());
    }
    say(&words::survey(&ours, &lost, planned.as_ref().ok()));
    let plan = planned?;
    say(&words::plan(&ours, &lost, &plan));
    if !has_work {
        return Ok(());
    }
    if !args.yes && !is_typed()? {
        say("Nothing was changed. To do it, repeat the command with --yes.");
        return Ok(());
    }
    cluster::rescue_directory(data_dir, &others, &lost, args.force)?;
    say(&words::done(&ours, &plan));
    Ok(())
}

/// Whether somebody at a terminal says so.
fn is_typed() -> Result<bool, String> {
    let input = std::io::stdin();
    if !input.is_terminal() || !std::io::stdout().is_terminal() {
        return Ok(false);
    }
    say(&format!("Type {WORD} to do this; anything else changes nothing:"));
    let mut line = String::new();
    input.lock().read_line(&mut line).map_err(|error| format!("nothing was changed: {error}"))?;
    Ok(line.trim() == WORD)
}

/// What another node shows.
fn load(path: &Path) -> Result<Survey, String> {
    let fail = |why: String| {
        format!(
            "{} is not what `millrace cluster rescue --json` prints on another node: {why}",
            path.display()
        )
    };
    let text = std::fs::read_to_string(path).map_err(|error| fail(error.to_string()))?;
    let shown: Shown = serde_json::from_str(&text).map_err(|error| fail(error.to_string()))?;
    shown.survey().ok_or_else(|| fail("the cluster's id is not a number".to_owned()))
}

/// What `--json` prints.
#[derive(Serialize, Deserialize)]
struct Shown {
    cluster: String,
    node: u64,
    lost: BTreeSet<u64>,
    members: BTreeSet<u64>,
    retired: BTreeSet<u64>,
    term: u64,
    groups: Vec<ShownCopy>,
    founders: Vec<Vec<u64>>,
    /// What becomes of each group, and who does it.
    plan: Option<BTreeMap<u32, ShownFate>>,
    /// Queues that are empty afterwards, because nothing is left of their groups.
    lost_queues: Vec<String>,
    /// Why there is no plan.
    refused: Option<String>,
    /// Whether it was done on this node.
    done: bool,
}

#[derive(Serialize, Deserialize)]
struct ShownCopy {
    group: u32,
    last_term: u64,
    last_index: u64,
    committed: u64,
    voters: Vec<ShownVoters>,
    is_damaged: bool,
    is_incomplete: bool,
}

#[derive(Serialize, Deserialize)]
struct ShownVoters {
    voters: BTreeSet<u64>,
    outgoing: BTreeSet<u64>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ShownFate {
    Lives,
    Rescued { by: u64 },
    BegunAnew { by: u64 },
}

fn numbers(nodes: &BTreeSet<NodeId>) -> BTreeSet<u64> {
    nodes.iter().map(|node| node.0).collect()
}

fn nodes(numbers: BTreeSet<u64>) -> BTreeSet<NodeId> {
    numbers.into_iter().map(NodeId).collect()
}

impl Shown {
    fn of(
        survey: &Survey,
        lost: &BTreeSet<NodeId>,
        plan: Result<&Plan, &String>,
        done: bool,
    ) -> Self {
        let founders = survey.founders.iter();
        Self {
            cluster: format!("{:032x}", survey.cluster),
            node: survey.node.0,
            lost: numbers(lost),
            members: numbers(&survey.nodes),
            retired: numbers(&survey.retired),
            term: survey.term,
            groups: survey.copies.iter().map(ShownCopy::of).collect(),
            founders: founders.map(|nodes| nodes.iter().map(|node| node.0).collect()).collect(),
            plan: plan.ok().map(|plan| {
                plan.fates.iter().map(|(group, fate)| (group.0, ShownFate::of(*fate))).collect()
            }),
            lost_queues: plan.map_or(Vec::new(), |plan| words::lost_queues(survey, plan)),
            refused: plan.err().cloned(),
            done,
        }
    }

    fn survey(self) -> Option<Survey> {
        let founders = self.founders.into_iter();
        Some(Survey {
            cluster: u128::from_str_radix(&self.cluster, 16).ok()?,
            node: NodeId(self.node),
            nodes: nodes(self.members),
            retired: nodes(self.retired),
            term: self.term,
            copies: self.groups.into_iter().map(ShownCopy::copy).collect(),
            founders: founders.map(|nodes| nodes.into_iter().map(NodeId).collect()).collect(),
            queues: BTreeMap::new(),
        })
    }
}

impl ShownCopy {
    fn of(copy: &GroupCopy) -> Self {
        let voters = |it: &Voters| ShownVoters {
            voters: numbers(&it.voters),
            outgoing: numbers(&it.outgoing),
        };
        Self {
            group: copy.group.0,
            last_term: copy.last.0,
            last_index: copy.last.1,
            committed: copy.committed,
            voters: copy.voters.iter().map(voters).collect(),
            is_damaged: copy.is_damaged,
            is_incomplete: copy.is_incomplete,
        }
    }

    fn copy(self) -> GroupCopy {
        let voters =
            |it: ShownVoters| Voters { voters: nodes(it.voters), outgoing: nodes(it.outgoing) };
        GroupCopy {
            group: GroupId(self.group),
            last: (self.last_term, self.last_index),
            committed: self.committed,
            voters: self.voters.into_iter().map(voters).collect(),
            is_damaged: self.is_damaged,
            is_incomplete: self.is_incomplete,
        }
    }
}

impl ShownFate {
    fn of(fate: Fate) -> Self {
        match fate {
            Fate::Lives => Self::Lives,
            Fate::Rescued { by } => Self::Rescued { by: by.0 },
            Fate::BegunAnew { by } => Self::BegunAnew { by: by.0 },
        }
    }
}
