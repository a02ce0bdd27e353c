//! Claims become a person who may sign in, or may not.

use serde_json::{Map, Value};
use tenant_shared::Role;

use super::ConnectorSettings;
use crate::{identity::Email, issuer::trust::path};

/// Groups of one person at most; more are not looked at.
const MOST_GROUPS: usize = 4096;
/// Characters of a name that is kept.
const MOST_NAME: usize = 128;

/// Somebody as the provider describes them now.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Described {
    /// What they are called.
    pub(super) username: Option<String>,
    /// Their address, if the provider says that it has verified it.
    pub(super) email: Option<Email>,
    /// What they may do.
    pub(super) role: Role,
}

/// Why somebody may not sign in, for the audit trail and for themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotAllowed {
    /// They are in none of `allowed_groups`.
    Group,
    /// Their verified address is in none of `allowed_domains`, or there is none.
    Domain,
}

impl NotAllowed {
    /// In words.
    pub(super) fn why(self) -> &'static str {
        match self {
            Self::Group => "not in a group that may sign in",
            Self::Domain => "no verified e-mail address of a domain that may sign in",
        }
    }
}

impl ConnectorSettings {
    /// Whether a person can only be judged with their claims at hand.
    pub(super) fn needs_claims(&self) -> bool {
        let lists = [&self.allowed_groups, &self.allowed_domains, &self.admin_groups];
        lists.into_iter().any(|list| !list.is_empty())
    }

    /// The person whom these claims describe.
    pub(super) fn describe(&self, claims: &Map<String, Value>) -> Result<Described, NotAllowed> {
        let groups = groups(claims, &self.groups_claim);
        let in_one_of = |list: &[String]| list.iter().any(|name| groups.contains(&name.as_str()));
        if !self.allowed_groups.is_empty() && !in_one_of(&self.allowed_groups) {
            return Err(NotAllowed::Group);
        }
        let email = verified_email(claims);
        let domain = email.as_ref().and_then(|email| email.as_str().split_once('@'));
        let is_allowed = |(_, domain): (&str, &str)| {
            self.allowed_domains.iter().any(|allowed| allowed.eq_ignore_ascii_case(domain))
        };
        if !self.allowed_domains.is_empty() && !domain.is_some_and(is_allowed) {
            return Err(NotAllowed::Domain);
        }
        let role = if in_one_of(&self.admin_groups) { Role::Admin } else { Role::User };
        Ok(Described { username: username(claims), email, role })
    }
}

/// The person's groups: a list of texts, or one text.
fn groups<'a>(claims: &'a Map<String, Value>, claim: &str) -> Vec<&'a str> {
    match path::at(claims, claim) {
        Some(Value::Array(list)) => {
            list.iter().take(MOST_GROUPS).filter_map(Value::as_str).collect()
        }
        Some(Value::String(one)) => vec![one],
        _ => Vec::new(),
    }
}

/// The address, unless the provider does not say that it is verified (some say it as a text).
fn verified_email(claims: &Map<String, Value>) -> Option<Email> {
    let verified = match claims.get("email_verified")? {
        Value::Bool(verified) => *verified,
        Value::String(text) => text == "true",
        _ => false,
    };
    let email = claims.get("email")?.as_str()?;
    if verified { email.parse().ok() } else { None }
}

fn username(claims: &Map<String, Value>) -> Option<String> {
    let names = ["preferred_username", "name", "email"];
    let name = names.iter().find_map(|name| claims.get(*name)?.as_str())?;
    let name: String = name.chars().filter(|c| !c.is_control()).take(MOST_NAME).collect();
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn settings(change: impl FnOnce(&mut ConnectorSettings)) -> ConnectorSettings {
        let mut settings = ConnectorSettings {
            issuer: "https://sso.example.com".into(),
            client_id: "broker".into(),
            client_secret: None,
            display_name: "Company".into(),
            scopes: "openid".into(),
            groups_claim: "groups".into(),
            allowed_groups: vec![],
            allowed_domains: vec![],
            admin_groups: vec![],
            ca_file: None,
            outage_seconds: 3600,
            unchecked_seconds: 3600,
        };
        change(&mut settings);
        settings
    }

    fn describe(settings: &ConnectorSettings, claims: &Value) -> Result<Described, NotAllowed> {
        settings.describe(claims.as_object().unwrap())
    }

    #[test]
    fn only_a_verified_address_is_an_address() {
        let settings = settings(|_| {});
        for (verified, counts) in [
            (json!(true), true),
            (json!("true"), true),
            (json!(false), false),
            (json!("false"), false),
            (json!(1), false),
            (Value::Null, false),
        ] {
            let claims = json!({ "email": "Ada@Example.com", "email_verified": verified });
            let email = describe(&settings, &claims).unwrap().email;
            assert_eq!(email.is_some(), counts, "{claims}");
        }
        assert_eq!(describe(&settings, &json!({ "email": "a@b.c" })).unwrap().email, None);
    }

    #[test]
    fn groups_say_who_may_and_who_administers() {
        let settings = settings(|settings| {
            settings.allowed_groups = vec!["dev".into(), "ops".into()];
            settings.admin_groups = vec!["ops".into()];
        });
        let role = |groups: Value| {
            describe(&settings, &json!({ "groups": groups })).map(|described| described.role)
        };
        assert_eq!(role(json!(["x", "dev"])), Ok(Role::User));
        assert_eq!(role(json!(["ops"])), Ok(Role::Admin));
        assert_eq!(role(json!("ops")), Ok(Role::Admin));
        for groups in [json!([]), json!(["Dev"]), json!("dev,ops"), json!({ "dev": 1 }), json!(7)] {
            assert_eq!(role(groups), Err(NotAllowed::Group));
        }
        assert_eq!(describe(&settings, &json!({})), Err(NotAllowed::Group));
    }

    #[test]
    fn a_domain_is_that_of_a_verified_address() {
        let settings = settings(|settings| settings.allowed_domains = vec!["Example.com".into()]);
        let admits = |email: &str, verified: bool| {
            describe(&settings, &json!({ "email": email, "email_verified": verified })).is_ok()
        };
        assert!(admits("ada@example.COM", true));
        assert!(!admits("ada@example.com", false));
        assert!(!admits("ada@evil.example.com", true) && !admits("ada@example.com.evil", true));
        assert!(!admits("ada@evil@example.com", true));
    }

    proptest! {
        #[test]
        fn no_claims_break_it(text in ".{0,40}", number in any::<i64>()) {
            let settings = settings(|settings| settings.groups_claim = text.clone());
            let claims = json!({
                "groups": [number, text], "email": text, "email_verified": text,
                "preferred_username": text, "name": number,
            });
            if let Ok(Described { username: Some(name), .. }) = describe(&settings, &claims) {
                prop_assert!(!name.is_empty() && !name.chars().any(char::is_control));
            }
        }
    }
}
