//! Signing in and out over the HTTP API, for frontends that have a form of their own.

use poem::{Request, http::header};
use poem_openapi::{
    ApiResponse, OpenApi,
    payload::{Json, Response},
};
use secrecy::SecretString;
use tenant_shared::{Code, Me, RegisterRequest, SignInRequest};

use super::{
    Issuer,
    attempt::{Attempt, Verdict, WRONG},
    begin,
};
use crate::{
    audit::{self, Action, Event},
    clock::timestamp,
    identity::{self, Bearer, CreateUserError, PasswordError, Which},
    problem::{Failure, note},
    throttle::{self, Limited},
};

/// Operations that begin and end the session of a browser.
#[derive(Debug)]
pub struct AuthApi {
    /// Where people sign in.
    pub issuer: Issuer,
}

/// Answers of `register`.
#[derive(ApiResponse)]
pub(crate) enum Registered {
    /// The account exists now, or the address was taken: the answer does not say which.
    #[oai(status = 202)]
    Accepted,
}

/// The session is over.
#[derive(ApiResponse)]
pub(crate) enum SignedOut {
    /// The cookie is taken back.
    #[oai(status = 204)]
    Done(#[oai(header = "Set-Cookie")] Option<String>),
}

#[OpenApi(prefix_path = "/auth")]
impl AuthApi {
    /// Sign in
    ///
    /// With e-mail address and password. The answer sets the session's cookie; it is `HttpOnly`, so a
    /// page cannot read it. People of a provider sign in at the page `/login?return_to=…` instead.
    #[oai(path = "/login", method = "post", operation_id = "signIn")]
    async fn login(
        &self,
        request: &Request,
        body: Json<SignInRequest>,
    ) -> Result<Response<Json<Me>>, Failure> {
        let issuer = &self.issuer;
        issuer.identity().origins().check_sender(request)?;
        let SignInRequest { email, password } = body.0;
        if !issuer.settings().local_accounts {
            return Err(Failure::new(Code::Forbidden, NO_PASSWORDS));
        }
        let _admitted = issuer.identity().limits().admit().map_err(identity::too_many)?;
        let attempt = Attempt::new(issuer, request, &email).await?;
        let user_id = match attempt.judge(SecretString::from(password)).await? {
            Verdict::Accepted(user_id) => user_id,
            Verdict::Wrong => return Err(Failure::new(Code::Unauthenticated, WRONG)),
            Verdict::TooMany(limit) => return Err(too_many(limit)),
            Verdict::Unchecked(error) => return Err(unchecked(&error)),
        };
        let now = issuer.clock().now_ms();
        let mut tx = issuer.db().begin().await?;
        let session = begin::browser(issuer, &mut tx, user_id, now).await?;
        let session = session.ok_or_else(|| Failure::new(Code::Unauthenticated, WRONG))?;
        let cookie = begin::cookie(issuer, &mut tx, &session, now).await?;
        let cookie = cookie.ok_or_else(|| {
            Failure::internal(&std::io::Error::other("the operating system gave no randomness"))
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
        note("user_id", user_id);
        let me = Me {
            id: user_id,
            role: session.role()?,
            email: session.email,
            session_id: session.id,
            session_expires_at: timestamp(session.expires_at).into(),
            provider: None,
        };
        let mut response = Response::new(Json(me)).header(header::SET_COOKIE, cookie);
        if let Some(cookie) = attempt.remember(user_id).await? {
            response = response.header(header::SET_COOKIE, cookie);
        }
        Ok(response)
    }

    /// Sign out
    ///
    /// Ends the session that this request used and takes the cookie back.
    #[oai(path = "/logout", method = "post", operation_id = "signOut")]
    async fn logout(&self, caller: Bearer) -> Result<SignedOut, Failure> {
        let identity = self.issuer.identity();
        let (caller, session_id) = (&caller.0, caller.0.session_id());
        identity.end_sessions(caller, caller.user_id(), Which::One(session_id)).await?;
        let cookie = identity.browser_sessions().cookie.clear();
        Ok(SignedOut::Done(cookie.and_then(|value| value.to_str().ok().map(ToOwned::to_owned))))
    }

    /// Make an account
    ///
    /// Where the operator allows it (`issuer.registration`). The answer is the same for an address
    /// that is taken, so that nobody learns who has an account; sign in afterwards.
    #[oai(path = "/register", method = "post", operation_id = "register")]
    async fn register(
        &self,
        request: &Request,
        body: Json<RegisterRequest>,
    ) -> Result<Registered, Failure> {
        let issuer = &self.issuer;
        issuer.identity().origins().check_sender(request)?;
        if !issuer.settings().local_accounts {
            return Err(Failure::new(Code::Forbidden, NO_PASSWORDS));
        }
        if !issuer.settings().registration {
            let text = "people cannot make accounts for themselves here; ask an administrator";
            return Err(Failure::new(Code::Forbidden, text));
        }
        let _admitted = issuer.identity().limits().admit().map_err(identity::too_many)?;
        let subject = throttle::requester();
        let (clock, allowance) = (issuer.clock(), issuer.settings().register);
        // A refusal only reads.
        let looked =
            throttle::look(issuer.db(), clock, Limited::Register, &subject, allowance).await?;
        looked.map_err(too_many)?;
        let mut tx = issuer.db().begin().await?;
        let taken = throttle::take(&mut tx, clock, Limited::Register, &subject, allowance).await?;
        tx.commit().await?;
        taken.map_err(too_many)?;
        let RegisterRequest { email, password } = body.0;
        let role = tenant_shared::Role::User;
        match issuer.identity().create_user(&email, password.into(), role).await {
            // The password was hashed in both cases, so they take as long.
            Ok(_) | Err(CreateUserError::Exists(_)) => Ok(Registered::Accepted),
            Err(CreateUserError::Password(PasswordError::Busy)) => {
                Err(unchecked(&PasswordError::Busy))
            }
            Err(CreateUserError::Storage(error)) => Err(error.into()),
            Err(error) => Err(Failure::new(Code::InvalidRequest, error.to_string())),
        }
    }
}

/// What is said where `issuer.local_accounts` is off.
const NO_PASSWORDS: &str = "passwords are not used here; sign in on the page /login instead";

fn too_many(limit: throttle::TooMany) -> Failure {
    let text = "too many attempts; try again later";
    Failure::new(Code::RateLimited, text).retry_after(limit.retry_after)
}

fn unchecked(error: &PasswordError) -> Failure {
    match error {
        PasswordError::Busy => Failure::new(Code::RateLimited, error.to_string()).retry_after(10),
        PasswordError::Length | PasswordError::Failed(_) => Failure::internal(error),
    }
}
