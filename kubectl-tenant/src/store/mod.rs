//! State between calls: profiles (no secrets) and sessions (secrets).
//!
//! Both are files of one user. Sessions are stored apart from Kubernetes tokens, so that a damaged
//! token costs a request and not a sign-in.

mod profiles;
mod session;
mod storage;

pub(crate) use profiles::{AccountFlags, Profile, Profiles};
pub(crate) use session::{AccessToken, Session, SessionStore, SessionUser};
pub(crate) use storage::{Storage, StoragePreference};
pub(crate) use tenant_cached_token::secret;
