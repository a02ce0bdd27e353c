//! Token exchange (RFC 8693): a token of an issuer that the operator trusts, such as a CI system or
//! another cluster, is exchanged for a short session of one workspace. The machine stores nothing.
//!
//! Only rules in the configuration grant a machine access. The session belongs to the owner of the
//! workspace, is limited to that workspace, and has no refresh token: the machine exchanges a new
//! token when it expires.

mod gateway_token;
mod rule;
mod workload;
mod workspace_ref;

use std::collections::BTreeMap;

pub use self::{rule::Rule, workload::WorkloadSettings};
use self::{workload::Workload, workspace_ref::WorkspaceRef};
use super::{
    Issuer,
    jwt::{HttpClientError, VerificationError, unverified_issuer},
    parameters::{ParameterError, Parameters},
    tokens::token_error::TokenError,
};
use crate::{
    audit::{self, Action, Event},
    base::{
        clock::Clock,
        reload::Reloader,
        request_context::{self, Field, record_field},
        secret::PlainSecret,
        throttle::{self, RateLimit},
    },
    identity::sessions,
};

/// The grant type (RFC 8693 section 2.1).
pub(super) const GRANT_TYPE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
/// Accepted types of `subject_token` (section 3).
const SUBJECT_TOKEN_TYPES: [&str; 2] =
    ["urn:ietf:params:oauth:token-type:jwt", "urn:ietf:params:oauth:token-type:id_token"];
/// The type of issued tokens, and of a subject token that is exchanged for a gateway token.
pub(super) const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";
/// Maximum lifetime of a machine's session, in milliseconds.
const MAX_SESSION_MS: i64 = 900 * 1000;
/// Maximum bytes of the name of a workspace.
const MAX_NAME_BYTES: usize = 128;
/// One response for a missing workspace, rule or owner, so that none of them is revealed.
const NO_RULE: TokenError =
    TokenError::Subject("no rule of the operator lets this token use that workspace");

/// All configured workloads, by name.
#[derive(Debug)]
pub(super) struct Workloads(BTreeMap<String, Workload>);

/// An issued token; its transaction is durable.
pub(super) struct ExchangedToken {
    pub(super) access_token: PlainSecret,
    /// Lifetime in seconds.
    pub(super) expires_in: i64,
    /// Scope, if it is narrower than that of the session.
    pub(super) scope: Option<&'static str>,
}

/// A machine that a rule admits.
struct AdmittedWorkload {
    workspace: WorkspaceRef,
    client_id: String,
    description: String,
    /// When its session ends, in milliseconds since 1970.
    expires_at: i64,
}

impl Workloads {
    /// The configured workloads; nothing is fetched from their issuers yet.
    pub(super) fn new(
        settings: &BTreeMap<String, WorkloadSettings>,
        clock: &Clock,
        reloader: &Reloader,
    ) -> Result<Self, HttpClientError> {
        let workload = |(name, settings): (&String, &WorkloadSettings)| {
            let table = format!("workloads.{name}");
            Ok((name.clone(), Workload::new(settings.clone(), &table, clock, reloader)?))
        };
        settings.iter().map(workload).collect::<Result<_, _>>().map(Self)
    }

    /// Whether no workload is configured.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Exchanges a machine's token for an access token, or an access token for a gateway token.
pub(super) async fn exchange(
    issuer: &Issuer,
    sent: &Parameters,
) -> Result<ExchangedToken, TokenError> {
    if gateway_token::is_requested(sent)? {
        return gateway_token::issue(issuer, sent).await;
    }
    if issuer.workloads().is_empty() {
        return Err(TokenError::GrantType);
    }
    let client = throttle::client_key();
    let (clock, allowance) = (issuer.clock(), issuer.settings().exchange);
    // A refusal does not write.
    let peeked =
        throttle::peek(issuer.db(), clock, RateLimit::TokenExchange, &client, allowance).await?;
    peeked.map_err(|limit| TokenError::TooMany(limit.retry_after))?;
    let mut tx = issuer.db().begin().await?;
    let taken =
        throttle::consume(&mut tx, clock, RateLimit::TokenExchange, &client, allowance).await?;
    tx.commit().await?;
    taken.map_err(|limit| TokenError::TooMany(limit.retry_after))?;
    let request = ExchangeRequest::parse(sent)?;
    match admit(issuer, &request).await {
        Ok(admitted) => begin_session(issuer, admitted).await,
        Err(error) => {
            if let TokenError::Subject(why) = &error {
                let reason = format!("{why} ({})", request.workspace);
                let event = Event::refused(Action::ExchangeToken, reason);
                audit::record_in_own_tx(issuer.db(), issuer.clock(), event).await?;
                issuer.metrics().action(Action::ExchangeToken.as_str(), "refused");
            }
            Err(error)
        }
    }
}

/// Parameters of an exchange.
struct ExchangeRequest<'a> {
    token: &'a str,
    workspace: &'a str,
}

