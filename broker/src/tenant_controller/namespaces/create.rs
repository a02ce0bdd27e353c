//! A namespace that a person requested. The request makes all of its objects, so that the person can
//! use it at once, in the order of the controller: limits before bindings.
//!
//! The row is committed before, so the controller finishes what fails or is interrupted here. It
//! leaves the objects of a new namespace to the request for a moment, but may work on the tenant at
//! the same time, because the request holds no lease: objects that exist already are compared, and
//! amounts for the whole tenant are left as they are.
//!
//! Without a lease nothing keeps others from suspending the tenant, changing it or ending memberships
//! meanwhile ([`super::inputs`]). That is compared before the bindings are written, and
//! once more after that, because who changed it may not have seen them: bindings that follow from
//! what has changed are deleted again.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::{StreamExt as _, stream};
use k8s_openapi::api::{core::v1::Namespace, rbac::v1::RoleBinding};

use super::inputs::{InputsState, NamespaceInputs};
use crate::{
    base::error_chain,
    cluster::{ClusterError, HomeState, Object},
    tenant::{
        Condition, Inputs, NamespaceStatus, Tenant, TenantName, TenantRow, desired_state, home_name,
    },
    tenant_controller::{
        TenantController,
        error::ReconcileError,
        objects::{
            apply::{ensure, is_to_be_made},
            snapshot::name_of,
            withdraw::{MAX_IN_FLIGHT, title},
        },
    },
};

/// How often the bindings of a namespace are written anew because the tenant changed meanwhile.
const MAX_ATTEMPTS: u32 = 4;

/// A namespace that a person requested was not created, or not with all of its objects.
#[derive(Debug, thiserror::Error)]
pub enum CreateNamespaceError {
    /// A namespace of this name exists. It was not changed.
    #[error("a namespace {0} exists already; choose another name")]
    Exists(String),
    /// The namespace was not created, so the caller may release the claim.
    #[error("the namespace {namespace} was not created")]
    NotCreated {
        /// Name of the namespace.
        namespace: String,
        /// The cause.
        source: Box<ReconcileError>,
    },
    /// The home has the label of a suspended tenant. The namespace was not created, so the caller may
    /// release the claim.
    #[error("the tenant {0} is suspended: its home has the suspended label")]
    Suspended(TenantName),
    /// The namespace may exist, and lacks objects. The row is still `Creating`.
    #[error(
        "the namespace {namespace} is not complete yet; wait, because the broker goes on creating \
         it"
    )]
    Unfinished {
        /// Name of the namespace.
        namespace: String,
        /// The cause.
        source: Box<ReconcileError>,
    },
    /// The tenant was suspended or closed meanwhile, so nobody has rights in the namespace.
    #[error("the tenant {0} is not active, so nobody has rights in its namespaces")]
    NotActive(TenantName),
}

/// Request for a namespace.
#[derive(Clone, Copy, Debug)]
pub struct NamespaceRequest<'a> {
    /// Name of the namespace.
    pub name: &'a str,
    /// Its labels. Those that the Tenant or the broker sets win.
    pub labels: &'a BTreeMap<String, String>,
    /// Its annotations, likewise.
    pub annotations: &'a BTreeMap<String, String>,
}

/// A namespace with all of its objects.
#[derive(Debug)]
pub struct CreatedNamespace {
    /// The namespace, as the API server made it.
    pub namespace: Namespace,
    /// Its RoleBindings that the broker made, as the API server has them.
    pub bindings: Vec<RoleBinding>,
}

/// The objects of a namespace in the order of their creation.
#[derive(Debug, Default)]
struct NewNamespace {
    namespace: Namespace,
    limits: Vec<Object>,
    bindings: Vec<Object>,
    /// Names of the quotas whose amounts are for the whole tenant.
    shared: BTreeSet<String>,
}

impl NewNamespace {
    /// Whether its bindings give somebody a role that those of the other one do not give, or its
    /// limits are others.
    fn grants_more_than(&self, other: &Self) -> bool {
        let has_more = |binding: &Object| {
            let mut others = other.bindings.iter();
            let counterpart = others.find(|other| name_of(other) == name_of(binding));
            counterpart.is_none_or(|counterpart| binding.binds_more_than(counterpart))
        };
        self.limits != other.limits || self.bindings.iter().any(has_more)
    }
}

