//! HTML pages of the issuer: plain HTML without scripts, from templates that escape their values.

use askama::Template;
use poem::{
    Response,
    http::{HeaderValue, StatusCode, header},
};
use tenant_shared::PLUGIN_CLIENT_ID;
use url::Url;

use super::{
    Issuer,
    redirect::{RedirectUri, ReturnTarget},
};
use crate::{
    base::{
        error_chain,
        rate_limit::RateLimited,
        request_context::{Field, record_field},
    },
    http::page,
};

/// A provider as the sign-in page offers it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProviderChoice {
    /// Name in URLs.
    pub(super) name: String,
    /// Name that people see.
    pub(super) display_name: String,
    /// Whether the provider failed to answer recently.
    pub(super) is_unavailable: bool,
}

/// The sign-in options that a page offers.
pub(super) struct SignInOptions {
    /// Whether people may sign in with e-mail address and password.
    pub(super) local: bool,
    /// The upstream providers.
    pub(super) providers: Vec<ProviderChoice>,
}

impl SignInOptions {
    /// The configured options.
    pub(super) fn from_settings(issuer: &Issuer) -> Self {
        let local = issuer.settings().local_accounts;
        Self { local, providers: issuer.connectors().choices() }
    }
}

/// The contents of a page.
pub(super) enum Page<'a> {
    /// The form for e-mail address and password.
    SignIn {
        /// Handle of the authorization request.
        request: &'a str,
        /// Where the sign-in leads.
        target: &'a ReturnTarget,
        /// The sign-in options.
        options: &'a SignInOptions,
        /// The e-mail address that was typed before.
        email: &'a str,
        /// Error message.
        fault: Option<&'a str>,
    },
    /// A code to paste into a terminal.
    Code {
        /// The authorization code.
        code: &'a str,
        /// Lifetime of the code.
        minutes: u32,
    },
    /// The form for the user code of a device.
    Device {
        /// The user code, if the link contained it.
        code: &'a str,
        /// Error message.
        fault: Option<&'a str>,
    },
    /// The form on which a signed-in user allows or denies a device.
    ConfirmDevice {
        /// Handle of the authorization request.
        request: &'a str,
        /// Identifier of the client on the device.
        client: &'a str,
        /// `User-Agent` of the device's request.
        user_agent: &'a str,
        /// Address of the device.
        address: &'a str,
        /// Age of the device's request, in minutes.
        minutes: i64,
    },
    /// A message of success.
    Done {
        /// Heading.
        title: &'a str,
        /// Next step for the person.
        text: &'a str,
    },
    /// A message of failure.
    Problem {
        /// Heading.
        title: &'a str,
        /// Remedy for the person.
        text: &'a str,
    },
}

#[derive(Template)]
#[template(path = "sign_in.html")]
struct SignInTemplate<'a> {
    purpose: String,
    from_terminal: bool,
    request: &'a str,
    options: &'a SignInOptions,
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
#[template(path = "device.html")]
struct DeviceTemplate<'a> {
    code: &'a str,
    fault: Option<&'a str>,
}

#[derive(Template)]
#[template(path = "confirm_device.html")]
struct ConfirmDeviceTemplate<'a> {
    request: &'a str,
    client: &'a str,
    user_agent: &'a str,
    address: &'a str,
    minutes: i64,
}

/// Renders a page as a response.
pub(super) fn render(status: StatusCode, page: &Page<'_>) -> Response {
    let (rendered, form_action) = match page {
        Page::SignIn { request, target, options, email, fault } => {
            let template = SignInTemplate {
                purpose: purpose(target),
                from_terminal: !matches!(target, ReturnTarget::Browser(_)),
                request,
                options,
                email,
                fault: *fault,
            };
            (template.render(), format!("'self'{}", form_action(target)))
        }
        Page::Code { code, minutes } => {
            (CodeTemplate { code, minutes: *minutes }.render(), "'none'".to_owned())
        }
        Page::Device { code, fault } => {
            (DeviceTemplate { code, fault: *fault }.render(), "'self'".to_owned())
        }
        Page::ConfirmDevice { request, client, user_agent, address, minutes } => {
            let template =
                ConfirmDeviceTemplate { request, client, user_agent, address, minutes: *minutes };
            (template.render(), "'self'".to_owned())
        }
        Page::Done { title, text } => return page::message(status, title, text),
        Page::Problem { title, text } => return page::problem(status, title, text),
    };
    page::html(status, rendered, &form_action)
}