impl<'a> ExchangeRequest<'a> {
    fn parse(sent: &'a Parameters) -> Result<Self, TokenError> {
        if sent.has("actor_token") {
            return Err(TokenError::Subject("actor_token is not supported"));
        }
        let token_type = sent.required("subject_token_type", 128)?;
        if !SUBJECT_TOKEN_TYPES.contains(&token_type) {
            return Err(TokenError::Subject("subject_token_type must be …:jwt or …:id_token"));
        }
        if !matches!(sent.optional("requested_token_type", 128)?, None | Some(ACCESS_TOKEN)) {
            return Err(TokenError::Subject("requested_token_type must be …:access_token"));
        }
        let named = (
            sent.optional("audience", MAX_NAME_BYTES)?,
            sent.optional("resource", MAX_NAME_BYTES)?,
        );
        let workspace = match named {
            (Some(name), None) | (None, Some(name)) => name,
            (None, None) => return Err(ParameterError::Missing("audience").into()),
            (Some(_), Some(_)) => {
                return Err(TokenError::Subject("send audience or resource, not both"));
            }
        };
        let token = sent.required("subject_token", super::parameters::MAX_BYTES)?;
        Ok(Self { token, workspace })
    }
}

/// Finds the rule that grants this token access to the workspace.
async fn admit(
    issuer: &Issuer,
    request: &ExchangeRequest<'_>,
) -> Result<AdmittedWorkload, TokenError> {
    let (now, claimed) = (issuer.clock().now_ms(), unverified_issuer(request.token));
    let mut refusal = TokenError::Subject("the issuer of subject_token is not configured here");
    for (name, workload) in &issuer.workloads().0 {
        if claimed.as_deref() != Some(workload.settings.issuer.as_str()) {
            continue;
        }
        let claims = match workload.verify(request.token, now).await {
            Ok(claims) => claims,
            Err(VerificationError::Invalid(why)) => {
                record_field(Field::Cause, why);
                refusal = TokenError::Subject("subject_token is not valid here");
                continue;
            }
            Err(VerificationError::Unavailable(cause)) => {
                tracing::warn!(
                    workload = name,
                    error = cause,
                    "fetching the keys of the issuer failed"
                );
                return Err(TokenError::Provider);
            }
        };
        let subject = claims.subject().unwrap_or_default();
        let workspace = workspace_ref::find_by_name(issuer.db(), request.workspace).await?;
        let rule = workspace
            .as_ref()
            .and_then(|workspace| workload.matching_rule(workspace, claims.all()));
        refusal = NO_RULE;
        if let (Some(workspace), Some(rule)) = (workspace, rule) {
            // Never beyond the expiry of the token itself, apart from the clock skew.
            let end = claims.seconds("exp").unwrap_or_default().saturating_mul(1000);
            return Ok(AdmittedWorkload {
                workspace,
                client_id: format!("workload:{name}"),
                description: format!("{name}/{rule}: {subject:?}"),
                expires_at: end.min(now + MAX_SESSION_MS),
            });
        }
    }
    Err(refusal)
}

/// Begins the machine's session.
async fn begin_session(
    issuer: &Issuer,
    admitted: AdmittedWorkload,
) -> Result<ExchangedToken, TokenError> {
    let now = issuer.clock().now_ms();
    if admitted.expires_at < now + 1000 {
        return Err(TokenError::Subject("subject_token has expired"));
    }
    let access_token = PlainSecret::generate(sessions::ACCESS_PREFIX)?;
    let WorkspaceRef { id, owner, .. } = admitted.workspace;
    let new = sessions::NewSession {
        id: issuer.clock().random_id(),
        user_id: owner,
        client_id: &admitted.client_id,
        scope: "",
        ip_address: request_context::request_address().map(|address| address.to_string()),
        user_agent: request_context::request_user_agent(),
        auth_time: now,
        created_at: now,
        idle_expires_at: admitted.expires_at,
        expires_at: admitted.expires_at,
        workspace_id: Some(id),
        user_suspensions: None,
    };
    let mut tx = issuer.db().begin().await?;
    let Some(session) = sessions::begin(&mut tx, &new).await? else { return Err(NO_RULE) };
    let hash = access_token.hash();
    sessions::add_access_token(&mut tx, hash, session.id, session.expires_at, None).await?;
    let event = Event {
        user_id: Some(owner),
        workspace_id: Some(id),
        session_id: Some(session.id),
        reason: Some(admitted.description),
        ..Event::success(Action::ExchangeToken)
    };
    audit::record(&mut tx, issuer.clock(), event).await?;
    tx.commit().await?;
    issuer.metrics().action(Action::ExchangeToken.as_str(), "success");
    record_field(Field::UserId, owner);
    record_field(Field::SessionId, session.id);
    let expires_in = (session.expires_at - now) / 1000;
    Ok(ExchangedToken { access_token, expires_in, scope: None })
}
