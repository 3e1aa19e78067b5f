//! Takes fields off the body of a frame. Total on any bytes; nothing is reserved for a count or a
//! length before the bytes behind it are known to be there.

use bytes::Bytes;
use machine::Ranges;

use super::Error;
use super::limits::{COUNT_MAX, SLICE_BYTES_MIN};

#[derive(Debug)]
pub(super) struct Reader {
    body: Bytes,
    at: usize,
    what: &'static str,
}

impl Reader {
    /// `what` names the message in errors.
    pub(super) fn new(body: Bytes, what: &'static str) -> Self {
        Self { body, at: 0, what }
    }

    pub(super) fn malformed(&self) -> Error {
        Error::Malformed(self.what)
    }

    fn rest(&self) -> &[u8] {
        &self.body[self.at..]
    }

    /// Nothing may be left.
    pub(super) fn end(&self) -> Result<(), Error> {
        if self.rest().is_empty() { Ok(()) } else { Err(self.malformed()) }
    }

    pub(super) fn u8(&mut self) -> Result<u8, Error> {
        Ok(self.array::<1>()?[0])
    }

    pub(super) fn bool(&mut self) -> Result<bool, Error> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.malformed()),
        }
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let found = *self.rest().first_chunk::<N>().ok_or(self.malformed())?;
        self.at += N;
        Ok(found)
    }

    pub(super) fn number(&mut self) -> Result<u64, Error> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(self.malformed())
    }

    pub(super) fn u32(&mut self) -> Result<u32, Error> {
        u32::try_from(self.number()?).map_err(|_| self.malformed())
    }

    /// A count of things that take at least `bytes_each`.
    pub(super) fn count(&mut self, bytes_each: usize) -> Result<usize, Error> {
        let count = usize::try_from(self.number()?).map_err(|_| self.malformed())?;
        if count > COUNT_MAX || count > self.rest().len() / bytes_each {
            return Err(self.malformed());
        }
        Ok(count)
    }

    pub(super) fn numbers(&mut self) -> Result<Vec<u64>, Error> {
        let count = self.count(1)?;
        (0..count).map(|_| self.number()).collect()
    }

    pub(super) fn ranges(&mut self) -> Result<Ranges, Error> {
        let (ranges, rest) = Ranges::decode(self.rest()).map_err(|_| self.malformed())?;
        let rest = rest.len();
        self.at = self.body.len() - rest;
        Ok(ranges)
    }

    /// Bytes, where they are in the frame; only what is short is copied, so that it does not keep the
    /// whole frame in memory.
    pub(super) fn payload(&mut self) -> Result<Bytes, Error> {
        let bytes = usize::try_from(self.number()?).map_err(|_| self.malformed())?;
        if bytes > self.rest().len() {
            return Err(self.malformed());
        }
        let found = self.at..self.at + bytes;
        self.at += bytes;
        if bytes < SLICE_BYTES_MIN {
            return Ok(Bytes::copy_from_slice(&self.body[found]));
        }
        Ok(self.body.slice(found))
    }
}
