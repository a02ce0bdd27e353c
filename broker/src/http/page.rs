//! HTML pages of the broker: responses with security headers, rendered without scripts from
//! templates that escape their values.

use askama::Template;
use poem::{
    Response,
    http::{StatusCode, header},
};

use crate::base::{
    error_chain,
    request_context::{self, Field, record_field},
};

/// The `Content-Security-Policy` of pages (CSP Level 3): the broker's own stylesheet and no
/// scripts; no page can be framed. [`html`] appends the targets of forms.
const POLICY: &str =
    "default-src 'none'; style-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action";

/// A page as a response: not cached, not framed, and not sent as a referrer to other sites. Its
/// forms may submit to `form_action` (a source list of CSP) only.
pub(crate) fn html(
    status: StatusCode,
    rendered: askama::Result<String>,
    form_action: &str,
) -> Response {
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
            record_field(Field::Cause, error_chain(&error));
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

/// A page with a title and a text that says what to do.
pub(crate) fn message(status: StatusCode, title: &str, text: &str) -> Response {
    html(status, Message { title, text, request_id: None }.render(), "'none'")
}

/// An error page, with the request id by which an operator finds the cause in the log.
pub(crate) fn problem(status: StatusCode, title: &str, text: &str) -> Response {
    let request_id = request_context::request_id();
    html(status, Message { title, text, request_id }.render(), "'none'")
}

/// Redirects the browser to another page. The status is 303, so that a form is not posted again
/// (RFC 9700 section 4.12). The redirect is not cached and sends no referrer.
pub(crate) fn see_other(location: &str) -> Response {
    Response::builder()
        .status(StatusCode::SEE_OTHER)
        .header(header::LOCATION, location)
        .header(header::CACHE_CONTROL, "no-store")
        .header(header::REFERRER_POLICY, "no-referrer")
        .finish()
}
