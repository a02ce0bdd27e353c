//! The API error of each error of a write of a Tenant.

use tenant_shared::Code;

use crate::{
    base::{
        error_chain,
        request_context::{Field, record_field},
    },
    cluster::CustomWriteError,
    http::ApiError,
    tenant_operations::TenantWriteError,
};

impl From<TenantWriteError> for ApiError {
    /// Administrators get the texts of the API server, because they may see every Tenant.
    fn from(error: TenantWriteError) -> Self {
        let code = match error {
            TenantWriteError::Disabled => Code::Forbidden,
            TenantWriteError::Forbidden(_) => {
                record_field(Field::Cause, error_chain(&error));
                Code::Forbidden
            }
            TenantWriteError::Invalid(_) | TenantWriteError::InvalidForServer(_) => {
                Code::InvalidRequest
            }
            TenantWriteError::Exists(_) => Code::TenantExists,
            TenantWriteError::OtherGroup(_) | TenantWriteError::FieldConflict(_) => {
                Code::FieldConflict
            }
            TenantWriteError::Changed(_) => Code::TenantChanged,
            TenantWriteError::NotEmpty { .. } => Code::TenantNotEmpty,
            TenantWriteError::Busy(_) => Code::WorkspaceNotReady,
            TenantWriteError::Write(CustomWriteError::Cluster(error)) => return error.into(),
            TenantWriteError::NotServed | TenantWriteError::Write(_) => {
                record_field(Field::Cause, error_chain(&error));
                Code::ClusterRefused
            }
            TenantWriteError::Tenant(error) => return error.into(),
        };
        Self::new(code, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{
        cluster::FieldConflict,
        tenant::{Tenant, TenantName},
    };

    #[test]
    fn refusals_have_the_status_and_the_text_of_the_service() {
        let solar = || "solar".parse::<TenantName>().unwrap();
        let faults = Tenant::parse("solar", &serde_json::json!({"owners": []})).unwrap_err();
        let conflict = FieldConflict { field: "spec.tier".into(), manager: "argocd".into() };
        let refused = "forbidden: User x cannot create resource".to_owned();
        for (error, code, status, text) in [
            (TenantWriteError::Disabled, Code::Forbidden, 403, "tenants.write"),
            (TenantWriteError::Invalid(faults), Code::InvalidRequest, 400, "spec.owners"),
            (
                TenantWriteError::InvalidForServer(vec!["spec.x: y".into()]),
                Code::InvalidRequest,
                400,
                "spec.x: y",
            ),
            (TenantWriteError::Exists(solar()), Code::TenantExists, 409, "solar"),
            (TenantWriteError::OtherGroup(solar()), Code::FieldConflict, 409, "capsule"),
            (TenantWriteError::Changed(solar()), Code::TenantChanged, 409, "solar"),
            (
                TenantWriteError::FieldConflict(BTreeSet::from([conflict])),
                Code::FieldConflict,
                409,
                "spec.tier (manager argocd)",
            ),
            (
                TenantWriteError::NotEmpty { tenant: solar(), count: 20 },
                Code::TenantNotEmpty,
                409,
                "tenant solar still has 20 namespaces: delete them first",
            ),
            (TenantWriteError::Forbidden(refused), Code::Forbidden, 403, "cannot create"),
            (TenantWriteError::NotServed, Code::ClusterRefused, 502, "install --apply"),
        ] {
            let problem = ApiError::from(error).problem();
            assert_eq!((problem.code(), problem.status), (code, status), "{}", problem.detail);
            assert!(problem.detail.contains(text), "{}", problem.detail);
        }
    }
}
