//! Names of groups: which ones a person can be in, how many, and their form in the database.

use std::collections::BTreeSet;

use serde_json::Value;

/// Maximum groups that a person gets from a provider.
pub const MAX_GROUPS: usize = 512;
/// Maximum groups that an administrator gives a user. The audit trail has all of them.
pub const MAX_GIVEN_GROUPS: usize = 64;
/// Maximum characters of the name of a user or group: those of an owner of a Tenant.
pub(super) const MAX_NAME_CHARS: usize = 339;
/// Users and groups whose names begin with this belong to Kubernetes (Kubernetes, "Authenticating",
/// "Users in Kubernetes"; "Using RBAC Authorization", "Referring to subjects").
const SYSTEM: &str = "system:";
/// Maximum added, and maximum removed names in the description of a change.
const MAX_DESCRIBED: usize = MAX_GIVEN_GROUPS;

/// The groups that an administrator gives cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GroupsError {
    /// There are more than [`MAX_GIVEN_GROUPS`].
    #[error("a user gets at most {MAX_GIVEN_GROUPS} groups, and these are {0}")]
    TooMany(usize),
    /// A name cannot be that of a group.
    #[error(
        "{0:?} cannot be the name of a group: it has 1 to {MAX_NAME_CHARS} characters without \
         control characters, and does not begin with system:, because those groups belong to \
         Kubernetes"
    )]
    Name(String),
}

/// A provider names more than [`MAX_GROUPS`] groups of a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooManyGroups(pub(crate) usize);

/// Names of groups that a person is in. Each can be the subject of a role binding, and none belongs
/// to Kubernetes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Groups(BTreeSet<String>);

/// Whether a user or group may have this name: 1 to 339 characters without control characters,
/// which does not begin with `system:`.
pub(crate) fn is_subject_name(name: &str) -> bool {
    (1..=MAX_NAME_CHARS).contains(&name.chars().count())
        && !name.contains(char::is_control)
        && !name.starts_with(SYSTEM)
}

impl Groups {
    /// The groups that an administrator gives a user.
    ///
    /// # Errors
    /// There are too many, or a name cannot be that of a group.
    pub(crate) fn given(names: Vec<String>) -> Result<Self, GroupsError> {
        let names: BTreeSet<String> = names.into_iter().collect();
        if names.len() > MAX_GIVEN_GROUPS {
            return Err(GroupsError::TooMany(names.len()));
        }
        match names.iter().find(|name| !is_subject_name(name)) {
            Some(name) => Err(GroupsError::Name(name.chars().take(MAX_NAME_CHARS + 1).collect())),
            None => Ok(Self(names)),
        }
    }

    /// The groups that a provider names. A name that cannot be that of a group is left out.
    ///
    /// # Errors
    /// There are too many. None of them are taken over then: a person who lost some groups to a
    /// limit would have rights that nobody can explain, which change with every further group.
    pub(crate) fn of_provider<'a>(
        names: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, TooManyGroups> {
        let names: BTreeSet<&str> =
            names.into_iter().filter(|name| is_subject_name(name)).collect();
        if names.len() > MAX_GROUPS {
            return Err(TooManyGroups(names.len()));
        }
        Ok(Self(names.into_iter().map(str::to_owned).collect()))
    }

    /// The names, sorted.
    pub fn names(&self) -> &BTreeSet<String> {
        &self.0
    }

    /// The names, sorted.
    pub(super) fn into_names(self) -> BTreeSet<String> {
        self.0
    }

    /// The value of a column: a JSON list, or `NULL` for no group.
    pub(super) fn to_column(&self) -> Option<String> {
        if self.0.is_empty() { None } else { Some(json_list(self.0.iter())) }
    }

    /// Parses the value of a column. Any other text than a JSON list of texts is a decoding error.
    pub(super) fn from_column(text: Option<&str>) -> sqlx::Result<Self> {
        let Some(text) = text else { return Ok(Self::default()) };
        serde_json::from_str(text).map(Self).map_err(|error| sqlx::Error::ColumnDecode {
            index: "groups".to_owned(),
            source: Box::new(error),
        })
    }

