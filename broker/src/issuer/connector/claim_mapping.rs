//! Claim mapping: from the claims of a provider to a user who may sign in, their role, and their
//! name and groups in Kubernetes.

use serde_json::{Map, Value};
use tenant_shared::Role;
use uuid::Uuid;

use super::ConnectorSettings;
use crate::{
    identity::{Email, Groups, MAX_GROUPS, TooManyGroups, UpstreamClaims, is_subject_name},
    issuer::jwt::claim_path,
};

/// Maximum groups of one user that decide on sign-in and role; more are ignored.
const MAX_CHECKED_GROUPS: usize = 4096;
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
    /// User name for Kubernetes: `preferred_username`, unchanged.
    pub(super) user_name: Option<String>,
    /// Groups for Kubernetes.
    pub(super) groups: Groups,
    /// Why there are none, although the user has some.
    pub(super) groups_left_out: Option<GroupsLeftOut>,
}

impl MappedUser {
    /// What the broker takes over from the claims.
    pub(super) fn claims(&self) -> UpstreamClaims<'_> {
        UpstreamClaims {
            email: self.email.as_ref(),
            role: self.role,
            user_name: self.user_name.as_deref(),
            groups: &self.groups,
        }
    }

    /// Writes a log line if groups were left out.
    pub(super) fn warn_of_groups_left_out(&self, connector: &str, user_id: Uuid) {
        if let Some(left_out) = self.groups_left_out {
            tracing::warn!(
                connector,
                subject_user_id = %user_id,
                error = %left_out,
                "no group of a person was taken over from the sign-in provider"
            );
        }
    }
}

/// Reason for taking over none of a user's groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum GroupsLeftOut {
    /// There are more than [`MAX_GROUPS`].
    #[error(
        "the provider names {0} groups, and more than {MAX_GROUPS} are not taken over: have it \
         send only those that Tenants name"
    )]
    TooMany(usize),
    /// The claim is somewhere else (OpenID Connect Core 1.0 section 5.6.2, distributed claims), as
    /// in Microsoft Entra ID for people in more than 200 groups.
    #[error(
        "the provider does not send the groups, but a link to them (_claim_names), which the \
         broker does not follow: have it send only those that Tenants name, or app roles"
    )]
    Elsewhere,
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
        self.keep_groups || lists.into_iter().any(|list| !list.is_empty())
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
        let (kept, groups_left_out) = match self.kept_groups(claims) {
            Ok(groups) => (groups, None),
            Err(left_out) => (Groups::default(), Some(left_out)),
        };
        Ok(MappedUser {
            username: username(claims),
            email,
            role,
            user_name: if self.keep_groups { user_name(claims) } else { None },
            groups: kept,
            groups_left_out,
        })
    }

    /// The groups of a user for Kubernetes.
    fn kept_groups(&self, claims: &Map<String, Value>) -> Result<Groups, GroupsLeftOut> {
        if !self.keep_groups {
            return Ok(Groups::default());
        }
        let too_many = |TooManyGroups(count)| GroupsLeftOut::TooMany(count);
        match claim_path::lookup(claims, &self.groups_claim) {
            Some(Value::Array(list)) => {
                Groups::of_provider(list.iter().filter_map(Value::as_str)).map_err(too_many)
            }
            Some(Value::String(one)) => Groups::of_provider([one.as_str()]).map_err(too_many),
            _ => match claims.get("_claim_names") {
                Some(Value::Object(names)) if names.contains_key(&self.groups_claim) => {
                    Err(GroupsLeftOut::Elsewhere)
                }
                _ => Ok(Groups::default()),
            },
        }
    }
}

/// The user name for Kubernetes. Other claims are no names that a provider gives to one person
/// only, and a name that is cut is another one.
fn user_name(claims: &Map<String, Value>) -> Option<String> {
    let name = claims.get("preferred_username")?.as_str()?;
    is_subject_name(name).then(|| name.to_owned())
}

