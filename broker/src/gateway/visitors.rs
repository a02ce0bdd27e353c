//! Who asks, and for which workspace: remembered for a moment, for kubectl asks many times a second.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use tenant_shared::Code;
use uuid::Uuid;

use crate::{
    access::{self, Owned as _},
    identity::{Caller, Identity, Presented},
    problem::{Failure, note},
    workspace::{Active, Found, Workspaces},
};

/// How long an answer of the database is good for: what ends a session or a workspace is noticed
/// by the gateway after this time at the latest.
const GOOD_FOR: Duration = Duration::from_secs(1);
/// Answers that are remembered.
const MOST: usize = 20_000;

/// Somebody with a workspace or more.
#[derive(Debug)]
pub(super) struct Visitor {
    /// Who.
    pub(super) caller: Caller,
    workspaces: Vec<Workspace>,
    read_at: Instant,
}

/// A workspace of a visitor.
#[derive(Debug)]
pub(super) struct Workspace {
    found: Found,
    /// Unless it is suspended or not ready.
    active: Option<Active>,
}

impl Workspace {
    /// Its row.
    pub(super) fn found(&self) -> &Found {
        &self.found
    }
}

impl Visitor {
    /// The workspace that has this namespace; for requests that name none, or one that is not
    /// theirs, the visitor's first. What they may do there is the API server's decision.
    ///
    /// # Errors
    /// They have none.
    pub(super) fn workspace(&self, namespace: Option<&str>) -> Result<&Workspace, Failure> {
        let named = self
            .workspaces
            .iter()
            .find(|workspace| namespace.is_some_and(|name| workspace.found.namespace() == name));
        named.or_else(|| self.workspaces.first()).ok_or_else(|| {
            Failure::new(
                Code::NotFound,
                "you have no workspace yet; make one with `kubectl tenant init`",
            )
        })
    }
}

/// What a visitor is remembered by: whether it is a cookie, and the hash of the secret. The kind is a
/// part of it because the same secret may be good as one and not as the other.
type Key = (bool, [u8; 32]);

type Known = HashMap<Key, Arc<Visitor>>;

fn key(presented: &Presented) -> Key {
    (presented.is_cookie(), presented.hash().into_bytes())
}

/// The visitors. Clones share what is remembered.
#[derive(Clone, Debug)]
pub(super) struct Visitors {
    identity: Identity,
    workspaces: Workspaces,
    known: Arc<Mutex<Known>>,
}

impl Visitors {
    /// Nobody is known yet.
    pub(super) fn new(identity: Identity, workspaces: Workspaces) -> Self {
        Self { identity, workspaces, known: Arc::default() }
    }

    /// Who presents this. It is asked of the database at most once a second.
    ///
    /// # Errors
    /// Nobody who is signed in; the database's.
    pub(super) async fn find(&self, presented: &Presented) -> Result<Arc<Visitor>, Failure> {
        let key = key(presented);
        let remembered = self.lock().get(&key).cloned();
        if let Some(visitor) = remembered.filter(|visitor| visitor.read_at.elapsed() < GOOD_FOR) {
            return Ok(visitor);
        }
        let visitor = Arc::new(Box::pin(self.read(presented)).await?);
        let mut known = self.lock();
        if known.len() >= MOST {
            known.retain(|_, visitor| visitor.read_at.elapsed() < GOOD_FOR);
        }
        if known.len() < MOST {
            known.insert(key, Arc::clone(&visitor));
        }
        drop(known);
        Ok(visitor)
    }

    async fn read(&self, presented: &Presented) -> Result<Visitor, Failure> {
        // Before anything is asked: what changes while we read is noticed a moment later.
        let read_at = Instant::now();
        let caller = self.identity.whose(presented).await?;
        let mut workspaces = Vec::new();
        for found in self.workspaces.of_user(caller.user_id()).await? {
            if !caller.may_know(found.id()) {
                continue;
            }
            let permit = access::use_workspace(&caller, &found)?;
            let active = self.workspaces.active(permit, &found).ok();
            workspaces.push(Workspace { found, active });
        }
        Ok(Visitor { caller, workspaces, read_at })
    }

    /// The workspace, if it works.
    ///
    /// # Errors
    /// It is suspended, or not ready.
    pub(super) fn active<'a>(
        &self,
        visitor: &Visitor,
        workspace: &'a Workspace,
    ) -> Result<&'a Active, Failure> {
        if let Some(active) = &workspace.active {
            return Ok(active);
        }
        let permit = access::use_workspace(&visitor.caller, &workspace.found)?;
        note("workspace_id", workspace.found.id());
        match self.workspaces.active(permit, &workspace.found) {
            Err(error) => Err(error.into()),
            // Not possible: it is the same question as before.
            Ok(_) => Err(Failure::new(Code::WorkspaceNotReady, "the workspace is not ready")),
        }
    }

    /// Forgets one; their next request asks the database.
    pub(super) fn forget(&self, presented: &Presented) {
        self.lock().remove(&key(presented));
    }

    /// Forgets those of these sessions, and those with a workspace that this picks.
    pub(super) fn forget_those(&self, sessions: &HashSet<Uuid>, picked: impl Fn(Uuid) -> bool) {
        self.lock().retain(|_, visitor| {
            !sessions.contains(&visitor.caller.session_id())
                && !visitor.workspaces.iter().any(|workspace| picked(workspace.found.id()))
        });
    }

    /// Forgets whose answer is no longer good.
    pub(super) fn purge(&self) {
        self.lock().retain(|_, visitor| visitor.read_at.elapsed() < GOOD_FOR);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
