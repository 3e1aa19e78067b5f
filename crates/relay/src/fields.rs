//! The columns of one row, as text, in one piece of memory.

/// Columns by their place in the [`Layout`](crate::Layout) they were read with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields {
    bytes: Vec<u8>,
    /// Where each column ends; none is NULL.
    ends: Vec<(u32, bool)>,
}

impl Fields {
    /// Nothing yet, with room for so much.
    pub fn with_capacity(columns: usize, bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes), ends: Vec::with_capacity(columns) }
    }

    /// Forgets all columns and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Adds the next column; none is NULL.
    pub fn push(&mut self, value: Option<&[u8]>) {
        if let Some(value) = value {
            self.bytes.extend_from_slice(value);
        }
        let end = u32::try_from(self.bytes.len()).expect("PostgreSQL's rows are below 2 GB");
        self.ends.push((end, value.is_none()));
    }

    /// Column `index`; none if it is NULL or not there.
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        let (end, is_null) = *self.ends.get(index)?;
        let start = if index == 0 { 0 } else { self.ends[index - 1].0 };
        (!is_null).then(|| &self.bytes[start as usize..end as usize])
    }

    /// Column `index` as text; none if it is NULL or not UTF-8.
    pub fn text(&self, index: usize) -> Option<&str> {
        std::str::from_utf8(self.get(index)?).ok()
    }

    /// Bytes of all columns.
    pub fn byte_count(&self) -> usize {
        self.bytes.len()
    }

    /// How many columns there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// There is no column.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
}

impl<'a> FromIterator<Option<&'a [u8]>> for Fields {
    fn from_iter<I: IntoIterator<Item = Option<&'a [u8]>>>(values: I) -> Self {
        let mut fields = Self::default();
        values.into_iter().for_each(|value| fields.push(value));
        fields
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_is_told_apart_from_the_empty_text() {
        let fields: Fields = [Some(&b"a"[..]), None, Some(b""), Some(b"bc")].into_iter().collect();
        assert_eq!(fields.get(0), Some(&b"a"[..]));
        assert_eq!(fields.get(1), None);
        assert_eq!(fields.get(2), Some(&b""[..]));
        assert_eq!(fields.text(3), Some("bc"));
        assert_eq!((fields.get(4), fields.len(), fields.byte_count()), (None, 4, 3));
    }
}
