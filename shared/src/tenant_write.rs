//! Writes of Tenants by administrators.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::TenantCondition;

/// Request body of `POST /tenants`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
#[cfg_attr(feature = "openapi", oai(deny_unknown_fields, skip_serializing_if_is_none))]
pub struct CreateTenantRequest {
    /// Name of the tenant: at most 40 lower case letters, digits and dashes.
    pub name: String,
    /// `spec` of the Tenant, as in its definition (`tenant-broker.io/v1alpha1`).
    pub spec: Value,
    /// Reason for the audit trail; at most 500 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", oai(validator(max_length = 500)))]
    pub reason: Option<String>,
}

/// Request body of `PUT /tenants/{name}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
#[cfg_attr(feature = "openapi", oai(deny_unknown_fields, skip_serializing_if_is_none))]
pub struct ApplyTenantRequest {
    /// The whole `spec` of the Tenant, as in its definition (`tenant-broker.io/v1alpha1`).
    pub spec: Value,
    /// Precondition: the Tenant exists and has this `uid`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", oai(validator(max_length = 64)))]
    pub uid: Option<String>,
    /// Precondition: the Tenant exists, and its `generation` is this one, so nobody changed `spec`
    /// since it was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// Reason for the audit trail; at most 500 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", oai(validator(max_length = 500)))]
    pub reason: Option<String>,
}

/// A Tenant as the API server has it: response body of `GET /tenants/{name}/spec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
pub struct TenantObject {
    /// Name of the tenant.
    pub name: String,
    /// API group of the object: `tenant-broker.io` or `capsule.clastix.io`.
    pub api_group: String,
    /// `metadata.uid`, which another Tenant of the same name does not have.
    pub uid: String,
    /// `metadata.generation`, which changes with `spec` alone.
    pub generation: i64,
    /// `spec`, with the defaults of the definition.
    pub spec: Value,
}

/// Result of a write of a Tenant or of its dry run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Enum))]
#[cfg_attr(feature = "openapi", oai(rename_all = "snake_case"))]
pub enum TenantWriteResult {
    /// It did not exist before.
    Created,
    /// Its `spec` changed.
    Configured,
    /// It was so already, and nothing was written.
    Unchanged,
}

/// Response body of `POST /tenants` and `PUT /tenants/{name}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
pub struct TenantWrite {
    /// Result of the write or of its dry run.
    pub result: TenantWriteResult,
    /// Whether nothing was written, because the request asked for a dry run.
    pub dry_run: bool,
    /// The Tenant, with the defaults of the definition. Its `uid` and `generation` are those of the
    /// API server; those of a dry run are not persisted.
    pub tenant: TenantObject,
    /// The changed fields of `spec`, for people; at most 20.
    pub changes: Vec<String>,
    /// Conditions for the parts of the Tenant that the broker does not implement.
    pub conditions: Vec<TenantCondition>,
}

/// Treatment of the namespaces of a deleted tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Enum))]
#[cfg_attr(feature = "openapi", oai(rename_all = "snake_case"))]
pub enum NamespacesOnDelete {
    /// The Tenant is not deleted if it has any.
    #[default]
    Refuse,
    /// They stay, and their people lose the rights that the tenant gave them.
    Keep,
}

impl NamespacesOnDelete {
    /// Name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Refuse => "refuse",
            Self::Keep => "keep",
        }
    }
}

/// Response body of `DELETE /tenants/{name}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
pub struct TenantDeletion {
    /// Name of the tenant.
    pub name: String,
    /// `metadata.uid` of the Tenant that was deleted.
    pub uid: String,
    /// Whether nothing was deleted, because the request asked for a dry run.
    pub dry_run: bool,
    /// Whether the object still exists, because finalizers of others hold it.
    pub is_terminating: bool,
    /// The namespaces that stay, by name.
    pub kept_namespaces: Vec<String>,
}
