//! Principals: authenticated callers with their workspaces. They are cached for a moment, because
//! kubectl sends many requests a second.

mod joins;
pub(super) mod request_rights;
mod visible_objects;

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use tenant_shared::Code;
use uuid::Uuid;

pub(super) use self::{joins::Joins, visible_objects::VisibleObjects};
use crate::{
    access::{Permit, Resource as _, UseWorkspace},
    base::request_context::{Field, record_caller, record_field},
    cluster::Clusters,
    http::ApiError,
    identity::{Caller, Identity, PresentedCredential},
    tenant::{ClusterRoleName, ListGrant, TenantName, home_name},
    tenant_operations::{CallerTenants, TenantError, TenantOperations},
    workspace::{Active, WorkspaceError, WorkspaceRow, Workspaces},
};

/// How long an entry is valid. The gateway notices the end of a session or the suspension of a
/// workspace after this time at the latest.
const TTL: Duration = Duration::from_secs(1);
/// The number of entries in the cache.
const MAX_ENTRIES: usize = 20_000;

/// An authenticated caller and the workspaces that they may use.
#[derive(Debug)]
pub(super) struct Principal {
    /// The authenticated caller.
    pub(super) caller: Caller,
    /// Oldest first, without memberships that the user left.
    workspaces: Vec<Workspace>,
    /// The tenants in which the caller has rights. `None` until the broker has read the Tenants of
    /// the cluster.
    tenants: Option<CallerTenants>,
    read_at: Instant,
}

/// A workspace of a principal.
#[derive(Debug)]
pub(super) struct Workspace {
    permit: Permit<UseWorkspace, WorkspaceRow>,
    /// Name of the cluster that it is in.
    cluster: String,
    /// `None` if the workspace is suspended or not ready.
    active: Option<Arc<Active>>,
}

impl Workspace {
    pub(super) fn id(&self) -> Uuid {
        self.permit.resource().id()
    }

    fn location(&self) -> Location<'_> {
        Location {
            cluster: &self.cluster,
            namespace: self.permit.resource().namespace(),
            is_active: self.active.is_some(),
        }
    }
}

/// Location of a workspace.
#[derive(Clone, Copy, Debug)]
struct Location<'a> {
    cluster: &'a str,
    namespace: &'a str,
    is_active: bool,
}

/// Chooses the workspace that a request to a cluster uses: the one in this cluster with the
/// namespace that the request names. For a request that names no namespace, or one that is none of
/// these workspaces', it is the first active workspace in the cluster, or else the first one; the
/// API server decides whether its token may do the request.
fn choose_workspace<'a, W>(
    workspaces: &'a [W],
    location: impl Fn(&'a W) -> Location<'a>,
    cluster: &str,
    namespace: Option<&str>,
) -> Option<&'a W> {
    let mut in_cluster = workspaces.iter().filter(|&it| location(it).cluster == cluster);
    let named = in_cluster.clone().find(|&it| namespace == Some(location(it).namespace));
    let active = || in_cluster.clone().find(|&it| location(it).is_active);
    named.or_else(active).or_else(|| in_cluster.next())
}

impl Principal {
    /// The workspace that a request to this cluster uses.
    ///
    /// # Errors
    /// The principal has no workspace in the cluster.
    pub(super) fn workspace(
        &self,
        cluster: &str,
        namespace: Option<&str>,
    ) -> Result<&Workspace, ApiError> {
        let chosen = choose_workspace(&self.workspaces, Workspace::location, cluster, namespace);
        chosen.ok_or_else(|| {
            if !self.are_tenants_known() {
                let text = "the broker has not read the Tenants of the cluster yet; try again";
                return ApiError::new(Code::WorkspaceNotReady, text);
            }
            ApiError::new(
                Code::NotFound,
                "you have no workspace yet; make one with `kubectl tenant init`",
            )
        })
    }

    /// The workspace with this identifier.
    ///
    /// # Errors
    /// The principal does not have it any more.
    pub(super) fn workspace_by_id(&self, id: Uuid) -> Result<&Workspace, ApiError> {
        let found = self.workspaces.iter().find(|workspace| workspace.id() == id);
        found
            .ok_or_else(|| ApiError::new(Code::NotFound, "you do not have this workspace any more"))
    }

