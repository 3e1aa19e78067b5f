//! A message that passes, for whoever watches: as it is on the wire.

/// A message that passes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Passing<'m> {
    pub(crate) destination: &'m [u8],
    pub(crate) properties: &'m [u8],
    pub(crate) body: &'m [u8],
}
