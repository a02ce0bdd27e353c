//! Claim mapping: from the claims of a provider to a user who may sign in, and their role.

use serde_json::{Map, Value};
use tenant_shared::Role;

use super::ConnectorSettings;
use crate::{identity::Email, issuer::jwt::claim_path};

/// Maximum groups of one user; more are ignored.
const MAX_GROUPS: usize = 4096;
/// Maximum characters of a stored name.
const MAX_NAME_CHARS: usize = 128;

/// A user as the claims of the provider describe them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MappedUser {
    /// Name that people see.
    pub(super) username: Option<String>,
    /// E-mail address, if the provider says that it is verified.
    pub(super) email: Option<Email>,
    /// Role in the broker.
    pub(super) role: Role,
}

/// Reason for refusing a sign-in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotAllowed {
    /// The user is in none of `allowed_groups`.
    Group,
    /// The verified address is in none of `allowed_domains`, or there is none.
    Domain,
}

impl NotAllowed {
    /// The text for the audit trail and the user.
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::Group => "not in a group that may sign in",
            Self::Domain => "no verified e-mail address of a domain that may sign in",
        }
    }
}

impl ConnectorSettings {
    /// Whether the settings can be evaluated only with claims.
    pub(super) fn requires_claims(&self) -> bool {
        let lists = [&self.allowed_groups, &self.allowed_domains, &self.admin_groups];
        lists.into_iter().any(|list| !list.is_empty())
    }

    /// Maps claims to a user.
    pub(super) fn map_claims(&self, claims: &Map<String, Value>) -> Result<MappedUser, NotAllowed> {
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
        Ok(MappedUser { username: username(claims), email, role })
    }
}

/// The groups of a user: a list of strings, or one string.
fn groups<'a>(claims: &'a Map<String, Value>, claim: &str) -> Vec<&'a str> {
    match claim_path::lookup(claims, claim) {
        Some(Value::Array(list)) => {
            list.iter().take(MAX_GROUPS).filter_map(Value::as_str).collect()
        }
        Some(Value::String(one)) => vec![one],
        _ => Vec::new(),
    }
}

/// The e-mail address, if the provider says that it is verified (some send a string).
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
    let name: String = name.chars().filter(|c| !c.is_control()).take(MAX_NAME_CHARS).collect();
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

    fn map_claims(settings: &ConnectorSettings, claims: &Value) -> Result<MappedUser, NotAllowed> {
        settings.map_claims(claims.as_object().unwrap())
    }

    #[test]
    fn only_a_verified_address_is_used() {
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
            let email = map_claims(&settings, &claims).unwrap().email;
            assert_eq!(email.is_some(), counts, "{claims}");
        }
        assert_eq!(map_claims(&settings, &json!({ "email": "a@b.c" })).unwrap().email, None);
    }

    #[test]
    fn groups_decide_who_may_sign_in_and_who_is_an_administrator() {
        let settings = settings(|settings| {
            settings.allowed_groups = vec!["dev".into(), "ops".into()];
            settings.admin_groups = vec!["ops".into()];
        });
        let role = |groups: Value| {
            map_claims(&settings, &json!({ "groups": groups })).map(|mapped| mapped.role)
        };
        assert_eq!(role(json!(["x", "dev"])), Ok(Role::User));
        assert_eq!(role(json!(["ops"])), Ok(Role::Admin));
        assert_eq!(role(json!("ops")), Ok(Role::Admin));
        for groups in [json!([]), json!(["Dev"]), json!("dev,ops"), json!({ "dev": 1 }), json!(7)] {
            assert_eq!(role(groups), Err(NotAllowed::Group));
        }
        assert_eq!(map_claims(&settings, &json!({})), Err(NotAllowed::Group));
    }

    #[test]
    fn only_the_domain_of_a_verified_address_counts() {
        let settings = settings(|settings| settings.allowed_domains = vec!["Example.com".into()]);
        let admits = |email: &str, verified: bool| {
            map_claims(&settings, &json!({ "email": email, "email_verified": verified })).is_ok()
        };
        assert!(admits("ada@example.COM", true));
        assert!(!admits("ada@example.com", false));
        assert!(!admits("ada@evil.example.com", true) && !admits("ada@example.com.evil", true));
        assert!(!admits("ada@evil@example.com", true));
    }

    proptest! {
        #[test]
        fn no_claims_cause_a_panic(text in ".{0,40}", number in any::<i64>()) {
            let settings = settings(|settings| settings.groups_claim = text.clone());
            let claims = json!({
                "groups": [number, text], "email": text, "email_verified": text,
                "preferred_username": text, "name": number,
            });
            if let Ok(MappedUser { username: Some(name), .. }) = map_claims(&settings, &claims) {
                prop_assert!(!name.is_empty() && !name.chars().any(char::is_control));
            }
        }
    }
}
