//! One number for all that happened in a run, in its order: two runs of a seed must agree on it.

#[derive(Clone, Debug)]
pub struct Trace {
    hash: u64,
    pub event_count: u64,
    /// Print what is fed: for finding where two runs part.
    pub verbose: bool,
}

impl Default for Trace {
    fn default() -> Trace {
        Trace { hash: 0xcbf2_9ce4_8422_2325, event_count: 0, verbose: false }
    }
}

impl Trace {
    pub fn number(&mut self, number: u64) {
        self.hash = (self.hash ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }

    pub fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.number(u64::from_le_bytes(word));
        }
    }

    /// Something happened at `h`.
    pub fn event(&mut self, h: u64, what: &'static str, number: u64) {
        self.event_count += 1;
        self.number(h);
        self.bytes(what.as_bytes());
        self.number(number);
        if self.verbose {
            println!("{:>14.6} ms  {what} {number}", h as f64 / 1e6);
        }
    }

    pub fn hash(&self) -> u64 {
        self.hash
    }
}
