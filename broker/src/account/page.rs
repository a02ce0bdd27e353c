//! The account page.

use askama::Template;
use poem::{Response, http::StatusCode};
use tenant_shared::{AuditEntry, Role, SessionInfo, Workspace, WorkspaceStatus};

use super::{
    AccountPages,
    tenants_section::{FormRefusal, TenantsSection},
};
use crate::{
    access,
    audit::Filter,
    http::{ApiError, page},
    identity::Caller,
};

/// Maximum number of workspaces on the page.
const MAX_WORKSPACES: u32 = 100;
/// Maximum number of sessions on the page.
const MAX_SESSIONS: u32 = 50;
/// Maximum number of audit entries on the page.
const MAX_ENTRIES: u32 = 10;

#[derive(Template)]
#[template(path = "account.html")]
struct AccountTemplate<'a> {
    email: &'a str,
    is_admin: bool,
    workspaces: Vec<WorkspaceBlock>,
    more_workspaces: bool,
    tiers: Vec<&'a str>,
    broker_url: &'a str,
    /// `None` if the broker has no tenants.
    tenants: Option<TenantsSection>,
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

/// The page.
pub(super) async fn show(account: AccountPages, caller: Caller) -> Result<Response, ApiError> {
    render(&account, &caller, None).await
}

/// The page, with the refusal of a form if there was one.
pub(super) async fn render(
    account: &AccountPages,
    caller: &Caller,
    refusal: Option<FormRefusal>,
) -> Result<Response, ApiError> {
    let workspaces = account.workspaces.page_of(caller, None, MAX_WORKSPACES).await?;
    let more_workspaces = workspaces.next_cursor.is_some();
    let workspaces: Vec<WorkspaceBlock> = workspaces.items.into_iter().map(Into::into).collect();
    let sessions = account.identity.sessions_of_caller(caller, None, MAX_SESSIONS).await?;
    let scope = access::own_audit_scope(caller);
    let rows = account.trail.read(scope, &Filter::default(), MAX_ENTRIES).await?;
    let status = refusal.as_ref().map_or(StatusCode::OK, |refusal| refusal.status);
    let tenants = match &account.tenants {
        Some(tenants) => Some(TenantsSection::load(tenants, caller, refusal).await),
        None => None,
    };
    let template = AccountTemplate {
        email: caller.email(),
        is_admin: caller.role() == Role::Admin,
        workspaces,
        more_workspaces,
        tiers: account.workspaces.tiers(),
        broker_url: &account.broker_url,
        tenants,
        sessions: sessions.items,
        more_sessions: sessions.next_cursor.is_some(),
        entries: rows
            .into_iter()
            .map(|row| AuditEntry::from(row).shown_to(caller.user_id()))
            .collect(),
    };
    Ok(page::html(status, template.render(), "'self'"))
}

#[cfg(test)]
mod tests {
    use tenant_shared::{Quota, TenantInfo, TenantRole};
    use uuid::Uuid;

    use super::*;
    use crate::base::clock::timestamp;

    const KUBECONFIG: &str = "/api/v1/workspaces/credentials/kubeconfig";