impl TenantController {
    /// Creates a namespace whose row was claimed in the status `Creating`: the namespace, its quotas
    /// and limits, and then its RoleBindings. The row is `Active` afterwards.
    ///
    /// The caller checked that the tenant may have this name and that people may set these labels
    /// and annotations. `tenant` is the object as the API server returned it just now, with its
    /// `metadata.generation`. Amounts for the whole tenant are 0 until the controller divides them,
    /// which it does soon after.
    ///
    /// # Errors
    /// See [`CreateNamespaceError`].
    pub async fn create_namespace(
        &self,
        row: &TenantRow,
        tenant: (&Tenant, Option<i64>),
        request: NamespaceRequest<'_>,
    ) -> Result<CreatedNamespace, CreateNamespaceError> {
        let creation = self.creations.begin(request.name);
        let created = Box::pin(self.create(row, tenant, request)).await;
        if created.is_ok() {
            tracing::info!(tenant = %row.name, namespace = request.name, "namespace created");
        }
        creation.finish(&self.queue, &row.name);
        created
    }

    /// The RoleBindings that the broker makes in a namespace, as far as they exist.
    ///
    /// # Errors
    /// The cluster or the database failed.
    pub async fn bindings_of_namespace(
        &self,
        row: &TenantRow,
        tenant: &Tenant,
        namespace: &str,
    ) -> Result<Vec<RoleBinding>, ReconcileError> {
        let inputs = NamespaceInputs::new(tenant, None, self.members_for_request(row).await?);
        let mut bindings = Vec::new();
        for desired in self.objects_of_namespace(&inputs, namespace).bindings {
            if let Some(Object::RoleBinding(live)) = self.cluster.get_object(&desired).await? {
                bindings.push(*live);
            }
        }
        Ok(bindings)
    }

    async fn create(
        &self,
        row: &TenantRow,
        (tenant, generation): (&Tenant, Option<i64>),
        request: NamespaceRequest<'_>,
    ) -> Result<CreatedNamespace, CreateNamespaceError> {
        let name = request.name;
        let not_created = |source: ReconcileError| {
            let (namespace, source) = (name.to_owned(), Box::new(source));
            CreateNamespaceError::NotCreated { namespace, source }
        };
        let unfinished = |source: ReconcileError| unfinished(name, source);
        let home = home_name(&row.name);
        let state = async { Ok(self.cluster.home_state(&home, row.name.as_str()).await?) };
        let (members, state) =
            tokio::try_join!(self.members_for_request(row), state).map_err(not_created)?;
        require_home(&row.name, &state, not_created)?;
        let inputs = NamespaceInputs::new(tenant, generation, members);
        let mut new = self.objects_of_namespace(&inputs, name);
        add_metadata(&mut new.namespace, (request.labels, request.annotations));
        let desired = Object::Namespace(Box::new(std::mem::take(&mut new.namespace)));
        let namespace = match self.cluster.create_object(&desired).await {
            Ok(Object::Namespace(created)) => *created,
            Ok(other) => {
                let what = format!("the API server created a {} instead", other.kind());
                return Err(unfinished(ClusterError::Conflict(what).into()));
            }
            Err(ClusterError::Conflict(_)) => {
                return Err(CreateNamespaceError::Exists(name.to_owned()));
            }
            // The API server may have created it and not answered.
            Err(error @ ClusterError::Unavailable(_)) => return Err(unfinished(error.into())),
            Err(error) => return Err(not_created(error.into())),
        };
        let bindings = Box::pin(self.fill(row, name, inputs, new)).await?;
        let (creating, active) = ([NamespaceStatus::Creating], NamespaceStatus::Active);
        let recorded =
            self.requests.tenants.set_namespace_status(row.id, name, &creating, active).await;
        if !recorded.map_err(|error| unfinished(error.into()))? {
            self.require_counted(row, name, &bindings).await?;
        }
        let bindings = bindings.into_iter().filter_map(|binding| match binding {
            Object::RoleBinding(binding) => Some(*binding),
            _ => None,
        });
        Ok(CreatedNamespace { namespace, bindings: bindings.collect() })
    }

    /// Checks that the row of a namespace is still the tenant's, after somebody else changed its
    /// status. Without it the namespace would not count, so nobody may have rights in it.
    async fn require_counted(
        &self,
        row: &TenantRow,
        name: &str,
        bindings: &[Object],
    ) -> Result<(), CreateNamespaceError> {
        let current = self.requests.tenants.namespace_row(name).await;
        if let Ok(Some(current)) = &current
            && current.tenant_id == row.id
            && current.status == NamespaceStatus::Active
        {
            return Ok(());
        }
        self.delete_bindings(row, bindings).await;
        let lost = ClusterError::Conflict("its row was changed meanwhile".to_owned());
        Err(unfinished(name, current.err().map_or_else(|| lost.into(), ReconcileError::from)))
    }

