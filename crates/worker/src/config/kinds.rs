//! Which sources and targets there are, by the word `kind`.

use crate::io::source::{mns, redis, sqs};
use crate::source::amqp::settings as amqp;
use crate::target::{apns, fcm, getui, huawei, program, webhook, xiaomi};

use super::document::{Document, Table};

/// Kinds of tables that settings are read from.
macro_rules! kinds {
    ($(#[$meta:meta])* $name:ident, { $($variant:ident($settings:ty) = $word:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Debug)]
        pub enum $name {
            $($variant(Box<$settings>),)*
        }

        impl $name {
            /// The words that `kind` may be.
            pub const WORDS: &[&str] = &[$($word,)*];

            /// As `kind` has it.
            pub fn word(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => $word,)*
                }
            }

            pub(super) fn read<'a>(document: &mut Document<'a>, table: &mut Table<'a>) -> Option<Self> {
                let kind = kind(document, table, Self::WORDS)?;
                $(if kind == $word {
                    let settings: $settings = document.read(table)?;
                    document.judge(table, settings.problems());
                    return Some(Self::$variant(Box::new(settings)));
                })*
                None
            }
        }
    };
}

kinds! {
    /// Where jobs come from: `[source.NAME]`.
    SourceKind, {
        Amqp(amqp::Settings) = "amqp",
        RedisStream(redis::Settings) = "redis-stream",
        RedisList(redis::Settings) = "redis-list",
        Mns(mns::Settings) = "mns",
        Sqs(sqs::Settings) = "sqs",
    }
}

kinds! {
    /// Who executes jobs: `[target.NAME]`.
    TargetKind, {
        Webhook(webhook::Settings) = "webhook",
        Program(program::Settings) = "program",
        Apns(apns::Settings) = "apns",
        Fcm(fcm::Settings) = "fcm",
        Huawei(huawei::Settings) = "huawei",
        Xiaomi(xiaomi::Settings) = "xiaomi",
        Getui(getui::Settings) = "getui",
    }
}

fn kind<'a>(document: &mut Document<'a>, table: &mut Table<'a>, words: &[&str]) -> Option<String> {
    let known = words.join(", ");
    let place = table.clone();
    let Some(kind) = table.take_text("kind") else {
        document.judge(&place, vec![format!("kind has to be one of: {known}")]);
        return None;
    };
    if words.contains(&kind.as_str()) {
        return Some(kind);
    }
    document.judge(&place, vec![format!("kind is `{kind}`, and may be one of: {known}")]);
    None
}

/// What tells the queue of one source from that of another.
pub(super) fn place(table: &Table) -> String {
    let keys = ["kind", "url", "endpoint", "queue", "queue_url", "group"];
    let parts: Vec<&str> = keys.iter().map(|key| table.text(key).unwrap_or_default()).collect();
    parts.join("\n")
}
