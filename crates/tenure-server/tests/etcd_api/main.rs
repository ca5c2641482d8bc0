//! What an etcd client sees of a server: real services over a real connection, on top of everything that is
//! below them. One file for each part of etcd's API, and one for what only a broken or hostile client sends.

mod hostile;
mod kv;
mod lease;
mod maintenance;
mod range;
mod served;
mod stop;
mod txn;
