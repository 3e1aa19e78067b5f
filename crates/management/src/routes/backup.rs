//! A backup, for the command that makes it: all groups are cut, and then read part by part.

use crate::asked::Asked;
use crate::node::View;
use crate::reply::Problem;
use crate::work::{Backup, Work};

pub(super) fn begin(_: &View<'_>, _: &Asked) -> Result<Work, Problem> {
    Ok(Work::Backup(Backup::Begin))
}

pub(super) fn part(_: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let group = asked.part("group").parse().map_err(|_| Problem::NotFound)?;
    let offset = asked.part("offset").parse().map_err(|_| Problem::NotFound)?;
    Ok(Work::Backup(Backup::Part { backup: backup(asked)?, group, offset }))
}

pub(super) fn end(_: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    Ok(Work::Backup(Backup::End { backup: backup(asked)? }))
}

/// Its number, as the answer to [`begin`] has it.
fn backup(asked: &Asked) -> Result<u64, Problem> {
    u64::from_str_radix(asked.part("backup"), 16).map_err(|_| Problem::NotFound)
}
