//! Operators' commands: what can be asked and changed from any machine, over the HTTP API of a node.
//!
//! ```text
//!   command line ──> login (options, variables, contexts) ──> Session ──> a resource's file: list, or deed
//!                                                                │                  │
//!                                                                └── api: one ──────┘──> table, or one line of JSON
//!                                                                    connection
//! ```
//!
//! A resource is one file: its columns, its subcommands, its requests. `docs/operating/commands.md` has the exit codes,
//! which `failure` gives.

mod address;
mod api;
mod assignment;
mod audit;
mod backup;
mod bindings;
mod check;
mod chosen;
mod clients;
mod column;
mod context;
mod contexts;
mod dead;
mod deed;
mod definitions;
mod exchanges;
mod explain;
mod failure;
mod limits;
mod list;
mod lock;
mod login;
mod manual;
mod path;
mod pauses;
mod permissions;
mod policies;
mod private_file;
mod problems;
mod purges;
mod queues;
mod rabbitmq;
mod reconcile;
mod resource;
mod retries;
mod secret;
mod session;
mod status;
mod streams;
mod top;
mod topic_permissions;
mod users;
mod vhosts;
mod wait;

use std::process::ExitCode;

use clap::Subcommand;

pub(crate) use backup::files as backup_files;
pub(crate) use check::USAGE as CHECK_USAGE;
pub(crate) use rabbitmq::{translated, with_verbs};

use resource::{Global, InVhost};
use session::with;

/// The commands.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Show how a node stands: the verdict first, then what is wrong and what to do about it
    #[command(after_help = status::EXAMPLES)]
    Status(status::Args),
    /// Watch queues or connections on a terminal: sort, filter, pause
    #[command(after_help = top::EXAMPLES)]
    Top(Box<top::Args>),
    /// List, declare, purge and delete queues
    #[command(after_help = queues::EXAMPLES)]
    Queues(Box<InVhost<queues::Command>>),
    /// Drop the messages of queues that no consumer holds
    #[command(after_help = queues::EXAMPLES)]
    Purge(Box<purges::PurgeArgs>),
    /// Bring back what was purged with `--undo-for`, while its time lasts
    #[command(after_help = queues::EXAMPLES)]
    Unpurge(Box<chosen::OfQueues>),
    /// Delete queues with their messages
    #[command(after_help = queues::EXAMPLES)]
    Delete(Box<queues::DeleteArgs>),
    /// Give consumers nothing of queues until they are resumed; publishers go on
    #[command(after_help = pauses::EXAMPLES)]
    Pause(Box<chosen::OfQueues>),
    /// Let consumers have messages of paused queues again
    #[command(after_help = pauses::EXAMPLES)]
    Resume(Box<chosen::OfQueues>),
    /// Set subscriptions of streams to another place, and copy a part of a stream into a queue
    #[command(after_help = streams::EXAMPLES)]
    Stream(Box<streams::Args>),
    /// List dead letters: which queue keeps them, where they died, and why
    #[command(after_help = dead::EXAMPLES)]
    Dead(Box<dead::Args>),
    /// Send dead letters back to where they died, or elsewhere
    #[command(after_help = retries::EXAMPLES)]
    Retry(Box<retries::Args>),
    /// List, show and stop retries of dead letters
    #[command(after_help = retries::EXAMPLES)]
    Retries(Box<Global<retries::Command>>),
    /// Run a command while holding a lock; list, show and release locks
    #[command(after_help = lock::EXAMPLES)]
    Lock(Box<InVhost<lock::Command>>),
    /// List, declare and delete exchanges
    #[command(after_help = exchanges::EXAMPLES)]
    Exchanges(Box<InVhost<exchanges::Command>>),
    /// List, declare and delete bindings
    #[command(after_help = bindings::EXAMPLES)]
    Bindings(Box<InVhost<bindings::Command>>),
    /// List and close connections
    #[command(after_help = clients::CONNECTIONS_EXAMPLES)]
    Connections(Box<InVhost<clients::Connections>>),
    /// List channels
    #[command(after_help = clients::CHANNELS_EXAMPLES)]
    Channels(Box<InVhost<clients::OnlyList>>),
    /// List consumers
    #[command(after_help = clients::CONSUMERS_EXAMPLES)]
    Consumers(Box<InVhost<clients::OnlyList>>),
    /// List, add and delete vhosts
    #[command(after_help = vhosts::EXAMPLES)]
    Vhosts(Box<Global<vhosts::Command>>),
    /// List, add, change and delete users
    #[command(after_help = users::EXAMPLES)]
    Users(Box<Global<users::Command>>),
    /// Show and set what users may do in vhosts
    #[command(after_help = permissions::EXAMPLES)]
    Permissions(Box<InVhost<permissions::Command>>),
    /// Show and set which routing keys users may use at topic exchanges
    #[command(after_help = topic_permissions::EXAMPLES)]
    TopicPermissions(Box<InVhost<topic_permissions::Command>>),
    /// Show and set how much vhosts and users may have
    #[command(after_help = limits::EXAMPLES)]
    Limits(Box<InVhost<limits::Command>>),
    /// Show and set policies: settings of all queues and exchanges whose names match
    #[command(after_help = policies::EXAMPLES)]
    Policies(Box<InVhost<policies::Command>>),
    /// Write out and bring in what a broker is made of, without messages
    #[command(after_help = definitions::EXAMPLES)]
    Definitions(Box<definitions::Args>),
    /// Say where a message would go and why, or which setting of a queue is from where
    #[command(after_help = explain::EXAMPLES)]
    Explain(Box<explain::Args>),
    /// Show who changed what: users, permissions, policies, what was deleted and purged
    #[command(after_help = audit::EXAMPLES)]
    Audit(Box<audit::Args>),
    /// Prove that no message is unaccounted for, and that replicas have done the same
    #[command(after_help = reconcile::EXAMPLES)]
    Reconcile(Box<reconcile::Args>),
    /// Copy a running cluster with all messages into a directory, or check such a backup
    #[command(after_help = backup::EXAMPLES)]
    Backup(Box<backup::Args>),
    /// Check one thing, for Nagios and Kubernetes
    #[command(after_help = check::EXAMPLES)]
    Check(Box<check::Args>),
    /// Wait until a node is ready
    #[command(after_help = wait::EXAMPLES)]
    Wait(Box<wait::Args>),
    /// Give clusters names, with their users, and choose among them
    #[command(after_help = context::EXAMPLES)]
    Context(context::Args),
    /// Print the completions of a shell
    #[command(after_help = manual::COMPLETIONS_EXAMPLES)]
    Completions(manual::CompletionsArgs),
    /// Print the manual page of a command, or write those of all
    #[command(after_help = manual::MAN_EXAMPLES)]
    Man(manual::ManArgs),
}

