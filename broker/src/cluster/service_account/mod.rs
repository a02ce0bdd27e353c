//! ServiceAccounts of workspaces: tokens through the TokenRequest API, and token Secrets.

mod secret;
mod token;

pub use self::{
    secret::{SECRET_TYPE, TokenSecret},
    token::{IssuedToken, TOKEN_OUTCOMES},
};