    /// The tenants in which the caller has rights; none while they are not known.
    pub(super) fn tenants(&self) -> &[TenantName] {
        self.tenants.as_ref().map_or(&[], |tenants| &tenants.names)
    }

    /// The tenants that let the caller list cluster-scoped resources, whether or not they are an
    /// active member; none while they are not known.
    pub(super) fn list_grants(&self) -> &[ListGrant] {
        self.tenants.as_ref().map_or(&[], |tenants| &tenants.list_grants)
    }

    /// The ClusterRoles that a tenant gives the caller in each namespace, and the revision of the
    /// Tenants; none while they are not known.
    pub(super) fn roles_in(&self, tenant: &TenantName) -> (Arc<BTreeSet<ClusterRoleName>>, u64) {
        let Some(tenants) = &self.tenants else { return (Arc::default(), 0) };
        (tenants.roles.get(tenant).cloned().unwrap_or_default(), tenants.revision)
    }

    /// Whether the broker has read the Tenants of the cluster, so that [`Self::tenants`] are all.
    pub(super) fn are_tenants_known(&self) -> bool {
        self.tenants.is_some()
    }

    /// The membership in a tenant, active or not.
    pub(super) fn membership(&self, cluster: &str, tenant: &TenantName) -> Option<&Workspace> {
        let home = home_name(tenant);
        self.in_cluster(cluster).find(|workspace| workspace.location().namespace == home)
    }

    /// Whether one of the workspaces in the cluster has this namespace.
    pub(super) fn has_namespace(&self, cluster: &str, namespace: &str) -> bool {
        self.in_cluster(cluster).any(|workspace| workspace.location().namespace == namespace)
    }

    /// Whether there is a workspace in the cluster, active or not.
    pub(super) fn has_workspace(&self, cluster: &str) -> bool {
        self.in_cluster(cluster).next().is_some()
    }

    /// Whether the caller has an active membership in a tenant.
    pub(super) fn is_active_member(&self, cluster: &str, tenant: &TenantName) -> bool {
        self.membership(cluster, tenant).is_some_and(|membership| membership.active.is_some())
    }

    /// The identifiers of the memberships in these tenants.
    pub(super) fn memberships(&self, cluster: &str, tenants: &[TenantName]) -> Vec<Uuid> {
        let found = tenants.iter().filter_map(|tenant| self.membership(cluster, tenant));
        found.map(Workspace::id).collect()
    }

    /// The namespaces of the active workspaces in the cluster, oldest first, without the homes of
    /// tenants.
    pub(super) fn active_namespaces(&self, cluster: &str) -> Vec<String> {
        let active = self.in_cluster(cluster).filter(|workspace| {
            workspace.active.is_some() && workspace.permit.resource().tenant_name().is_none()
        });
        active.map(|workspace| workspace.location().namespace.to_owned()).collect()
    }

    /// Whether it was read before this time.
    pub(super) fn is_older_than(&self, time: Instant) -> bool {
        self.read_at < time
    }

    fn in_cluster(&self, cluster: &str) -> impl Iterator<Item = &Workspace> {
        self.workspaces.iter().filter(move |workspace| workspace.cluster == cluster)
    }
}

/// Key of the cache: whether the credential is a cookie, and the hash of the secret. The kind is
/// part of the key because a secret may be valid as a cookie and not as a bearer token.
type Key = (bool, [u8; 32]);

type Entries = HashMap<Key, Arc<Principal>>;

fn key(presented: &PresentedCredential) -> Key {
    (presented.is_cookie(), presented.hash().into_bytes())
}

/// Cache of principals by credential. Clones share the entries.
#[derive(Clone, Debug)]
pub(super) struct PrincipalCache {
    identity: Identity,
    workspaces: Workspaces,
    clusters: Clusters,
    tenants: Option<TenantOperations>,
    entries: Arc<Mutex<Entries>>,
}

impl PrincipalCache {
    /// An empty cache. Without `tenants` nobody has any.
    pub(super) fn new(
        identity: Identity,
        workspaces: Workspaces,
        clusters: Clusters,
        tenants: Option<TenantOperations>,
    ) -> Self {
        Self { identity, workspaces, clusters, tenants, entries: Arc::default() }
    }

