//! The last bytes of one console, addressed by their offset in the stream.
//!
//! An epoch's stream begins at offset 0 with the upstream dial and only grows. The buffer keeps the last
//! [`CAPACITY`] bytes: a reader that asks for an older offset is told exactly what it missed, never less.

use bytes::Bytes;
use std::collections::VecDeque;

/// Bytes kept per console. A screenful is 10 KB; this is what a page may miss while it reconnects.
pub const CAPACITY: usize = 256 * 1024;

/// Stream of one epoch, its end in memory.
#[derive(Debug, Default)]
pub struct Buffer {
    /// Copied out of the frames: those come with one byte each, and would pin their receive buffers.
    kept: VecDeque<u8>,
    end: u64,
}

/// What a reader at some offset gets next.
#[derive(Debug, PartialEq, Eq)]
pub struct Slice {
    /// Offset of the first byte of `bytes`; above the asked one if bytes were lost.
    pub from: u64,
    /// May be empty if the reader is at the end.
    pub bytes: Bytes,
}

impl Buffer {
    /// Offset behind the last byte.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Offset of the oldest byte that is kept.
    pub fn start(&self) -> u64 {
        self.end - self.kept.len() as u64
    }

    /// Appends bytes and forgets those beyond the capacity.
    pub fn push(&mut self, bytes: &[u8]) {
        self.end += bytes.len() as u64;
        // A frame may be larger than the whole buffer.
        let tail = &bytes[bytes.len().saturating_sub(CAPACITY)..];
        let excess = (self.kept.len() + tail.len()).saturating_sub(CAPACITY);
        drop(self.kept.drain(..excess));
        self.kept.extend(tail);
    }

    /// At most `limit` bytes from `offset` on. An offset before the start is moved to the start; one beyond the end,
    /// which no honest reader has, to the end.
    pub fn read(&self, offset: u64, limit: usize) -> Slice {
        let from = offset.clamp(self.start(), self.end);
        let skip = usize::try_from(from - self.start()).unwrap_or(usize::MAX).min(self.kept.len());
        let until = skip.saturating_add(limit).min(self.kept.len());
        let (front, back) = self.kept.as_slices();
        let cut = |part: &[u8], begin: usize, end: usize| -> Vec<u8> {
            part[begin.min(part.len())..end.min(part.len())].to_vec()
        };
        let mut bytes = cut(front, skip, until);
        bytes.extend(cut(back, skip.saturating_sub(front.len()), until.saturating_sub(front.len())));
        Slice { from, bytes: Bytes::from(bytes) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_reader_in_time_gets_exactly_the_bytes_after_its_offset() {
        let mut b = Buffer::default();
        b.push(b"hello ");
        b.push(b"world");
        assert_eq!(b.read(3, 100), Slice { from: 3, bytes: Bytes::from_static(b"lo world") });
        assert_eq!(b.read(3, 4), Slice { from: 3, bytes: Bytes::from_static(b"lo w") });
        assert_eq!(b.read(11, 100), Slice { from: 11, bytes: Bytes::new() });
    }

    #[test]
    fn a_chunk_larger_than_the_buffer_leaves_its_tail() {
        let mut b = Buffer::default();
        b.push(&vec![7; CAPACITY + 5]);
        assert_eq!((b.start(), b.end()), (5, CAPACITY as u64 + 5));
        assert_eq!(b.read(0, 1).from, 5);
    }

    proptest! {
        #[test]
        fn the_buffer_agrees_with_a_plain_vector(
            chunks in prop::collection::vec(0usize..60_000, 1..20),
            offset in 0u64..1_200_000,
            limit in 1usize..100_000,
        ) {
            let mut b = Buffer::default();
            let mut all = Vec::new();
            for (i, len) in chunks.iter().enumerate() {
                let bytes: Vec<u8> = (0..*len).map(|j| (i * 31 + j) as u8).collect();
                all.extend_from_slice(&bytes);
                b.push(&bytes);
            }
            let start = all.len().saturating_sub(CAPACITY);
            let from = (offset as usize).clamp(start, all.len());
            let to = (from + limit).min(all.len());
            prop_assert_eq!(b.read(offset, limit), Slice { from: from as u64, bytes: Bytes::copy_from_slice(&all[from..to]) });
        }
    }
}
