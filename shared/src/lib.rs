//! Wire types of the HTTP API, shared by the broker, the plugin and other clients. It also has the
//! functions with which broker and plugin print texts of others.
//!
//! A response may gain fields in a later version, so clients ignore unknown fields. Requests reject
//! unknown fields, so that a misspelled one is not silently ignored; those of model services ignore
//! them. With the feature `openapi` every type also describes itself in an OpenAPI document.

mod audit;
mod credential;
mod exec_credential;
mod model_services;
mod name;
mod pod_security;
mod problem;
mod revocation;
mod session;
mod suspension;
mod tenant;
mod tenant_write;
mod terminal;
mod time;
mod usage;
mod user;
mod version;
mod well_known;
mod workspace;

pub use audit::{AuditEntry, AuditPage};
pub use credential::{Credential, TOKEN_LIFETIME_SECONDS};
pub use exec_credential::{
    ExecApiVersion, ExecCredential, ExecCredentialStatus, ExecInfo, ExecInfoError,
};
pub use model_services::{
    AAModel, AAModelList, AAModelStatus, DISTRIBUTION_NAME, DeleteDistributionRequest,
    DeletedDistribution, DeletedDistributionResponse, DistributionConfig, DistributionStatus,
    DistributionStatusResponse, InstallDistributionRequest, InstallModel, InstalledDistribution,
    InstalledDistributionResponse, MAX_INSTALLED_MODELS, MODEL_SERVICES_PATH,
    MODEL_SERVICES_VERSION, ModelNamespace, ModelNamespaceList, ModelServicesConfig,
    ModelServicesConfigResponse, ModelServicesError, ModelServicesFailure, ModelServicesHealth,
    ModelServicesSystem, ModelServicesUser, SaToken,
};
pub use name::{MAX_NAME_BYTES, Name, NameError, is_dns_label};
pub use pod_security::{POD_SECURITY, is_stricter_pod_security};
pub use problem::{Code, PROBLEM_CONTENT_TYPE, Problem};
pub use revocation::{
    CredentialId, CredentialIdError, CredentialInfo, CredentialKind, CredentialPage,
    CredentialState, MAX_CREDENTIAL_ID_BYTES, Revocation, RevocationState, RevokedBy,
    TOKEN_CACHE_SECONDS,
};
pub use session::{
    EndedSessions, Me, RegisterRequest, Role, SessionInfo, SessionList, SignInRequest, SignedInAt,
};
pub use suspension::{Step, StepResult, SuspendRequest, Suspension};
pub use tenant::{
    CreateNamespaceRequest, MAX_TENANT_NAME_LENGTH, MoveNamespaceRequest, NamespaceMovePlan,
    RoleBindingName, TenantCondition, TenantInfo, TenantList, TenantMember, TenantMemberList,
    TenantNamespace, TenantNamespaceList, TenantRole, TenantSuspension,
};
pub use tenant_write::{
    ApplyTenantRequest, CreateTenantRequest, NamespacesOnDelete, TenantDeletion, TenantObject,
    TenantWrite, TenantWriteResult,
};
pub use terminal::{escape_json, is_terminal_unsafe, sanitize, sanitize_lines};
pub use time::WireTime;
pub use usage::{Usage, UsageDay};
pub use user::{
    ChangeEmailRequest, SetGroupsRequest, UserGroups, UserInfo, UserList, UserStatus,
    UserSuspension,
};
pub use version::{
    BROKER_VERSION_HEADER, MIN_BROKER_VERSION, MIN_PLUGIN_VERSION, MIN_PLUGIN_VERSION_HEADER,
};
pub use well_known::{
    BINDINGS_LABEL, BROKER_ENV, BROWSER_CLIENT_ID, CAPSULE_NAMESPACE_DELETER_ROLE, CLUSTER_NAME,
    CONTEXT_NAME, EXTENSION_NAME, FORMER_TENANT_LABEL, GATEWAY_PATH, GATEWAY_SCOPE, HOME_LABEL,
    LABEL_PREFIX, MANAGED_BY_LABEL, MANAGED_BY_VALUE, MEMBER_PREFIX, NAME_PREFIX,
    NAMESPACE_DELETER_ROLE, PLUGIN_CLIENT_ID, PLUGIN_COMMAND, ROLE_BINDING_NAME,
    SERVICE_ACCOUNT_NAME, SUSPENDED_LABEL, TENANT_LABEL, TENANT_OWNER_ROLE, TENANT_UID_LABEL,
    TIER_LABEL, TOKEN_SECRET_PREFIX, WORKSPACE_LABEL, is_tenant_namespace, tenant_namespace,
};
pub use workspace::{
    Drift, InitRequest, Quota, Unfinished, Workspace, WorkspaceList, WorkspaceStatus,
};