    /// The page of a user whose workspaces have these statuses and are numbered from 0.
    fn page_with(statuses: &[WorkspaceStatus], tenants: Option<TenantsSection>) -> String {
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
            tenants,
            sessions: Vec::new(),
            more_sessions: false,
            entries: Vec::new(),
        };
        template.render().unwrap()
    }

    #[test]
    fn only_a_user_without_a_workspace_has_the_form_for_one() {
        let page = page_with(&[], None);
        assert!(page.contains("id=\"make\"") && !page.contains(KUBECONFIG), "{page}");
        for statuses in [[WorkspaceStatus::Provisioned], [WorkspaceStatus::Suspended]] {
            let page = page_with(&statuses, None);
            assert!(page.contains("<h2>Workspace</h2>") && !page.contains("id=\"make\""), "{page}");
        }
    }

    #[test]
    fn each_workspace_has_a_download_of_its_own() {
        let one = page_with(&[WorkspaceStatus::Provisioned], None);
        assert!(one.contains(&format!("id=\"download\" href=\"{KUBECONFIG}\"")), "{one}");
        let two = page_with(&[WorkspaceStatus::Provisioned, WorkspaceStatus::Suspended], None);
        for (number, is_usable) in [(0, true), (1, false)] {
            let download = format!("href=\"{KUBECONFIG}?workspace={}\"", Uuid::from_u128(number));
            assert!(two.contains(&format!("<code>tenant-{number}</code>")), "{two}");
            assert_eq!(two.contains(&download), is_usable, "{two}");
        }
        assert_eq!(two.matches("No credentials are issued").count(), 1, "{two}");
    }

    #[test]
    fn the_page_has_a_section_for_tenants_only_if_the_broker_has_tenants() {
        let without = page_with(&[], None);
        assert!(without.contains("</code></pre>\n\n<h2>Sessions</h2>"), "{without}");
        let section = TenantsSection::new(Vec::new(), None);
        let with = page_with(&[], Some(section));
        assert!(with.contains("No tenant names you"), "{with}");
        let (start, end) =
            (with.find("<h2>Tenants").unwrap(), with.find("\n<h2>Sessions").unwrap());
        assert_eq!(format!("{}{}", &with[..start], &with[end..]), without);
    }

    /// A tenant with one of five namespaces, in which the user has one role.
    fn tenant(name: &str, state: &str, is_owner: bool, workspace: Option<Uuid>) -> TenantInfo {
        let given_by = vec!["owner User ada@example.com".to_owned()];
        TenantInfo {
            name: name.to_owned(),
            api_group: "tenant-broker.io".to_owned(),
            state: state.to_owned(),
            is_owner,
            roles: vec![TenantRole { cluster_role: "view".to_owned(), given_by }],
            namespace_count: 1,
            namespace_quota: Some(5),
            workspace,
            conditions: Vec::new(),
        }
    }

    #[test]
    fn owners_have_a_form_for_namespaces_and_others_can_only_join() {
        let join = "action=\"/account/join-tenant\"";
        let create = "action=\"/account/namespace\"";
        let member = Some(Uuid::nil());
        for (state, is_owner, workspace, joins, creates) in [
            ("Active", true, None, true, true),
            ("Degraded", true, member, false, true),
            ("Active", false, None, true, false),
            ("Active", false, member, false, false),
            ("Suspended", true, None, false, false),
            ("Terminating", true, member, false, false),
        ] {
            let tenants = vec![tenant("solar", state, is_owner, workspace)];
            let page = page_with(&[], Some(TenantsSection::new(tenants, None)));
            for part in [state, "1 of 5", "<dd>view</dd>", "<dd>solar</dd>"] {
                assert!(page.contains(part), "{part} is missing in {page}");
            }
            assert_eq!(page.contains(join), joins, "{page}");
            assert_eq!(page.contains(create), creates, "{page}");
        }
    }

    #[test]
    fn an_administrator_does_not_see_the_tenants_of_others() {
        let others = TenantInfo { roles: Vec::new(), ..tenant("lunar", "Active", false, None) };
        let tenants = vec![others, tenant("solar", "Active", false, None)];
        let page = page_with(&[], Some(TenantsSection::new(tenants, None)));
        assert!(!page.contains("lunar") && page.contains("solar"), "{page}");
    }

    #[test]
    fn a_refused_form_has_its_text_and_what_was_typed() {
        let refusal = FormRefusal {
            tenant: "solar".to_owned(),
            namespace: "\"<b>".to_owned(),
            text: "namespace names of tenant solar begin with <solar->".to_owned(),
            status: StatusCode::BAD_REQUEST,
        };
        let tenants =
            ["lunar", "solar"].map(|name| tenant(name, "Active", true, Some(Uuid::nil())));
        let page = page_with(&[], Some(TenantsSection::new(tenants.to_vec(), Some(refusal))));
        assert!(page.contains("id=\"fault\"") && !page.contains("<solar->"), "{page}");
        assert!(page.contains("value=\"lunar-\"") && !page.contains("value=\"solar-\""), "{page}");
        assert!(!page.contains("\"<b>"), "{page}");
    }
}
