//! The catalogue of audit actions: only these actions leave a row in the audit trail.

/// Declares each action once: its name is stored and shown, and its doc comment goes to the
/// documentation.
macro_rules! catalogue {
    ($(#[doc = $meaning:literal] $name:ident,)+) => {
        /// An audited action.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Action {
            $(#[doc = $meaning] $name,)+
        }

        impl Action {
            /// Each action with its meaning, in the order of the documentation.
            pub const ALL: &[(Self, &'static str)] = &[$((Self::$name, $meaning)),+];

            /// The name that is stored and shown.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)+
                }
            }
        }
    };
}

catalogue! {
    /// A user was created.
    CreateUser,
    /// Somebody signed in, or was refused.
    SignIn,
    /// A provider granted or revoked the administrator role.
    ChangeRole,
    /// A machine's token was exchanged for a session, or refused.
    ExchangeToken,
    /// A session was ended by its owner.
    SignOut,
    /// A session was ended by the provider that it began at.
    ProviderLogout,
    /// A refresh token was reused: the session was ended.
    RefreshReuse,
    /// An authorization code was reused: the session was ended.
    CodeReuse,
    /// A user allowed or denied a device that asked to act for them.
    DeviceDecision,
    /// An administrator suspended a user.
    SuspendUser,
    /// An administrator resumed a user.
    ResumeUser,
    /// An administrator changed the e-mail address of a user, or was refused.
    ChangeEmail,
    /// A provider named other groups of a user, or an administrator changed them or was refused.
    ChangeGroups,
    /// A workspace was requested, or refused.
    InitWorkspace,
    /// All objects of a workspace exist.
    WorkspaceProvisioned,
    /// A user became a member of a tenant, or was refused.
    JoinTenant,
    /// A user is no longer a member of a tenant.
    LeaveTenant,
    /// A namespace of a tenant was requested, or refused.
    CreateNamespace,
    /// An administrator announced that a namespace goes to a tenant, or was refused.
    MoveNamespace,
    /// A namespace went to the tenant that an administrator announced, or its RoleBindings from before are deleted.
    NamespaceMoved,
    /// An administrator requested the creation of a Tenant, or was refused.
    CreateTenant,
    /// An administrator requested a change of a Tenant, or was refused.
    ChangeTenant,
    /// An administrator requested the deletion of a Tenant, or was refused.
    DeleteTenant,
    /// An administrator suspended a tenant, or was refused; or the broker did so after a restore.
    SuspendTenant,
    /// An administrator resumed a tenant, or was refused.
    ResumeTenant,
    /// A Llama Stack was requested for models of a namespace, or refused.
    InstallLlamaStack,
    /// The deletion of a Llama Stack was requested, or refused.
    DeleteLlamaStack,
    /// A static kubeconfig with a token was issued.
    IssueKubeconfig,
    /// A token for the exec plugin was issued.
    IssueCredential,
    /// A token for the gateway was issued; it stays in the broker's memory.
    IssueGatewayToken,
    /// A credential was revoked, or the revocation was refused.
    RevokeCredential,
    /// The cluster object that a revoked credential depended on is gone.
    CredentialRevoked,
    /// A workspace has a new ServiceAccount: no older credential works any more.
    ServiceAccountReplaced,
    /// The kill switch was used.
    SuspendWorkspace,
    /// The kill switch has completed.
    WorkspaceSuspended,
    /// The resumption of a workspace was started.
    ResumeWorkspace,
    /// The resumption of a workspace has completed.
    WorkspaceResumed,
    /// An object of a workspace was found deleted or altered, or one of a tenant is not restored yet.
    DriftFound,
    /// The broker restored an object of a workspace or tenant that others deleted or altered.
    DriftRepaired,
    /// Somebody else restored an object of a workspace.
    DriftEnded,
    /// Old rows were deleted, as configured by `audit.retention_days`.
    CutAuditTrail,
    /// A backup was restored: the rows after it are lost, and all sessions were ended.
    RestoreBackup,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_has_this_catalogue_and_no_other() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/audit.md");
        let page = std::fs::read_to_string(path).unwrap();
        let (_, table) = page.split_once("| action | when |\n|---|---|\n").unwrap();
        let rows: Vec<_> = table.lines().take_while(|line| line.starts_with('|')).collect();
        let catalogue: Vec<_> = Action::ALL
            .iter()
            .map(|(action, meaning)| format!("| `{}` |{meaning} |", action.as_str()))
            .collect();
        assert_eq!(rows, catalogue, "docs/audit.md has to be:\n{}", catalogue.join("\n"));
    }
}
