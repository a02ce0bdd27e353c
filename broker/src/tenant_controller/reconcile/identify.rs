//! Choice of the object that is a tenant: there may be one in each API group, and one may have been
//! deleted and made again.

use std::time::Duration;

use kube::{ResourceExt as _, api::DynamicObject};

use crate::{
    base::error_chain,
    cluster::{AccessReview, CustomObject, DefinitionState},
    tenant::{ApiGroup, Condition, Observed, TenantName, TenantRow, TenantStatus},
    tenant_controller::{TenantController, error::ReconcileError, queue::Run},
};

/// Pause before a tenant is looked at again whose definition the API server does not serve. The
/// watch notices earlier that it does.
pub(in crate::tenant_controller) const UNKNOWN_INTERVAL: Duration = Duration::from_mins(1);
/// Pause before a tenant is looked at again that other replicas are changing.
pub(in crate::tenant_controller) const RACE_INTERVAL: Duration = Duration::from_secs(1);

/// Result of the search for the tenant of a name.
#[derive(Debug)]
pub(in crate::tenant_controller) enum TenantLookup {
    /// The open row of the object.
    Tenant(TenantRow),
    /// There is nothing to do for the name, or not now.
    Nothing(Run),
}

/// The objects of a name.
#[derive(Debug)]
pub(in crate::tenant_controller) struct NamedObjects {
    pub(in crate::tenant_controller) candidates: Vec<GroupObject>,
    /// The groups of which the API server did not say whether there is one.
    pub(in crate::tenant_controller) unknown: Vec<ApiGroup>,
}

/// An object of an API group.
type GroupObject = (ApiGroup, Box<DynamicObject>);

impl TenantController {
    /// Finds the row of the tenant of this name. If the watches passed the object of the open row and
    /// no other one, the API server is not asked, because the run reads the object again. Otherwise
    /// as [`Self::identify_live`].
    ///
    /// # Errors
    /// The cluster or the database failed.
    pub(in crate::tenant_controller) async fn identify(
        &self,
        name: &TenantName,
    ) -> Result<TenantLookup, ReconcileError> {
        match self.tenants.by_name(name).await? {
            Some(row) if self.cache.is_only_object(name, row.group, &row.object_uid) => {
                Ok(TenantLookup::Tenant(row))
            }
            _ => Box::pin(self.identify_live(name)).await,
        }
    }

    /// Finds the row of the object of this name, or makes it. The row of an object that is gone is
    /// closed, after everybody has lost their rights. An object of the other API group gets the
    /// condition `NameTaken`.
    ///
    /// # Errors
    /// The cluster or the database failed.
    pub(in crate::tenant_controller) async fn identify_live(
        &self,
        name: &TenantName,
    ) -> Result<TenantLookup, ReconcileError> {
        let NamedObjects { candidates, unknown } = self.objects_of(name).await?;
        if let Some(row) = self.tenants.by_name(name).await? {
            if unknown.contains(&row.group) {
                return Ok(TenantLookup::Nothing(Run::Again(UNKNOWN_INTERVAL)));
            }
            if candidates.iter().any(|candidate| is_of(candidate, &row)) {
                self.report_names_taken(&row, &candidates).await;
                return Ok(TenantLookup::Tenant(row));
            }
            if let Some(pause) = Box::pin(self.close(&row)).await? {
                return Ok(TenantLookup::Nothing(Run::Again(pause)));
            }
        }
        let Some((group, object)) = oldest(&candidates) else {
            return Ok(TenantLookup::Nothing(Run::Done));
        };
        if self.may_be_in(&unknown).await? {
            return Ok(TenantLookup::Nothing(Run::Again(UNKNOWN_INTERVAL)));
        }
        let uid = object.uid().unwrap_or_default();
        let row = match self.tenants.observe(name, *group, &uid).await? {
            Observed::Current(row) | Observed::Recreated(row) => row,
            Observed::NameTaken(_) => return Ok(TenantLookup::Nothing(Run::Again(RACE_INTERVAL))),
        };
        tracing::info!(tenant = %name, status = row.status.as_str(), "new tenant recorded");
        self.report_names_taken(&row, &candidates).await;
        Ok(TenantLookup::Tenant(row))
    }

