//! Machines: a token of an issuer that the operator trusts, such as a CI system's or another
//! cluster's, becomes a short session for one workspace (RFC 8693). Nothing is stored at the machine.
//!
//! What a machine may use is said by rules in the configuration and by nothing else. The session is
//! the workspace owner's, but for that workspace only, and has no refresh token: the machine asks
//! again with a token that is new.

mod gateway_token;
mod row;
mod rule;
mod workload;

use std::collections::BTreeMap;

use self::{row::Place, workload::Workload};
pub use self::{rule::Rule, workload::WorkloadSettings};
use super::{
    Issuer,
    parameters::{ParameterFault, Parameters},
    token::TokenError,
    trust::{Distrust, HttpError, unverified_issuer},
};
use crate::{
    audit::{self, Action, Event},
    clock::Clock,
    identity::session,
    problem::{self, note},
    secret::PlainSecret,
    throttle::{self, Limited},
};

/// The grant's name (RFC 8693 section 2.1).
pub(super) const GRANT_TYPE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
/// Token types that are taken (section 3).
const TAKEN: [&str; 2] =
    ["urn:ietf:params:oauth:token-type:jwt", "urn:ietf:params:oauth:token-type:id_token"];
/// The type of what is given, and of what is exchanged for a token of the gateway.
pub(super) const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";
/// How long a machine's session lives at most, in milliseconds.
const SESSION_MS: i64 = 900 * 1000;
/// Bytes of the name of a workspace at most.
const MOST_NAME_BYTES: usize = 128;
/// One answer, whether the workspace, the rule or the owner is missing.
const NO_RULE: TokenError =
    TokenError::Subject("no rule of the operator lets this token use that workspace");

/// All configured workloads, by name.
#[derive(Debug)]
pub(super) struct Workloads(BTreeMap<String, Workload>);

/// A token, once its transaction is durable.
pub(super) struct Exchanged {
    pub(super) access_token: PlainSecret,
    /// In seconds.
    pub(super) expires_in: i64,
    /// If it is less than the session's.
    pub(super) scope: Option<&'static str>,
}

/// A machine that a rule lets in.
struct Admitted {
    place: Place,
    client_id: String,
    who: String,
    /// In milliseconds since 1970.
    expires_at: i64,
}

impl Workloads {
    /// Workloads whose issuers nobody has asked anything yet.
    pub(super) fn new(
        settings: &BTreeMap<String, WorkloadSettings>,
        clock: &Clock,
    ) -> Result<Self, HttpError> {
        let workload = |(name, settings): (&String, &WorkloadSettings)| {
            Ok((name.clone(), Workload::new(settings.clone(), clock)?))
        };
        settings.iter().map(workload).collect::<Result<_, _>>().map(Self)
    }

    /// Whether there are any.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Exchanges a machine's token for an access token, or an access token for one of the gateway.
pub(super) async fn exchange(issuer: &Issuer, sent: &Parameters) -> Result<Exchanged, TokenError> {
    if gateway_token::is_asked_for(sent)? {
        return gateway_token::issue(issuer, sent).await;
    }
    if issuer.workloads().is_empty() {
        return Err(TokenError::GrantType);
    }
    let subscriber = throttle::requester();
    let (clock, allowance) = (issuer.clock(), issuer.settings().exchange);
    // A refusal only reads.
    let looked =
        throttle::look(issuer.db(), clock, Limited::Exchange, &subscriber, allowance).await?;
    looked.map_err(|limit| TokenError::TooMany(limit.retry_after))?;
    let mut tx = issuer.db().begin().await?;
    let taken = throttle::take(&mut tx, clock, Limited::Exchange, &subscriber, allowance).await?;
    tx.commit().await?;
    taken.map_err(|limit| TokenError::TooMany(limit.retry_after))?;
    let asked = Asked::of(sent)?;
    match admit(issuer, &asked).await {
        Ok(admitted) => begin(issuer, admitted).await,
        Err(error) => {
            if let TokenError::Subject(why) = &error {
                let reason = format!("{why} ({})", asked.workspace);
                let event = Event::refused(Action::ExchangeToken, reason);
                audit::record_alone(issuer.db(), issuer.clock(), event).await?;
                issuer.metrics().action(Action::ExchangeToken, "refused");
            }
            Err(error)
        }
    }
}

/// What is asked for.
struct Asked<'a> {
    token: &'a str,
    workspace: &'a str,
}

