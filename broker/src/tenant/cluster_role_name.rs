//! Names of the ClusterRoles that a Tenant gives.

use std::{fmt, str::FromStr};

use serde_json::{Value, json};

use super::limits::MAX_CLUSTER_ROLE_LENGTH;

/// Names that no Tenant gives. The API server allows no object to have the last two.
const FORBIDDEN: [&str; 3] = ["cluster-admin", ".", ".."];

/// Name of a ClusterRole that a Tenant may give, as far as the name decides on that.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClusterRoleName(String);

/// Reason for refusing a ClusterRole of a Tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClusterRoleNameError {
    #[error("a ClusterRole has a name of 1 to 205 characters, without / and %")]
    Malformed,
    #[error("a tenant cannot give cluster-admin; use admin, or a ClusterRole of your own")]
    Forbidden,
}

impl ClusterRoleName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ClusterRoleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for ClusterRoleName {
    type Err = ClusterRoleNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let has_length = (1..=MAX_CLUSTER_ROLE_LENGTH).contains(&text.chars().count());
        if !has_length || text.contains(|c: char| c == '/' || c == '%' || c.is_ascii_control()) {
            return Err(ClusterRoleNameError::Malformed);
        }
        if FORBIDDEN.contains(&text) {
            return Err(ClusterRoleNameError::Forbidden);
        }
        Ok(Self(text.to_owned()))
    }
}

/// The schema of such a name.
pub(super) fn schema(description: &str) -> Value {
    json!({
        "description": description,
        "type": "string",
        "minLength": 1,
        "maxLength": MAX_CLUSTER_ROLE_LENGTH,
        "pattern": r"^[^/%\x00-\x1f\x7f]+$",
        "x-kubernetes-validations": [{
            "rule": format!("!(self in ['{}'])", FORBIDDEN.join("', '")),
            "message": ClusterRoleNameError::Forbidden.to_string(),
        }],
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_of_path_segments_are_valid_except_for_cluster_admin() {
        let longest = "r".repeat(205);
        for text in ["admin", "tenant-namespace-deleter", "system:node-proxier", "...", &longest] {
            assert_eq!(text.parse::<ClusterRoleName>().unwrap().to_string(), text);
        }
        let longer = "r".repeat(206);
        for text in ["", "a/b", "a%2fb", "a\nb", &longer] {
            let refused = text.parse::<ClusterRoleName>();
            assert_eq!(refused, Err(ClusterRoleNameError::Malformed), "{text}");
        }
        for text in ["cluster-admin", ".", ".."] {
            let refused = text.parse::<ClusterRoleName>();
            assert_eq!(refused, Err(ClusterRoleNameError::Forbidden), "{text}");
        }
    }

    /// The text of the error has the number.
    #[test]
    fn the_longest_name_leaves_room_for_that_of_the_role_binding() {
        assert_eq!(MAX_CLUSTER_ROLE_LENGTH, 205);
    }

    proptest! {
        #[test]
        fn no_input_panics(text in ".{0,250}") {
            if let Ok(name) = text.parse::<ClusterRoleName>() {
                prop_assert_eq!(name.as_str(), text);
            }
        }
    }
}
