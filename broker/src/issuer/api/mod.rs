//! HTTP API for signing in and out, for frontends with a sign-in form of their own: `/auth`.

mod error;
mod register;
mod sign_in;
mod sign_out;

use self::{register::Register, sign_in::SignIn, sign_out::SignOut};
use super::Issuer;

/// Operations that start and end a browser session, and the one that creates an account.
pub type AuthApi = (SignIn, SignOut, Register);

/// The operations of this issuer.
pub fn api(issuer: Issuer) -> AuthApi {
    (SignIn { issuer: issuer.clone() }, SignOut { issuer: issuer.clone() }, Register { issuer })
}
