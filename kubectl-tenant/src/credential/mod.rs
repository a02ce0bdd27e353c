//! Requests of `get-token`, and what is stored about them: tokens and the last failures.

mod cache;
mod negative_cache;
mod request;

pub(crate) use cache::{Cache, belongs_to, mode};
pub(crate) use negative_cache::{CachedFailure, NegativeCache};
pub(crate) use request::{GetTokenRequest, Workload};
