//! The built program as kubectl and a person meet it: real files, real locks, real processes.
//! What it does with a real broker is tried with the real one, in `integration`.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod account;
mod answers;
mod canned;
mod commands;
mod credentials;
mod device;
mod get_token;
mod life;
mod lookup;
mod machine;
mod profiles;
mod storage;
mod support;
mod terminal;