/// Runs a command. `cli` makes the whole command line's description.
pub(crate) fn run(command: Command, cli: fn() -> clap::Command) -> ExitCode {
    match command {
        Command::Status(args) => with(&args.login, async |session| status::run(session).await),
        Command::Top(args) => {
            with(&args.login.clone(), async |session| top::run(session, *args).await)
        }
        Command::Queues(args) => {
            with(&args.login.clone(), async |session| queues::run(session, *args).await)
        }
        Command::Purge(args) => with(&args.login.clone(), async |session| {
            purges::purge(session, args.vhost.name(), args.purge).await
        }),
        Command::Unpurge(args) => {
            with(&args.login.clone(), async |session| purges::unpurge(session, *args).await)
        }
        Command::Delete(args) => with(&args.login.clone(), async |session| {
            queues::delete(session, args.vhost.name(), args.delete).await
        }),
        Command::Pause(args) => {
            with(&args.login.clone(), async |session| pauses::pause(session, *args).await)
        }
        Command::Resume(args) => {
            with(&args.login.clone(), async |session| pauses::resume(session, *args).await)
        }
        Command::Stream(args) => streams::main(*args),
        Command::Dead(args) => {
            with(&args.login.clone(), async |session| dead::run(session, *args).await)
        }
        Command::Retry(args) => {
            with(&args.login.clone(), async |session| retries::retry(session, *args).await)
        }
        Command::Retries(args) => {
            with(&args.login.clone(), async |session| retries::run(session, *args).await)
        }
        Command::Lock(args) => lock::main(*args),
        Command::Exchanges(args) => {
            with(&args.login.clone(), async |session| exchanges::run(session, *args).await)
        }
        Command::Bindings(args) => {
            with(&args.login.clone(), async |session| bindings::run(session, *args).await)
        }
        Command::Connections(args) => {
            with(&args.login.clone(), async |session| clients::connections(session, *args).await)
        }
        Command::Channels(args) => {
            with(&args.login.clone(), async |session| clients::channels(session, *args).await)
        }
        Command::Consumers(args) => {
            with(&args.login.clone(), async |session| clients::consumers(session, *args).await)
        }
        Command::Vhosts(args) => {
            with(&args.login.clone(), async |session| vhosts::run(session, *args).await)
        }
        Command::Users(args) => {
            with(&args.login.clone(), async |session| users::run(session, *args).await)
        }
        Command::Permissions(args) => {
            with(&args.login.clone(), async |session| permissions::run(session, *args).await)
        }
        Command::TopicPermissions(args) => {
            with(&args.login.clone(), async |session| topic_permissions::run(session, *args).await)
        }
        Command::Limits(args) => {
            with(&args.login.clone(), async |session| limits::run(session, *args).await)
        }
        Command::Policies(args) => {
            with(&args.login.clone(), async |session| policies::run(session, *args).await)
        }
        Command::Definitions(args) => {
            with(&args.login.clone(), async |session| definitions::run(session, *args).await)
        }
        Command::Explain(args) => {
            with(&args.login.clone(), async |session| explain::run(session, *args).await)
        }
        Command::Audit(args) => {
            with(&args.login.clone(), async |session| audit::run(session, *args).await)
        }
        Command::Reconcile(args) => {
            with(&args.login.clone(), async |session| reconcile::run(session, *args).await)
        }
        Command::Backup(args) => backup::run(*args),
        Command::Check(args) => check::run(*args),
        Command::Wait(args) => {
            with(&args.login.clone(), async |session| wait::run(session, *args).await)
        }
        Command::Context(args) => context::run(args),
        Command::Completions(args) => manual::completions(&args, cli()),
        Command::Man(args) => manual::man(&args, cli()),
    }
}
