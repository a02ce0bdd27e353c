//! What is remembered between calls: accounts (no secret) and sessions (secret).
//!
//! Both are files of this one person. Sessions are apart from Kubernetes tokens, so that a damaged
//! token costs a request and not a sign-in.

mod keyring;
mod profiles;
mod session;
mod storage;

pub use keyring::Keyring;
pub(crate) use keyring::PATIENCE;
pub(crate) use profiles::{Choice, Profile, Profiles};
pub(crate) use session::{AccessToken, Session, Sessions};
pub(crate) use storage::{Storage, Wish};
pub(crate) use tenant_cached_token::secret;
