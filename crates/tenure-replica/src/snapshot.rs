//! A snapshot: all rows of a checkpoint, as of one applied index, as one stream of bytes.
//!
//! ```text
//! head  = "TENURESN" | version of the format u32
//! rows  = key length u8, never 0 | value length u32 | key | value, in the order of the keys
//! end   = 0 u8 | zeros up to a multiple of 512 bytes
//! ```
//!
//! Numbers are little-endian. Each row carries its own checksum, the first one says whose rows they are and the
//! second how many there are and as of when, so nothing here repeats that.

const MAGIC: &[u8; 8] = b"TENURESN";

/// The version of this framing; that of the rows is a row. A newer one is refused by name.
pub const FORMAT: u32 = 1;

/// What a whole snapshot is a multiple of: etcd's clients look at that.
pub const BLOCK_BYTES: u64 = 512;

/// Frames rows. What it writes goes to the end of the buffer that it is given.
#[derive(Debug)]
pub struct Writer {
    bytes: u64,
}

impl Writer {
    pub fn begin(out: &mut Vec<u8>) -> Writer {
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&FORMAT.to_le_bytes());
        Writer { bytes: (MAGIC.len() + size_of_val(&FORMAT)) as u64 }
    }

    /// A key and a value as the checkpoint has them.
    pub fn row(&mut self, key: &[u8], value: &[u8], out: &mut Vec<u8>) {
        let key_bytes = u8::try_from(key.len()).expect("keys of rows are short");
        assert!(key_bytes > 0, "a row has a key, or it would be the end");
        let value_bytes = u32::try_from(value.len()).expect("a value is bounded by the size of a request");
        out.push(key_bytes);
        out.extend_from_slice(&value_bytes.to_le_bytes());
        out.extend_from_slice(key);
        out.extend_from_slice(value);
        self.bytes += 5 + (key.len() + value.len()) as u64;
    }

    pub fn end(self, out: &mut Vec<u8>) {
        let zeros = BLOCK_BYTES - self.bytes % BLOCK_BYTES;
        out.resize(out.len() + zeros as usize, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_is_whole_blocks_and_ends_with_a_zero_at_least() {
        for value_bytes in [0, 1, 100, 486, 487, 488, 489, 490, 5_000] {
            let mut out = vec![7; 3];
            let mut writer = Writer::begin(&mut out);
            writer.row(&[1, 2], &vec![9; value_bytes], &mut out);
            writer.row(&[3], &[], &mut out);
            writer.end(&mut out);
            let snapshot = &out[3..];
            assert_eq!(snapshot.len() as u64 % BLOCK_BYTES, 0, "{value_bytes}");
            assert_eq!(&snapshot[..12], b"TENURESN\x01\0\0\0");
            assert_eq!(snapshot[12], 2);
            assert_eq!(snapshot[13..17], (value_bytes as u32).to_le_bytes());
            let rest = &snapshot[19 + value_bytes..];
            assert_eq!(rest[..6], [1, 0, 0, 0, 0, 3]);
            assert!(rest.len() > 6 && rest[6..].iter().all(|byte| *byte == 0));
        }
    }
}
