//! The account pages: a user's workspace, kubeconfig, commands, sessions and audit trail.
//!
//! Plain HTML with forms. A form is accepted only if its request has our own origin.

use askama::Template;
use poem::{
    Endpoint, Request, Response, Route,
    endpoint::make,
    get,
    http::{StatusCode, header},
    post,
};
use tenant_shared::{AuditEntry, Code, Role, SessionInfo, Workspace, WorkspaceStatus};
use url::form_urlencoded;
use uuid::Uuid;

use crate::{
    access,
    audit::{self, Filter},
    base::db::Db,
    http::{
        ApiError,
        page::{self, see_other},
    },
    identity::{Caller, Identity, SessionSelector},
    workspace::{WorkspaceRow, Workspaces},
};

/// Maximum number of sessions on the page.
const MAX_SESSIONS: u32 = 50;
/// Maximum number of audit entries on the page.
const MAX_ENTRIES: u32 = 10;
/// Maximum size of a form in bytes: it has an identifier or the name of a tier.
const MAX_FORM_BYTES: usize = 1024;

/// The account pages. Clones share everything.
#[derive(Clone, Debug)]
pub struct AccountPages {
    /// Users and their sessions.
    pub identity: Identity,
    /// The workspace service.
    pub workspaces: Workspaces,
    /// The database, for the audit trail.
    pub db: Db,
    /// Public URL of the broker, without a trailing slash.
    pub broker_url: String,
}

#[derive(Template)]
#[template(path = "account.html")]
struct AccountTemplate<'a> {
    email: &'a str,
    is_admin: bool,
    workspace: Option<Workspace>,
    is_usable: bool,
    tiers: Vec<&'a str>,
    broker_url: &'a str,
    sessions: Vec<SessionInfo>,
    more_sessions: bool,
    entries: Vec<AuditEntry>,
}

/// Adds the account pages to the root route.
pub fn routes(route: Route, account: &AccountPages) -> Route {
    route
        .at("/", get(make(|_| async { see_other("/account") })))
        .at("/account", get(authenticated_page(account, show)))
        .at("/account/workspace", post(authenticated_form(account, make_workspace)))
        .at("/account/end-session", post(authenticated_form(account, end_session)))
        .at("/account/sign-out", post(authenticated_form(account, sign_out)))
        .at("/account/sign-out-everywhere", post(authenticated_form(account, sign_out_everywhere)))
}

/// Shows a page to a signed-in user; redirects everybody else to the sign-in page.
fn authenticated_page<F, Fut>(
    account: &AccountPages,
    page: F,
) -> impl Endpoint<Output = Response> + 'static
where
    F: Fn(AccountPages, Caller) -> Fut + Send + Sync + Copy + 'static,
    Fut: Future<Output = Result<Response, ApiError>> + Send + 'static,
{
    let account = account.clone();
    make(move |request| {
        let account = account.clone();
        async move {
            match account.identity.authenticate_page(&request).await {
                Ok(caller) => page(account, caller).await.unwrap_or_else(|error| problem(&error)),
                Err(error) => sign_in_or_problem(&error),
            }
        }
    })
}

/// Runs the action of a form for a signed-in user, after a check of the request's origin.
fn authenticated_form<F, Fut>(
    account: &AccountPages,
    act: F,
) -> impl Endpoint<Output = Response> + 'static
where
    F: Fn(AccountPages, Caller, String) -> Fut + Send + Sync + Copy + 'static,
    Fut: Future<Output = Result<Response, ApiError>> + Send + 'static,
{
    let account = account.clone();
    make(move |mut request: Request| {
        let account = account.clone();
        async move {
            let body = request.take_body().into_bytes_limit(MAX_FORM_BYTES).await;
            let body = body.unwrap_or_default();
            let caller = match account.identity.origins().check(request.method(), request.headers())
            {
                Ok(()) => account.identity.authenticate_page(&request).await,
                Err(foreign) => return problem(&foreign),
            };
            match caller {
                Ok(caller) => {
                    // Every form of these pages has one field.
                    let value = form_urlencoded::parse(&body).next();
                    let value = value.map(|(_, value)| value.into_owned()).unwrap_or_default();
                    let done = act(account, caller, value).await;
                    done.unwrap_or_else(|error| problem(&error))
                }
                Err(error) => sign_in_or_problem(&error),
            }
        }
    })
}

fn sign_in_or_problem(error: &ApiError) -> Response {
    if error.code() == Code::Unauthenticated {
        see_other("/login?return_to=/account")
    } else {
        problem(error)
    }
}

fn problem(error: &ApiError) -> Response {
    let body = error.problem();
    let status = StatusCode::from_u16(body.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    page::problem(status, &body.title, &body.detail)
}

async fn show(account: AccountPages, caller: Caller) -> Result<Response, ApiError> {
    let workspaces = account.workspaces.for_user(caller.user_id()).await?;
    let workspace = workspaces.first().map(WorkspaceRow::to_api);
    let is_usable = workspace.as_ref().is_some_and(|w| w.status == WorkspaceStatus::Provisioned);
    let sessions =
        account.identity.sessions_of(&caller, caller.user_id(), None, MAX_SESSIONS).await?;
    let filter = Filter { user_id: Some(caller.user_id()), ..Filter::default() };
    let rows = audit::read(&account.db, &filter, MAX_ENTRIES).await?;
    let template = AccountTemplate {
        email: caller.email(),
        is_admin: caller.role() == Role::Admin,
        workspace,
        is_usable,
        tiers: account.workspaces.tiers(),
        broker_url: &account.broker_url,
        sessions: sessions.items,
        more_sessions: sessions.next_cursor.is_some(),
        entries: rows.into_iter().map(audit::Row::into_api).collect(),
    };
    Ok(page::html(StatusCode::OK, template.render(), "'self'"))
}

async fn make_workspace(
    account: AccountPages,
    caller: Caller,
    tier: String,
) -> Result<Response, ApiError> {
    let permit = access::create_workspace(&caller);
    account.workspaces.init(&permit, &tier).await?;
    Ok(see_other("/account"))
}

async fn end_session(
    account: AccountPages,
    caller: Caller,
    id: String,
) -> Result<Response, ApiError> {
    let id: Uuid = id.parse().map_err(|_| {
        ApiError::new(Code::InvalidRequest, "the form has no session identifier; reload the page")
    })?;
    // A session that ended already is no error.
    account.identity.end_sessions(&caller, caller.user_id(), SessionSelector::One(id)).await?;
    Ok(see_other("/account"))
}

async fn sign_out(account: AccountPages, caller: Caller, _: String) -> Result<Response, ApiError> {
    let which = SessionSelector::One(caller.session_id());
    account.identity.end_sessions(&caller, caller.user_id(), which).await?;
    Ok(signed_out(&account))
}

async fn sign_out_everywhere(
    account: AccountPages,
    caller: Caller,
    _: String,
) -> Result<Response, ApiError> {
    account.identity.end_sessions(&caller, caller.user_id(), SessionSelector::All).await?;
    Ok(signed_out(&account))
}

fn signed_out(account: &AccountPages) -> Response {
    let text = "Close this window, or open the account page to sign in again.";
    let mut response = page::message(StatusCode::OK, "You are signed out", text);
    if let Some(cookie) = account.identity.browser_sessions().cookie.clear() {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    response
}
