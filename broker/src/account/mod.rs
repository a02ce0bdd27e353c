//! The account pages: a user's workspaces, kubeconfigs, commands, sessions and audit trail.
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
    access::{self, CreateWorkspace},
    audit::{AuditTrail, Filter},
    http::{
        ApiError,
        page::{self, see_other},
    },
    identity::{AuthenticationError, Caller, Identity, SessionSelector},
    workspace::Workspaces,
};

/// Maximum number of workspaces on the page.
const MAX_WORKSPACES: u32 = 100;
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
    pub trail: AuditTrail,
    /// Public URL of the broker, without a trailing slash.
    pub broker_url: String,
}

#[derive(Template)]
#[template(path = "account.html")]
struct AccountTemplate<'a> {
    email: &'a str,
    is_admin: bool,
    workspaces: Vec<WorkspaceBlock>,
    more_workspaces: bool,
    tiers: Vec<&'a str>,
    broker_url: &'a str,
    sessions: Vec<SessionInfo>,
    more_sessions: bool,
    entries: Vec<AuditEntry>,
}

impl AccountTemplate<'_> {
    /// Whether one of them is no membership in a tenant.
    fn has_personal(&self) -> bool {
        self.workspaces.iter().any(|block| block.workspace.tenant.is_none())
    }

    fn any_is_usable(&self) -> bool {
        self.workspaces.iter().any(|block| block.is_usable)
    }
}

/// A workspace on the page.
struct WorkspaceBlock {
    workspace: Workspace,
    /// Whether credentials are issued for the workspace.
    is_usable: bool,
}

impl From<Workspace> for WorkspaceBlock {
    fn from(workspace: Workspace) -> Self {
        Self { is_usable: workspace.status == WorkspaceStatus::Provisioned, workspace }
    }
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
            let (method, headers) = (request.method(), request.headers());
            let caller = match account.identity.origins().check(method, headers) {
                Ok(()) => account.identity.authenticate_page(headers).await,
                Err(foreign) => Err(foreign),
            };
            match caller {
                Ok(caller) => {
                    // Every form of these pages has one field.
                    let value = form_urlencoded::parse(&body).next();
                    let value = value.map(|(_, value)| value.into_owned()).unwrap_or_default();
                    let done = act(account, caller, value).await;
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

async fn show(account: AccountPages, caller: Caller) -> Result<Response, ApiError> {
    let workspaces = account.workspaces.page_of(&caller, None, MAX_WORKSPACES).await?;
    let more_workspaces = workspaces.next_cursor.is_some();
    let workspaces: Vec<WorkspaceBlock> = workspaces.items.into_iter().map(Into::into).collect();
    let sessions = account.identity.sessions_of_caller(&caller, None, MAX_SESSIONS).await?;
    let scope = access::own_audit_scope(&caller);
    let rows = account.trail.read(scope, &Filter::default(), MAX_ENTRIES).await?;
    let template = AccountTemplate {
        email: caller.email(),
        is_admin: caller.role() == Role::Admin,
        workspaces,
        more_workspaces,
        tiers: account.workspaces.tiers(),
        broker_url: &account.broker_url,
        sessions: sessions.items,
        more_sessions: sessions.next_cursor.is_some(),
        entries: rows
            .into_iter()
            .map(|row| AuditEntry::from(row).shown_to(caller.user_id()))
            .collect(),
    };
    Ok(page::html(StatusCode::OK, template.render(), "'self'"))
}

async fn make_workspace(
    account: AccountPages,
    caller: Caller,
    tier: String,
) -> Result<Response, ApiError> {
    let permit = access::authorize_all::<CreateWorkspace>(&caller)?;
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
    account.identity.end_own_sessions(&caller, SessionSelector::One(id)).await?;
    Ok(see_other("/account"))
}

async fn sign_out(account: AccountPages, caller: Caller, _: String) -> Result<Response, ApiError> {
    let which = SessionSelector::One(caller.session_id());
    account.identity.end_own_sessions(&caller, which).await?;
    Ok(signed_out(&account))
}

async fn sign_out_everywhere(
    account: AccountPages,
    caller: Caller,
    _: String,
) -> Result<Response, ApiError> {
    account.identity.end_own_sessions(&caller, SessionSelector::All).await?;
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

#[cfg(test)]
mod tests {
    use tenant_shared::Quota;

    use super::*;
    use crate::base::clock::timestamp;

    const KUBECONFIG: &str = "/api/v1/workspaces/credentials/kubeconfig";

    /// The page of a user whose workspaces have these statuses and are numbered from 0.
    fn page_with(statuses: &[WorkspaceStatus]) -> String {
        let workspace = |(number, status): (u128, &WorkspaceStatus)| Workspace {
            id: Uuid::from_u128(number),
            namespace: format!("tenant-{number}"),
            status: *status,
            quota: Quota { cpu: "4".to_owned(), memory: "8Gi".to_owned() },
            tier: "basic".to_owned(),
            cluster: "internal-cluster".to_owned(),
            owner: Uuid::nil(),
            owner_email: None,
            created_at: timestamp(0).into(),
            unfinished: None,
            drift: Vec::new(),
            tenant: None,
        };
        let workspaces = (0..).zip(statuses).map(workspace).map(WorkspaceBlock::from);
        let template = AccountTemplate {
            email: "ada@example.com",
            is_admin: false,
            workspaces: workspaces.collect(),
            more_workspaces: false,
            tiers: vec!["basic"],
            broker_url: "https://broker.example.com",
            sessions: Vec::new(),
            more_sessions: false,
            entries: Vec::new(),
        };
        template.render().unwrap()
    }

    #[test]
    fn only_a_user_without_a_workspace_has_the_form_for_one() {
        let page = page_with(&[]);
        assert!(page.contains("id=\"make\"") && !page.contains(KUBECONFIG), "{page}");
        for statuses in [[WorkspaceStatus::Provisioned], [WorkspaceStatus::Suspended]] {
            let page = page_with(&statuses);
            assert!(page.contains("<h2>Workspace</h2>") && !page.contains("id=\"make\""), "{page}");
        }
    }

    #[test]
    fn each_workspace_has_a_download_of_its_own() {
        let one = page_with(&[WorkspaceStatus::Provisioned]);
        assert!(one.contains(&format!("id=\"download\" href=\"{KUBECONFIG}\"")), "{one}");
        let two = page_with(&[WorkspaceStatus::Provisioned, WorkspaceStatus::Suspended]);
        for (number, is_usable) in [(0, true), (1, false)] {
            let download = format!("href=\"{KUBECONFIG}?workspace={}\"", Uuid::from_u128(number));
            assert!(two.contains(&format!("<code>tenant-{number}</code>")), "{two}");
            assert_eq!(two.contains(&download), is_usable, "{two}");
        }
        assert_eq!(two.matches("No credentials are issued").count(), 1, "{two}");
    }
}
