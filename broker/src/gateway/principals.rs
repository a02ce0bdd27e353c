//! Principals: authenticated callers with their workspaces. They are cached for a moment, because
//! kubectl sends many requests a second.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use tenant_shared::Code;
use uuid::Uuid;

use crate::{
    access::{self, Owned as _},
    base::request_context::record_field,
    http::ApiError,
    identity::{Caller, Identity, PresentedCredential},
    workspace::{Active, WorkspaceRow, Workspaces},
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
    workspaces: Vec<Workspace>,
    read_at: Instant,
}

/// A workspace of a principal.
#[derive(Debug)]
pub(super) struct Workspace {
    row: WorkspaceRow,
    /// `None` if the workspace is suspended or not ready.
    active: Option<Active>,
}

impl Workspace {
    /// The workspace's row in the database.
    pub(super) fn row(&self) -> &WorkspaceRow {
        &self.row
    }
}

impl Principal {
    /// The workspace with this namespace. For a request that names no namespace, or one that is not
    /// the principal's, it is the principal's first workspace; the API server decides whether its
    /// token may do the request.
    ///
    /// # Errors
    /// The principal has no workspace.
    pub(super) fn workspace(&self, namespace: Option<&str>) -> Result<&Workspace, ApiError> {
        let named = self
            .workspaces
            .iter()
            .find(|workspace| namespace.is_some_and(|name| workspace.row.namespace() == name));
        named.or_else(|| self.workspaces.first()).ok_or_else(|| {
            ApiError::new(
                Code::NotFound,
                "you have no workspace yet; make one with `kubectl tenant init`",
            )
        })
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
    entries: Arc<Mutex<Entries>>,
}

impl PrincipalCache {
    /// An empty cache.
    pub(super) fn new(identity: Identity, workspaces: Workspaces) -> Self {
        Self { identity, workspaces, entries: Arc::default() }
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
        let mut workspaces = Vec::new();
        for row in self.workspaces.for_user(caller.user_id()).await? {
            if !caller.is_scoped_to(row.id()) {
                continue;
            }
            let permit = access::use_workspace(&caller, &row)?;
            let active = self.workspaces.active(permit, &row).ok();
            workspaces.push(Workspace { row, active });
        }
        Ok(Principal { caller, workspaces, read_at })
    }

    /// The workspace, if it is active.
    ///
    /// # Errors
    /// It is suspended or not ready.
    pub(super) fn active<'a>(
        &self,
        principal: &Principal,
        workspace: &'a Workspace,
    ) -> Result<&'a Active, ApiError> {
        if let Some(active) = &workspace.active {
            return Ok(active);
        }
        let permit = access::use_workspace(&principal.caller, &workspace.row)?;
        record_field("workspace_id", workspace.row.id());
        match self.workspaces.active(permit, &workspace.row) {
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
                && !principal.workspaces.iter().any(|workspace| is_affected(workspace.row.id()))
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
