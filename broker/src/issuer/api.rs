//! HTTP API for signing in and out, for frontends with a sign-in form of their own: `/auth`.

use poem::{Request, http::header};
use poem_openapi::{
    ApiResponse, OpenApi,
    payload::{Json, Response},
};
use secrecy::SecretString;
use tenant_shared::{Code, Me, RegisterRequest, SignInRequest};

use super::{
    Issuer, session_start,
    sign_in_attempt::{AttemptResult, SignInAttempt, WRONG},
};
use crate::{
    audit::{self, Action, Event},
    base::{
        clock::timestamp,
        request_context::record_field,
        throttle::{self, RateLimit},
    },
    http::ApiError,
    identity::{self, Authenticated, CreateUserError, PasswordError, SessionSelector},
};

/// Operations that start and end a browser session.
#[derive(Debug)]
pub struct AuthApi {
    /// The issuer.
    pub issuer: Issuer,
}

/// Responses of `register`.
#[derive(ApiResponse)]
pub(crate) enum Registered {
    /// The account was created, or the address was taken; the response does not say which.
    #[oai(status = 202)]
    Accepted,
}

/// The session is over.
#[derive(ApiResponse)]
pub(crate) enum SignedOut {
    /// The session has ended, and the cookie is removed.
    #[oai(status = 204)]
    Done(#[oai(header = "Set-Cookie")] Option<String>),
}

#[OpenApi(prefix_path = "/auth")]
impl AuthApi {
    /// Sign in
    ///
    /// Signs in with e-mail address and password. The response sets the session cookie, which is
    /// `HttpOnly`, so that no page can read it. Users of an upstream provider sign in at the page
    /// `/login?return_to=…` instead.
    #[oai(path = "/login", method = "post", operation_id = "signIn")]
    async fn login(
        &self,
        request: &Request,
        body: Json<SignInRequest>,
    ) -> Result<Response<Json<Me>>, ApiError> {
        let issuer = &self.issuer;
        issuer.identity().origins().check_sender(request)?;
        let SignInRequest { email, password } = body.0;
        if !issuer.settings().local_accounts {
            return Err(ApiError::new(Code::Forbidden, PASSWORDS_DISABLED));
        }
        let _admitted = issuer.identity().limits().admit().map_err(identity::too_many)?;
        let attempt = SignInAttempt::new(issuer, request, &email).await?;
        let user_id = match attempt.check_password(SecretString::from(password)).await? {
            AttemptResult::Accepted(user_id) => user_id,
            AttemptResult::Wrong => return Err(ApiError::new(Code::Unauthenticated, WRONG)),
            AttemptResult::TooMany(limit) => return Err(too_many(limit)),
            AttemptResult::Unchecked(error) => return Err(password_check_failed(&error)),
        };
        let now = issuer.clock().now_ms();
        let mut tx = issuer.db().begin().await?;
        let session = session_start::for_browser(issuer, &mut tx, user_id, now).await?;
        let session = session.ok_or_else(|| ApiError::new(Code::Unauthenticated, WRONG))?;
        let cookie = session_start::issue_cookie(issuer, &mut tx, &session, now).await?;
        let cookie = cookie.ok_or_else(|| {
            ApiError::internal(&std::io::Error::other("the operating system gave no randomness"))
        })?;
        let event = Event {
            user_id: Some(user_id),
            session_id: Some(session.id),
            reason: Some("for browser, by password".to_owned()),
            ..Event::success(Action::SignIn)
        };
        audit::record(&mut tx, issuer.clock(), event).await?;
        tx.commit().await?;
        issuer.metrics().action(Action::SignIn, "success");
        record_field("user_id", user_id);
        let me = Me {
            id: user_id,
            role: session.role()?,
            email: session.email,
            session_id: session.id,
            session_expires_at: timestamp(session.expires_at).into(),
            provider: None,
        };
        let mut response = Response::new(Json(me)).header(header::SET_COOKIE, cookie);
        if let Some(cookie) = attempt.trust_browser(user_id).await? {
            response = response.header(header::SET_COOKIE, cookie);
        }
        Ok(response)
    }

    /// Sign out
    ///
    /// Ends the session that this request used and removes its cookie.
    #[oai(path = "/logout", method = "post", operation_id = "signOut")]
    async fn logout(&self, caller: Authenticated) -> Result<SignedOut, ApiError> {
        let identity = self.issuer.identity();
        let (caller, session_id) = (&caller.0, caller.0.session_id());
        identity.end_sessions(caller, caller.user_id(), SessionSelector::One(session_id)).await?;
        let cookie = identity.browser_sessions().cookie.clear();
        Ok(SignedOut::Done(cookie.and_then(|value| value.to_str().ok().map(ToOwned::to_owned))))
    }

    /// Create an account
    ///
    /// Creates an account, if the operator allows it (`issuer.registration`). The response is the
    /// same for an address that is taken, so that nobody learns who has an account; sign in
    /// afterwards.
    #[oai(path = "/register", method = "post", operation_id = "register")]
    async fn register(
        &self,
        request: &Request,
        body: Json<RegisterRequest>,
    ) -> Result<Registered, ApiError> {
        let issuer = &self.issuer;
        issuer.identity().origins().check_sender(request)?;
        if !issuer.settings().local_accounts {
            return Err(ApiError::new(Code::Forbidden, PASSWORDS_DISABLED));
        }
        if !issuer.settings().registration {
            let text = "people cannot create accounts here; ask an administrator";
            return Err(ApiError::new(Code::Forbidden, text));
        }
        let _admitted = issuer.identity().limits().admit().map_err(identity::too_many)?;
        let subject = throttle::client_key();
        let (clock, allowance) = (issuer.clock(), issuer.settings().register);
        // A refusal reads and does not write.
        let peeked =
            throttle::peek(issuer.db(), clock, RateLimit::Register, &subject, allowance).await?;
        peeked.map_err(too_many)?;
        let mut tx = issuer.db().begin().await?;
        let taken =
            throttle::take(&mut tx, clock, RateLimit::Register, &subject, allowance).await?;
        tx.commit().await?;
        taken.map_err(too_many)?;
        let RegisterRequest { email, password } = body.0;
        let role = tenant_shared::Role::User;
        match issuer.identity().create_user(&email, password.into(), role).await {
            // The password was hashed in both cases, so both take as long.
            Ok(_) | Err(CreateUserError::Exists(_)) => Ok(Registered::Accepted),
            Err(CreateUserError::Password(PasswordError::Busy)) => {
                Err(password_check_failed(&PasswordError::Busy))
            }
            Err(CreateUserError::Storage(error)) => Err(error.into()),
            Err(error) => Err(ApiError::new(Code::InvalidRequest, error.to_string())),
        }
    }
}

/// The error text where `issuer.local_accounts` is off.
const PASSWORDS_DISABLED: &str = "passwords are not used here; sign in on the page /login instead";

fn too_many(limit: throttle::RateLimited) -> ApiError {
    let text = "too many attempts; try again later";
    ApiError::new(Code::RateLimited, text).retry_after(limit.retry_after)
}

fn password_check_failed(error: &PasswordError) -> ApiError {
    match error {
        PasswordError::Busy => ApiError::new(Code::RateLimited, error.to_string()).retry_after(10),
        PasswordError::Length | PasswordError::Failed(_) => ApiError::internal(error),
    }
}
