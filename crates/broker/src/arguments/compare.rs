//! Two declarations of one name: where they differ, in what RabbitMQ tells of it.

use machine::{Arguments, Value};

use super::error::{Compared, Difference};

/// Two values of a property.
pub(super) fn property(name: &str, received: Value, current: Value) -> Result<(), Difference> {
    if received == current {
        return Ok(());
    }
    let argument = name.to_owned();
    let (received, current) = (Compared::Plain(received), Compared::Plain(current));
    Err(Difference { argument, received, current })
}

/// Two values of an argument, or one, or none. Integers of different width are the same when their numbers are.
pub(super) fn argument(
    name: &str,
    received: &Arguments,
    current: &Arguments,
) -> Result<(), Difference> {
    let (received, current) = match (received.find(name), current.find(name)) {
        (None, None) => return Ok(()),
        (Some(received), Some(current)) if received.is_same(current) => return Ok(()),
        (Some(received), Some(current)) => {
            (Compared::Plain(received.clone()), Compared::Plain(current.clone()))
        }
        (Some(received), None) => (Compared::Typed(received.clone()), Compared::Absent),
        (None, Some(current)) => (Compared::Absent, Compared::Typed(current.clone())),
    };
    Err(Difference { argument: name.to_owned(), received, current })
}