    /// The objects of a name in all groups.
    ///
    /// # Errors
    /// A request failed.
    pub(in crate::tenant_controller) async fn objects_of(
        &self,
        name: &TenantName,
    ) -> Result<NamedObjects, ReconcileError> {
        let mut objects = NamedObjects { candidates: Vec::new(), unknown: Vec::new() };
        for group in ApiGroup::ALL {
            match self.cluster.get_custom(&group.resource(), name.as_str()).await? {
                CustomObject::Found(object) => objects.candidates.push((group, object)),
                CustomObject::Missing => {}
                CustomObject::Unknown => objects.unknown.push(group),
            }
        }
        Ok(objects)
    }

    /// Whether one of these groups, whose objects the API server did not tell, may have any. An
    /// older one there must not lose its name to a younger one of another group.
    ///
    /// # Errors
    /// A request failed.
    pub(in crate::tenant_controller) async fn may_be_in(
        &self,
        unknown: &[ApiGroup],
    ) -> Result<bool, ReconcileError> {
        for group in unknown {
            let definition = self.cluster.definition_state(&group.resource()).await?;
            let review = AccessReview {
                verb: "get",
                group: group.name(),
                resource: "tenants",
                ..AccessReview::default()
            };
            let may_read = self.cluster.is_allowed(review).await?;
            if may_have_tenants(*group, definition, may_read) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Reports to the other objects of the name that it is taken. A failure is logged only, because
    /// it must not keep the tenant from being reconciled, nor from being suspended.
    async fn report_names_taken(&self, row: &TenantRow, candidates: &[GroupObject]) {
        for candidate in candidates.iter().filter(|candidate| !is_of(candidate, row)) {
            let (group, object) = candidate;
            let conditions = [Condition::name_taken(&row.name, row.group)];
            let object = (*group, &**object);
            let reported = self.report(object, TenantStatus::Active, &[], &conditions).await;
            if let Err(error) = reported {
                tracing::warn!(
                    tenant = %row.name, error = error_chain(&error),
                    "status of an object whose name is taken was not written"
                );
            }
        }
    }
}

fn is_of((group, object): &GroupObject, row: &TenantRow) -> bool {
    *group == row.group && row.is_row_of(&object.metadata)
}

/// Whether a group has Tenants that count, by its definition and the permission to read them. The
/// broker may always read those of its own group. Without `install --capsule-api` the group of
/// Capsule is another program's.
fn may_have_tenants(group: ApiGroup, definition: DefinitionState, may_read: bool) -> bool {
    definition != DefinitionState::NotServed && (may_read || group == ApiGroup::TenantBroker)
}

/// The object that was created first; of two with the same time that of the first group.
fn oldest(candidates: &[GroupObject]) -> Option<&GroupObject> {
    candidates.iter().min_by_key(|(_, object)| {
        object.metadata.creation_timestamp.as_ref().map(|created| created.0)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn candidate(group: ApiGroup, created: &str) -> GroupObject {
        let metadata = json!({"name": "solar", "creationTimestamp": created});
        (group, serde_json::from_value(json!({"metadata": metadata})).unwrap())
    }

    #[test]
    fn the_older_object_is_the_tenant() {
        let [early, late] = ["2026-01-02T03:04:05Z", "2026-01-02T03:04:06Z"];
        for (ours, capsule, expected) in [
            (early, late, ApiGroup::TenantBroker),
            (late, early, ApiGroup::Capsule),
            (early, early, ApiGroup::TenantBroker),
        ] {
            let candidates =
                [candidate(ApiGroup::TenantBroker, ours), candidate(ApiGroup::Capsule, capsule)];
            assert_eq!(oldest(&candidates).map(|(group, _)| *group), Some(expected));
        }
        assert!(oldest(&[]).is_none());
    }

    /// Otherwise an API server that does not serve a definition for a moment would give its names
    /// away.
    #[test]
    fn a_group_whose_definition_exists_may_have_older_objects() {
        use DefinitionState::{NotServed, Served, Terminating};
        for (group, definition, may_read, expected) in [
            (ApiGroup::Capsule, Served, true, true),
            (ApiGroup::Capsule, Terminating, true, true),
            (ApiGroup::Capsule, NotServed, true, false),
            (ApiGroup::Capsule, Served, false, false),
            (ApiGroup::TenantBroker, Served, false, true),
            (ApiGroup::TenantBroker, Served, true, true),
            (ApiGroup::TenantBroker, NotServed, true, false),
        ] {
            let may_have = may_have_tenants(group, definition, may_read);
            assert_eq!(may_have, expected, "{group:?} {definition:?} {may_read}");
        }
    }
}
