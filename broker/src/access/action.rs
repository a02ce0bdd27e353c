//! Actions, each with the rule that decides on it.

/// Rule that decides on an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Every authenticated user.
    Everybody,
    /// The owner of the resource.
    Owner,
    /// The owner of the resource, and administrators.
    OwnerOrAdministrator,
    /// Owners and members of the resource, and administrators.
    MemberOrAdministrator,
    Administrator,
}

/// An action that a caller is authorized for.
pub trait Action {
    /// Name of the action in debug logs.
    const NAME: &'static str;
    /// The rule that decides on the action.
    const RULE: Rule;
}

/// An action on one resource.
pub trait ResourceAction: Action {}

/// An action that concerns no resource, or every resource.
pub trait GeneralAction: Action {}

macro_rules! actions {
    ($($(#[$documentation:meta])* $action:ident: $rule:ident, $($scope:ident),+;)*) => {
        $(
            $(#[$documentation])*
            #[derive(Clone, Copy, Debug)]
            pub struct $action;

            impl Action for $action {
                const NAME: &'static str = stringify!($action);
                const RULE: Rule = Rule::$rule;
            }

            $(impl $scope for $action {})+
        )*
    };
}

actions! {
    /// Create a workspace of the caller's own.
    CreateWorkspace: Everybody, GeneralAction;
    /// See a workspace.
    ReadWorkspace: OwnerOrAdministrator, ResourceAction;
    /// Get credentials of a workspace.
    UseWorkspace: Owner, ResourceAction;
    /// Revoke a credential of a workspace.
    RevokeCredentials: OwnerOrAdministrator, ResourceAction;
    /// Suspend or resume workspaces.
    SuspendWorkspaces: Administrator, ResourceAction, GeneralAction;
    /// Become a member of a tenant. Whether the tenant gives the person any rights is not decided
    /// here: `tenant` compares the person with its owners and bindings.
    JoinTenant: Owner, ResourceAction;
    /// See a tenant and its namespaces.
    ReadTenant: MemberOrAdministrator, ResourceAction;
    /// See the members of a tenant with their e-mail addresses.
    ListTenantMembers: OwnerOrAdministrator, ResourceAction;
    /// Create a namespace of a tenant.
    CreateNamespace: Owner, ResourceAction;
    /// Suspend or resume tenants.
    SuspendTenants: Administrator, GeneralAction;
    /// Move namespaces into tenants.
    MoveNamespaces: Administrator, GeneralAction;
    /// Read, create, change and delete the objects of the kind `Tenant`.
    ManageTenants: Administrator, GeneralAction;
    /// See everybody's workspaces and audit rows, and all tenants.
    ReadEverything: Administrator, GeneralAction;
    /// See, suspend, resume and rename users, give them groups and end their sessions.
    ManageUsers: Administrator, GeneralAction;
}
