//! Tenants: the `CustomResourceDefinition` of the kind `Tenant`, the validation of its objects, the
//! desired state of the objects that the broker makes for a tenant, and the rows of tenants and of
//! their namespaces.
//!
//! | file | responsibility |
//! |---|---|
//! | `definition`, `schema`, `status_schema`, `limits` | the definition |
//! | `parse`, `name`, `subject`, `cluster_role_name`, `pattern`, `quantity`, `violation` | objects as validated types |
//! | `names`, `metadata`, `metadata_key`, `added_keys` | rules on names, labels and annotations of namespaces |
//! | `rights` | who has which ClusterRole, and why |
//! | `desired` | the objects of a tenant in the cluster, without I/O |
//! | `quota_division` | amounts of a quota for the whole tenant, by namespace |
//! | `exceeded_limits` | limits that are below what the namespaces use |
//! | `conditions`, `status` | the status of an object |
//! | `decision` | the tenant in audit rows about it |
//! | `cache` | Tenants and names of namespaces in memory |
//! | `settings`, `store` | settings; the tables `tenants`, `tenant_namespaces`, `namespace_moves` and `tenant_deleted_bindings` |
//!
//! This module decides and stores. The module `tenant_controller` reads and writes the cluster.

mod added_keys;
mod api_group;
mod cache;
mod cluster_role_name;
mod conditions;
mod decision;
mod definition;
mod desired;
mod exceeded_limits;
mod limits;
mod metadata;
mod metadata_key;
mod name;
mod names;
mod parse;
mod pattern;
mod quantity;
mod quota_division;
mod rights;
mod schema;
mod settings;
mod status;
mod status_schema;
mod store;
mod subject;
mod violation;

pub use added_keys::{ADDED_KEYS, AddedKeys, drop_unmanaged_metadata};
pub use api_group::ApiGroup;
pub use cache::{AccountsError, CachedTenant, NamespaceReflector, TenantCache, TenantReflector};
pub use cluster_role_name::{ClusterRoleName, ClusterRoleNameError};
pub use conditions::{Condition, ConditionType};
pub use decision::{decision_reason, tenant_of_decision};
pub use definition::custom_resource_definition;
pub use desired::{Desired, Inputs, Member, desired_state, pod_security_of};
pub use exceeded_limits::{ExceededLimit, QuotaUse, limits_below_use};
pub use metadata::{MissingMetadata, check_requested_metadata, check_required_metadata};
pub use metadata_key::{
    KEEP_NAMESPACES, LAST_APPLIED_ANNOTATION, NODE_SELECTOR_ANNOTATION, ON_DELETE_ANNOTATION,
};
pub use name::{TenantName, TenantNameError, is_reserved_home, tenant_name_rules};
pub use names::{
    NamespaceNameError, check_namespace_name, home_name, is_limits_name, is_namespace_name,
    limits_name, longest_prefix, member_account_name, owner_binding_name, prefixes_of, quota_name,
    role_binding_name, tenant_of_home,
};
pub use parse::{
    AdditionalRoleBinding, Bindings, Metadata, NamespaceOptions, Owner, Quota, QuotaScope,
    RequiredMetadata, Tenant,
};
pub use pattern::{Pattern, PatternError};
pub use quota_division::{
    AllocationKind, ObservedQuota, QuotaChange, limit_at_present, lower_quotas, raise_quotas,
};
pub use rights::{ListGrant, Reason, Rights, rights_of};
pub use settings::{ProtectedPattern, TenantSettings};
pub use status::{StatusInputs, tenant_status};
pub use store::{
    Announcement, Claim, MoveRefusal, MoveState, NamespaceMove, NamespaceRow, NamespaceRows,
    NamespaceStatus, Observed, Orphan, TenantRow, TenantStatus, Tenants,
};
pub(crate) use store::{
    get_or_create_personal, lock_active_tenant, suspend_restored_tenant, suspend_restored_tenants,
};
pub use subject::{Subject, SubjectError};
pub use violation::Violation;
