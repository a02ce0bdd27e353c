//! The sign-in page: `GET /login`, `POST /login` and `GET /login/code`.

use poem::{
    Request, Response,
    http::{StatusCode, header},
};
use secrecy::SecretString;
use tenant_shared::BROWSER_CLIENT_ID;

use super::{
    complete_sign_in::{CODE_PREFIX, PASTED_CODE_SECONDS, SignedIn},
    sign_in_attempt::{AttemptResult, SignInAttempt, WRONG},
};
use crate::{
    base::{
        error_chain,
        request_context::{Field, record_field},
    },
    identity::{MAX_PASSWORD_BYTES, PasswordError},
    issuer::{
        Issuer,
        authorization::pending_authorization::{
            self, AuthorizationRequest, PendingAuthorization, expired_page,
        },
        pages::{self, Page},
        parameters::{MAX_SECRET_BYTES, Parameters},
        redirect::{MAX_RETURN_BYTES, ReturnTarget, ReturnTo},
    },
};

/// Bytes of an e-mail address in the form at most.
const MAX_EMAIL_BYTES: usize = 254;

/// `GET /login?request=…`: shows the form. Without `request` the browser itself signs in, and is
/// redirected to `return_to` afterwards.
pub(in crate::issuer) async fn form(issuer: Issuer, request: Request) -> Response {
    let Ok(params) = Parameters::from_query(&request) else { return expired_page() };
    if !params.has("request") {
        let return_to = params.optional("return_to", MAX_RETURN_BYTES).ok().flatten();
        return start_browser_sign_in(&issuer, return_to)
            .await
            .unwrap_or_else(|error| pages::database_unavailable(&error));
    }
    let Ok(handle) = params.required("request", MAX_SECRET_BYTES) else { return expired_page() };
    match PendingAuthorization::find(&issuer, &request, handle).await {
        Ok(Some(authorization)) => authorization.form(StatusCode::OK, "", None),
        Ok(None) => expired_page(),
        Err(error) => pages::database_unavailable(&error),
    }
}

async fn start_browser_sign_in(issuer: &Issuer, return_to: Option<&str>) -> sqlx::Result<Response> {
    let return_to = return_to.unwrap_or("/account");
    let Some(return_to) = ReturnTo::allowed(return_to, issuer.identity().origins()) else {
        let page = Page::Problem {
            title: "This link is not valid",
            text: "It leads to a site that does not belong to this broker. If a link brought you \
                   here, do not trust it.",
        };
        return Ok(pages::render(StatusCode::BAD_REQUEST, &page));
    };
    let request = AuthorizationRequest {
        client_id: BROWSER_CLIENT_ID,
        target: &ReturnTarget::Browser(return_to),
        scope: "openid email",
        state: None,
        nonce: None,
        code_challenge: "",
    };
    pending_authorization::start(issuer, &request).await
}

/// `POST /login`: signs in with e-mail address and password.
pub(in crate::issuer) async fn submit(issuer: Issuer, mut request: Request) -> Response {
    let params = match Parameters::from_body(&mut request).await {
        Ok(params) => params,
        Err(fault) => {
            let text =
                format!("Nobody was signed in: {fault}. Begin again with kubectl tenant login.");
            let page = Page::Problem { title: "This form cannot be read", text: &text };
            return pages::render(fault.status(), &page);
        }
    };
    let Ok(handle) = params.required("request", MAX_SECRET_BYTES) else { return expired_page() };
    let authorization = match PendingAuthorization::find(&issuer, &request, handle).await {
        Ok(Some(authorization)) => authorization,
        Ok(None) => return expired_page(),
        Err(error) => return pages::database_unavailable(&error),
    };
    if !issuer.settings().local_accounts {
        let text = "Passwords are not used here. Sign in with one of these.";
        return authorization.form(StatusCode::FORBIDDEN, "", Some(text));
    }
    let email = params.required("email", MAX_EMAIL_BYTES);
    let password = params.verbatim("password", MAX_PASSWORD_BYTES);
    let (Ok(email), Ok(Some(password))) = (&email, password) else {
        let text = "Type your e-mail address and your password.";
        let email = email.unwrap_or_default();
        return authorization.form(StatusCode::BAD_REQUEST, email, Some(text));
    };
    let password = SecretString::from(password.to_owned());
    check_password(&issuer, &request, &authorization, email, password)
        .await
        .unwrap_or_else(|error| pages::database_unavailable(&error))
}

async fn check_password(
    issuer: &Issuer,
    request: &Request,
    authorization: &PendingAuthorization,
    email: &str,
    password: SecretString,
) -> sqlx::Result<Response> {
    let attempt = SignInAttempt::new(issuer, request, email).await?;
    let user_id = match attempt.check_password(password).await? {
        AttemptResult::Accepted(user_id) => user_id,
        AttemptResult::Wrong => {
            return Ok(authorization.form(StatusCode::UNAUTHORIZED, email, Some(WRONG)));
        }
        AttemptResult::TooMany(limit) => {
            let minutes = match limit.retry_after.div_ceil(60) {
                1 => "a minute".to_owned(),
                minutes => format!("{minutes} minutes"),
            };
            let text = format!("Too many attempts. Try again in {minutes}.");
            let page = authorization.form(StatusCode::TOO_MANY_REQUESTS, email, Some(&text));
            return Ok(pages::with_retry_after(page, limit.retry_after));
        }
        AttemptResult::Unchecked(error) => return Ok(password_check_failed(&error)),
    };
    let who = SignedIn { user_id, method: "password".to_owned(), grant_id: None };
    let mut response = authorization.complete_sign_in(issuer, &who).await?;
    if let Some(cookie) = attempt.trust_browser(user_id).await? {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    Ok(response)
}

fn password_check_failed(error: &PasswordError) -> Response {
    record_field(Field::Cause, error_chain(error));
    match error {
        PasswordError::Busy => pages::unavailable("Many people sign in just now", "", 10),
        PasswordError::Length | PasswordError::Failed(_) => {
            pages::internal_error("the password could not be checked")
        }
    }
}

/// `GET /login/code?code=…`: shows the code to paste.
pub(in crate::issuer) fn show_code(request: &Request) -> Response {
    let params = Parameters::from_query(request).unwrap_or_default();
    match params.required("code", MAX_SECRET_BYTES) {
        // Only text in the format of the broker's codes is shown, so that a link cannot put other
        // text into this page.
        Ok(code) if is_code(code) => {
            let page = Page::Code { code, minutes: PASTED_CODE_SECONDS / 60 };
            pages::render(StatusCode::OK, &page)
        }
        _ => {
            let page = Page::Problem {
                title: "Nobody was signed in",
                text: "The sign-in was refused. Begin again with kubectl tenant login.",
            };
            pages::render(StatusCode::BAD_REQUEST, &page)
        }
    }
}

fn is_code(text: &str) -> bool {
    text.strip_prefix(CODE_PREFIX).is_some_and(|rest| {
        rest.len() == 43
            && rest.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::secret::PlainSecret;

    #[test]
    fn only_a_code_is_shown_as_a_code() {
        let code = PlainSecret::generate(CODE_PREFIX).unwrap();
        assert!(is_code(code.expose()));
        assert!(!is_code("") && !is_code("tbc_short") && !is_code(&format!("{}!", code.expose())));
    }
}
