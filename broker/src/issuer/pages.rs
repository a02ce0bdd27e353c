//! The pages that people see: plain HTML without scripts, from templates that escape what they show.

use askama::Template;
use poem::{
    Response,
    http::{HeaderValue, StatusCode, header},
};
use tenant_shared::PLUGIN_CLIENT_ID;

use super::redirect::RedirectUri;
use crate::problem::{self, note};

/// What a page may load and do: our stylesheet, and a form where there is one. It cannot be framed
/// and runs nothing (Content Security Policy Level 3).
const POLICY: &str =
    "default-src 'none'; style-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action";

/// A page.
pub(super) enum Page<'a> {
    /// The form for e-mail address and password.
    SignIn {
        /// Handle of the authorization request.
        request: &'a str,
        /// Where the answer goes.
        redirect: &'a RedirectUri,
        /// What was typed before.
        email: &'a str,
        /// What is wrong with it.
        fault: Option<&'a str>,
    },
    /// A code to paste.
    Code {
        /// The code.
        code: &'a str,
        /// How long it works.
        minutes: u32,
    },
    /// Something went wrong.
    Problem {
        /// In a few words.
        title: &'a str,
        /// What to do about it.
        text: &'a str,
    },
}

#[derive(Template)]
#[template(path = "sign_in.html")]
struct SignInTemplate<'a> {
    application: &'a str,
    destination: String,
    request: &'a str,
    email: &'a str,
    fault: Option<&'a str>,
}

#[derive(Template)]
#[template(path = "code.html")]
struct CodeTemplate<'a> {
    code: &'a str,
    minutes: u32,
}

#[derive(Template)]
#[template(path = "problem.html")]
struct ProblemTemplate<'a> {
    title: &'a str,
    text: &'a str,
    request_id: Option<String>,
}

/// A page as an answer: neither kept, nor framed, nor named to the next site.
pub(super) fn show(status: StatusCode, page: &Page<'_>) -> Response {
    let (rendered, form_action) = match page {
        Page::SignIn { request, redirect, email, fault } => {
            let template = SignInTemplate {
                application: PLUGIN_CLIENT_ID,
                destination: destination(redirect),
                request,
                email,
                fault: *fault,
            };
            (template.render(), format!("'self' {}", redirect.form_action()))
        }
        Page::Code { code, minutes } => {
            (CodeTemplate { code, minutes: *minutes }.render(), "'none'".to_owned())
        }
        Page::Problem { title, text } => {
            let request_id = problem::request_id();
            (ProblemTemplate { title, text, request_id }.render(), "'none'".to_owned())
        }
    };
    let html = match rendered {
        Ok(html) => html,
        Err(error) => {
            note("cause", problem::chain(&error));
            return Response::builder().status(StatusCode::INTERNAL_SERVER_ERROR).finish();
        }
    };
    Response::builder()
        .status(status)
        .content_type("text/html; charset=utf-8")
        .header(header::CONTENT_SECURITY_POLICY, format!("{POLICY} {form_action}"))
        .header(header::X_CONTENT_TYPE_OPTIONS, "nosniff")
        .header(header::X_FRAME_OPTIONS, "DENY")
        .header(header::REFERRER_POLICY, "no-referrer")
        .header(header::CACHE_CONTROL, "no-store")
        .body(html)
}

fn destination(redirect: &RedirectUri) -> String {
    match redirect {
        RedirectUri::Loopback(_) => {
            format!("the program on this computer that opened this page ({redirect})")
        }
        RedirectUri::CodePage(_) => "a page with a code for your terminal".to_owned(),
    }
}

/// The page for a database that does not answer.
pub(super) fn storage(error: &sqlx::Error) -> Response {
    note("cause", problem::chain(error));
    try_again("The database does not answer", "Nobody was signed in.", 5)
}

/// 503 with the seconds after which to try again.
pub(super) fn try_again(title: &str, text: &str, seconds: u64) -> Response {
    let text = format!("{text} Try again in a moment.");
    let page = Page::Problem { title, text: &text };
    later(show(StatusCode::SERVICE_UNAVAILABLE, &page), seconds)
}

/// The answer with `Retry-After`.
pub(super) fn later(mut response: Response, seconds: u64) -> Response {
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    response
}

/// The page for a fault of ours. The cause goes to the log line.
pub(super) fn broken(cause: &str) -> Response {
    note("cause", cause);
    let text = "An operator finds the cause in the broker's log by the request number below.";
    show(StatusCode::INTERNAL_SERVER_ERROR, &Page::Problem { title: "The broker failed", text })
}

/// `GET /login/style.css`.
pub(super) fn stylesheet() -> Response {
    Response::builder()
        .content_type("text/css; charset=utf-8")
        .header(header::CACHE_CONTROL, "public, max-age=3600")
        .header(header::X_CONTENT_TYPE_OPTIONS, "nosniff")
        .body(include_str!("../../templates/style.css"))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn html(page: Page<'_>) -> (Response, String) {
        let mut response = show(StatusCode::OK, &page);
        let body = response.take_body().into_string().await.unwrap();
        (response, body)
    }

    #[tokio::test]
    async fn what_a_person_typed_is_shown_and_is_not_markup() {
        let redirect = RedirectUri::allowed("http://127.0.0.1:8000/callback", "x").unwrap();
        let (response, body) = html(Page::SignIn {
            request: "tbq_\"><script>",
            redirect: &redirect,
            email: "\"><img src=x onerror=alert(1)>@example.com",
            fault: Some("<b>"),
        })
        .await;
        assert!(!body.contains("<script>") && !body.contains("<img") && !body.contains("<b>"));
        assert!(body.contains("http://127.0.0.1:8000/callback"));
        let policy = response.headers()[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
        assert!(policy.ends_with("form-action 'self' http://127.0.0.1:8000"), "{policy}");
        assert!(!policy.contains("unsafe"));
    }

    #[tokio::test]
    async fn labels_and_autocompletion_are_for_everybody() {
        let redirect = RedirectUri::allowed("http://127.0.0.1:8000/callback", "x").unwrap();
        let page = Page::SignIn { request: "tbq_x", redirect: &redirect, email: "", fault: None };
        let (_, body) = html(page).await;
        for part in [
            "<html lang=\"en\">",
            "<label for=\"email\">",
            "<label for=\"password\">",
            "autocomplete=\"username\"",
            "autocomplete=\"current-password\"",
            "kubectl-tenant",
        ] {
            assert!(body.contains(part), "{part}");
        }
        assert!(!body.contains("role=\"alert\""));
    }
}
