//! `GET /login/callback/{name}`: handles the browser that comes back from a provider.
//!
//! Each provider has a redirect URI of its own, and the state records where it was sent, so that
//! the response of one provider cannot be passed off as another's (mix-up attack, RFC 9700 section
//! 4.4).

use poem::{Request, Response, http::StatusCode};
use uuid::Uuid;

use super::{
    Connector, ProviderError,
    binding::{MAX_STATE_BYTES, State},
    claim_mapping::MappedUser,
    grant,
    provider::ProviderClaims,
    start,
};
use crate::{
    audit::{self, Action, Event},
    base::{
        error_chain,
        request_context::{Field, record_field},
        throttle::{self, RateLimit, RateLimited, WindowQuota},
    },
    identity::{AdmittedUser, NotAdmitted, UpstreamIdentity},
    issuer::{
        Issuer,
        authorization::pending_authorization::{PendingAuthorization, expired_page},
        pages,
        parameters::Parameters,
        sign_in::SignedIn,
    },
};

/// Maximum bytes of a provider's code.
const MAX_CODE_BYTES: usize = 4096;

/// A failed sign-in.
enum SignInRefusal {
    /// There is no pending authorization, because the state or the browser is wrong.
    NoPendingAuthorization,
    /// The provider does not answer.
    ProviderUnavailable(ProviderError),
    /// The sign-in is refused: `why` is for the audit trail, `message` for the user.
    Refused { user_id: Option<Uuid>, why: String, message: String },
    /// Too many sign-ins from this address were refused before.
    RateLimited(RateLimited),
    /// An internal error.
    Internal(String),
    /// The database failed.
    Storage(sqlx::Error),
}

impl From<sqlx::Error> for SignInRefusal {
    fn from(error: sqlx::Error) -> Self {
        Self::Storage(error)
    }
}

/// Handles the response of a provider.
pub(in crate::issuer) async fn handle_callback(issuer: Issuer, request: Request) -> Response {
    let Some(connector) = start::find_connector(&issuer, &request) else {
        return start::unknown_provider();
    };
    let Ok(sent) = Parameters::from_query(&request) else { return expired_page() };
    let found = find_authorization(&issuer, &request, connector, &sent).await;
    let (authorization, state) = match found {
        Ok(found) => found,
        Err(SignInRefusal::Storage(error)) => return pages::database_unavailable(&error),
        Err(_) => return expired_page(),
    };
    let callback =
        Callback { issuer: &issuer, connector, authorization: &authorization, sent: &sent };
    let refusal = match callback.sign_in(&state).await {
        Ok(response) => return response,
        Err(refusal) => refusal,
    };
    match refusal {
        SignInRefusal::NoPendingAuthorization => expired_page(),
        SignInRefusal::ProviderUnavailable(error) => {
            start::provider_unavailable(connector, &authorization, &error)
        }
        SignInRefusal::Internal(cause) => pages::internal_error(&cause),
        SignInRefusal::Storage(error) => pages::database_unavailable(&error),
        SignInRefusal::RateLimited(limit) => {
            let text = "Too many sign-ins from your address were refused. Try again later.";
            let page = authorization.form(StatusCode::TOO_MANY_REQUESTS, "", Some(text));
            pages::with_retry_after(page, limit.retry_after)
        }
        SignInRefusal::Refused { user_id, why, message } => {
            let reason = format!("{}: {why}", connector.name);
            let event =
                Event { subject_user_id: user_id, ..Event::refused(Action::SignIn, reason) };
            if let Err(error) = count_refusal(&issuer, event).await {
                return pages::database_unavailable(&error);
            }
            issuer.metrics().action(Action::SignIn.as_str(), "refused");
            authorization.form(StatusCode::FORBIDDEN, "", Some(&message))
        }
    }
}

/// Checks whether another sign-in from this address may be tried. Refused sign-ins count, because
/// each costs a row of the audit trail and a request to the provider. Wrong passwords are counted
/// separately, because many people may share an address, and users of a provider have no password.
async fn check_rate_limit(issuer: &Issuer) -> Result<(), SignInRefusal> {
    let (subject, allowance) = by_address(issuer);
    throttle::peek(issuer.db(), issuer.clock(), RateLimit::SignInProvider, &subject, allowance)
        .await?
        .map_err(SignInRefusal::RateLimited)
}

/// Records a refusal and counts it for the address.
async fn count_refusal(issuer: &Issuer, event: Event) -> sqlx::Result<()> {
    let (subject, allowance) = by_address(issuer);
    let (mut tx, clock) = (issuer.db().begin().await?, issuer.clock());
    // The result matters for the next attempt only.
    let _ =
        throttle::consume(&mut tx, clock, RateLimit::SignInProvider, &subject, allowance).await?;
    audit::record(&mut tx, clock, event).await?;
    tx.commit().await
}

fn by_address(issuer: &Issuer) -> (String, WindowQuota) {
    (throttle::client_key(), issuer.settings().sign_in_address)
}

/// Finds the pending authorization with which this browser left for this provider, and its state.
/// The state is used up in any case.
async fn find_authorization(
    issuer: &Issuer,
    request: &Request,
    connector: &Connector,
    sent: &Parameters,
) -> Result<(PendingAuthorization, State), SignInRefusal> {
    let presented = sent.required("state", MAX_STATE_BYTES).ok().and_then(State::presented);
    let (state, handle) = presented.ok_or(SignInRefusal::NoPendingAuthorization)?;
    let mut tx = issuer.db().begin().await?;
    let now = issuer.clock().now_ms();
    let taken = grant::redeem_attempt(&mut tx, state.secret().hash(), now).await?;
    tx.commit().await?;
    let (authorization_id, name) = taken.ok_or(SignInRefusal::NoPendingAuthorization)?;
    let authorization = PendingAuthorization::find(issuer, request, handle)
        .await?
        .ok_or(SignInRefusal::NoPendingAuthorization)?;
    if name != connector.name || authorization.row.id != authorization_id {
        return Err(SignInRefusal::NoPendingAuthorization);
    }
    Ok((authorization, state))
}

