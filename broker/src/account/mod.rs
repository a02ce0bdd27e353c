//! The account pages: a user's workspaces, kubeconfigs, commands, tenants, sessions and audit trail.
//!
//! Plain HTML with forms. A form is accepted only if its request has our own origin.

mod endpoint;
mod page;
mod tenant_forms;
mod tenants_section;

use poem::{
    Response, Route,
    endpoint::make,
    get,
    http::{StatusCode, header},
    post,
};
use tenant_shared::Code;
use uuid::Uuid;

use self::endpoint::{Form, authenticated_form, authenticated_page};
use crate::{
    access::{self, CreateWorkspace},
    audit::AuditTrail,
    http::{
        ApiError,
        page::{message, see_other},
    },
    identity::{Caller, Identity, SessionSelector},
    tenant_operations::TenantOperations,
    workspace::Workspaces,
};

/// The account pages. Clones share everything.
#[derive(Clone, Debug)]
pub struct AccountPages {
    /// Users and their sessions.
    pub identity: Identity,
    /// The workspace service.
    pub workspaces: Workspaces,
    /// The tenants; `None` without `tenants.enabled`, and then the pages have nothing about them.
    pub tenants: Option<TenantOperations>,
    pub trail: AuditTrail,
    /// Public URL of the broker, without a trailing slash.
    pub broker_url: String,
}

/// Adds the account pages to the root route.
pub fn routes(route: Route, account: &AccountPages) -> Route {
    route
        .at("/", get(make(|_| async { see_other("/account") })))
        .at("/account", get(authenticated_page(account, page::show)))
        .at("/account/workspace", post(authenticated_form(account, make_workspace)))
        .at("/account/join-tenant", post(authenticated_form(account, tenant_forms::join)))
        .at("/account/namespace", post(authenticated_form(account, tenant_forms::create_namespace)))
        .at("/account/end-session", post(authenticated_form(account, end_session)))
        .at("/account/sign-out", post(authenticated_form(account, sign_out)))
        .at("/account/sign-out-everywhere", post(authenticated_form(account, sign_out_everywhere)))
}

async fn make_workspace(
    account: AccountPages,
    caller: Caller,
    form: Form,
) -> Result<Response, ApiError> {
    let permit = access::authorize_all::<CreateWorkspace>(&caller)?;
    account.workspaces.init(&permit, form.value("tier")).await?;
    Ok(see_other("/account"))
}

async fn end_session(
    account: AccountPages,
    caller: Caller,
    form: Form,
) -> Result<Response, ApiError> {
    let id: Uuid = form.value("session").parse().map_err(|_| {
        ApiError::new(Code::InvalidRequest, "the form has no session identifier; reload the page")
    })?;
    // A session that ended already is no error.
    account.identity.end_own_sessions(&caller, SessionSelector::One(id)).await?;
    Ok(see_other("/account"))
}

async fn sign_out(account: AccountPages, caller: Caller, _: Form) -> Result<Response, ApiError> {
    let which = SessionSelector::One(caller.session_id());
    account.identity.end_own_sessions(&caller, which).await?;
    Ok(signed_out(&account))
}

async fn sign_out_everywhere(
    account: AccountPages,
    caller: Caller,
    _: Form,
) -> Result<Response, ApiError> {
    account.identity.end_own_sessions(&caller, SessionSelector::All).await?;
    Ok(signed_out(&account))
}

fn signed_out(account: &AccountPages) -> Response {
    let text = "Close this window, or open the account page to sign in again.";
    let mut response = message(StatusCode::OK, "You are signed out", text);
    if let Some(cookie) = account.identity.browser_sessions().cookie.clear() {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    response
}
