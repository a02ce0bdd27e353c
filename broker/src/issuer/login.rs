//! `GET /login`, `POST /login`, `GET /login/code`: the person proves who they are.

use poem::{Request, Response, http::StatusCode};
use secrecy::SecretString;

use super::{
    Issuer,
    accept::{CODE_PREFIX, PASTED_CODE_SECONDS},
    attempt::Attempt,
    pages::{self, Page},
    parameters::Parameters,
    waiting::{Waiting, over},
};
use crate::identity::PASSWORD_MOST_BYTES;

/// Bytes of a code or of a handle at most, with room for what somebody pastes along.
const MOST_SECRET_BYTES: usize = 128;
/// Bytes of an e-mail address that the form takes.
const MOST_EMAIL_BYTES: usize = 254;

/// `GET /login?request=…`: the form.
pub(super) async fn form(issuer: Issuer, request: Request) -> Response {
    let handle = match Parameters::of_query(&request) {
        Ok(sent) => sent.required("request", MOST_SECRET_BYTES).map(ToOwned::to_owned),
        Err(fault) => Err(fault),
    };
    let Ok(handle) = handle else { return over() };
    match Waiting::find(&issuer, &request, &handle).await {
        Ok(Some(waiting)) => waiting.form(StatusCode::OK, "", None),
        Ok(None) => over(),
        Err(error) => pages::storage(&error),
    }
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
    let email = sent.required("email", MOST_EMAIL_BYTES);
    let password = sent.verbatim("password", PASSWORD_MOST_BYTES);
    let (Ok(email), Ok(Some(password))) = (&email, password) else {
        let text = "Type your e-mail address and your password.";
        let email = email.unwrap_or_default();
        return waiting.form(StatusCode::BAD_REQUEST, email, Some(text));
    };
    let password = SecretString::from(password.to_owned());
    let attempt = Attempt { issuer: &issuer, waiting: &waiting, email };
    attempt.judge(password).await.unwrap_or_else(|error| pages::storage(&error))
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
