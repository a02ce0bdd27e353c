//! Audit rows of installations and deletions. The row of a change is durable before the first object
//! is created or deleted; a second row says that the change failed, or that it was refused.

use super::super::{InNamespace, ModelServices, ask::Sender, caller::ApiCaller, failure::Failure};
use crate::{
    audit::{self, Action, Event, EventOutcome},
    base::error_chain,
    gateway::Verb,
    http::ApiError,
};

/// The audit rows of one change.
#[derive(Debug)]
pub(super) struct Recorder<'a> {
    request: &'a InNamespace,
    event: Event,
    /// What is changed.
    what: String,
}

impl InNamespace {
    /// The recorder of a change. The row of a caller with a Kubernetes token names its user.
    ///
    /// # Errors
    /// The API server does not say who the caller is.
    pub(super) async fn recorder(
        &self,
        action: Action,
        what: String,
    ) -> Result<Recorder<'_>, Failure> {
        let (event, what) = match self.asker().sender() {
            Sender::Session(request) => {
                let workspace_id = Some(request.workspace_id());
                (Event { workspace_id, ..request.caller().event(action) }, what)
            }
            Sender::Kubernetes { .. } => {
                let user = self.asker().who_am_i().await?.user;
                (Event::success(action), format!("Kubernetes user {user}, {what}"))
            }
        };
        Ok(Recorder { request: self, event, what })
    }
}

impl ModelServices {
    /// Records a change that the review of its namespace refused. A row that cannot be written changes
    /// nothing, because nothing happened.
    pub(in crate::model_services) async fn record_refused_review(
        &self,
        caller: &ApiCaller,
        action: Action,
        namespace: &str,
        failure: &Failure,
    ) {
        let (event, who) = match caller {
            ApiCaller::Session(session) => (session.caller().event(action), String::new()),
            ApiCaller::Kubernetes(_) => {
                let Ok(asker) = caller.begin(self, None, Verb::Get).await else { return };
                let Ok(user) = asker.who_am_i().await else { return };
                (Event::success(action), format!("Kubernetes user {}, ", user.user))
            }
        };
        self.0.metrics.action(action.as_str(), "refused");
        let status = failure.status().as_u16();
        let reason = format!("{who}namespace {namespace}: {status} {}", failure.message());
        let event = Event { outcome: EventOutcome::Refused, reason: Some(reason), ..event };
        if let Err(error) = audit::record_in_own_tx(&self.0.db, &self.0.clock, event).await {
            tracing::warn!(
                error = error_chain(&error),
                "cannot record a refused change in the audit trail"
            );
        }
    }
}

impl Recorder<'_> {
    /// Records that the change is about to happen.
    ///
    /// # Errors
    /// The database failed: the change must not happen.
    pub(super) async fn begin(&self) -> Result<(), Failure> {
        let event = Event { reason: Some(self.what.clone()), ..self.event.clone() };
        self.record(event).await
    }

    /// Records a change that failed or was refused, and passes its result on.
    ///
    /// # Errors
    /// Those of the change.
    pub(super) async fn finish<T>(self, result: Result<T, Failure>) -> Result<T, Failure> {
        let action = self.event.action.as_str();
        let metrics = &self.request.asker().services().0.metrics;
        let Err(failure) = &result else {
            metrics.action(action, "success");
            return result;
        };
        metrics.action(action, "refused");
        let why = match failure.message() {
            "" => "failed",
            message => message,
        };
        let reason = Some(format!("{}: {} {why}", self.what, failure.status().as_u16()));
        let event = Event { outcome: EventOutcome::Refused, reason, ..self.event.clone() };
        if let Err(error) = self.record(event).await {
            tracing::warn!(error = %error, "cannot record a failed change in the audit trail");
        }
        result
    }

    async fn record(&self, event: Event) -> Result<(), Failure> {
        let services = self.request.asker().services();
        audit::record_in_own_tx(&services.0.db, &services.0.clock, event)
            .await
            .map_err(|error| ApiError::storage(&error).into())
    }
}
