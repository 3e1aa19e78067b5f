//! A cursor over received bytes. Every read is checked; nothing is copied and nothing allocated.

use crate::error::Fault;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    #[inline]
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    #[inline]
    pub(crate) fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Everything that was not read yet.
    #[inline]
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    #[inline]
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or(Fault::Truncated)?;
        self.rest = rest;
        Ok(*head)
    }

    #[inline]
    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], Fault> {
        let (head, rest) = self.rest.split_at_checked(count).ok_or(Fault::Truncated)?;
        self.rest = rest;
        Ok(head)
    }

    #[inline]
    pub(crate) fn u8(&mut self) -> Result<u8, Fault> {
        self.array().map(u8::from_be_bytes)
    }

    #[inline]
    pub(crate) fn u16(&mut self) -> Result<u16, Fault> {
        self.array().map(u16::from_be_bytes)
    }

    #[inline]
    pub(crate) fn u32(&mut self) -> Result<u32, Fault> {
        self.array().map(u32::from_be_bytes)
    }

    #[inline]
    pub(crate) fn u64(&mut self) -> Result<u64, Fault> {
        self.array().map(u64::from_be_bytes)
    }

    /// A length of four octets, before what it measures.
    #[inline]
    pub(crate) fn length(&mut self) -> Result<usize, Fault> {
        usize::try_from(self.u32()?).map_err(|_| Fault::Truncated)
    }

    #[inline]
    pub(crate) fn shortstr_bytes(&mut self) -> Result<&'a [u8], Fault> {
        let length = self.u8()?;
        self.take(usize::from(length))
    }

    #[inline]
    pub(crate) fn shortstr(&mut self) -> Result<&'a str, Fault> {
        str::from_utf8(self.shortstr_bytes()?).map_err(|_| Fault::NotUtf8)
    }

    /// A short string that names something: UTF-8 without NUL.
    #[inline]
    pub(crate) fn name(&mut self) -> Result<&'a str, Fault> {
        let name = self.shortstr()?;
        if name.as_bytes().contains(&0) { Err(Fault::NulInName) } else { Ok(name) }
    }

    #[inline]
    pub(crate) fn longstr(&mut self) -> Result<&'a [u8], Fault> {
        let length = self.length()?;
        self.take(length)
    }

    /// Nothing may follow the last field.
    #[inline]
    pub(crate) fn finish(self) -> Result<(), Fault> {
        if self.rest.is_empty() { Ok(()) } else { Err(Fault::Trailing) }
    }
}
