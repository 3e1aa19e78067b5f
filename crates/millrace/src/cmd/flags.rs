//! Options of the command line that tables of settings make.
//!
//! The environment is not read here: `service::settings::load` does that, for options and for what has none.

use std::marker::PhantomData;

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};
use service::settings::{Flag, Kind, Setting};

/// A command whose options are settings.
pub(crate) trait Tables: Clone + Send + Sync + 'static {
    /// Those with an option.
    const SHOWN: &'static [&'static [Setting]];
}

/// The settings that the command line gives.
#[derive(Clone, Debug)]
pub(crate) struct Flags<T> {
    pub(crate) given: Vec<Flag>,
    tables: PhantomData<T>,
}

fn options<T: Tables>() -> impl Iterator<Item = &'static Setting> {
    T::SHOWN.iter().flat_map(|table| table.iter()).filter(|setting| setting.has_flag)
}

impl<T: Tables> clap::FromArgMatches for Flags<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let is_given = |setting: &&Setting| {
            matches.value_source(setting.key) == Some(ValueSource::CommandLine)
        };
        let given = options::<T>().filter(is_given).map(|setting| {
            let text = if matches!(setting.kind, Kind::Switch) {
                "true".to_owned()
            } else {
                matches.get_one::<String>(setting.key).cloned().unwrap_or_default()
            };
            Flag::named(setting, text)
        });
        Ok(Self { given: given.collect(), tables: PhantomData })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<T: Tables> clap::Args for Flags<T> {
    fn augment_args(command: Command) -> Command {
        command.args(options::<T>().map(option))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

fn option(setting: &'static Setting) -> Arg {
    // clap wants names that stay. A process makes them once.
    let name: &str = setting.flag_name().leak();
    let arg = Arg::new(setting.key).long(name).help(help(setting));
    let arg = match setting.kind {
        Kind::Switch => return arg.action(ArgAction::SetTrue),
        // What is no number is a wrong command line; bounds are judged with all other settings.
        Kind::Count(..) => {
            arg.value_parser(|text: &str| text.parse::<u64>().map(|_| text.to_owned()))
        }
        Kind::Any(_) | Kind::Text(_) | Kind::Judged(..) | Kind::Address | Kind::Choice(_) => arg,
        Kind::Rate(..) | Kind::Bytes(_) | Kind::Time(_) => arg,
    };
    let value: &str = setting.kind.value_name().leak();
    arg.value_name(value)
}

fn help(setting: &Setting) -> String {
    let mut help = setting.about().to_owned();
    if matches!(setting.kind, Kind::Count(..) | Kind::Bytes(_) | Kind::Time(_)) {
        help += &format!(", {}", setting.bounds());
    }
    if let Some(name) = setting.variable_name() {
        help += &format!(" [env: {name}]");
    }
    if let Some(default) = setting.default_words().filter(|_| !matches!(setting.kind, Kind::Switch))
    {
        help += &format!(" [default: {default}]");
    }
    help
}