    /// The principal of a credential. The database is asked at most once per [`TTL`].
    ///
    /// # Errors
    /// The credential is not valid; the database failed.
    pub(super) async fn get(
        &self,
        presented: &PresentedCredential,
    ) -> Result<Arc<Principal>, ApiError> {
        let key = key(presented);
        let cached = self.lock().get(&key).cloned();
        if let Some(principal) = cached.filter(|principal| principal.read_at.elapsed() < TTL) {
            // For the line of a refusal; authentication records the caller otherwise.
            record_caller(principal.caller.user_id(), principal.caller.session_id());
            return Ok(principal);
        }
        let principal = Arc::new(Box::pin(self.load(presented)).await?);
        let mut entries = self.lock();
        if entries.len() >= MAX_ENTRIES {
            entries.retain(|_, principal| principal.read_at.elapsed() < TTL);
        }
        if entries.len() < MAX_ENTRIES {
            entries.insert(key, Arc::clone(&principal));
        }
        drop(entries);
        Ok(principal)
    }

    async fn load(&self, presented: &PresentedCredential) -> Result<Principal, ApiError> {
        // The time is taken before the reads, so that the TTL covers changes during them.
        let read_at = Instant::now();
        let caller = self.identity.authenticate(presented).await?;
        self.read(caller, read_at).await
    }

    /// The principal of a caller, from the database.
    ///
    /// # Errors
    /// The database failed.
    pub(super) async fn read(
        &self,
        caller: Caller,
        read_at: Instant,
    ) -> Result<Principal, ApiError> {
        let usable = self.workspaces.usable_by(&caller).await?;
        let workspaces = usable.into_iter().filter_map(|permit| self.workspace(permit)).collect();
        let tenants = match &self.tenants {
            Some(tenants) => Box::pin(tenants_of(tenants, &caller)).await?,
            None => Some(CallerTenants::default()),
        };
        Ok(Principal { caller, workspaces, tenants, read_at })
    }

    /// `None` for a workspace in a cluster that is not configured, and for a membership that the
    /// user left.
    fn workspace(&self, permit: Permit<UseWorkspace, WorkspaceRow>) -> Option<Workspace> {
        let cluster = self.clusters.get(permit.resource().cluster()).ok()?.name().to_owned();
        let active = match self.workspaces.active(&permit) {
            Ok(active) => Some(Arc::new(active)),
            Err(WorkspaceError::NotMember(_)) => return None,
            Err(_) => None,
        };
        Some(Workspace { permit, cluster, active })
    }

