//! Creation of a Tenant, or replacement of its specification.

use kube::api::DynamicObject;
use tenant_shared::{ApplyTenantRequest, TenantWrite, TenantWriteResult};

use super::{
    MAX_ATTEMPTS, PendingWrite, TenantOperations, TenantWriteError, WriteOptions,
    changes::changes,
    is_conflict,
    object::{check_precondition, spec_of, to_api},
    result_of,
};
use crate::{
    access::{ManageTenants, Permit},
    audit::Action,
    cluster::{Persistence, field_conflicts},
    identity::Caller,
    tenant::{ApiGroup, Tenant},
};

impl TenantOperations {
    /// Makes `spec` of a Tenant exactly that of the request, and creates the Tenant if there is none
    /// and the request has no precondition. Idempotent: a Tenant that is so already is not written.
    ///
    /// # Errors
    /// The caller is no administrator; the broker does not write Tenants; the request is not valid;
    /// its precondition does not hold ([`TenantWriteError::Changed`]); another manager has set a
    /// field that would change ([`TenantWriteError::FieldConflict`]), unless `force`; or the cluster
    /// or the database failed. After a failure the request may have been carried out.
    #[tracing::instrument(level = "debug", skip_all)]
    pub async fn apply_tenant(
        &self,
        caller: &Caller,
        name: &str,
        request: &ApplyTenantRequest,
        options: WriteOptions,
    ) -> Result<TenantWrite, TenantWriteError> {
        let action = Action::ChangeTenant;
        let permit = self.authorize_write(caller, name, action).await?;
        let tenant = Self::validate(name, &request.spec)?;
        let applied = self.apply_until_written(&permit, &tenant, request, options).await;
        self.record_refused_write(caller, (&tenant.name, action), applied, options.dry_run).await
    }

    /// Tries again if the object was changed, created or deleted after it was read. The precondition
    /// is checked each time.
    async fn apply_until_written(
        &self,
        permit: &Permit<ManageTenants>,
        tenant: &Tenant,
        request: &ApplyTenantRequest,
        options: WriteOptions,
    ) -> Result<TenantWrite, TenantWriteError> {
        let reason = request.reason.as_deref();
        let spec = &request.spec;
        let mut write = PendingWrite { permit, tenant, spec, options, reason, recorded: None };
        for _ in 0..MAX_ATTEMPTS {
            let live = self.broker_object(&tenant.name).await?;
            let (uid, generation) = (request.uid.as_deref(), request.generation);
            check_precondition(&tenant.name, live.as_ref(), uid, generation)?;
            let written = match live {
                None => self.create_object(&mut write).await,
                Some(live) => self.replace_spec(&mut write, &live).await,
            };
            match written {
                Err(error) if is_conflict(&error) => {}
                other => return other,
            }
        }
        Err(TenantWriteError::Busy(tenant.name.clone()))
    }

    /// Replaces the specification of an object that was just read, with the audit row before it.
    async fn replace_spec(
        &self,
        write: &mut PendingWrite<'_>,
        live: &DynamicObject,
    ) -> Result<TenantWrite, TenantWriteError> {
        let (action, group) = (Action::ChangeTenant, ApiGroup::TenantBroker);
        let (tenant, options) = (write.tenant, write.options);
        let resource = group.resource();
        let mut wanted = live.clone();
        wanted.data["spec"] = write.spec.clone();
        let replace = |persistence| self.cluster.replace_custom(&resource, &wanted, persistence);
        // The result has the defaults of the definition, as the live object does.
        let checked = replace(Persistence::DryRun).await?;
        let changes = changes(spec_of(live), spec_of(&checked));
        let response = |result, object: &DynamicObject, changes| TenantWrite {
            result,
            dry_run: options.dry_run,
            tenant: to_api(group, object),
            changes,
            conditions: self.conditions_of(tenant),
        };
        if changes.is_empty() {
            return Ok(response(TenantWriteResult::Unchanged, live, changes));
        }
        if !options.force {
            let conflicts = field_conflicts(live, spec_of(&checked));
            if !conflicts.is_empty() {
                return Err(TenantWriteError::FieldConflict(conflicts));
            }
        }
        if options.dry_run {
            return Ok(response(result_of(action), &checked, changes));
        }
        self.record_change(write, action, (spec_of(live), spec_of(&checked)), &changes).await?;
        let object = replace(Persistence::Persist).await?;
        self.controller.reconcile_soon(&tenant.name);
        Ok(response(result_of(action), &object, changes))
    }
}
