//! The Kubernetes user name and groups of a user, as the owners and subjects of a Tenant name
//! them.
//!
//! Two people never have the same user name. It is either the e-mail address, which is unique in
//! `users`, or the user name at one provider, which is unique for that provider in `identities`.
//! An address counts only if a provider has verified it or an administrator gave it, because people
//! who register an account themselves may write any address.
//!
//! | file | responsibility |
//! |---|---|
//! | `mod` | the rules |
//! | `groups` | names of groups, and their limits |
//! | `store` | SQL |

mod groups;
mod store;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

pub(super) use self::store::{mark_changed, set_of_provider};
pub use self::{
    groups::{Groups, GroupsError, MAX_GIVEN_GROUPS, MAX_GROUPS},
    store::{rbac_users, rbac_users_changed_since},
};
pub(crate) use self::{
    groups::{TooManyGroups, is_subject_name},
    store::{GivenGroups, give_groups, groups_of_user},
};

use self::groups::MAX_NAME_CHARS;

/// A user of the broker as Kubernetes would see them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RbacUser {
    /// Name of the `User`; `None` if the person has no name that is surely theirs.
    pub user_name: Option<String>,
    /// Names of the `Group`s: those of the provider, those that an administrator gave, and the one
    /// of everybody.
    pub groups: BTreeSet<String>,
}

impl RbacUser {
    /// Whether the person may be a member of tenants: whether they are in one of these groups
    /// (`tenants.groups`). Without any, everybody may.
    pub fn is_in_scope(&self, groups: &[String]) -> bool {
        groups.is_empty() || groups.iter().any(|group| self.groups.contains(group))
    }
}

/// Source of the name of a `User`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserNameSource {
    /// The e-mail address, in lower case, if a provider has verified it or an administrator gave
    /// it.
    Email,
    /// The claim `preferred_username` of this issuer. People of other issuers and local accounts
    /// have no name, because the same name there may be another person's.
    Username {
        /// Issuer identifier of the provider.
        issuer: String,
    },
}

/// How people are named in Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RbacUserRules {
    source: UserNameSource,
    prefix: String,
    everybody: String,
}

impl Default for RbacUserRules {
    /// The rules of the default settings.
    fn default() -> Self {
        Self {
            source: UserNameSource::Email,
            prefix: String::new(),
            everybody: "projectcapsule.dev".to_owned(),
        }
    }
}

/// Settings from which no rules can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RbacUserRulesError {
    /// A user name of a provider would be the name of another user of the cluster.
    #[error(
        "tenants.user_claim = \"username\" needs tenants.user_prefix, such as \"sso:\": without it \
         a person could be called like another user of the cluster, such as kubernetes-admin"
    )]
    NoPrefix,
    /// The prefix cannot begin a user name.
    #[error(
        "tenants.user_prefix has at most 64 characters without control characters, and does not \
         begin with system:, because those users belong to Kubernetes"
    )]
    Prefix,
    /// The group of everybody has a name that no group may have.
    #[error(
        "tenants.everybody has 1 to {MAX_NAME_CHARS} characters without control characters, and \
         does not begin with system:, because those groups belong to Kubernetes"
    )]
    Everybody,
}

/// Maximum characters of the prefix of user names.
const MAX_PREFIX_CHARS: usize = 64;

impl RbacUserRules {
    /// Rules with this prefix before every user name, and this group for everybody.
    ///
    /// # Errors
    /// A name cannot be used, or the prefix is missing that the source needs.
    pub fn new(
        source: UserNameSource,
        prefix: &str,
        everybody: &str,
    ) -> Result<Self, RbacUserRulesError> {
        if prefix.is_empty() {
            if let UserNameSource::Username { .. } = source {
                return Err(RbacUserRulesError::NoPrefix);
            }
        } else if !is_subject_name(prefix) || prefix.chars().count() > MAX_PREFIX_CHARS {
            return Err(RbacUserRulesError::Prefix);
        }
        if !is_subject_name(everybody) {
            return Err(RbacUserRulesError::Everybody);
        }
        Ok(Self { source, prefix: prefix.to_owned(), everybody: everybody.to_owned() })
    }

    /// The name of the `User` for these facts.
    fn user_name(&self, ownership: &NameOwnership<'_>) -> Option<String> {
        let name = match &self.source {
            UserNameSource::Email => ownership.verified_email,
            UserNameSource::Username { issuer } => {
                ownership.at_provider.filter(|(of, _)| of == issuer).map(|(_, name)| name)
            }
        }?;
        let name = format!("{}{name}", self.prefix);
        // A prefix and a name may together begin with system: or be too long.
        is_subject_name(&name).then_some(name)
    }
}

/// What the database says about the name of a person.
#[derive(Clone, Copy, Debug)]
struct NameOwnership<'a> {
    /// The e-mail address, if somebody vouches for it.
    verified_email: Option<&'a str>,
    /// Issuer of a provider, and the user name there.
    at_provider: Option<(&'a str, &'a str)>,
}
