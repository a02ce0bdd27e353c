//! The API error of each error of an operation on a tenant.

use tenant_shared::Code;

use crate::{
    base::{
        error_chain,
        request_context::{Field, record_field},
    },
    http::ApiError,
    tenant_operations::TenantError,
};

impl From<TenantError> for ApiError {
    fn from(error: TenantError) -> Self {
        let code = match error {
            TenantError::NotFound | TenantError::NoNamespace(_) => Code::NotFound,
            TenantError::NotOwner { .. } | TenantError::NoTenant => Code::NotTenantOwner,
            TenantError::AmbiguousTenant(_) => Code::Forbidden,
            TenantError::NotActive { .. } => Code::TenantNotActive,
            TenantError::InvalidName(_)
            | TenantError::MissingMetadata { .. }
            | TenantError::InvalidMetadata(_) => Code::InvalidRequest,
            TenantError::QuotaExceeded { .. } => Code::NamespaceQuotaExceeded,
            TenantError::NamespaceExists { .. } => Code::NamespaceExists,
            TenantError::MoveRefused { .. } => Code::NamespaceMoveRefused,
            TenantError::NotReady { .. } => Code::WorkspaceNotReady,
            TenantError::NotCreated { .. } => {
                record_field(Field::Cause, error_chain(&error));
                Code::ClusterRefused
            }
            TenantError::Unfinished { .. } => {
                record_field(Field::Cause, error_chain(&error));
                Code::ClusterUnavailable
            }
            TenantError::Access(error) => return error.into(),
            TenantError::Workspace(error) => return error.into(),
            TenantError::Cluster(error) => return error.into(),
            TenantError::Database(error) => return error.into(),
        };
        Self::new(code, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tenant::{MissingMetadata, NamespaceNameError, TenantName};

    fn solar() -> TenantName {
        "solar".parse().unwrap()
    }

    /// Checks that a text names the tenant, the rule, and what to do or who can help.
    fn assert_has(text: &str, words: [&str; 3]) {
        for word in words {
            assert!(text.contains(word), "{word:?} is missing in {text:?}");
        }
    }

    #[test]
    fn refusals_have_a_status_and_name_the_tenant_the_rule_and_who_can_help() {
        let env =
            MissingMetadata { kind: "label", key: "env".to_owned(), pattern: "a|b".to_owned() };
        for (error, code, status, words) in [
            // Whether the tenant exists is not said.
            (TenantError::NotFound, Code::NotFound, 404, ["tenant", "no such", "tenants list`"]),
            (
                TenantError::NotOwner { tenant: solar() },
                Code::NotTenantOwner,
                403,
                ["tenant solar", "only an owner", "ask an owner or an administrator"],
            ),
            (
                TenantError::NoTenant,
                Code::NotTenantOwner,
                403,
                ["you own no tenant", "only owners", "ask an administrator"],
            ),
            (
                TenantError::AmbiguousTenant(vec![solar()]),
                Code::Forbidden,
                403,
                ["(solar)", "begins with none of them", "name it TENANT-NAME"],
            ),
            (
                TenantError::NotActive { tenant: solar() },
                Code::TenantNotActive,
                409,
                ["tenant solar", "is suspended", "ask an administrator"],
            ),
            (
                TenantError::MissingMetadata { tenant: solar(), missing: vec![env] },
                Code::InvalidRequest,
                400,
                ["tenant solar", "(requiredMetadata): the namespace needs", "ask an administrator"],
            ),
            (
                TenantError::QuotaExceeded { tenant: solar(), used: 5, quota: 5 },
                Code::NamespaceQuotaExceeded,
                403,
                ["tenant solar", "quota: tenant solar has 5 of 5; ", "or ask an administrator"],
            ),
            (
                TenantError::NamespaceExists { tenant: solar(), namespace: "solar-a".to_owned() },
                Code::NamespaceExists,
                409,
                ["tenant solar", "solar-a exists already", "choose another name"],
            ),
        ] {
            let problem = ApiError::from(error).problem();
            assert_eq!((problem.code(), problem.status), (code, status), "{}", problem.detail);
            assert_has(&problem.detail, words);
        }
    }

    #[test]
    fn refused_names_name_the_tenant_the_rule_and_who_can_help() {
        let wind = "solar-wind".parse().unwrap();
        for (error, words) in [
            (
                NamespaceNameError::Malformed(solar()),
                ["tenant solar", "1 to 63 lower case letters", "choose another name"],
            ),
            (
                NamespaceNameError::Prefix(solar()),
                ["tenant solar", "begin with solar-;", "choose such a name"],
            ),
            (
                NamespaceNameError::NoFreeNames(solar()),
                ["tenant solar", "(tenants.free_names)", "choose such a name, or ask the operator"],
            ),
            (
                NamespaceNameError::Reserved(solar()),
                ["tenant solar", "tenant- are reserved", "choose another name"],
            ),
            (
                NamespaceNameError::Protected(solar()),
                ["tenant solar", "(tenants.protected_names)", "or ask the operator"],
            ),
            (
                NamespaceNameError::OtherTenant(wind),
                ["tenant solar-wind", "begin with solar-wind-", "choose another one"],
            ),
            // Which Tenants these are is said to administrators only.
            (
                NamespaceNameError::OthersAccounts("solar-a".to_owned()),
                ["other Tenants", "ServiceAccounts of a namespace solar-a", "ask an administrator"],
            ),
        ] {
            let problem = ApiError::from(TenantError::InvalidName(error)).problem();
            let refused = (Code::InvalidRequest, 400);
            assert_eq!((problem.code(), problem.status), refused, "{}", problem.detail);
            assert_has(&problem.detail, words);
        }
    }
}
