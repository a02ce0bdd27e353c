//! Sign-in with a password in the browser, and the session that a completed sign-in starts.

mod complete_sign_in;
pub(super) mod login;
pub(super) mod session_start;
mod sign_in_attempt;
pub(super) mod trusted_browser;

pub(super) use self::{
    complete_sign_in::SignedIn,
    sign_in_attempt::{AttemptResult, SignInAttempt, WRONG},
};
