//! Calls for workspaces and their credentials.

use http::Method;
use secrecy::SecretString;
use tenant_shared::{
    Credential, CredentialId, CredentialInfo, InitRequest, Name, Revocation, Suspension, Usage,
    Workspace, WorkspaceList,
};
use uuid::Uuid;

use super::{Broker, Page, json_body, lookup_path, parse_json};
use crate::{error::Error, http::Response, terminal};

/// Kind of credential in a kubeconfig document of the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Mode {
    /// A call of this plugin, which renews the token.
    Exec,
    /// A token of two hours in the file.
    Static,
    /// A call of this plugin; requests go to the broker's gateway, not the API server.
    Gateway,
}

impl Broker {
    /// Lists the workspaces of this user.
    pub(crate) async fn own_workspaces(&self) -> Result<WorkspaceList, Error> {
        self.parse(&self.call(Method::GET, "/workspaces", None).await?)
    }

    /// Lists at most `limit` workspaces: of this user, or of all users for an administrator.
    pub(crate) async fn workspaces(&self, all: bool, limit: u32) -> Result<Page<Workspace>, Error> {
        let all: &[_] = if all { &[("all", "true")] } else { &[] };
        self.list("/workspaces", all, limit).await
    }

    /// Looks up the workspaces of this name that this user may see.
    pub(crate) async fn workspaces_named(&self, name: &Name) -> Result<WorkspaceList, Error> {
        self.parse(&self.call(Method::GET, &lookup_path("/workspaces", name), None).await?)
    }

    /// Returns one workspace.
    pub(crate) async fn workspace(&self, id: Uuid) -> Result<Workspace, Error> {
        parse_json(
            &self.account.broker,
            &self.call(Method::GET, &format!("/workspaces/{id}"), None).await?,
        )
    }

    /// Suspends or resumes a workspace; `verb` is `suspend` or `resume`.
    pub(crate) async fn set_workspace(
        &self,
        id: Uuid,
        verb: &str,
        reason: Option<&str>,
    ) -> Result<Suspension, Error> {
        self.post_reason(&format!("/workspaces/{id}/{verb}"), reason).await
    }

    /// Creates this user's workspace, or returns the existing one.
    pub(crate) async fn init(&self, tier: &str) -> Result<Workspace, Error> {
        let body = json_body(&InitRequest { tier: tier.to_owned() })?;
        self.parse(&self.call(Method::POST, "/workspaces/init", Some(body)).await?)
    }

    /// Downloads the kubeconfig document, YAML: of this workspace, or of the user's own one.
    pub(crate) async fn kubeconfig(
        &self,
        mode: Mode,
        workspace: Option<Uuid>,
    ) -> Result<SecretString, Error> {
        let mode = match mode {
            Mode::Exec => "exec",
            Mode::Static => "static",
            Mode::Gateway => "gateway",
        };
        let workspace = workspace.map(|id| format!("&workspace={id}")).unwrap_or_default();
        let path = format!("/workspaces/credentials/kubeconfig?mode={mode}{workspace}");
        let response = self.call(Method::GET, &path, None).await?;
        let text = String::from_utf8(response.into_body()).ok();
        // The document goes to a terminal or into a file unchanged.
        let text = text.filter(|text| terminal::sanitize_lines(text) == *text);
        text.map(SecretString::from).ok_or_else(|| {
            let broker = &self.account.broker;
            Error::unreachable(format!(
                "the kubeconfig from {broker} is not text, or has control characters; it was not used"
            ))
        })
    }

    /// Issues a Kubernetes token for a workspace; the response has the headers.
    pub(crate) async fn credential(
        &self,
        workspace: Uuid,
    ) -> Result<(Credential, Response), Error> {
        let path = format!("/workspaces/{workspace}/credentials");
        let response = self.call(Method::POST, &path, None).await?;
        let credential: Credential = self.parse(&response)?;
        if !credential.token.bytes().all(|byte| byte.is_ascii_graphic()) {
            let broker = &self.account.broker;
            return Err(Error::unreachable(format!(
                "the token from {broker} has invalid characters; it was not used"
            )));
        }
        Ok((credential, response))
    }

    /// Returns the gateway usage of a workspace in the last days.
    pub(crate) async fn usage(&self, workspace: Uuid, days: u32) -> Result<Usage, Error> {
        let path = format!("/workspaces/{workspace}/usage?days={days}");
        self.parse(&self.call(Method::GET, &path, None).await?)
    }

    /// Lists at most `limit` credentials of a workspace, newest first; with `all` also those that
    /// ended.
    pub(crate) async fn credentials(
        &self,
        workspace: Uuid,
        all: bool,
        limit: u32,
    ) -> Result<Page<CredentialInfo>, Error> {
        let all = if all { "true" } else { "false" };
        self.list(&format!("/workspaces/{workspace}/credentials"), &[("all", all)], limit).await
    }

    /// Revokes a credential of a workspace.
    pub(crate) async fn revoke_credential(
        &self,
        workspace: Uuid,
        id: &CredentialId,
        reason: Option<&str>,
    ) -> Result<Revocation, Error> {
        let query = reason.map(|reason| {
            let mut query = url::form_urlencoded::Serializer::new(String::new());
            format!("?{}", query.append_pair("reason", reason).finish())
        });
        // An id has no character that has to be escaped in a path.
        let path = format!("/workspaces/{workspace}/credentials/{id}{}", query.unwrap_or_default());
        self.parse(&self.call(Method::DELETE, &path, None).await?)
    }
}
