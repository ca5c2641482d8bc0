//! The hub on a real state, with clients that read when the test says so.

mod quirks;
mod random;
mod slow;
mod validate;
mod world;
