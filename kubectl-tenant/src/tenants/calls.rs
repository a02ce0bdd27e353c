//! The calls of the broker's API for tenants. Names of tenants are DNS labels, so no character of a
//! path has to be escaped.

use http::Method;
use tenant_shared::{
    CreateNamespaceRequest, MoveNamespaceRequest, NamespaceMovePlan, TenantInfo, TenantList,
    TenantMemberList, TenantNamespace, TenantNamespaceList, TenantSuspension, Workspace,
};

use crate::{
    broker::{Broker, json_body},
    error::Error,
};

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
}
