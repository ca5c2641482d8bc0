//! What belongs to a stream rather than to one of its watches.

#[derive(Default)]
pub(super) struct Stream {
    next_id: i64,
    pub watchers: u32,
    /// Those that are behind or wait for credit.
    pub unsynced: u32,
    /// The client asked how far the stream is and has no answer yet. Asking again is the same question.
    pub progress_asked: bool,
    /// Bytes on their way for watches that are over.
    pub orphaned: u64,
}

impl Stream {
    /// The next number that the client does not use already. Numbers are not used twice.
    pub(super) fn draw_id(&mut self, used: impl Fn(i64) -> bool) -> i64 {
        while used(self.next_id) {
            self.next_id += 1;
        }
        self.next_id += 1;
        self.next_id - 1
    }
}