    /// The change to other groups, for the audit trail: `added ["a"], removed ["b", "c"]`.
    pub(crate) fn describe_change(&self, to: &Self) -> String {
        let (added, removed) = (to.0.difference(&self.0), self.0.difference(&to.0));
        format!("added {}, removed {}", described(added), described(removed))
    }
}

fn json_list<'a>(names: impl Iterator<Item = &'a String>) -> String {
    names.map(String::as_str).collect::<Value>().to_string()
}

fn described<'a>(names: impl Iterator<Item = &'a String> + Clone) -> String {
    let listed = json_list(names.clone().take(MAX_DESCRIBED));
    match names.skip(MAX_DESCRIBED).count() {
        0 => listed,
        more => format!("{listed} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn texts(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn an_administrator_gives_names_that_kubernetes_does_not_own() {
        let given = Groups::given(texts(&["ops", "dev", "ops"])).unwrap();
        assert_eq!(given.names().iter().collect::<Vec<_>>(), ["dev", "ops"]);
        let longest = "ä".repeat(MAX_NAME_CHARS);
        assert!(Groups::given(vec![longest.clone()]).is_ok());
        for name in ["", "system:masters", "system:serviceaccounts:x", "a\nb", &(longest + "ä")] {
            let refused = Groups::given(texts(&["dev", name]));
            assert!(matches!(refused, Err(GroupsError::Name(_))), "{name:?}");
        }
        let many = |count: usize| (0..count).map(|number| format!("g{number}")).collect();
        assert!(Groups::given(many(MAX_GIVEN_GROUPS)).is_ok());
        assert_eq!(Groups::given(many(65)), Err(GroupsError::TooMany(65)));
    }

    #[test]
    fn of_a_provider_s_groups_all_usable_ones_are_taken_or_none() {
        let long = "x".repeat(MAX_NAME_CHARS + 1);
        let names = ["dev", "system:masters", "", &long, "a\u{85}b", "dev", "/ops"];
        let taken = Groups::of_provider(names).unwrap();
        assert_eq!(taken.names().iter().collect::<Vec<_>>(), ["/ops", "dev"]);
        let many: Vec<String> = (0..=MAX_GROUPS).map(|number| format!("g{number}")).collect();
        let names = || many.iter().map(String::as_str);
        assert_eq!(Groups::of_provider(names()), Err(TooManyGroups(MAX_GROUPS + 1)));
        // Names that are the same, or that nobody can have, do not count.
        let fewer = names().skip(1).chain(["g1", "system:a"]);
        assert_eq!(Groups::of_provider(fewer).unwrap().names().len(), MAX_GROUPS);
    }

    #[test]
    fn a_change_is_described_with_a_limit() {
        let groups = |names: &[&str]| Groups::of_provider(names.iter().copied()).unwrap();
        let change = groups(&["a", "b\""]).describe_change(&groups(&["a", "c", "d"]));
        assert_eq!(change, r#"added ["c","d"], removed ["b\""]"#);
        let many: Vec<String> = (0..70).map(|number| format!("g{number:02}")).collect();
        let many = Groups::of_provider(many.iter().map(String::as_str)).unwrap();
        let change = many.describe_change(&Groups::default());
        assert!(change.starts_with(r#"added [], removed ["g00","#), "{change}");
        assert!(change.ends_with(r#""g63"] and 6 more"#), "{change}");
    }

    #[test]
    fn a_column_of_another_form_is_an_error() {
        assert_eq!(Groups::from_column(None).unwrap(), Groups::default());
        for text in ["", "dev", "{}", "[1]", "[\"a\""] {
            assert!(Groups::from_column(Some(text)).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_column_keeps_the_names(names in proptest::collection::vec(".{0,20}", 0..20)) {
            let groups = Groups::of_provider(names.iter().map(String::as_str)).unwrap();
            prop_assert!(groups.names().iter().all(|name| is_subject_name(name)));
            let column = groups.to_column();
            prop_assert_eq!(column.is_none(), groups.names().is_empty());
            prop_assert_eq!(Groups::from_column(column.as_deref()).unwrap(), groups);
        }
    }
}