    /// Proof that the workspace is active.
    ///
    /// # Errors
    /// It is suspended or not ready.
    pub(super) fn active<'a>(&self, workspace: &'a Workspace) -> Result<&'a Arc<Active>, ApiError> {
        if let Some(active) = &workspace.active {
            return Ok(active);
        }
        record_field(Field::WorkspaceId, workspace.id());
        match self.workspaces.active(&workspace.permit) {
            Err(error) => Err(error.into()),
            // Not possible, because the same check failed when the entry was loaded.
            Ok(_) => Err(ApiError::new(Code::WorkspaceNotReady, "the workspace is not ready")),
        }
    }

    /// Removes an entry, so that the next request asks the database.
    pub(super) fn remove(&self, presented: &PresentedCredential) {
        self.lock().remove(&key(presented));
    }

    /// Evicts the entries of these sessions, and those with an affected workspace.
    pub(super) fn evict_if(&self, sessions: &HashSet<Uuid>, is_affected: impl Fn(Uuid) -> bool) {
        self.lock().retain(|_, principal| {
            !sessions.contains(&principal.caller.session_id())
                && !principal.workspaces.iter().any(|workspace| is_affected(workspace.id()))
        });
    }

    /// Evicts entries older than [`TTL`].
    pub(super) fn evict_expired(&self) {
        self.lock().retain(|_, principal| principal.read_at.elapsed() < TTL);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The tenants in which a caller has rights; `None` if the broker has not read the Tenants yet, so
/// that everything else works meanwhile.
pub(super) async fn tenants_of(
    tenants: &TenantOperations,
    caller: &Caller,
) -> Result<Option<CallerTenants>, ApiError> {
    match tenants.tenants_of(caller).await {
        Ok(tenants) => Ok(Some(tenants)),
        Err(TenantError::NotReady { .. }) => Ok(None),
        // A machine whose workspace is in no tenant.
        Err(TenantError::NotFound | TenantError::Access(_)) => Ok(Some(CallerTenants::default())),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use tenant_shared::Role;

    use super::*;
    use crate::{
        base::{
            request_context::{REQUEST, RequestContext},
            secret::PlainSecret,
            telemetry::Metrics,
        },
        identity::BrowserSessions,
        testing::{On, Storage},
    };

    #[tokio::test]
    async fn a_cached_principal_is_in_the_access_log() {
        let storage = Storage::new(On::Sqlite).await;
        let origin = "http://127.0.0.1:8080".parse().unwrap();
        let browser = BrowserSessions::new(&origin, Vec::new(), 60, 60);
        let (db, clock) = (storage.db.clone(), storage.clock.clone());
        let identity = Identity::new(db, clock, Metrics::default(), browser);
        let clusters = Clusters::new(storage.no_cluster().await);
        let cache = PrincipalCache::new(identity, storage.workspaces().await, clusters, None);
        let user = storage.user().await;
        let caller = Caller::for_tests(&storage.clock, user, Role::User);
        let session = caller.session_id();
        let presented = PresentedCredential::AccessToken(PlainSecret::presented("tba_cached"));
        let principal = Principal {
            caller,
            workspaces: Vec::new(),
            tenants: Some(CallerTenants::default()),
            read_at: Instant::now(),
        };
        cache.lock().insert(key(&presented), Arc::new(principal));
        let request = async {
            // The database does not know the token, so the answer is the entry.
            cache.get(&presented).await.unwrap();
            REQUEST.with(RequestContext::drain_fields)
        };
        let fields = REQUEST.scope(RequestContext::for_tests(), request).await.unwrap();
        assert_eq!(fields.get(Field::UserId), Some(user.to_string().as_str()));
        assert_eq!(fields.get(Field::SessionId), Some(session.to_string().as_str()));
    }

    /// Cluster, namespace, and whether it is active.
    type Place = (&'static str, &'static str, bool);

    fn location(&(cluster, namespace, is_active): &Place) -> Location<'_> {
        Location { cluster, namespace, is_active }
    }

    #[test]
    fn a_request_uses_the_workspace_of_its_namespace_or_the_first_one_in_its_cluster() {
        let workspaces: [Place; 4] = [
            ("one", "tenant-a", true),
            ("two", "tenant-b", true),
            ("one", "tenant-c", true),
            ("two", "tenant-c", true),
        ];
        for (cluster, namespace, expected) in [
            ("one", None, Some(0)),
            ("one", Some("tenant-a"), Some(0)),
            ("one", Some("tenant-c"), Some(2)),
            ("two", Some("tenant-c"), Some(3)),
            // The namespace is one of another cluster, or nobody's.
            ("one", Some("tenant-b"), Some(0)),
            ("two", Some("tenant-a"), Some(1)),
            ("two", Some("kube-system"), Some(1)),
            ("two", None, Some(1)),
            ("three", None, None),
            ("three", Some("tenant-a"), None),
        ] {
            let chosen = choose_workspace(&workspaces, location, cluster, namespace);
            let expected = expected.map(|index: usize| &workspaces[index]);
            assert_eq!(chosen, expected, "{cluster} {namespace:?}");
        }
        let none: [Place; 0] = [];
        assert_eq!(choose_workspace(&none, location, "one", None), None);
    }

    #[test]
    fn a_workspace_that_is_not_active_hides_no_other_one() {
        let workspaces: [Place; 3] =
            [("one", "tenant-a", false), ("two", "tenant-b", true), ("one", "tenant-c", true)];
        for (namespace, expected) in [
            (None, 2),
            (Some("kube-system"), 2),
            // Its own requests say why it cannot be used.
            (Some("tenant-a"), 0),
            (Some("tenant-c"), 2),
        ] {
            let chosen = choose_workspace(&workspaces, location, "one", namespace);
            assert_eq!(chosen, Some(&workspaces[expected]), "{namespace:?}");
        }
        let chosen = choose_workspace(&workspaces[..2], location, "one", None);
        assert_eq!(chosen, Some(&workspaces[0]), "there is no other one");
    }
}
