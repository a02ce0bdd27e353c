//! The account page: my workspace, my kubeconfig, the commands, my sessions, what happened.
//!
//! Plain HTML and forms. A form counts only if one of our own pages sent it.

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
    db::Db,
    identity::{Caller, Identity, Which},
    page::{self, see_other},
    problem::Failure,
    workspace::{Found, Workspaces},
};

/// Sessions on the page.
const MOST_SESSIONS: u32 = 50;
/// Entries of the audit trail on the page.
const MOST_ENTRIES: u32 = 10;
/// Bytes of a form at most: an identifier or the name of a tier.
const MOST_FORM_BYTES: usize = 1024;

/// The account page. Clones share everything.
#[derive(Clone, Debug)]
pub struct Account {
    /// Who is there, and their sessions.
    pub identity: Identity,
    /// Their workspaces.
    pub workspaces: Workspaces,
    /// Where the audit trail is.
    pub db: Db,
    /// Where people reach the broker, without a slash at its end.
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

/// Its pages, to be put at the root.
pub fn routes(route: Route, account: &Account) -> Route {
    route
        .at("/", get(make(|_| async { see_other("/account") })))
        .at("/account", get(on_page(account, show)))
        .at("/account/workspace", post(on_form(account, make_workspace)))
        .at("/account/end-session", post(on_form(account, end_session)))
        .at("/account/sign-out", post(on_form(account, sign_out)))
        .at("/account/sign-out-everywhere", post(on_form(account, sign_out_everywhere)))
}

/// Shows a page to somebody signed in; sends everybody else to sign in first.
fn on_page<F, Fut>(account: &Account, page: F) -> impl Endpoint<Output = Response> + 'static
where
    F: Fn(Account, Caller) -> Fut + Send + Sync + Copy + 'static,
    Fut: Future<Output = Result<Response, Failure>> + Send + 'static,
{
    let account = account.clone();
    make(move |request| {
        let account = account.clone();
        async move {
            match account.identity.page_visitor(&request).await {
                Ok(caller) => page(account, caller).await.unwrap_or_else(|error| problem(&error)),
                Err(error) => sign_in_or(&error),
            }
        }
    })
}

/// Does what a form of ours asks, for somebody signed in, and shows the page again.
fn on_form<F, Fut>(account: &Account, act: F) -> impl Endpoint<Output = Response> + 'static
where
    F: Fn(Account, Caller, String) -> Fut + Send + Sync + Copy + 'static,
    Fut: Future<Output = Result<Response, Failure>> + Send + 'static,
{
    let account = account.clone();
    make(move |mut request: Request| {
        let account = account.clone();
        async move {
            let body = request.take_body().into_bytes_limit(MOST_FORM_BYTES).await;
            let body = body.unwrap_or_default();
            let caller = match account.identity.origins().check(request.method(), request.headers())
            {
                Ok(()) => account.identity.page_visitor(&request).await,
                Err(foreign) => return problem(&foreign),
            };
            match caller {
                Ok(caller) => {
                    // Every form here has one field.
                    let value = form_urlencoded::parse(&body).next();
                    let value = value.map(|(_, value)| value.into_owned()).unwrap_or_default();
                    let done = act(account, caller, value).await;
                    done.unwrap_or_else(|error| problem(&error))
                }
                Err(error) => sign_in_or(&error),
            }
        }
    })
}

fn sign_in_or(error: &Failure) -> Response {
    if error.code() == Code::Unauthenticated {
        see_other("/login?return_to=/account")
    } else {
        problem(error)
    }
}

fn problem(error: &Failure) -> Response {
    let wire = error.problem();
    let status = StatusCode::from_u16(wire.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    page::problem(status, &wire.title, &wire.detail)
}

async fn show(account: Account, caller: Caller) -> Result<Response, Failure> {
    let found = account.workspaces.of_user(caller.user_id()).await?;
    let workspace = found.first().map(Found::wire);
    let is_usable = workspace.as_ref().is_some_and(|w| w.status == WorkspaceStatus::Provisioned);
    let sessions =
        account.identity.sessions_of(&caller, caller.user_id(), None, MOST_SESSIONS).await?;
    let filter = Filter { user_id: Some(caller.user_id()), ..Filter::default() };
    let rows = audit::read(&account.db, &filter, MOST_ENTRIES).await?;
    let template = AccountTemplate {
        email: caller.email(),
        is_admin: caller.role() == Role::Admin,
        workspace,
        is_usable,
        tiers: account.workspaces.tiers(),
        broker_url: &account.broker_url,
        sessions: sessions.items,
        more_sessions: sessions.next_cursor.is_some(),
        entries: rows.into_iter().map(audit::Row::wire).collect(),
    };
    Ok(page::html(StatusCode::OK, template.render(), "'self'"))
}

async fn make_workspace(
    account: Account,
    caller: Caller,
    tier: String,
) -> Result<Response, Failure> {
    let permit = access::create_workspace(&caller);
    account.workspaces.init(&permit, &tier).await?;
    Ok(see_other("/account"))
}

async fn end_session(account: Account, caller: Caller, id: String) -> Result<Response, Failure> {
    let id: Uuid = id.parse().map_err(|_| {
        Failure::new(Code::InvalidRequest, "the form names no session; open the page again")
    })?;
    // One that is over already is what was asked for.
    account.identity.end_sessions(&caller, caller.user_id(), Which::One(id)).await?;
    Ok(see_other("/account"))
}

async fn sign_out(account: Account, caller: Caller, _: String) -> Result<Response, Failure> {
    let which = Which::One(caller.session_id());
    account.identity.end_sessions(&caller, caller.user_id(), which).await?;
    Ok(signed_out(&account))
}

async fn sign_out_everywhere(
    account: Account,
    caller: Caller,
    _: String,
) -> Result<Response, Failure> {
    account.identity.end_sessions(&caller, caller.user_id(), Which::All).await?;
    Ok(signed_out(&account))
}

fn signed_out(account: &Account) -> Response {
    let text = "Close this window, or open the account page to sign in again.";
    let mut response = page::message(StatusCode::OK, "You are signed out", text);
    if let Some(cookie) = account.identity.browser_sessions().cookie.clear() {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    response
}
