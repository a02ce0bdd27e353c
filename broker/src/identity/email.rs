//! E-mail addresses of users: parsing and normalization.

use std::{fmt, str::FromStr};

/// Bytes of an address at most (RFC 5321 section 4.5.3.1.3, without the angle brackets).
const MAX_BYTES: usize = 254;
/// Bytes before the `@` at most (RFC 5321 section 4.5.3.1.1).
const MAX_LOCAL_BYTES: usize = 64;

/// An e-mail address in lower case: visible ASCII, one `@`, and a domain of DNS labels.
///
/// ASCII only, because letters that look alike would make two accounts that look alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Email(String);

/// The text is not an e-mail address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an e-mail address: write name@example.com, in ASCII, 254 characters at most")]
pub struct NotAnEmail;

impl Email {
    /// The address as text, in lower case.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Email {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Email {
    type Err = NotAnEmail;

    fn from_str(text: &str) -> Result<Self, NotAnEmail> {
        let text = text.trim_matches(' ');
        let (local, domain) = text.split_once('@').ok_or(NotAnEmail)?;
        let is_local = (1..=MAX_LOCAL_BYTES).contains(&local.len())
            && local
                .bytes()
                .all(|byte| byte.is_ascii_graphic() && !b"\"(),:;<>[\\]".contains(&byte));
        let is_sound = text.len() <= MAX_BYTES && is_local && domain.split('.').all(is_label);
        if is_sound { Ok(Self(text.to_ascii_lowercase())) } else { Err(NotAnEmail) }
    }
}

fn is_label(text: &str) -> bool {
    (1..=63).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_address_is_normalized_to_lower_case() {
        assert_eq!(
            " Ada.L+x@Example.COM ".parse::<Email>().unwrap().as_str(),
            "ada.l+x@example.com"
        );
        assert_eq!("root@localhost".parse::<Email>().unwrap().as_str(), "root@localhost");
    }

    #[test]
    fn malformed_addresses_are_refused() {
        let long = format!("{}@example.com", "a".repeat(65));
        let far = format!("a@{}", "b.".repeat(130));
        for text in [
            "", "@", "a", "a@", "@b", "a@b@c", "a b@c", "a@b c", "a@b..c", "a@-b", "a@b-",
            "ä@b.de", "a@bä.de", "a\n@b", "a@b\r\n", "a\0@b", "<a>@b", &long, &far,
        ] {
            assert_eq!(text.parse::<Email>(), Err(NotAnEmail), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn parsing_again_changes_nothing(text in ".{0,40}@.{0,40}|[!-~]{1,30}@[a-zA-Z0-9.-]{1,30}") {
            if let Ok(email) = text.parse::<Email>() {
                prop_assert_eq!(email.as_str().parse::<Email>(), Ok(email.clone()));
                prop_assert!(email.as_str().bytes().all(|b| b.is_ascii_graphic() && !b.is_ascii_uppercase()));
                prop_assert_eq!(email.as_str().matches('@').count(), 1);
            }
        }
    }
}
