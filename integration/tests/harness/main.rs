//! Tests of the harness itself, over the real programs that it starts.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod control_plane;
mod dev;
mod fault_proxy;
mod postgres;
mod process;
mod world;
