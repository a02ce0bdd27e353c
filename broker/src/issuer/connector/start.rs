//! `GET /login/with/{name}?request=…`: redirects the browser to a provider.

use std::sync::Arc;

use poem::{Request, Response, http::StatusCode};

use super::{Connector, ProviderError, binding::State, grant};
use crate::{
    base::request_context::{Field, record_field},
    http::page::see_other,
    issuer::{
        Issuer,
        authorization::pending_authorization::{PendingAuthorization, expired_page},
        pages::{self, Page},
        parameters::{MAX_SECRET_BYTES, Parameters},
    },
};

/// Redirects the browser to the provider.
pub(in crate::issuer) async fn redirect_to_provider(issuer: Issuer, request: Request) -> Response {
    let Some(connector) = find_connector(&issuer, &request) else { return unknown_provider() };
    let handle = match Parameters::from_query(&request) {
        Ok(sent) => sent.required("request", MAX_SECRET_BYTES).map(ToOwned::to_owned),
        Err(fault) => Err(fault),
    };
    let Ok(handle) = handle else { return expired_page() };
    match PendingAuthorization::find(&issuer, &request, &handle).await {
        Ok(Some(authorization)) => {
            let response = redirect(&issuer, connector, &authorization, &handle).await;
            response.unwrap_or_else(|error| pages::database_unavailable(&error))
        }
        Ok(None) => expired_page(),
        Err(error) => pages::database_unavailable(&error),
    }
}

async fn redirect(
    issuer: &Issuer,
    connector: &Connector,
    authorization: &PendingAuthorization,
    handle: &str,
) -> sqlx::Result<Response> {
    let Ok(state) = State::generate(handle) else {
        return Ok(pages::internal_error("the operating system gave no randomness"));
    };
    let (sent, nonce) = (state.secret().expose().to_owned(), state.nonce(&authorization.proof));
    let url = connector
        .provider
        .authorization_url(sent, nonce, &state.verifier(&authorization.proof))
        .await;
    let url = match url {
        Ok(url) => url,
        Err(error) => return Ok(provider_unavailable(connector, authorization, &error)),
    };
    let seconds = i64::from(issuer.settings().authorization_seconds);
    let expires_at = issuer.clock().now_ms() + seconds * 1000;
    let mut tx = issuer.db().begin().await?;
    let hash = state.secret().hash();
    grant::insert_attempt(&mut tx, hash, authorization.row.id, &connector.name, expires_at).await?;
    tx.commit().await?;
    Ok(see_other(url.as_str()))
}

/// The provider that the path of a request names.
pub(super) fn find_connector<'a>(
    issuer: &'a Issuer,
    request: &Request,
) -> Option<&'a Arc<Connector>> {
    let name = request.raw_path_param("name")?;
    issuer.connectors().get(name)
}

/// The page for a provider that is not configured.
pub(super) fn unknown_provider() -> Response {
    let page = Page::Problem {
        title: "There is no such provider",
        text: "Nobody was signed in. Begin again with kubectl tenant login.",
    };
    pages::render(StatusCode::NOT_FOUND, &page)
}

/// The sign-in page, with the message that a provider does not answer.
pub(super) fn provider_unavailable(
    connector: &Connector,
    authorization: &PendingAuthorization,
    error: &ProviderError,
) -> Response {
    record_field(Field::Cause, error.to_string());
    let text = format!(
        "{} does not answer just now. Try again in a moment, or sign in another way.",
        connector.settings.display_name
    );
    pages::with_retry_after(
        authorization.form(StatusCode::SERVICE_UNAVAILABLE, "", Some(&text)),
        10,
    )
}
