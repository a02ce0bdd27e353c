//! Deletion of a Tenant.

use std::collections::BTreeSet;

use kube::{ResourceExt as _, api::DynamicObject};
use tenant_shared::{NamespacesOnDelete, TenantDeletion};
use tracing::Instrument as _;

use super::{
    MAX_ATTEMPTS, TenantError, TenantOperations, TenantWriteError, object::check_precondition,
    reason_of,
};
use crate::{
    access::{ManageTenants, Permit},
    audit::Action,
    base::{error_chain, request_context::in_request_context},
    cluster::{CustomWriteError, Persistence},
    identity::Caller,
    tenant::{ApiGroup, KEEP_NAMESPACES, ON_DELETE_ANNOTATION, TenantName},
};

/// Name of the policy that refuses the deletion of a Tenant with namespaces.
const GUARD: &str = "tenant-guard-tenants";

/// How a Tenant is deleted.
#[derive(Clone, Debug, Default)]
pub struct DeleteOptions {
    /// Treatment of its namespaces.
    pub namespaces: NamespacesOnDelete,
    /// Precondition: the Tenant has this `metadata.uid`.
    pub uid: Option<String>,
    /// Whether nothing is deleted.
    pub dry_run: bool,
    /// Reason for the audit trail.
    pub reason: Option<String>,
}

