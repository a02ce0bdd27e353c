//! Endpoints of the pages: authentication of the user, forms, and failures.

use poem::{Endpoint, Request, Response, endpoint::make, http::StatusCode};
use url::form_urlencoded;

use super::AccountPages;
use crate::{
    http::{
        ApiError,
        page::{self, see_other},
    },
    identity::{AuthenticationError, Caller},
};

/// Maximum size of a form in bytes: it has an identifier, or one or two names.
const MAX_FORM_BYTES: usize = 1024;

/// The fields of a form.
#[derive(Debug)]
pub(super) struct Form(Vec<(String, String)>);

impl Form {
    fn parse(body: &[u8]) -> Self {
        Self(form_urlencoded::parse(body).into_owned().collect())
    }

    /// The value of a field; empty if the form does not have it.
    pub(super) fn value(&self, name: &str) -> &str {
        let field = self.0.iter().find(|(field, _)| field == name);
        field.map(|(_, value)| value.as_str()).unwrap_or_default()
    }
}

/// Shows a page to a signed-in user; redirects everybody else to the sign-in page.
pub(super) fn authenticated_page<F, Fut>(
    account: &AccountPages,
    page: F,
) -> impl Endpoint<Output = Response> + 'static
where
    F: Fn(AccountPages, Caller) -> Fut + Send + Sync + Copy + 'static,
    Fut: Future<Output = Result<Response, ApiError>> + Send + 'static,
{
    let account = account.clone();
    make(move |request: Request| {
        let account = account.clone();
        async move {
            match account.identity.authenticate_page(request.headers()).await {
                Ok(caller) => page(account, caller).await.unwrap_or_else(|error| problem(&error)),
                Err(error) => sign_in_or_problem(error),
            }
        }
    })
}

/// Runs the action of a form for a signed-in user, after a check of the request's origin.
pub(super) fn authenticated_form<F, Fut>(
    account: &AccountPages,
    act: F,
) -> impl Endpoint<Output = Response> + 'static
where
    F: Fn(AccountPages, Caller, Form) -> Fut + Send + Sync + Copy + 'static,
    Fut: Future<Output = Result<Response, ApiError>> + Send + 'static,
{
    let account = account.clone();
    make(move |mut request: Request| {
        let account = account.clone();
        async move {
            let body = request.take_body().into_bytes_limit(MAX_FORM_BYTES).await;
            let body = body.unwrap_or_default();
            let (method, headers) = (request.method(), request.headers());
            let caller = match account.identity.origins().check(method, headers) {
                Ok(()) => account.identity.authenticate_page(headers).await,
                Err(foreign) => Err(foreign),
            };
            match caller {
                Ok(caller) => {
                    let done = act(account, caller, Form::parse(&body)).await;
                    done.unwrap_or_else(|error| problem(&error))
                }
                Err(error) => sign_in_or_problem(error),
            }
        }
    })
}

fn sign_in_or_problem(error: AuthenticationError) -> Response {
    match error {
        AuthenticationError::Unauthenticated => see_other("/login?return_to=/account"),
        error => problem(&error.into()),
    }
}

fn problem(error: &ApiError) -> Response {
    let body = error.problem();
    let status = StatusCode::from_u16(body.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    page::problem(status, &body.title, &body.detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_has_its_value_by_its_name() {
        let form = Form::parse(b"tenant=solar&namespace=solar-a%26b");
        assert_eq!((form.value("namespace"), form.value("tenant")), ("solar-a&b", "solar"));
        assert_eq!(form.value("tier"), "");
    }
}
