//! `POST /auth/login`

use poem::{Request, http::header};
use poem_openapi::{
    OpenApi,
    payload::{Json, Response},
};
use secrecy::SecretString;
use tenant_shared::{Me, SignInRequest};

use super::error::AuthError;
use crate::{
    audit::{self, Action, Event},
    base::{
        clock::timestamp,
        request_context::{Field, record_field},
    },
    http::ApiError,
    issuer::{
        Issuer,
        sign_in::{AttemptResult, SignInAttempt, session_start},
    },
};

/// `signIn`.
#[derive(Debug)]
pub struct SignIn {
    pub(super) issuer: Issuer,
}

#[OpenApi(prefix_path = "/auth")]
impl SignIn {
    /// Sign in
    ///
    /// Signs in with e-mail address and password. The response sets the session cookie, which is
    /// `HttpOnly`, so that no page can read it. Users of an upstream provider sign in at the page
    /// `/login?return_to=…` instead.
    #[oai(path = "/login", method = "post", operation_id = "signIn")]
    async fn sign_in(
        &self,
        request: &Request,
        body: Json<SignInRequest>,
    ) -> Result<Response<Json<Me>>, ApiError> {
        let issuer = &self.issuer;
        issuer.identity().origins().check_sender(request.method(), request.headers())?;
        let SignInRequest { email, password } = body.0;
        if !issuer.settings().local_accounts {
            return Err(AuthError::PasswordsDisabled.into());
        }
        let _admitted = issuer.identity().limits().admit()?;
        let attempt = SignInAttempt::new(issuer, request, &email).await?;
        let user_id = match attempt.check_password(SecretString::from(password)).await? {
            AttemptResult::Accepted(user_id) => user_id,
            AttemptResult::Wrong => return Err(AuthError::Wrong.into()),
            AttemptResult::TooMany(limit) => return Err(AuthError::TooMany(limit).into()),
            AttemptResult::Unchecked(error) => return Err(AuthError::Unchecked(error).into()),
        };
        let now = issuer.clock().now_ms();
        let mut tx = issuer.db().begin().await?;
        let session = session_start::for_browser(issuer, &mut tx, user_id, now).await?;
        let session = session.ok_or(AuthError::Wrong)?;
        let cookie = session_start::issue_cookie(issuer, &mut tx, &session, now).await?;
        let cookie = cookie.ok_or(AuthError::NoRandomness)?;
        let event = Event {
            user_id: Some(user_id),
            session_id: Some(session.id),
            reason: Some("for browser, by password".to_owned()),
            ..Event::success(Action::SignIn)
        };
        audit::record(&mut tx, issuer.clock(), event).await?;
        tx.commit().await?;
        issuer.metrics().action(Action::SignIn.as_str(), "success");
        record_field(Field::UserId, user_id);
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
}