    /// The objects that a new namespace has.
    fn objects_of_namespace(&self, inputs: &NamespaceInputs, name: &str) -> NewNamespace {
        let mut desired = desired_state(&Inputs {
            tenant: &inputs.tenant,
            suspended: false,
            members: &inputs.members,
            namespaces: &[name],
            settings: &self.settings,
            tiers: &self.tiers,
        });
        let shared = desired.shared_quotas.into_keys().collect();
        let mut new = NewNamespace { shared, ..NewNamespace::default() };
        for object in desired.namespaces.remove(name).unwrap_or_default() {
            match object {
                Object::Namespace(namespace) => new.namespace = *namespace,
                Object::RoleBinding(_) => new.bindings.push(object),
                _ => new.limits.push(object),
            }
        }
        new
    }

    /// Makes quotas and limits, and then bindings, from the tenant as it is before and after that.
    /// Returns the bindings as the API server has them.
    async fn fill(
        &self,
        row: &TenantRow,
        name: &str,
        mut inputs: NamespaceInputs,
        mut new: NewNamespace,
    ) -> Result<Vec<Object>, CreateNamespaceError> {
        let not_active = || CreateNamespaceError::NotActive(row.name.clone());
        for _ in 0..MAX_ATTEMPTS {
            let limits: Vec<_> =
                new.limits.iter().map(|desired| self.make_limit(name, desired, &new)).collect();
            all(limits).await.map_err(|error| unfinished(name, error.into()))?;
            let before = self.compare_inputs(row, &inputs).await;
            match before.map_err(|error| unfinished(name, error))? {
                InputsState::Same => {}
                InputsState::NotActive => return Err(not_active()),
                InputsState::Changed(changed) => {
                    let fresh = self.objects_of_namespace(&changed, name);
                    let has_limits = fresh.limits == new.limits;
                    (new, inputs) = (fresh, *changed);
                    if !has_limits {
                        continue;
                    }
                }
            }
            let requests: Vec<_> =
                new.bindings.iter().map(|desired| ensure(&self.cluster, None, desired)).collect();
            let written = all(requests).await;
            let after = self.compare_inputs(row, &inputs).await;
            let is_right = match &after {
                Ok(InputsState::Same) => true,
                // What is missing the controller adds.
                Ok(InputsState::Changed(changed)) => {
                    !new.grants_more_than(&self.objects_of_namespace(changed, name))
                }
                Ok(InputsState::NotActive) | Err(_) => false,
            };
            if is_right {
                return written.map_err(|error| unfinished(name, error.into()));
            }
            // Whoever changed the tenant may not have seen the bindings. One that was asked for
            // without an answer may exist, too.
            self.delete_bindings(row, &new.bindings).await;
            match after.map_err(|error| unfinished(name, error))? {
                InputsState::Changed(changed) => {
                    (new, inputs) = (self.objects_of_namespace(&changed, name), *changed);
                }
                InputsState::Same | InputsState::NotActive => return Err(not_active()),
            }
        }
        let busy = "the tenant kept changing meanwhile".to_owned();
        Err(unfinished(name, ClusterError::Conflict(busy).into()))
    }

    /// Makes a quota or limits, and waits until a quota limits the namespace.
    async fn make_limit(
        &self,
        namespace: &str,
        desired: &Object,
        new: &NewNamespace,
    ) -> Result<(), ClusterError> {
        match self.cluster.create_object(desired).await {
            Ok(_) => {}
            // The controller made it meanwhile, and may have written the namespace's quota.
            Err(ClusterError::Conflict(_)) => {
                let live = self.cluster.get_object(desired).await?;
                let is_shared = new.shared.contains(name_of(desired));
                if !is_shared || is_to_be_made(live.as_ref(), desired) {
                    ensure(&self.cluster, live.as_ref(), desired).await?;
                }
            }
            Err(error) => return Err(error),
        }
        if let Object::ResourceQuota(_) = desired {
            self.cluster.wait_for_quota(namespace, name_of(desired)).await?;
        }
        Ok(())
    }

    /// Deletes bindings, also one that a request without an answer made. The controller deletes what
    /// is left.
    async fn delete_bindings(&self, row: &TenantRow, bindings: &[Object]) {
        let requests: Vec<_> = bindings.iter().map(|it| self.delete_binding(it)).collect();
        let results: Vec<Result<(), String>> =
            stream::iter(requests).buffer_unordered(MAX_IN_FLIGHT).collect().await;
        for error in results.into_iter().filter_map(Result::err) {
            tracing::error!(
                tenant = %row.name, error,
                "a binding in a new namespace of a tenant that changed was not deleted"
            );
        }
    }