impl<'a> Asked<'a> {
    fn of(sent: &'a Parameters) -> Result<Self, TokenError> {
        if sent.has("actor_token") {
            return Err(TokenError::Subject("actor_token is not supported"));
        }
        let token_type = sent.required("subject_token_type", 128)?;
        if !TAKEN.contains(&token_type) {
            return Err(TokenError::Subject("subject_token_type must be …:jwt or …:id_token"));
        }
        if !matches!(sent.optional("requested_token_type", 128)?, None | Some(ACCESS_TOKEN)) {
            return Err(TokenError::Subject("requested_token_type must be …:access_token"));
        }
        let named = (
            sent.optional("audience", MOST_NAME_BYTES)?,
            sent.optional("resource", MOST_NAME_BYTES)?,
        );
        let workspace = match named {
            (Some(name), None) | (None, Some(name)) => name,
            (None, None) => return Err(ParameterFault::Missing("audience").into()),
            (Some(_), Some(_)) => {
                return Err(TokenError::Subject("send audience or resource, not both"));
            }
        };
        let token = sent.required("subject_token", super::parameters::MOST_BYTES)?;
        Ok(Self { token, workspace })
    }
}

/// Finds the rule that lets this token use the workspace.
async fn admit(issuer: &Issuer, asked: &Asked<'_>) -> Result<Admitted, TokenError> {
    let (now, claimed) = (issuer.clock().now_ms(), unverified_issuer(asked.token));
    let mut worst = TokenError::Subject("subject_token is of an issuer that is not known here");
    for (name, workload) in &issuer.workloads().0 {
        if claimed.as_deref() != Some(workload.settings.issuer.as_str()) {
            continue;
        }
        let claims = match workload.verify(asked.token, now).await {
            Ok(claims) => claims,
            Err(Distrust::Refused(why)) => {
                note("cause", why);
                worst = TokenError::Subject("subject_token is not valid here");
                continue;
            }
            Err(Distrust::Outage(cause)) => {
                tracing::warn!(workload = name, cause, "the issuer's keys cannot be had");
                return Err(TokenError::Provider);
            }
        };
        let subject = claims.subject().unwrap_or_default();
        let place = row::find(issuer.db(), asked.workspace).await?;
        let rule = place.as_ref().and_then(|place| workload.rule(place, claims.all()));
        worst = NO_RULE;
        if let (Some(place), Some(rule)) = (place, rule) {
            // Never beyond the token's own end, skew aside.
            let end = claims.seconds("exp").unwrap_or_default().saturating_mul(1000);
            return Ok(Admitted {
                place,
                client_id: format!("workload:{name}"),
                who: format!("{name}/{rule}: {subject:?}"),
                expires_at: end.min(now + SESSION_MS),
            });
        }
    }
    Err(worst)
}

/// Begins the machine's session.
async fn begin(issuer: &Issuer, admitted: Admitted) -> Result<Exchanged, TokenError> {
    let now = issuer.clock().now_ms();
    if admitted.expires_at < now + 1000 {
        return Err(TokenError::Subject("subject_token has expired"));
    }
    let access_token = PlainSecret::generate(session::ACCESS_PREFIX)?;
    let Place { id, owner, .. } = admitted.place;
    let new = session::New {
        id: issuer.clock().random_id(),
        user_id: owner,
        client_id: &admitted.client_id,
        scope: "",
        ip_address: problem::request_address().map(|address| address.to_string()),
        user_agent: problem::request_user_agent(),
        auth_time: now,
        created_at: now,
        idle_expires_at: admitted.expires_at,
        expires_at: admitted.expires_at,
        workspace_id: Some(id),
        user_suspensions: None,
    };
    let mut tx = issuer.db().begin().await?;
    let Some(session) = session::begin(&mut tx, &new).await? else { return Err(NO_RULE) };
    let hash = access_token.hash();
    session::add_access_token(&mut tx, hash, session.id, session.expires_at, None).await?;
    let event = Event {
        user_id: Some(owner),
        workspace_id: Some(id),
        session_id: Some(session.id),
        reason: Some(admitted.who),
        ..Event::success(Action::ExchangeToken)
    };
    audit::record(&mut tx, issuer.clock(), event).await?;
    tx.commit().await?;
    issuer.metrics().action(Action::ExchangeToken, "success");
    note("user_id", owner);
    note("session_id", session.id);
    let expires_in = (session.expires_at - now) / 1000;
    Ok(Exchanged { access_token, expires_in, scope: None })
}
