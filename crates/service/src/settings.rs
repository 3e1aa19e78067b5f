//! Settings as tables: each row is one setting with all that is to be said of it.
//!
//! A crate writes its table with [`settings!`](crate::settings!). From the rows come what a file, the environment and
//! the command line may say ([`load`]), what is refused and in which words, and the reference ([`page`]). Nothing here
//! opens a file or knows a command line: texts are handed in.

mod kind;
mod load;
mod page;
mod parts;

pub use kind::Kind;
pub use load::{Flag, Said, Values, load};
pub use page::{example, page, reference};
pub use parts::{Loaded, Parts, load_with_parts};

/// One setting.
#[derive(Clone, Debug)]
pub struct Setting {
    pub key: &'static str,
    pub kind: Kind,
    /// The variable of the environment is this with the key in capitals.
    prefix: Option<&'static str>,
    /// The variable, where it has a name of its own.
    variable: Option<&'static str>,
    /// It is an option of the command line.
    pub has_flag: bool,
    /// What holds if nobody says anything, as it would be written.
    pub default: Option<&'static str>,
    /// What holds then, in words, where that is no value.
    otherwise: Option<&'static str>,
    /// A word that is accepted, too, and stands for no value.
    word: Option<&'static str>,
    /// No message shows it.
    is_secret: bool,
    /// A reload (SIGHUP) takes it; all others wait for a restart.
    pub is_reloaded: bool,
    about: &'static str,
}

impl Setting {
    /// Without anything but these. The rest is added by the methods below, which the rows of a table name.
    pub const fn new(
        key: &'static str,
        kind: Kind,
        about: &'static str,
        prefix: Option<&'static str>,
    ) -> Self {
        Self {
            key,
            kind,
            prefix,
            variable: None,
            has_flag: false,
            default: None,
            otherwise: None,
            word: None,
            is_secret: false,
            is_reloaded: false,
            about,
        }
    }

    pub const fn variable(self, name: &'static str) -> Self {
        Self { variable: Some(name), ..self }
    }

    pub const fn flag(self) -> Self {
        Self { has_flag: true, ..self }
    }

    pub const fn default(self, text: &'static str) -> Self {
        Self { default: Some(text), ..self }
    }

    pub const fn otherwise(self, words: &'static str) -> Self {
        Self { otherwise: Some(words), ..self }
    }

    pub const fn or(self, word: &'static str) -> Self {
        Self { word: Some(word), ..self }
    }

    pub const fn secret(self) -> Self {
        Self { is_secret: true, ..self }
    }

    pub const fn reload(self) -> Self {
        Self { is_reloaded: true, ..self }
    }

    /// Its variable of the environment.
    pub fn variable_name(&self) -> Option<String> {
        let made = self.prefix.map(|prefix| format!("{prefix}{}", self.key.to_uppercase()));
        self.variable.map(str::to_owned).or(made)
    }

    /// Its option, without the dashes.
    pub fn flag_name(&self) -> String {
        self.key.replace('_', "-")
    }

    /// The sentence on it.
    pub fn about(&self) -> &'static str {
        self.about.trim()
    }

    /// What it accepts, in words.
    pub fn bounds(&self) -> String {
        let bounds = self.kind.bounds();
        self.word.map_or(bounds.clone(), |word| format!("{bounds}; or {word}"))
    }

    /// What holds if nobody says anything, in words.
    pub fn default_words(&self) -> Option<&'static str> {
        self.default.or(self.otherwise)
    }

    /// Whether it is a secret, which help texts and messages do not show.
    pub fn is_secret(&self) -> bool {
        self.is_secret
    }

    /// Whether this may be its value.
    ///
    /// # Errors
    /// What it must be.
    pub fn check(&self, text: &str) -> Result<(), String> {
        if self.word == Some(text) { Ok(()) } else { self.kind.check(text) }
    }
}

/// The setting with a key.
///
/// # Panics
/// The table has none: a slip of who asks.
pub fn setting(table: &'static [Setting], key: &str) -> &'static Setting {
    table.iter().find(|setting| setting.key == key).expect("the table has a row for each key")
}

/// A table of settings. A row is the sentence on the setting, its key, its [`Kind`], and what methods of [`Setting`]
/// add. With a prefix (`in Some("MILLRACE_")`), every setting has a variable.
#[macro_export]
macro_rules! settings {
    ($(#[$meta:meta])* $vis:vis const $name:ident in $prefix:expr;
     $($(#[doc = $about:literal])+ $key:ident: $kind:expr $(, $how:ident $(($argument:expr))?)*;)+) => {
        $(#[$meta])*
        $vis const $name: &[$crate::settings::Setting] = &[$(
            $crate::settings::Setting::new(stringify!($key), $kind, concat!($($about),+), $prefix)
                $(.$how($($argument)?))*
        ),+];
    };
}

#[cfg(test)]
mod tests;
