//! Creation of a Tenant.

use serde_json::json;
use tenant_shared::{CreateTenantRequest, TenantWrite};

use super::{
    PendingWrite, TenantOperations, TenantWriteError, WriteOptions,
    changes::changes,
    is_conflict,
    object::{spec_of, to_api},
    result_of,
};
use crate::{
    access::{ManageTenants, Permit},
    audit::Action,
    cluster::Persistence,
    identity::Caller,
    tenant::{ApiGroup, Tenant},
};

impl TenantOperations {
    /// Creates a Tenant.
    ///
    /// # Errors
    /// The caller is no administrator; the broker does not write Tenants; the request is not valid;
    /// [`TenantWriteError::Exists`]; or the cluster or the database failed. After a failure the
    /// Tenant may exist.
    #[tracing::instrument(level = "debug", skip_all)]
    pub async fn create_tenant(
        &self,
        caller: &Caller,
        request: &CreateTenantRequest,
        dry_run: bool,
    ) -> Result<TenantWrite, TenantWriteError> {
        let action = Action::CreateTenant;
        let permit = self.authorize_write(caller, &request.name, action).await?;
        let tenant = Self::validate(&request.name, &request.spec)?;
        let created = self.create_if_missing(&permit, &tenant, request, dry_run).await;
        self.record_refused_write(caller, (&tenant.name, action), created, dry_run).await
    }

    async fn create_if_missing(
        &self,
        permit: &Permit<ManageTenants>,
        tenant: &Tenant,
        request: &CreateTenantRequest,
        dry_run: bool,
    ) -> Result<TenantWrite, TenantWriteError> {
        let exists = || TenantWriteError::Exists(tenant.name.clone());
        if self.broker_object(&tenant.name).await?.is_some() {
            return Err(exists());
        }
        let mut write = PendingWrite {
            permit,
            tenant,
            spec: &request.spec,
            options: WriteOptions { dry_run, force: false },
            reason: request.reason.as_deref(),
            recorded: None,
        };
        let created = self.create_object(&mut write).await;
        created.map_err(|error| if is_conflict(&error) { exists() } else { error })
    }

    /// Creates the object of a tenant, with the audit row before it.
    ///
    /// # Errors
    /// A conflict if an object of this name exists; or as [`Self::create_tenant`].
    pub(super) async fn create_object(
        &self,
        write: &mut PendingWrite<'_>,
    ) -> Result<TenantWrite, TenantWriteError> {
        let (action, group) = (Action::CreateTenant, ApiGroup::TenantBroker);
        let (tenant, spec, options) = (write.tenant, write.spec, write.options);
        let (resource, name) = (group.resource(), tenant.name.as_str());
        let create = |persistence| self.cluster.create_custom(&resource, name, spec, persistence);
        let mut object = create(Persistence::DryRun).await?;
        let none = json!({});
        let changes = changes(&none, spec);
        if !options.dry_run {
            // The object has the roles that the definition gives owners by default.
            let rights = (&none, spec_of(&object));
            self.record_change(write, action, rights, &changes).await?;
            object = create(Persistence::Persist).await?;
            self.controller.reconcile_soon(&tenant.name);
        }
        Ok(TenantWrite {
            result: result_of(action),
            dry_run: options.dry_run,
            tenant: to_api(group, &object),
            changes,
            conditions: self.conditions_of(tenant),
        })
    }
}
