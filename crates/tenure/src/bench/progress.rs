//! What is going on, on one line of a terminal, while it goes on. Standard error only, and nothing at all where nobody looks: the answer
//! is what comes at the end.

use std::{
    cell::{Cell, RefCell},
    io::{self, IsTerminal, Write},
    rc::Rc,
    time::Duration,
};

use super::{clock, report::number};

const INTERVAL: Duration = Duration::from_millis(250);

pub struct Progress {
    terminal: bool,
    what: RefCell<String>,
    count: Cell<u64>,
    /// Count and time when the line was last written.
    shown: Cell<(u64, u64)>,
}

impl Progress {
    /// Must be called on a `LocalSet`: the line writes itself from time to time.
    pub fn start() -> Rc<Progress> {
        let progress = Rc::new(Progress {
            terminal: io::stderr().is_terminal(),
            what: RefCell::default(),
            count: Cell::new(0),
            shown: Cell::new((0, clock::now_ns())),
        });
        if progress.terminal {
            let line = Rc::downgrade(&progress);
            tokio::task::spawn_local(async move {
                loop {
                    tokio::time::sleep(INTERVAL).await;
                    let Some(line) = line.upgrade() else { return };
                    line.write();
                }
            });
        }
        progress
    }

    /// What is being done from now on.
    pub fn say(&self, what: String) {
        if self.terminal {
            *self.what.borrow_mut() = what;
            self.write();
        }
    }

    /// So many operations more.
    pub fn add(&self, count: u64) {
        self.count.set(self.count.get() + count);
    }

    fn write(&self) {
        let (count, now) = (self.count.get(), clock::now_ns());
        let (before, then) = self.shown.replace((count, now));
        let mut line = self.what.borrow().clone();
        if count > before && now > then {
            let rate = (count - before) as f64 * 1e9 / (now - then) as f64;
            line = format!("{line}: {}/s", number(rate, 0));
        }
        let _ = write!(io::stderr(), "\r\x1b[K{line}");
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.terminal {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
