//! `GET /login/with/{name}?request=…`: the browser leaves for a provider.

use std::sync::Arc;

use poem::{Request, Response, http::StatusCode};

use super::{Connector, NoAnswer, binding::State, grant};
use crate::{
    issuer::{
        Issuer,
        login::MOST_SECRET_BYTES,
        pages::{self, Page},
        parameters::Parameters,
        waiting::{Waiting, over},
    },
    page::see_other,
    problem::note,
};

/// Sends the browser to the provider.
pub(in crate::issuer) async fn leave(issuer: Issuer, request: Request) -> Response {
    let Some(connector) = named(&issuer, &request) else { return unknown() };
    let handle = match Parameters::of_query(&request) {
        Ok(sent) => sent.required("request", MOST_SECRET_BYTES).map(ToOwned::to_owned),
        Err(fault) => Err(fault),
    };
    let Ok(handle) = handle else { return over() };
    match Waiting::find(&issuer, &request, &handle).await {
        Ok(Some(waiting)) => {
            let sent = send(&issuer, connector, &waiting, &handle).await;
            sent.unwrap_or_else(|error| pages::storage(&error))
        }
        Ok(None) => over(),
        Err(error) => pages::storage(&error),
    }
}

async fn send(
    issuer: &Issuer,
    connector: &Connector,
    waiting: &Waiting,
    handle: &str,
) -> sqlx::Result<Response> {
    let Ok(state) = State::generate(handle) else {
        return Ok(pages::broken("the operating system gave no randomness"));
    };
    let (sent, nonce) = (state.secret().expose().to_owned(), state.nonce(&waiting.proof));
    let url =
        connector.provider.authorization_url(sent, nonce, &state.verifier(&waiting.proof)).await;
    let url = match url {
        Ok(url) => url,
        Err(error) => return Ok(down(connector, waiting, &error)),
    };
    let seconds = i64::from(issuer.settings().authorization_seconds);
    let expires_at = issuer.clock().now_ms() + seconds * 1000;
    let mut tx = issuer.db().begin().await?;
    let hash = state.secret().hash();
    grant::add_attempt(&mut tx, hash, waiting.pending.id, &connector.name, expires_at).await?;
    tx.commit().await?;
    Ok(see_other(url.as_str()))
}

/// The provider that a request's path names.
pub(super) fn named<'a>(issuer: &'a Issuer, request: &Request) -> Option<&'a Arc<Connector>> {
    let name = request.raw_path_param("name")?;
    issuer.connectors().get(name)
}

/// The page for a provider that is not configured.
pub(super) fn unknown() -> Response {
    let page = Page::Problem {
        title: "There is no such provider",
        text: "Nobody was signed in. Begin again with kubectl tenant login.",
    };
    pages::show(StatusCode::NOT_FOUND, &page)
}

/// The sign-in page, which says that a provider does not answer.
pub(super) fn down(connector: &Connector, waiting: &Waiting, error: &NoAnswer) -> Response {
    note("cause", error.to_string());
    let text = format!(
        "{} does not answer just now. Try again in a moment, or sign in another way.",
        connector.settings.display_name
    );
    pages::later(waiting.form(StatusCode::SERVICE_UNAVAILABLE, "", Some(&text)), 10)
}
