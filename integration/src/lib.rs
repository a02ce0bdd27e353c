//! The harness over real programs.

pub mod authority;
pub mod control_plane;
pub mod fault_proxy;
pub mod http_client;
pub mod kubeconfig;
pub mod machine;
pub mod port;
pub mod postgres;
pub mod probe;
pub mod process;
pub mod progress;
pub mod random;
pub mod scratch;
