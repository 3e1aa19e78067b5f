//! What is remembered of device tokens: whether APNs took the last push to them. A fixed number of cells; a token
//! may push out another, which is then unknown again.

/// Cells, a power of two, four bytes each. Pages that are not used cost no memory.
const CELLS: usize = 1 << 20;

/// How far a device token is trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trust {
    /// The last push to it was taken.
    Good,
    Unknown,
    /// The last push to it was refused because of the token.
    Suspect,
}

/// The memory.
#[derive(Debug)]
pub struct DeviceTokens {
    /// 0: empty. The upper 31 bits name the token, the lowest says whether it is good.
    cells: Vec<u32>,
}

impl Default for DeviceTokens {
    fn default() -> Self {
        Self { cells: vec![0; CELLS] }
    }
}

impl DeviceTokens {
    /// What is known of a token.
    pub fn trust(&self, hash: u64) -> Trust {
        let (index, name) = place(hash);
        let cell = self.cells[index];
        if cell & !1 != name {
            Trust::Unknown
        } else if cell & 1 == 1 {
            Trust::Good
        } else {
            Trust::Suspect
        }
    }

    /// APNs took, or refused, a token.
    pub fn learn(&mut self, hash: u64, is_good: bool) {
        let (index, name) = place(hash);
        self.cells[index] = name | u32::from(is_good);
    }
}

/// The cell, and what names the token in it: never zero.
fn place(hash: u64) -> (usize, u32) {
    let index = (hash as usize) & (CELLS - 1);
    let name = ((hash >> 32) as u32) & !1;
    (index, if name == 0 { 2 } else { name })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_answer_counts() {
        let mut tokens = DeviceTokens::default();
        let hash = 0x1234_5678_9abc_def0;
        assert_eq!(tokens.trust(hash), Trust::Unknown);
        tokens.learn(hash, false);
        assert_eq!(tokens.trust(hash), Trust::Suspect);
        tokens.learn(hash, true);
        assert_eq!(tokens.trust(hash), Trust::Good);
    }

    #[test]
    fn a_token_in_the_same_cell_is_not_taken_for_the_other() {
        let mut tokens = DeviceTokens::default();
        tokens.learn(7, false);
        assert_eq!(tokens.trust(7), Trust::Suspect, "a name of zero counts, too");
        assert_eq!(tokens.trust(7 | 4 << 32), Trust::Unknown);
        tokens.learn(7 | 4 << 32, true);
        assert_eq!(tokens.trust(7), Trust::Unknown);
    }
}
