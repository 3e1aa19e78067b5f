//! Bytes that a connection holds for messages and transactions whose end only the client can bring.

/// What all channels of a connection hold together.
#[derive(Debug, Default)]
pub(crate) struct Unfinished {
    /// Bytes of bodies that have begun and not ended.
    pub(crate) partial_bytes: u64,
    /// Bytes that those bodies will have when they are whole.
    pub(crate) announced_bytes: u64,
    /// Bytes of publishes in open transactions.
    pub(crate) tx_bytes: usize,
    /// Bytes of frames set aside for channels that wait. These end by themselves.
    pub(crate) deferred_bytes: usize,
}

impl Unfinished {
    /// What only the client can end.
    #[inline]
    pub(crate) fn bytes(&self) -> u64 {
        self.announced_bytes + self.tx_bytes as u64
    }

    /// A body has ended, or will not: `held` of its `announced` bytes had come.
    pub(crate) fn end_body(&mut self, held: usize, announced: u64) {
        assert!(held as u64 <= self.partial_bytes, "what is held of a body was counted");
        self.partial_bytes -= held as u64;
        assert!(announced <= self.announced_bytes, "a body that ends was counted as it began");
        self.announced_bytes -= announced;
    }

    /// A transaction of so many bytes is handed over, or will not be.
    pub(crate) fn end_tx(&mut self, bytes: usize) {
        assert!(bytes <= self.tx_bytes, "what a transaction holds was counted");
        self.tx_bytes -= bytes;
    }
}
