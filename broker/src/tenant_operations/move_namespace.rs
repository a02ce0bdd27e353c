//! Announcements of moves of namespaces into tenants. The controller carries one out when an
//! administrator of the cluster has labelled the namespace.

use tenant_shared::{MoveNamespaceRequest, NamespaceMovePlan};

use super::{TenantOperations, error::TenantError, move_plan::PlannedMove};
use crate::{
    access::{self, AccessError, MoveNamespaces, Permit},
    audit::{self, Action},
    identity::Caller,
    tenant::{Announcement, MoveRefusal, TenantName},
};

/// How long an announcement counts, in milliseconds.
const ANNOUNCEMENT_TTL_MS: i64 = 10 * 60 * 1000;
/// Characters of the name of a namespace in an audit row.
const MAX_NAME_CHARS: usize = 63;

impl TenantOperations {
    /// Authorizes a caller to move namespaces into a tenant. A refusal is recorded.
    ///
    /// # Errors
    /// The caller is no administrator, or the database failed.
    pub async fn authorize_moves(
        &self,
        caller: &Caller,
        to: &TenantName,
        namespace: &str,
    ) -> Result<Permit<MoveNamespaces>, TenantError> {
        let refusal = match access::authorize_all::<MoveNamespaces>(caller) {
            Ok(permit) => return Ok(permit),
            Err(refusal) => refusal,
        };
        self.record_refused_move(caller, to, namespace, &refusal.to_string()).await?;
        Err(refusal.into())
    }

    /// Announces the move that a plan described, and records it for both tenants. Nothing changes in
    /// the cluster until an administrator of it sets the labels of the plan on the namespace.
    ///
    /// # Errors
    /// Like [`Self::plan_move`]; [`TenantError::MoveRefused`] if the plan has refusals, or no
    /// longer is what the request says.
    #[tracing::instrument(level = "debug", skip_all, fields(tenant = %to))]
    pub async fn announce_move(
        &self,
        permit: &Permit<MoveNamespaces>,
        to: &TenantName,
        namespace: &str,
        request: &MoveNamespaceRequest,
    ) -> Result<NamespaceMovePlan, TenantError> {
        let planned = Box::pin(self.plan(to, namespace)).await?;
        let mut refusals = planned.plan.refusals.clone();
        if planned.plan.namespace_uid != request.namespace_uid || planned.plan.from != request.from
        {
            refusals.push("the namespace, or its tenant, changed since the plan was made".into());
        }
        let announced = if refusals.is_empty() {
            self.record_move(permit, &planned, request).await?
        } else {
            Err(refusals.join("; "))
        };
        if let Err(reason) = announced {
            self.record_refused_move(permit.caller(), to, namespace, &reason).await?;
            return Err(TenantError::MoveRefused { namespace: namespace.to_owned(), reason });
        }
        self.metrics.action(Action::MoveNamespace.as_str(), "success");
        Ok(planned.plan)
    }

    /// Records the announcement. Returns why it was not.
    async fn record_move(
        &self,
        permit: &Permit<MoveNamespaces>,
        planned: &PlannedMove,
        request: &MoveNamespaceRequest,
    ) -> Result<Result<(), String>, TenantError> {
        let announcement = Announcement {
            namespace: planned.plan.namespace.clone(),
            namespace_uid: planned.plan.namespace_uid.clone(),
            from_tenant: planned.from.as_ref().map(|from| from.id),
            to_tenant: planned.to.id,
            requested_by: permit.caller().user_id(),
            expires_at: self.clock.now_ms() + ANNOUNCEMENT_TTL_MS,
            events: announced_events(permit.caller(), planned, request.reason.as_deref()),
        };
        match self.tenants.announce_move(announcement).await? {
            Err(MoveRefusal::NotAdministrator) => Err(AccessError::NotAdministrator.into()),
            recorded => Ok(recorded.map_err(|refusal| refusal.to_string())),
        }
    }

    async fn record_refused_move(
        &self,
        caller: &Caller,
        to: &TenantName,
        namespace: &str,
        refusal: &str,
    ) -> Result<(), TenantError> {
        let action = Action::MoveNamespace;
        let namespace: String = namespace.chars().take(MAX_NAME_CHARS).collect();
        let reason = format!("tenant {to}: namespace {namespace}: {refusal}");
        self.metrics.action(action.as_str(), "refused");
        audit::record_refusal(&self.db, &self.clock, caller.event(action), &reason).await?;
        Ok(())
    }
}

/// The audit rows of an announcement: one for each tenant.
fn announced_events(
    caller: &Caller,
    planned: &PlannedMove,
    reason: Option<&str>,
) -> Vec<audit::Event> {
    let (plan, to) = (&planned.plan, &planned.to.name);
    let event = |text: String| {
        let text = reason.map_or_else(|| text.clone(), |reason| format!("{text}: {reason}"));
        audit::Event { reason: Some(text), ..caller.event(Action::MoveNamespace) }
    };
    let from = planned.from.as_ref().map(|from| &from.name);
    let was = from.map_or_else(|| "no tenant".to_owned(), |from| format!("tenant {from}"));
    let namespace = format!("namespace {} (uid {})", plan.namespace, plan.namespace_uid);
    let mut events = vec![event(format!("tenant {to}: {namespace} is to come from {was}"))];
    events.extend(
        from.map(|from| event(format!("tenant {from}: {namespace} is to go to tenant {to}"))),
    );
    events
}
