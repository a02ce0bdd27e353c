//! What every page of the broker has in common: plain HTML without scripts, from templates that
//! escape what they show.

use askama::Template;
use poem::{
    Response,
    http::{StatusCode, header},
};

use crate::problem::{self, note};

/// What a page may load and do: our stylesheet, and forms where there are any. It cannot be framed
/// and runs nothing (Content Security Policy Level 3).
const POLICY: &str =
    "default-src 'none'; style-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action";

/// A page as an answer: neither kept, nor framed, nor named to another site. Its forms may lead to
/// `form_action` (a source list of CSP) and nowhere else.
pub fn html(status: StatusCode, rendered: askama::Result<String>, form_action: &str) -> Response {
    match rendered {
        Ok(html) => Response::builder()
            .status(status)
            .content_type("text/html; charset=utf-8")
            .header(header::CONTENT_SECURITY_POLICY, format!("{POLICY} {form_action}"))
            .header(header::X_CONTENT_TYPE_OPTIONS, "nosniff")
            .header(header::X_FRAME_OPTIONS, "DENY")
            // Not `no-referrer`: with that, browsers send `Origin: null` with our own forms (Fetch
            // Standard, "append a request `Origin` header").
            .header(header::REFERRER_POLICY, "same-origin")
            .header(header::CACHE_CONTROL, "no-store")
            .body(html),
        Err(error) => {
            note("cause", problem::chain(&error));
            Response::builder().status(StatusCode::INTERNAL_SERVER_ERROR).finish()
        }
    }
}

#[derive(Template)]
#[template(path = "problem.html")]
struct Message<'a> {
    title: &'a str,
    text: &'a str,
    request_id: Option<String>,
}

/// A page that says one thing: in a few words, and what to do about it.
pub fn message(status: StatusCode, title: &str, text: &str) -> Response {
    html(status, Message { title, text, request_id: None }.render(), "'none'")
}

/// A page for what went wrong, with the number by which an operator finds it in the log.
pub fn problem(status: StatusCode, title: &str, text: &str) -> Response {
    let request_id = problem::request_id();
    html(status, Message { title, text, request_id }.render(), "'none'")
}

/// Sends the browser to another page. 303, so that what was posted is not posted again
/// (RFC 9700 section 4.12); neither kept nor named to it.
pub fn see_other(location: &str) -> Response {
    Response::builder()
        .status(StatusCode::SEE_OTHER)
        .header(header::LOCATION, location)
        .header(header::CACHE_CONTROL, "no-store")
        .header(header::REFERRER_POLICY, "no-referrer")
        .finish()
}
