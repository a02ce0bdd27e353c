//! The parts of the Kubernetes API that the gateway parses and answers: paths, `Status` objects, access
//! reviews and the `Namespace` that a client creates. Pure.

pub(super) mod namespace_object;
mod namespace_refusal;
pub(super) mod path;
pub(super) mod review;
pub(super) mod status;

pub(super) use self::namespace_refusal::{NamespaceRefusal, RefusalReason};
