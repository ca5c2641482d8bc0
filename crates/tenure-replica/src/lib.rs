//! One member of a cluster as a plain struct: inputs and the time go in, effects come out.
//!
//! [`Replica::step`] is one turn of the loop: what waits, one round of proposals, one Raft Ready. Nothing here
//! awaits, opens, sleeps or reads a clock; the simulator runs this very code.

pub mod effect;
pub mod input;
pub mod watch;

pub use effect::Effect;
pub use input::Input;

mod consensus;
pub mod entry;
