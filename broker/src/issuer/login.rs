//! `GET /login`, `POST /login`, `GET /login/code`: the person proves who they are.

use poem::{
    Request, Response,
    http::{StatusCode, header},
};
use secrecy::SecretString;
use tenant_shared::BROWSER_CLIENT_ID;

use super::{
    Issuer,
    accept::{CODE_PREFIX, PASTED_CODE_SECONDS, SignedIn},
    attempt::{Attempt, Verdict, WRONG},
    pages::{self, Page},
    parameters::Parameters,
    target::{MOST_RETURN_BYTES, ReturnTo, Target},
    waiting::{self, Ask, Waiting, over},
};
use crate::{
    identity::{PASSWORD_MOST_BYTES, PasswordError},
    problem::{self, note},
};

/// Bytes of a code or of a handle at most, with room for what somebody pastes along.
pub(super) const MOST_SECRET_BYTES: usize = 128;
/// Bytes of an e-mail address that the form takes.
pub(super) const MOST_EMAIL_BYTES: usize = 254;

/// `GET /login?request=…`: the form. Without a request the browser itself is to be signed in, and
/// goes on to `return_to` afterwards.
pub(super) async fn form(issuer: Issuer, request: Request) -> Response {
    let Ok(sent) = Parameters::of_query(&request) else { return over() };
    if !sent.has("request") {
        let place = sent.optional("return_to", MOST_RETURN_BYTES).ok().flatten();
        return begin(&issuer, place).await.unwrap_or_else(|error| pages::storage(&error));
    }
    let Ok(handle) = sent.required("request", MOST_SECRET_BYTES) else { return over() };
    match Waiting::find(&issuer, &request, handle).await {
        Ok(Some(waiting)) => waiting.form(StatusCode::OK, "", None),
        Ok(None) => over(),
        Err(error) => pages::storage(&error),
    }
}

async fn begin(issuer: &Issuer, place: Option<&str>) -> sqlx::Result<Response> {
    let place = place.unwrap_or("/account");
    let Some(place) = ReturnTo::allowed(place, issuer.identity().origins()) else {
        let page = Page::Problem {
            title: "This link is not valid",
            text: "It leads to a place that does not belong to this broker. If a link brought you \
                   here, do not trust it.",
        };
        return Ok(pages::show(StatusCode::BAD_REQUEST, &page));
    };
    let ask = Ask {
        client_id: BROWSER_CLIENT_ID,
        target: &Target::Browser(place),
        scope: "openid email",
        state: None,
        nonce: None,
        code_challenge: "",
    };
    waiting::begin(issuer, &ask).await
}

/// `POST /login`: e-mail address and password.
pub(super) async fn submit(issuer: Issuer, mut request: Request) -> Response {
    let sent = match Parameters::of_body(&mut request).await {
        Ok(sent) => sent,
        Err(fault) => {
            let text =
                format!("Nobody was signed in: {fault}. Begin again with kubectl tenant login.");
            let page = Page::Problem { title: "This form cannot be read", text: &text };
            return pages::show(fault.status(), &page);
        }
    };
    let Ok(handle) = sent.required("request", MOST_SECRET_BYTES) else { return over() };
    let waiting = match Waiting::find(&issuer, &request, handle).await {
        Ok(Some(waiting)) => waiting,
        Ok(None) => return over(),
        Err(error) => return pages::storage(&error),
    };
    if !issuer.settings().local_accounts {
        let text = "Passwords are not used here. Sign in with one of these.";
        return waiting.form(StatusCode::FORBIDDEN, "", Some(text));
    }
    let email = sent.required("email", MOST_EMAIL_BYTES);
    let password = sent.verbatim("password", PASSWORD_MOST_BYTES);
    let (Ok(email), Ok(Some(password))) = (&email, password) else {
        let text = "Type your e-mail address and your password.";
        let email = email.unwrap_or_default();
        return waiting.form(StatusCode::BAD_REQUEST, email, Some(text));
    };
    let password = SecretString::from(password.to_owned());
    judge(&issuer, &request, &waiting, email, password)
        .await
        .unwrap_or_else(|error| pages::storage(&error))
}

async fn judge(
    issuer: &Issuer,
    request: &Request,
    waiting: &Waiting,
    email: &str,
    password: SecretString,
) -> sqlx::Result<Response> {
    let attempt = Attempt::new(issuer, request, email).await?;
    let user_id = match attempt.judge(password).await? {
        Verdict::Accepted(user_id) => user_id,
        Verdict::Wrong => return Ok(waiting.form(StatusCode::UNAUTHORIZED, email, Some(WRONG))),
        Verdict::TooMany(limit) => {
            let minutes = match limit.retry_after.div_ceil(60) {
                1 => "a minute".to_owned(),
                minutes => format!("{minutes} minutes"),
            };
            let text = format!("Too many attempts. Try again in {minutes}.");
            let page = waiting.form(StatusCode::TOO_MANY_REQUESTS, email, Some(&text));
            return Ok(pages::later(page, limit.retry_after));
        }
        Verdict::Unchecked(error) => return Ok(unchecked(&error)),
    };
    let who = SignedIn { user_id, how: "password".to_owned(), grant_id: None };
    let mut response = waiting.accept(issuer, &who).await?;
    if let Some(cookie) = attempt.remember(user_id).await? {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    Ok(response)
}

fn unchecked(error: &PasswordError) -> Response {
    note("cause", problem::chain(error));
    match error {
        PasswordError::Busy => pages::try_again("Many people sign in just now", "", 10),
        PasswordError::Length | PasswordError::Failed(_) => {
            pages::broken("the password could not be checked")
        }
    }
}

/// `GET /login/code?code=…`: shows the code to paste.
pub(super) fn show_code(request: &Request) -> Response {
    let sent = Parameters::of_query(request).unwrap_or_default();
    match sent.required("code", MOST_SECRET_BYTES) {
        // Only what looks like a code of ours is shown, so that nobody writes texts of their own
        // into this page.
        Ok(code) if is_code(code) => {
            let page = Page::Code { code, minutes: PASTED_CODE_SECONDS / 60 };
            pages::show(StatusCode::OK, &page)
        }
        _ => {
            let page = Page::Problem {
                title: "Nobody was signed in",
                text: "The sign-in was refused. Begin again with kubectl tenant login.",
            };
            pages::show(StatusCode::BAD_REQUEST, &page)
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
    use crate::secret::PlainSecret;

    #[test]
    fn only_a_code_is_shown_as_a_code() {
        let code = PlainSecret::generate(CODE_PREFIX).unwrap();
        assert!(is_code(code.expose()));
        assert!(!is_code("") && !is_code("tbc_short") && !is_code(&format!("{}!", code.expose())));
    }
}
