//! SQL on `users`.

mod columns;
mod manage;
mod sign_in;

pub(super) use self::columns::ACTIVE;
pub(super) use self::{
    columns::{EmailVerifier, parse_role},
    sign_in::{NewUser, find_by_email, insert, set_email_of_provider, set_role},
};
pub(crate) use self::{
    manage::{
        UserRow, by_name, change_as_administrator, emails, exists, find, list, lock_administrator,
        set_active, set_email, set_suspended,
    },
    sign_in::lock_if_active,
};
