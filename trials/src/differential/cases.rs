//! Programs that once showed a difference: `trials/differential/cases/NAME.txt`.

use std::path::Path;

use super::pool::Item;
use super::program::Program;
use crate::chaos::Failure;

/// All of them, by name.
pub(super) fn read() -> Result<Vec<Item>, Failure> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("differential/cases");
    let mut items = Vec::new();
    for entry in std::fs::read_dir(&folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "txt") {
            items.push(read_one(&path)?);
        }
    }
    items.sort_by(|one, two| one.name.cmp(&two.name));
    Ok(items)
}

/// The program in one file.
pub(super) fn read_one(path: &Path) -> Result<Item, Failure> {
    let name = path.file_stem().map(|name| name.to_string_lossy().into_owned());
    let text = std::fs::read_to_string(path)?;
    let program = Program::parse(&text)
        .map_err(|error| Failure::Trial(format!("{}: {error}", path.display())))?;
    Ok(Item { name: name.unwrap_or_default(), program })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_can_be_read() {
        assert!(!read().unwrap().is_empty());
    }
}