    /// Deletes a binding, whatever its subjects are by now. Returns what failed, for people.
    async fn delete_binding(&self, binding: &Object) -> Result<(), String> {
        let deleted = match self.cluster.get_object(binding).await {
            Ok(Some(live)) => self.cluster.delete_object(&live).await,
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        deleted.map_err(|error| format!("{}: {}", title(binding), error_chain(&error)))
    }
}

/// Checks that the namespace with the name of the home is not somebody else's, and that it has no label
/// of a suspended tenant, whatever the row says: nobody has rights in such a tenant. A home that does
/// not exist is made by the controller.
fn require_home(
    tenant: &TenantName,
    home: &HomeState,
    not_created: impl Fn(ReconcileError) -> CreateNamespaceError,
) -> Result<(), CreateNamespaceError> {
    match home {
        HomeState::Ready { .. } | HomeState::Missing => Ok(()),
        HomeState::Suspended => Err(CreateNamespaceError::Suspended(tenant.clone())),
        HomeState::Foreign => {
            let message = Condition::home_taken(tenant).message;
            Err(not_created(ClusterError::Conflict(message).into()))
        }
    }
}

fn unfinished(namespace: &str, source: ReconcileError) -> CreateNamespaceError {
    let (namespace, source) = (namespace.to_owned(), Box::new(source));
    CreateNamespaceError::Unfinished { namespace, source }
}

/// Waits for all requests. Returns the first error.
async fn all<T>(
    requests: Vec<impl Future<Output = Result<T, ClusterError>>>,
) -> Result<Vec<T>, ClusterError> {
    let results: Vec<Result<T, ClusterError>> =
        stream::iter(requests).buffer_unordered(MAX_IN_FLIGHT).collect().await;
    results.into_iter().collect()
}

/// Adds labels and annotations below those that the namespace has.
fn add_metadata(
    namespace: &mut Namespace,
    (labels, annotations): (&BTreeMap<String, String>, &BTreeMap<String, String>),
) {
    let metadata = &mut namespace.metadata;
    for (desired, requested) in
        [(&mut metadata.labels, labels), (&mut metadata.annotations, annotations)]
    {
        let mut all = requested.clone();
        all.extend(desired.take().unwrap_or_default());
        *desired = Some(all).filter(|all| !all.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn requested_metadata_is_below_the_desired_one() {
        let of = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let labels = json!({"tenant-broker.io/tenant": "solar", "cost": "7"});
        let mut namespace: Namespace =
            serde_json::from_value(json!({"metadata": {"name": "solar-a", "labels": labels}}))
                .unwrap();
        let requested = of(&[("cost", "0"), ("tenant-broker.io/tenant", "lunar"), ("team", "a")]);
        add_metadata(&mut namespace, (&requested, &of(&[("note", "x")])));
        assert_eq!(
            namespace.metadata.labels,
            Some(of(&[("cost", "7"), ("team", "a"), ("tenant-broker.io/tenant", "solar")]))
        );
        assert_eq!(namespace.metadata.annotations, Some(of(&[("note", "x")])));
        let mut bare = Namespace::default();
        add_metadata(&mut bare, (&of(&[]), &of(&[])));
        assert_eq!(bare, Namespace::default());
    }

    #[test]
    fn a_namespace_is_created_in_a_tenant_with_its_home_only() {
        let solar: TenantName = "solar".parse().unwrap();
        let check = |home| {
            let not_created = |source: ReconcileError| CreateNamespaceError::NotCreated {
                namespace: "solar-a".to_owned(),
                source: source.into(),
            };
            require_home(&solar, &home, not_created)
        };
        assert!(check(HomeState::Ready { uid: "ns-1".to_owned() }).is_ok());
        assert!(check(HomeState::Missing).is_ok());
        let foreign = check(HomeState::Foreign);
        assert!(matches!(foreign, Err(CreateNamespaceError::NotCreated { .. })), "{foreign:?}");
        let suspended = check(HomeState::Suspended);
        assert!(matches!(suspended, Err(CreateNamespaceError::Suspended(_))), "{suspended:?}");
    }

    #[tokio::test]
    async fn the_requests_after_a_failure_are_made() {
        let made = std::sync::atomic::AtomicU32::new(0);
        let requests = (0..20).map(|number| {
            let made = &made;
            async move {
                made.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                if number == 3 { Err(ClusterError::Conflict("no".to_owned())) } else { Ok(()) }
            }
        });
        let requests: Vec<_> = requests.collect();
        let result = all(requests).await;
        assert!(matches!(result, Err(ClusterError::Conflict(_))), "{result:?}");
        assert_eq!(made.into_inner(), 20);
    }
}
