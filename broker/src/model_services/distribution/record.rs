//! Audit rows of installations and deletions. The row of a change is durable before the first object
//! is created or deleted. A second row says that the change was refused, or what it left when it
//! failed.

use super::{
    super::{InNamespace, ModelServices, ask::Sender, caller::ApiCaller, failure::Failure},
    failed::Failed,
};
use crate::{
    audit::{self, Action, Event, EventOutcome},
    base::error_chain,
    gateway::Verb,
    http::ApiError,
};

/// The audit rows of one change.
#[derive(Debug)]
pub(super) struct Recorder {
    services: ModelServices,
    event: Event,
    /// What is changed.
    what: String,
}

impl InNamespace {
    /// The recorder of a change. The row of a caller with a Kubernetes token names its user.
    ///
    /// # Errors
    /// The API server does not say who the caller is.
    pub(super) async fn recorder(&self, action: Action, what: String) -> Result<Recorder, Failure> {
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
        Ok(Recorder { services: self.asker().services().clone(), event, what })
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

impl Recorder {
    /// Records that the change is about to happen.
    ///
    /// # Errors
    /// The database failed: the change must not happen.
    pub(super) async fn begin(&self) -> Result<(), Failure> {
        let event = Event { reason: Some(self.what.clone()), ..self.event.clone() };
        self.record(event).await
    }

    /// Records a change that was refused, or that failed, and passes its result on. The outcome is
    /// `refused` only if nothing was changed.
    ///
    /// # Errors
    /// Those of the change.
    pub(super) async fn finish<T>(self, result: Result<T, Failed>) -> Result<T, Failure> {
        let action = self.event.action.as_str();
        let failed = match result {
            Ok(done) => {
                self.services.0.metrics.action(action, "success");
                return Ok(done);
            }
            Err(failed) => failed,
        };
        let (failure, left) = failed.into_parts();
        let (outcome, label) = match left {
            None => (EventOutcome::Refused, "refused"),
            Some(_) => (self.event.outcome, "success"),
        };
        self.services.0.metrics.action(action, label);
        let why = match failure.message() {
            "" => "failed",
            message => message,
        };
        let status = failure.status().as_u16();
        let left = left.map_or_else(String::new, |left| format!("; {left}"));
        let reason = Some(format!("{}: {status} {why}{left}", self.what));
        let event = Event { outcome, reason, ..self.event.clone() };
        if let Err(error) = self.record(event).await {
            tracing::warn!(error = %error, "cannot record a failed change in the audit trail");
        }
        Err(failure)
    }

    async fn record(&self, event: Event) -> Result<(), Failure> {
        let services = &self.services.0;
        audit::record_in_own_tx(&services.db, &services.clock, event)
            .await
            .map_err(|error| ApiError::storage(&error).into())
    }
}
