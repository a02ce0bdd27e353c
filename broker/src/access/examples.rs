//! Tests that a handler without its authorization check does not compile. The examples of a pair
//! differ in the check alone, so the second one fails for no other reason.
//!
//! Showing a workspace:
//!
//! ```no_run
//! # use tenant_broker::{access::*, identity::Caller, workspace::*};
//! async fn show(workspaces: Workspaces, caller: Caller, id: uuid::Uuid) -> Result<(), WorkspaceError> {
//!     let workspace = workspaces.authorize::<ReadWorkspace>(&caller, id).await?;
//!     workspaces.show(&workspace).await?;
//!     Ok(())
//! }
//! ```
//!
//! ```compile_fail,E0308
//! # use tenant_broker::{access::*, identity::Caller, workspace::*};
//! async fn show(workspaces: Workspaces, caller: Caller, id: uuid::Uuid) -> Result<(), WorkspaceError> {
//!     let workspace = id;
//!     workspaces.show(&workspace).await?;
//!     Ok(())
//! }
//! ```
//!
//! Suspending a workspace. The permit to see it is not enough:
//!
//! ```no_run
//! # use tenant_broker::{access::*, identity::Caller, workspace::*};
//! async fn suspend(workspaces: Workspaces, caller: Caller, id: uuid::Uuid) -> Result<(), WorkspaceError> {
//!     let workspace = workspaces.authorize::<SuspendWorkspaces>(&caller, id).await?;
//!     workspaces.suspend(&workspace, None).await?;
//!     Ok(())
//! }
//! ```
//!
//! ```compile_fail,E0308
//! # use tenant_broker::{access::*, identity::Caller, workspace::*};
//! async fn suspend(workspaces: Workspaces, caller: Caller, id: uuid::Uuid) -> Result<(), WorkspaceError> {
//!     let workspace = workspaces.authorize::<ReadWorkspace>(&caller, id).await?;
//!     workspaces.suspend(&workspace, None).await?;
//!     Ok(())
//! }
//! ```
//!
//! Becoming a member of a tenant:
//!
//! ```no_run
//! # use tenant_broker::{access::*, identity::Caller, workspace::*};
//! async fn join(workspaces: Workspaces, caller: Caller, asked: MembershipRequest) -> Result<(), WorkspaceError> {
//!     let permit = authorize::<JoinTenant, _>(&caller, asked)?;
//!     workspaces.join(&permit).await?;
//!     Ok(())
//! }
//! ```
//!
//! ```compile_fail,E0308
//! # use tenant_broker::{access::*, identity::Caller, workspace::*};
//! async fn join(workspaces: Workspaces, caller: Caller, asked: MembershipRequest) -> Result<(), WorkspaceError> {
//!     let permit = asked;
//!     workspaces.join(&permit).await?;
//!     Ok(())
//! }
//! ```
//!
//! Listing users:
//!
//! ```no_run
//! # use tenant_broker::{access::*, identity::Caller, user::*};
//! async fn list(users: Users, caller: Caller) -> Result<(), UserError> {
//!     let permit = authorize_all::<ManageUsers>(&caller)?;
//!     users.list(&permit, "", 100).await?;
//!     Ok(())
//! }
//! ```
//!
//! ```compile_fail,E0308
//! # use tenant_broker::{access::*, identity::Caller, user::*};
//! async fn list(users: Users, caller: Caller) -> Result<(), UserError> {
//!     let permit = caller;
//!     users.list(&permit, "", 100).await?;
//!     Ok(())
//! }
//! ```
//!
//! Moving a namespace into a tenant. The permit to see all tenants is not enough:
//!
//! ```no_run
//! # use tenant_broker::{access::*, identity::Caller, tenant::TenantName, tenant_operations::*};
//! async fn plan(tenants: TenantOperations, caller: Caller, to: TenantName) -> Result<(), TenantError> {
//!     let permit = authorize_all::<MoveNamespaces>(&caller)?;
//!     tenants.plan_move(&permit, &to, "solar-a").await?;
//!     Ok(())
//! }
//! ```
//!
//! ```compile_fail,E0308
//! # use tenant_broker::{access::*, identity::Caller, tenant::TenantName, tenant_operations::*};
//! async fn plan(tenants: TenantOperations, caller: Caller, to: TenantName) -> Result<(), TenantError> {
//!     let permit = authorize_all::<ReadEverything>(&caller)?;
//!     tenants.plan_move(&permit, &to, "solar-a").await?;
//!     Ok(())
//! }
//! ```
//!
//! Showing a tenant:
//!
//! ```no_run
//! # use tenant_broker::{access::*, identity::Caller, tenant::TenantName, tenant_operations::*};
//! async fn show(tenants: TenantOperations, caller: Caller, name: TenantName) -> Result<(), TenantError> {
//!     let permit = tenants.authorize_read(&caller, &name).await?;
//!     tenants.show(&permit).await?;
//!     Ok(())
//! }
//! ```
//!
//! ```compile_fail,E0308
//! # use tenant_broker::{access::*, identity::Caller, tenant::TenantName, tenant_operations::*};
//! async fn show(tenants: TenantOperations, caller: Caller, name: TenantName) -> Result<(), TenantError> {
//!     let permit = name;
//!     tenants.show(&permit).await?;
//!     Ok(())
//! }
//! ```
//!
//! Listing the members of a tenant. The permit to see the tenant is not enough:
//!
//! ```no_run
//! # use tenant_broker::{access::*, identity::Caller, tenant::TenantName, tenant_operations::*};
//! async fn members(tenants: TenantOperations, caller: Caller, name: TenantName) -> Result<(), TenantError> {
//!     let permit = tenants.authorize_members(&caller, &name).await?;
//!     tenants.members(&permit).await?;
//!     Ok(())
//! }
//! ```
//!
//! ```compile_fail,E0308
//! # use tenant_broker::{access::*, identity::Caller, tenant::TenantName, tenant_operations::*};
//! async fn members(tenants: TenantOperations, caller: Caller, name: TenantName) -> Result<(), TenantError> {
//!     let permit = tenants.authorize_read(&caller, &name).await?;
//!     tenants.members(&permit).await?;
//!     Ok(())
//! }
//! ```
//!
//! Nobody is authorized to use every workspace:
//!
//! ```compile_fail,E0277
//! # use tenant_broker::{access::*, identity::Caller};
//! fn use_all(caller: &Caller) -> Result<Permit<UseWorkspace>, AccessError> {
//!     authorize_all::<UseWorkspace>(caller)
//! }
//! ```
//!
//! A permit cannot be made elsewhere:
//!
//! ```compile_fail,E0624
//! # use tenant_broker::{access::*, identity::Caller, workspace::*};
//! fn forge(caller: &Caller, workspace: WorkspaceRow) -> Permit<SuspendWorkspaces, WorkspaceRow> {
//!     Permit::grant(caller, workspace)
//! }
//! ```