/// A browser that came back from a provider.
struct Callback<'a> {
    issuer: &'a Issuer,
    connector: &'a Connector,
    authorization: &'a PendingAuthorization,
    sent: &'a Parameters,
}

impl Callback<'_> {
    async fn sign_in(&self, state: &State) -> Result<Response, SignInRefusal> {
        check_rate_limit(self.issuer).await?;
        let iss =
            self.sent.optional("iss", 512).map_err(|_| SignInRefusal::NoPendingAuthorization)?;
        let provider = &self.connector.provider;
        provider.check_response_issuer(iss).await.map_err(|error| self.provider_failure(error))?;
        if let Ok(Some(error)) = self.sent.optional("error", 64) {
            return Err(self.refused(
                None,
                format!("the provider answers {error}"),
                "The sign-in there was refused or cancelled.",
            ));
        }
        let code = self
            .sent
            .required("code", MAX_CODE_BYTES)
            .map_err(|_| SignInRefusal::NoPendingAuthorization)?;
        let (verifier, nonce) =
            (state.verifier(&self.authorization.proof), state.nonce(&self.authorization.proof));
        let from_provider = provider
            .redeem(code.to_owned(), verifier, &nonce)
            .await
            .map_err(|error| self.provider_failure(error))?;
        let claims = from_provider.claims.clone().unwrap_or_default();
        let mapped = self.connector.settings.map_claims(&claims).map_err(|not_allowed| {
            let why = not_allowed.reason();
            self.refused(
                None,
                format!("{:?} is {why}", from_provider.subject),
                &format!("Your account there may not sign in here: {why}. Ask an administrator."),
            )
        })?;
        let known = self.admit(&from_provider, &mapped).await?;
        let grant_id = self.store_grant(&from_provider, &mapped, known).await?;
        let who = SignedIn {
            user_id: known.user_id,
            method: format!("{} as {:?}", self.connector.name, from_provider.subject),
            grant_id: Some(grant_id),
        };
        Ok(self.authorization.complete_sign_in(self.issuer, &who).await?)
    }

    async fn admit(
        &self,
        from_provider: &ProviderClaims,
        mapped: &MappedUser,
    ) -> Result<AdmittedUser, SignInRefusal> {
        let person = UpstreamIdentity {
            connector: &self.connector.name,
            issuer: &self.connector.settings.issuer,
            subject: &from_provider.subject,
            username: mapped.username.as_deref(),
            claims: mapped.claims(),
        };
        let admitted = self.issuer.identity().admit(&person).await?;
        if let Ok(user) = &admitted {
            mapped.warn_of_groups_left_out(&self.connector.name, user.user_id);
        }
        admitted.map_err(|not_admitted| match not_admitted {
            NotAdmitted::EmailTaken => self.refused(
                None,
                format!("the address of {:?} belongs to another user", from_provider.subject),
                "Another user here has your e-mail address, and nobody is given an account by \
                 its address. Ask an administrator.",
            ),
            NotAdmitted::Suspended(user_id) => self.refused(
                Some(user_id),
                "the account is suspended".to_owned(),
                "Your account here is suspended. Ask an administrator.",
            ),
        })
    }

    /// Stores the grant of the provider, for the session that begins.
    async fn store_grant(
        &self,
        from_provider: &ProviderClaims,
        mapped: &MappedUser,
        known: AdmittedUser,
    ) -> Result<Uuid, SignInRefusal> {
        let (issuer, clock) = (self.issuer, self.issuer.clock());
        let id = clock.random_id();
        let seal = |token| issuer.keys().sealing_keys().seal(token, id.as_bytes());
        let refresh_token = from_provider.refresh_token.as_ref().map(seal).transpose();
        let refresh_token =
            refresh_token.map_err(|error| SignInRefusal::Internal(error_chain(&error)))?;
        let has_refresh_token = refresh_token.is_some();
        let new = grant::NewGrant {
            id,
            identity_id: known.identity_id,
            connector: &self.connector.name,
            username: mapped.username.as_deref(),
            sid: from_provider.sid.as_deref(),
            refresh_token,
            removal_seconds: self.connector.removal_seconds(issuer.settings(), has_refresh_token),
            now: clock.now_ms(),
        };
        let mut tx = issuer.db().begin().await?;
        grant::insert(&mut tx, &new).await?;
        tx.commit().await?;
        Ok(id)
    }

    fn provider_failure(&self, error: ProviderError) -> SignInRefusal {
        match error {
            ProviderError::Unavailable(_) => SignInRefusal::ProviderUnavailable(error),
            ProviderError::Denied(_) | ProviderError::Invalid(_) => {
                record_field(Field::Cause, error.to_string());
                let message = "Its answer could not be used. Try again; if that does not help, \
                               an administrator finds the reason in the audit trail.";
                self.refused(None, error.to_string(), message)
            }
        }
    }

    fn refused(&self, user_id: Option<Uuid>, why: String, message: &str) -> SignInRefusal {
        let message = format!(
            "You were not signed in with {}. {message}",
            self.connector.settings.display_name
        );
        SignInRefusal::Refused { user_id, why, message }
    }
}