impl TenantOperations {
    /// Deletes a Tenant. Its members lose their memberships, and all its people the rights that it
    /// gave them. A Tenant with namespaces is deleted only if they may stay.
    ///
    /// # Errors
    /// The caller is no administrator; the broker does not write Tenants; there is no such Tenant;
    /// its uid is another one; it has namespaces ([`TenantWriteError::NotEmpty`]); or the cluster or
    /// the database failed. After a failure it may be gone.
    #[tracing::instrument(level = "debug", skip_all)]
    pub async fn delete_tenant(
        &self,
        caller: &Caller,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<TenantDeletion, TenantWriteError> {
        let action = Action::DeleteTenant;
        let permit = self.authorize_write(caller, name, action).await?;
        let name: TenantName = name.parse().map_err(|_| TenantError::NotFound)?;
        let deleted = self.delete_checked(&permit, &name, options).await;
        self.record_refused_write(caller, (&name, action), deleted, options.dry_run).await
    }

    async fn delete_checked(
        &self,
        permit: &Permit<ManageTenants>,
        name: &TenantName,
        options: &DeleteOptions,
    ) -> Result<TenantDeletion, TenantWriteError> {
        let live = self.broker_object(name).await?.ok_or(TenantError::NotFound)?;
        check_precondition(name, Some(&live), options.uid.as_deref(), None)?;
        let namespaces = self.namespaces_of(name, &live).await?;
        if !namespaces.is_empty() && options.namespaces == NamespacesOnDelete::Refuse {
            let (tenant, count) = (name.clone(), namespaces.len());
            return Err(TenantWriteError::NotEmpty { tenant, count });
        }
        let mut deletion = TenantDeletion {
            name: name.to_string(),
            uid: live.uid().unwrap_or_default(),
            dry_run: options.dry_run,
            is_terminating: false,
            kept_namespaces: namespaces.into_iter().collect(),
        };
        if !options.dry_run {
            let kept = format!("namespaces that stay: {}", deletion.kept_namespaces.len());
            let reason = reason_of(name, "", &[kept], options.reason.as_deref());
            self.record_write(permit, Action::DeleteTenant, reason).await?;
            deletion.is_terminating = self.delete_object(live, options.namespaces).await?;
            self.controller.reconcile_soon(name);
        }
        Ok(deletion)
    }

    /// The namespaces of a tenant: those of its rows, which do not lag behind, and those of its
    /// status, which the policy at the API server counts.
    async fn namespaces_of(
        &self,
        name: &TenantName,
        live: &DynamicObject,
    ) -> Result<BTreeSet<String>, TenantWriteError> {
        let reported = live.data["status"]["namespaces"].as_array();
        let mut names: BTreeSet<String> = reported
            .into_iter()
            .flatten()
            .filter_map(|name| name.as_str().map(str::to_owned))
            .collect();
        let row = self.tenants.by_name(name).await?;
        if let Some(row) = row.filter(|row| row.is_row_of(&live.metadata)) {
            let rows = self.tenants.namespaces(row.id).await?.into_iter();
            names.extend(rows.filter(|row| row.status.counts()).map(|row| row.name));
        }
        Ok(names)
    }

    /// Deletes an object that was just read; with [`NamespacesOnDelete::Keep`] after it got the
    /// annotation. Goes on if the client disconnects, because the annotation alone would let others
    /// delete the Tenant. Returns whether finalizers hold the object.
    async fn delete_object(
        &self,
        live: DynamicObject,
        namespaces: NamespacesOnDelete,
    ) -> Result<bool, TenantWriteError> {
        let (operations, name) = (self.clone(), live.name_any());
        let deletion = async move {
            match namespaces {
                NamespacesOnDelete::Refuse => operations.delete_now(&live).await,
                NamespacesOnDelete::Keep => operations.delete_and_keep(live).await,
            }
        };
        match tokio::spawn(in_request_context(deletion.in_current_span())).await {
            Ok(deleted) => deleted,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => Err(TenantError::NotReady {
                reason: format!(
                    "the broker stops; try again, because the Tenant {name} may still exist"
                ),
            }
            .into()),
        }
    }

    async fn delete_now(&self, object: &DynamicObject) -> Result<bool, TenantWriteError> {
        let resource = ApiGroup::TenantBroker.resource();
        let deleted = self.cluster.delete_custom(&resource, object).await;
        deleted.map_err(|error| not_empty(object, error))
    }

    async fn delete_and_keep(&self, live: DynamicObject) -> Result<bool, TenantWriteError> {
        let is_kept = |it: &DynamicObject| {
            it.annotations().get(ON_DELETE_ANNOTATION).is_some_and(|it| it == KEEP_NAMESPACES)
        };
        if is_kept(&live) {
            return self.delete_now(&live).await;
        }
        let annotated = self
            .change_metadata(live, |object| {
                let value = KEEP_NAMESPACES.to_owned();
                object.annotations_mut().insert(ON_DELETE_ANNOTATION.to_owned(), value);
            })
            .await?;
        let deleted = self.delete_now(&annotated).await;
        // Whether a deletion without an answer is carried out, is not known. Without the annotation
        // the policy refuses it from now on.
        if deleted.is_err() {
            self.remove_annotation(annotated).await;
        }
        deleted
    }

    /// Undoes the annotation after a failed deletion, so that nobody deletes the Tenant with its
    /// namespaces by mistake. A failure is logged only: the deletion may be requested again.
    async fn remove_annotation(&self, object: DynamicObject) {
        let name = object.name_any();
        let removed = self.change_metadata(object, |object| {
            object.annotations_mut().remove(ON_DELETE_ANNOTATION);
        });
        match removed.await {
            // It is gone.
            Ok(_) | Err(TenantWriteError::Tenant(TenantError::NotFound)) => {}
            Err(error) => tracing::warn!(
                tenant = name,
                error = error_chain(&error),
                "annotation of a Tenant whose deletion failed was not removed"
            ),
        }
    }

    /// Changes the metadata of an object, as of its latest version.
    async fn change_metadata(
        &self,
        mut object: DynamicObject,
        change: impl Fn(&mut DynamicObject),
    ) -> Result<DynamicObject, TenantWriteError> {
        let resource = ApiGroup::TenantBroker.resource();
        let name: TenantName = object.name_any().parse().map_err(|_| TenantError::NotFound)?;
        for _ in 0..MAX_ATTEMPTS {
            change(&mut object);
            let written =
                self.cluster.replace_custom(&resource, &object, Persistence::Persist).await;
            match written {
                Err(CustomWriteError::Conflict) => {}
                other => return Ok(other?),
            }
            let read = self.broker_object(&name).await?.ok_or(TenantError::NotFound)?;
            check_precondition(&name, Some(&read), object.metadata.uid.as_deref(), None)?;
            object = read;
        }
        Err(TenantWriteError::Busy(name))
    }
}

/// The refusal of a deletion by the policy that counts the namespaces in the status: it may know of
/// one that was made just now.
fn not_empty(object: &DynamicObject, error: CustomWriteError) -> TenantWriteError {
    match (&error, object.name_any().parse::<TenantName>()) {
        (CustomWriteError::Forbidden(message), Ok(tenant)) if message.contains(GUARD) => {
            let size = object.data["status"]["size"].as_u64().unwrap_or(1).max(1);
            let count = usize::try_from(size).unwrap_or(usize::MAX);
            TenantWriteError::NotEmpty { tenant, count }
        }
        (CustomWriteError::Conflict, Ok(tenant)) => TenantWriteError::Changed(tenant),
        _ => error.into(),
    }
}
