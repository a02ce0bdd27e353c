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
            | TenantError::MissingMetadata(_)
            | TenantError::InvalidMetadata(_) => Code::InvalidRequest,
            TenantError::QuotaExceeded { .. } => Code::NamespaceQuotaExceeded,
            TenantError::NamespaceExists(_) => Code::NamespaceExists,
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
    use crate::tenant::{NamespaceNameError, TenantName};

    fn solar() -> TenantName {
        "solar".parse().unwrap()
    }

    #[test]
    fn refusals_have_the_status_and_the_text_of_the_service() {
        let prefix = NamespaceNameError::Prefix(solar());
        for (error, code, status, text) in [
            (TenantError::NotFound, Code::NotFound, 404, "tenant"),
            (TenantError::NotOwner { tenant: solar() }, Code::NotTenantOwner, 403, "solar"),
            (TenantError::NoTenant, Code::NotTenantOwner, 403, "owner"),
            (TenantError::AmbiguousTenant(vec![solar()]), Code::Forbidden, 403, "solar"),
            (TenantError::NotActive { tenant: solar() }, Code::TenantNotActive, 409, "solar"),
            (TenantError::InvalidName(prefix), Code::InvalidRequest, 400, "begin with solar-"),
            (
                TenantError::QuotaExceeded { tenant: solar(), used: 5, quota: 5 },
                Code::NamespaceQuotaExceeded,
                403,
                "5 of 5",
            ),
            (
                TenantError::NamespaceExists("solar-a".to_owned()),
                Code::NamespaceExists,
                409,
                "solar-a",
            ),
        ] {
            let problem = ApiError::from(error).problem();
            assert_eq!((problem.code(), problem.status), (code, status), "{}", problem.detail);
            assert!(problem.detail.contains(text), "{}", problem.detail);
        }
    }
}
