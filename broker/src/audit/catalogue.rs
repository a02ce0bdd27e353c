//! The catalogue: everything that leaves a row, and nothing else does.

/// Declares each action once: its name is what is kept and shown, its docstring what the
/// documentation says.
macro_rules! catalogue {
    ($(#[doc = $meaning:literal] $name:ident,)+) => {
        /// Everything that leaves a row.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Action {
            $(#[doc = $meaning] $name,)+
        }

        impl Action {
            /// Each with what it means, in the order of the documentation.
            pub const ALL: &[(Self, &'static str)] = &[$((Self::$name, $meaning)),+];

            /// As kept and shown.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)+
                }
            }
        }
    };
}

catalogue! {
    /// A user was made.
    CreateUser,
    /// Somebody signed in, or was refused.
    SignIn,
    /// A provider gave or took the administrator's role.
    ChangeRole,
    /// A machine's token was exchanged for a session, or refused.
    ExchangeToken,
    /// A session was ended by its owner.
    SignOut,
    /// A session was ended by the provider that it began at.
    ProviderLogout,
    /// A refresh token was used by two: the session is ended.
    RefreshReuse,
    /// An authorization code was used again: the session is ended.
    CodeReuse,
    /// A person decided about a device that asked to act for them.
    DeviceDecision,
    /// An administrator suspended a user.
    SuspendUser,
    /// An administrator let a user in again.
    ResumeUser,
    /// An administrator gave a user another e-mail address, or was refused.
    ChangeEmail,
    /// A workspace was asked for, or refused.
    InitWorkspace,
    /// A workspace's objects all exist.
    WorkspaceProvisioned,
    /// A static kubeconfig with a token left.
    IssueKubeconfig,
    /// A token for the exec plugin left.
    IssueCredential,
    /// A token for the gateway was made; it stays in the broker's memory.
    IssueGatewayToken,
    /// One credential was revoked, or that was refused.
    RevokeCredential,
    /// What a revoked credential depended on is gone from the cluster.
    CredentialRevoked,
    /// A workspace has another ServiceAccount: no older credential works any more.
    ServiceAccountReplaced,
    /// The kill switch was used.
    SuspendWorkspace,
    /// The kill switch has run to its end.
    WorkspaceSuspended,
    /// A workspace was given back.
    ResumeWorkspace,
    /// A workspace works again.
    WorkspaceResumed,
    /// An object of a workspace was found deleted or altered.
    DriftFound,
    /// The broker made it again as it has to be.
    DriftRepaired,
    /// It is as it has to be again by another hand.
    DriftEnded,
    /// Old rows were deleted as `audit.retention_days` says.
    CutAuditTrail,
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
