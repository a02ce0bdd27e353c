//! Live objects of a tenant, and their changes towards the desired state.

pub(super) mod apply;
pub(super) mod drift;
pub(super) mod foreign_bindings;
mod grant;
pub(super) mod snapshot;
pub(super) mod withdraw;

pub(super) use self::grant::Granted;
