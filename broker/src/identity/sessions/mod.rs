//! Sessions and their access tokens: SQL on `sessions` and `access_tokens`, and the operations of
//! users on their sessions.
//!
//! A session starts at a sign-in. It ends after the idle timeout, at its absolute end, which never
//! moves, or when somebody ends it. Everything that belongs to it is invalid from then on, although
//! those rows are not changed.
//!
//! The issuer calls the functions of this module in its own transactions.

mod access_token;
mod end;
mod list;
mod session;

pub(in crate::identity) use self::access_token::find_caller;
pub(crate) use self::{
    access_token::{
        ACCESS_PREFIX, COOKIE_PREFIX, add_access_token, delete_expired_access_tokens,
        end_access_token, find_by_access_token,
    },
    end::{ACCESS_TOKENS, SessionSelector, end, end_every},
    list::MAX_SESSIONS,
    session::{
        NewSession, Session, begin, contains_scope, delete_expired, extend_idle_timeout,
        set_earlier_end,
    },
};
