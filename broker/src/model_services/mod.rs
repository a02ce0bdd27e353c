//! Model services: the namespaces that a caller may see, the models that KServe serves there, and
//! the Llama Stack for them. Every call to Kubernetes has the caller's own token.

#[cfg_attr(not(test), expect(dead_code, reason = "the operations use it"))]
mod distribution;
#[cfg_attr(not(test), expect(dead_code, reason = "the operations use it"))]
mod endpoint;
#[cfg_attr(not(test), expect(dead_code, reason = "the operations use it"))]
mod inference;
#[cfg_attr(not(test), expect(dead_code, reason = "the operations use it"))]
mod lenient;

pub use distribution::DistributionSettings;
