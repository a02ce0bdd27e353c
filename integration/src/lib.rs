//! The harness over real programs.

pub mod authority;
pub mod control_plane;
pub mod http_client;
pub mod kubeconfig;
pub mod machine;
pub mod port;
pub mod probe;
pub mod process;
pub mod progress;
pub mod scratch;
