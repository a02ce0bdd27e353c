//! The pages that people see: plain HTML without scripts, from templates that escape what they show.

use askama::Template;
use poem::{
    Response,
    http::{HeaderValue, StatusCode, header},
};
use tenant_shared::PLUGIN_CLIENT_ID;
use url::Url;

use super::{Issuer, connector::Choice, redirect::RedirectUri, target::Target};
use crate::{
    page,
    problem::{self, note},
    rate_limit::TooMany,
};

/// The ways to sign in that a page offers.
pub(super) struct Offer {
    /// With e-mail address and password.
    pub(super) local: bool,
    /// At a provider.
    pub(super) providers: Vec<Choice>,
}

impl Offer {
    /// What is configured.
    pub(super) fn of(issuer: &Issuer) -> Self {
        let local = issuer.settings().local_accounts;
        Self { local, providers: issuer.connectors().choices() }
    }
}

/// A page.
pub(super) enum Page<'a> {
    /// The form for e-mail address and password.
    SignIn {
        /// Handle of the authorization request.
        request: &'a str,
        /// What waits for it.
        target: &'a Target,
        /// The ways to sign in.
        offer: &'a Offer,
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
    /// The form for the code of a device.
    Device {
        /// The code, if the link carried it.
        code: &'a str,
        /// What is wrong with it.
        fault: Option<&'a str>,
    },
    /// A device asks, and a person who signed in decides.
    ConfirmDevice {
        /// Handle of the sign-in.
        request: &'a str,
        /// The client on the device.
        client: &'a str,
        /// What it calls itself.
        user_agent: &'a str,
        /// Where it asked from.
        address: &'a str,
        /// How long ago, in minutes.
        minutes: i64,
    },
    /// Something is done.
    Done {
        /// In a few words.
        title: &'a str,
        /// What comes next.
        text: &'a str,
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
    purpose: String,
    from_terminal: bool,
    request: &'a str,
    offer: &'a Offer,
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

/// A page as an answer.
pub(super) fn show(status: StatusCode, page: &Page<'_>) -> Response {
    let (rendered, form_action) = match page {
        Page::SignIn { request, target, offer, email, fault } => {
            let template = SignInTemplate {
                purpose: purpose(target),
                from_terminal: !matches!(target, Target::Browser(_)),
                request,
                offer,
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

/// What the person agrees to by signing in.
fn purpose(target: &Target) -> String {
    match target {
        Target::Client(RedirectUri::Loopback(redirect)) => format!(
            "{PLUGIN_CLIENT_ID} asks to act for you. Afterwards you are sent to the program on \
             this computer that opened this page ({redirect})."
        ),
        Target::Client(RedirectUri::CodePage(_)) => format!(
            "{PLUGIN_CLIENT_ID} asks to act for you. Afterwards you are sent to a page with a \
             code for your terminal."
        ),
        Target::Device(_) => format!(
            "{PLUGIN_CLIENT_ID} on another device asks to act for you. Afterwards you are asked \
             whether it may."
        ),
        Target::Browser(place) if place.as_str().starts_with('/') => {
            "To see your workspace and your sessions.".to_owned()
        }
        Target::Browser(place) => format!("Afterwards you are sent to {}.", place.as_str()),
    }
}

/// Where else than to us the sign-in form may lead: browsers apply `form-action` to the redirect
/// after the form, too.
fn form_action(target: &Target) -> String {
    match target {
        Target::Client(redirect) => format!(" {}", redirect.form_action()),
        Target::Device(_) => String::new(),
        Target::Browser(place) => Url::parse(place.as_str())
            .map(|url| format!(" {}", url.origin().ascii_serialization()))
            .unwrap_or_default(),
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

/// The page for an unauthenticated request beyond the limits, 429.
pub(super) fn too_many(limit: TooMany) -> Response {
    let page = Page::Problem {
        title: "Too many requests",
        text: "Too many people or programs that are not signed in use this site from your address, \
               or from everywhere. Wait a few seconds and try again.",
    };
    later(show(StatusCode::TOO_MANY_REQUESTS, &page), limit.retry_after)
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

    fn offer() -> Offer {
        let choice = |name: &str, is_down| Choice {
            name: name.to_owned(),
            display_name: "<i>Company</i>".to_owned(),
            is_down,
        };
        Offer { local: true, providers: vec![choice("corp", false), choice("late", true)] }
    }

    #[tokio::test]
    async fn what_a_person_typed_is_shown_and_is_not_markup() {
        let redirect = RedirectUri::allowed("http://127.0.0.1:8000/callback", "x").unwrap();
        let target = Target::Client(redirect);
        let (response, body) = html(Page::SignIn {
            request: "tbq_\"><script>",
            target: &target,
            offer: &offer(),
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
    async fn labels_and_autocompletion_are_for_everybody() {
        let redirect = RedirectUri::allowed("http://127.0.0.1:8000/callback", "x").unwrap();
        let (target, offer) = (&Target::Client(redirect), &offer());
        let page = Page::SignIn { request: "tbq_x", target, offer, email: "", fault: None };
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