/// Text that says what the person agrees to by signing in.
fn purpose(target: &ReturnTarget) -> String {
    match target {
        ReturnTarget::Client(RedirectUri::Loopback(redirect)) => format!(
            "{PLUGIN_CLIENT_ID} asks to act for you. Afterwards you are sent to the program on \
             this computer that opened this page ({redirect})."
        ),
        ReturnTarget::Client(RedirectUri::CodePage(_)) => format!(
            "{PLUGIN_CLIENT_ID} asks to act for you. Afterwards you are sent to a page with a \
             code for your terminal."
        ),
        ReturnTarget::Device(_) => format!(
            "{PLUGIN_CLIENT_ID} on another device asks to act for you. Afterwards you are asked \
             whether it may."
        ),
        ReturnTarget::Browser(place) if place.as_str().starts_with('/') => {
            "To see your workspace and your sessions.".to_owned()
        }
        ReturnTarget::Browser(place) => format!("Afterwards you are sent to {}.", place.as_str()),
    }
}

/// Further sources of the CSP directive `form-action`, because browsers apply the directive to the
/// redirect after the form, too.
fn form_action(target: &ReturnTarget) -> String {
    match target {
        ReturnTarget::Client(redirect) => format!(" {}", redirect.form_action()),
        ReturnTarget::Device(_) => String::new(),
        ReturnTarget::Browser(place) => Url::parse(place.as_str())
            .map(|url| format!(" {}", url.origin().ascii_serialization()))
            .unwrap_or_default(),
    }
}

/// 503: the database does not answer.
pub(super) fn database_unavailable(error: &sqlx::Error) -> Response {
    record_field(Field::Cause, error_chain(error));
    unavailable("The database does not answer", "Nobody was signed in.", 5)
}

/// 503 with `Retry-After` in seconds.
pub(super) fn unavailable(title: &str, text: &str, seconds: u64) -> Response {
    let text = format!("{text} Try again in a moment.");
    let page = Page::Problem { title, text: &text };
    with_retry_after(render(StatusCode::SERVICE_UNAVAILABLE, &page), seconds)
}

/// 429: an unauthenticated request exceeds the rate limits.
pub(super) fn too_many(limit: RateLimited) -> Response {
    let page = Page::Problem {
        title: "Too many requests",
        text: "Too many people or programs that are not signed in use this site from your address, \
               or from everywhere. Wait a few seconds and try again.",
    };
    with_retry_after(render(StatusCode::TOO_MANY_REQUESTS, &page), limit.retry_after)
}

/// Adds `Retry-After`, in seconds, to a response.
pub(super) fn with_retry_after(mut response: Response, seconds: u64) -> Response {
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    response
}

/// 500: the broker failed. The cause is added to the request's log line.
pub(super) fn internal_error(cause: &str) -> Response {
    record_field(Field::Cause, cause);
    let text = "An operator finds the cause in the broker's log by the request number below.";
    render(StatusCode::INTERNAL_SERVER_ERROR, &Page::Problem { title: "The broker failed", text })
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
        let mut response = render(StatusCode::OK, &page);
        let body = response.take_body().into_string().await.unwrap();
        (response, body)
    }

    fn options() -> SignInOptions {
        let choice = |name: &str, is_unavailable| ProviderChoice {
            name: name.to_owned(),
            display_name: "<i>Company</i>".to_owned(),
            is_unavailable,
        };
        SignInOptions { local: true, providers: vec![choice("corp", false), choice("late", true)] }
    }

    #[tokio::test]
    async fn typed_text_is_shown_and_escaped() {
        let redirect = RedirectUri::allowed("http://127.0.0.1:8000/callback", "x").unwrap();
        let target = ReturnTarget::Client(redirect);
        let (response, body) = html(Page::SignIn {
            request: "tbq_\"><script>",
            target: &target,
            options: &options(),
            email: "\"><img src=x onerror=alert(1)>@example.com",
            fault: Some("<b>"),
        })
        .await;
        assert!(!body.contains("<script>") && !body.contains("<img") && !body.contains("<b>"));
        assert!(!body.contains("<i>") && body.contains("/login/with/corp?request=tbq_"));
        assert_eq!(body.matches("does not answer").count(), 1);
        assert!(body.contains("http://127.0.0.1:8000/callback"));
        let policy = response.headers()[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
        assert!(policy.ends_with("form-action 'self' http://127.0.0.1:8000"), "{policy}");
        assert!(!policy.contains("unsafe"));
    }

    #[tokio::test]
    async fn the_form_has_labels_and_autocompletion() {
        let redirect = RedirectUri::allowed("http://127.0.0.1:8000/callback", "x").unwrap();
        let (target, options) = (&ReturnTarget::Client(redirect), &options());
        let page = Page::SignIn { request: "tbq_x", target, options, email: "", fault: None };
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