/// The groups of a user: a list of strings, or one string.
fn groups<'a>(claims: &'a Map<String, Value>, claim: &str) -> Vec<&'a str> {
    match claim_path::lookup(claims, claim) {
        Some(Value::Array(list)) => {
            list.iter().take(MAX_CHECKED_GROUPS).filter_map(Value::as_str).collect()
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
            keep_groups: false,
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

    /// Settings with which groups are kept.
    fn keeping() -> ConnectorSettings {
        settings(|settings| settings.keep_groups = true)
    }

    fn kept(settings: &ConnectorSettings, claims: &Value) -> Vec<String> {
        let mapped = map_claims(settings, claims).unwrap();
        assert_eq!(mapped.groups_left_out, None, "{claims}");
        mapped.groups.names().iter().cloned().collect()
    }

    #[test]
    fn groups_are_kept_for_tenants_only() {
        let claims =
            json!({ "groups": ["ops", 7, "dev", "system:masters"], "preferred_username": "ada" });
        let mapped = map_claims(&settings(|_| {}), &claims).unwrap();
        assert_eq!((mapped.groups, mapped.user_name), (Groups::default(), None));
        assert_eq!(kept(&keeping(), &claims), ["dev", "ops"]);
        assert_eq!(map_claims(&keeping(), &claims).unwrap().user_name.as_deref(), Some("ada"));
        assert_eq!(kept(&keeping(), &json!({ "groups": "dev" })), ["dev"]);
        for claims in [json!({}), json!({ "groups": { "dev": 1 } }), json!({ "groups": null })] {
            assert_eq!(kept(&keeping(), &claims), [""; 0], "{claims}");
        }
        let nested = settings(|settings| {
            settings.keep_groups = true;
            settings.groups_claim = "realm_access.roles".into();
        });
        assert_eq!(kept(&nested, &json!({ "realm_access": { "roles": ["dev"] } })), ["dev"]);
        assert!(keeping().requires_claims() && !settings(|_| {}).requires_claims());
    }

    #[test]
    fn only_an_unchanged_preferred_username_is_a_user_name() {
        let long = "x".repeat(340);
        for (claims, expected) in [
            (json!({ "preferred_username": " Ada L " }), Some(" Ada L ")),
            (json!({ "preferred_username": "system:admin" }), None),
            (json!({ "preferred_username": "a\nb" }), None),
            (json!({ "preferred_username": "" }), None),
            (json!({ "preferred_username": long }), None),
            (json!({ "preferred_username": ["ada"] }), None),
            (json!({ "name": "Ada", "email": "ada@example.com" }), None),
        ] {
            let mapped = map_claims(&keeping(), &claims).unwrap();
            assert_eq!(mapped.user_name.as_deref(), expected, "{claims}");
        }
    }

    #[test]
    fn of_too_many_groups_none_is_kept_and_the_sign_in_works() {
        let names: Vec<String> = (0..10_000).map(|number| format!("group-{number}")).collect();
        let mut settings = keeping();
        settings.allowed_groups = vec!["group-7".into()];
        settings.admin_groups = vec!["group-8".into()];
        let mapped = map_claims(&settings, &json!({ "groups": names })).unwrap();
        assert_eq!((mapped.role, &mapped.groups), (Role::Admin, &Groups::default()));
        assert_eq!(mapped.groups_left_out, Some(GroupsLeftOut::TooMany(10_000)));
        let log = crate::testing::Log::of(|| mapped.warn_of_groups_left_out("corp", Uuid::nil()));
        assert!(log.contains("WARN") && log.contains("10000 groups"), "{log}");
        assert_eq!(kept(&keeping(), &json!({ "groups": &names[..MAX_GROUPS] })).len(), MAX_GROUPS);
    }

    #[test]
    fn groups_that_the_provider_only_links_to_are_left_out() {
        let overage = json!({
            "_claim_names": { "groups": "src1" },
            "_claim_sources": { "src1": { "endpoint": "https://graph.example.com/getMemberObjects" } },
        });
        let mapped = map_claims(&keeping(), &overage).unwrap();
        assert_eq!(mapped.groups, Groups::default());
        assert_eq!(mapped.groups_left_out, Some(GroupsLeftOut::Elsewhere));
        // Another claim is the linked one, or userinfo has the groups.
        let other = json!({ "_claim_names": { "address": "src1" } });
        assert_eq!(kept(&keeping(), &other), [""; 0]);
        let both = json!({ "_claim_names": { "groups": "src1" }, "groups": ["dev"] });
        assert_eq!(kept(&keeping(), &both), ["dev"]);
    }

    proptest! {
        #[test]
        fn no_claims_cause_a_panic(text in ".{0,40}", number in any::<i64>()) {
            let settings = settings(|settings| {
                settings.groups_claim = text.clone();
                settings.keep_groups = true;
            });
            let claims = json!({
                "groups": [number, text], "email": text, "email_verified": text,
                "preferred_username": text, "name": number, "_claim_names": text,
            });
            if let Ok(mapped) = map_claims(&settings, &claims) {
                let name = mapped.username.unwrap_or_else(|| "x".into());
                prop_assert!(!name.is_empty() && !name.chars().any(char::is_control));
                let mut names = mapped.groups.names().iter().chain(&mapped.user_name);
                prop_assert!(names.all(|name| is_subject_name(name)));
            }
        }
    }
}
