//! The calls of the broker's API for tenants. Names of tenants are DNS labels, so no character of a
//! path has to be escaped.

use http::Method;
use tenant_shared::{
    ApplyTenantRequest, CreateNamespaceRequest, CreateTenantRequest, MoveNamespaceRequest,
    NamespaceMovePlan, NamespacesOnDelete, TenantDeletion, TenantInfo, TenantList,
    TenantMemberList, TenantNamespace, TenantNamespaceList, TenantObject, TenantSuspension,
    TenantWrite, Workspace,
};
use url::form_urlencoded::Serializer;

use crate::{
    broker::{Broker, json_body},
    error::Error,
};

/// How a Tenant is applied.
#[derive(Clone, Copy)]
pub(super) struct ApplyFlags {
    pub(super) dry_run: bool,
    /// Whether fields of other field managers are changed.
    pub(super) force: bool,
}

/// How a Tenant is deleted.
pub(super) struct DeletionFlags<'a> {
    pub(super) namespaces: NamespacesOnDelete,
    /// Precondition: the Tenant has this uid.
    pub(super) uid: Option<&'a str>,
    pub(super) dry_run: bool,
    pub(super) reason: Option<&'a str>,
}

impl Broker {
    /// Lists the tenants that this user may see.
    pub(crate) async fn tenants(&self) -> Result<TenantList, Error> {
        self.parse(&self.call(Method::GET, "/tenants", None).await?)
    }

    /// Returns one tenant.
    pub(crate) async fn tenant(&self, name: &str) -> Result<TenantInfo, Error> {
        self.parse(&self.call(Method::GET, &format!("/tenants/{name}"), None).await?)
    }

    /// Lists the members of a tenant, for owners and administrators.
    pub(super) async fn tenant_members(&self, name: &str) -> Result<TenantMemberList, Error> {
        self.parse(&self.call(Method::GET, &format!("/tenants/{name}/members"), None).await?)
    }

    /// Makes this user a member of a tenant, and returns the membership.
    pub(super) async fn join_tenant(&self, name: &str) -> Result<Workspace, Error> {
        self.parse(&self.call(Method::POST, &format!("/tenants/{name}/members"), None).await?)
    }

    /// Lists the namespaces of a tenant.
    pub(crate) async fn tenant_namespaces(&self, name: &str) -> Result<TenantNamespaceList, Error> {
        self.parse(&self.call(Method::GET, &format!("/tenants/{name}/namespaces"), None).await?)
    }

    /// Creates a namespace of a tenant.
    pub(super) async fn create_namespace(
        &self,
        tenant: &str,
        request: &CreateNamespaceRequest,
    ) -> Result<TenantNamespace, Error> {
        let body = json_body(request)?;
        let path = format!("/tenants/{tenant}/namespaces");
        self.parse(&self.call(Method::POST, &path, Some(body)).await?)
    }

    /// What the move of a namespace into a tenant changes, for administrators.
    pub(super) async fn move_plan(
        &self,
        tenant: &str,
        namespace: &str,
    ) -> Result<NamespaceMovePlan, Error> {
        let path = format!("/tenants/{tenant}/moves/{namespace}");
        self.parse(&self.call(Method::GET, &path, None).await?)
    }

    /// Announces the move of a namespace into a tenant.
    pub(super) async fn announce_move(
        &self,
        tenant: &str,
        namespace: &str,
        request: &MoveNamespaceRequest,
    ) -> Result<NamespaceMovePlan, Error> {
        let path = format!("/tenants/{tenant}/moves/{namespace}");
        self.parse(&self.call(Method::POST, &path, Some(json_body(request)?)).await?)
    }

    /// Suspends or resumes a tenant; `verb` is `suspend` or `resume`.
    pub(super) async fn set_tenant(
        &self,
        name: &str,
        verb: &str,
        reason: Option<&str>,
    ) -> Result<TenantSuspension, Error> {
        self.post_reason(&format!("/tenants/{name}/{verb}"), reason).await
    }

    /// Returns a Tenant as the API server has it, for administrators.
    pub(super) async fn tenant_spec(&self, name: &str) -> Result<TenantObject, Error> {
        self.parse(&self.call(Method::GET, &format!("/tenants/{name}/spec"), None).await?)
    }

    /// Creates a Tenant.
    pub(super) async fn create_tenant(
        &self,
        request: &CreateTenantRequest,
        dry_run: bool,
    ) -> Result<TenantWrite, Error> {
        let body = json_body(request)?;
        let path = format!("/tenants?dry_run={dry_run}");
        self.parse(&self.call(Method::POST, &path, Some(body)).await?)
    }

    /// Creates a Tenant, or replaces its specification.
    pub(super) async fn apply_tenant(
        &self,
        name: &str,
        request: &ApplyTenantRequest,
        flags: ApplyFlags,
    ) -> Result<TenantWrite, Error> {
        let body = json_body(request)?;
        let ApplyFlags { dry_run, force } = flags;
        let path = format!("/tenants/{name}?dry_run={dry_run}&force={force}");
        self.parse(&self.call(Method::PUT, &path, Some(body)).await?)
    }

    /// Deletes a Tenant.
    pub(super) async fn delete_tenant(
        &self,
        name: &str,
        flags: &DeletionFlags<'_>,
    ) -> Result<TenantDeletion, Error> {
        let mut query = Serializer::new(String::new());
        query.append_pair("namespaces", flags.namespaces.as_str());
        query.append_pair("dry_run", if flags.dry_run { "true" } else { "false" });
        query.extend_pairs(flags.uid.map(|uid| ("uid", uid)));
        query.extend_pairs(flags.reason.map(|reason| ("reason", reason)));
        let path = format!("/tenants/{name}?{}", query.finish());
        self.parse(&self.call(Method::DELETE, &path, None).await?)
    }
}
