//! Memberships on both engines, with a cluster that refuses connections.

use tenant_shared::{Role, WorkspaceStatus as Status};
use uuid::Uuid;

use super::{ChangedMembership, Membership, MembershipRequest};
use crate::{
    access::{
        self, AccessError, JoinTenant, Permit, ReadEverything, SuspendWorkspaces, UseWorkspace,
    },
    audit::{self, Action},
    identity::Caller,
    on_engine,
    tenant::{ApiGroup, Observed, TenantRow, Tenants},
    testing::{On, SA_UID, Storage, on_both_engines},
    workspace::{
        WorkspaceError, WorkspaceRow, Workspaces,
        state::Event,
        store::{self, ObjectUids, work},
    },
};

on_both_engines!(
    a_member_has_an_account_in_the_home_that_all_members_share,
    a_membership_is_listed_beside_the_personal_workspace,
    a_person_joins_for_themselves_only,
    nobody_joins_a_tenant_that_is_suspended_or_closed,
    a_suspended_user_joins_no_tenant,
    a_user_who_left_has_no_membership_and_joins_again_with_a_new_account,
    a_suspended_member_stays_suspended_after_leaving_and_joining_again,
    a_member_who_is_suspended_after_leaving_does_not_become_active,
    a_tenant_that_was_made_again_waits_for_the_end_of_the_earlier_membership,
    a_member_suspended_in_an_earlier_tenant_of_the_name_stays_suspended,
    members_of_a_suspended_tenant_get_no_tokens_until_it_is_resumed,
    nobody_who_joins_during_the_end_of_a_tenant_stays_a_member,
);

/// How long API servers may accept an old token, in milliseconds.
const TOKEN_CACHE_MS: i64 = 10_000;

struct World {
    workspaces: Workspaces,
    tenants: Tenants,
    storage: Storage,
}

impl World {
    async fn new(on: On) -> Self {
        let storage = Storage::new(on).await;
        let tenants = Tenants::new(storage.db.clone(), storage.clock.clone());
        Self { workspaces: storage.workspaces().await, tenants, storage }
    }

    /// The tenant `solar` whose object has this uid.
    async fn solar(&self, uid: &str) -> TenantRow {
        let name = "solar".parse().unwrap();
        match self.tenants.observe(&name, ApiGroup::TenantBroker, uid).await.unwrap() {
            Observed::Current(row) | Observed::Recreated(row) => row,
            Observed::NameTaken(row) => panic!("{row:?}"),
        }
    }

    /// Records that a user joins, without the work in the cluster.
    async fn begin_join(
        &self,
        tenant: &TenantRow,
        user: Uuid,
    ) -> Result<WorkspaceRow, WorkspaceError> {
        let event = audit::Event::success(Action::JoinTenant).to_user(user);
        self.workspaces.begin_join(&request(tenant, user), event).await
    }

    /// A member whose ServiceAccount has the uid [`SA_UID`].
    async fn member(&self, tenant: &TenantRow, user: Uuid) -> Uuid {
        let id = self.begin_join(tenant, user).await.unwrap().id;
        self.advance(id, Event::ObjectsExist).await;
        let made = ObjectUids { namespace: "ns-1".to_owned(), service_account: SA_UID.to_owned() };
        let mut tx = self.storage.db.begin().await.unwrap();
        store::set_uids(&mut tx, id, &made).await.unwrap();
        tx.commit().await.unwrap();
        id
    }

    async fn advance(&self, id: Uuid, event: Event) {
        let mut tx = self.storage.db.begin().await.unwrap();
        assert!(
            store::advance(&mut tx, &self.storage.clock, id, event).await.unwrap(),
            "{event:?}"
        );
        tx.commit().await.unwrap();
    }

    /// Ends a membership; its ServiceAccount is gone afterwards.
    async fn leave(&self, id: Uuid) {
        self.workspaces.begin_leave(id, Some("why".to_owned())).await.unwrap();
        if self.row(id).await.status() == Status::Suspending {
            self.advance(id, Event::RightsGone).await;
        }
    }

    async fn row(&self, id: Uuid) -> WorkspaceRow {
        store::by_id(&self.storage.db, id).await.unwrap().unwrap()
    }

    async fn members(&self, tenant: &TenantRow) -> Vec<(Uuid, Status)> {
        let members = self.workspaces.members_of(tenant.id).await.unwrap();
        members.into_iter().map(|member| (member.user, member.status)).collect()
    }

    fn caller(&self, user: Uuid, role: Role) -> Caller {
        Caller::for_tests(&self.storage.clock, user, role)
    }

    async fn kill(&self, id: Uuid) -> Permit<SuspendWorkspaces, WorkspaceRow> {
        let operator = self.caller(Uuid::nil(), Role::Admin);
        self.workspaces.authorize(&operator, id).await.unwrap()
    }

    /// Records that an administrator suspends a workspace.
    async fn suspend(&self, id: Uuid) {
        let permit = self.kill(id).await;
        let mut tx = self.storage.db.begin().await.unwrap();
        self.workspaces.begin_suspension(&mut tx, &permit, None).await.unwrap();
        tx.commit().await.unwrap();
    }

    async fn execute(&self, statement: &'static str) {
        let mut tx = self.storage.db.begin().await.unwrap();
        on_engine!(tx.connection(), c => sqlx::query(statement).execute(c).await.map(drop))
            .unwrap();
        tx.commit().await.unwrap();
    }

    async fn audited(&self, statement: &'static str, expected: i64) {
        assert_eq!(self.storage.number(statement).await, expected, "{statement}");
    }
}

const JOINED: &str = "SELECT COUNT(*) FROM audit_logs WHERE action = 'JoinTenant' \
                      AND workspace_id IS NOT NULL AND reason = 'tenant solar'";
const LEFT: &str = "SELECT COUNT(*) FROM audit_logs WHERE action = 'LeaveTenant' \
                    AND workspace_id IS NOT NULL AND reason = 'why'";

fn request(tenant: &TenantRow, user: Uuid) -> MembershipRequest {
    MembershipRequest { tenant: tenant.clone(), user, tier: "basic".to_owned() }
}

async fn a_member_has_an_account_in_the_home_that_all_members_share(on: On) {
    let world = World::new(on).await;
    let solar = world.solar("uid-1").await;
    let mut users = [world.storage.user().await, world.storage.user().await];
    users.sort();
    for user in users {
        let row = world.begin_join(&solar, user).await.unwrap();
        assert_eq!(
            (row.status(), row.tenant_id(), row.user_id),
            (Status::Provisioning, solar.id, user)
        );
        assert_eq!(
            (row.namespace(), row.tenant_name().as_deref()),
            ("tenant-solar", Some("solar"))
        );
        assert_eq!(row.service_account(), format!("member-{user}"));
        let again = world.begin_join(&solar, user).await.unwrap();
        assert_eq!(again.id, row.id, "joining is idempotent");
    }
    world.audited(JOINED, 2).await;
    let provisioning = users.map(|user| (user, Status::Provisioning));
    assert_eq!(world.members(&solar).await, provisioning);
    let lunar = world.storage.clock.random_id();
    assert!(world.workspaces.members_of(lunar).await.unwrap().is_empty());

    let before = world.storage.clock.now_ms();
    world.storage.clock.advance(1);
    let changed = || world.workspaces.changed_memberships(before);
    assert!(changed().await.unwrap().is_empty());
    let third = world.storage.user().await;
    let workspace = world.begin_join(&solar, third).await.unwrap().id;
    let change = ChangedMembership { tenant: solar.id, workspace, changed_at: before + 1 };
    assert_eq!(changed().await.unwrap(), [change]);
}

async fn a_membership_is_listed_beside_the_personal_workspace(on: On) {
    let world = World::new(on).await;
    let solar = world.solar("uid-1").await;
    let user = world.storage.user().await;
    let personal = world.storage.workspace(user, Status::Provisioned).await;
    world.storage.clock.advance(1);
    let id = world.member(&solar, user).await;

    let caller = world.caller(user, Role::User);
    let listed = world.workspaces.page_of(&caller, None, 10).await.unwrap().items;
    let ids: Vec<Uuid> = listed.iter().map(|it| it.id).collect();
    assert_eq!(ids, [personal, id]);
    let json: Vec<_> = listed.iter().map(|it| serde_json::to_value(it).unwrap()).collect();
    assert!(json[0].get("tenant").is_none(), "{}", json[0]);
    assert_eq!(json[1]["tenant"], "solar");
    assert_eq!(json[1]["namespace"], "tenant-solar");

    let permit = world.workspaces.authorize::<UseWorkspace>(&caller, id).await.unwrap();
    let active = world.workspaces.active(&permit).unwrap();
    let account = format!("member-{user}");
    assert_eq!((active.namespace(), active.service_account()), ("tenant-solar", &*account));
    let status = Status::Provisioned;
    assert_eq!(
        world.workspaces.memberships_of(user).await.unwrap(),
        [Membership { tenant: solar.id, user, workspace: id, status }]
    );
}

async fn a_person_joins_for_themselves_only(on: On) {
    let world = World::new(on).await;
    let solar = world.solar("uid-1").await;
    let user = world.storage.user().await;
    for (caller, expected) in [
        (world.caller(Uuid::nil(), Role::User), AccessError::WorkspaceNotFound),
        (world.caller(Uuid::nil(), Role::Admin), AccessError::NotOwner),
    ] {
        let refused = access::authorize::<JoinTenant, _>(&caller, request(&solar, user));
        assert_eq!(refused.unwrap_err(), expected);
    }
    let caller = world.caller(user, Role::User);
    let permit = access::authorize::<JoinTenant, _>(&caller, request(&solar, user)).unwrap();
    let failed = world.workspaces.join(&permit).await.unwrap_err();
    assert!(matches!(failed, WorkspaceError::Cluster(_)), "{failed}");
    assert_eq!(world.members(&solar).await, [(user, Status::Provisioning)]);
    let due = work::due(&world.storage.db, i64::MAX, 10).await.unwrap();
    assert_eq!(due.len(), 1, "the sweep goes on with it");
}

async fn nobody_joins_a_tenant_that_is_suspended_or_closed(on: On) {
    let world = World::new(on).await;
    let solar = world.solar("uid-1").await;
    let user = world.storage.user().await;
    for status in ["suspending", "suspended", "resuming"] {
        let mut tx = world.storage.db.begin().await.unwrap();
        on_engine!(tx.connection(), c => sqlx::query("UPDATE tenants SET status = $1")
            .bind(status).execute(c).await.map(drop))
        .unwrap();
        tx.commit().await.unwrap();
        let refused = world.begin_join(&solar, user).await.unwrap_err();
        assert!(matches!(refused, WorkspaceError::TenantNotActive(_)), "{status}: {refused}");
    }
    world.tenants.close(solar.id).await.unwrap();
    let refused = world.begin_join(&solar, user).await.unwrap_err();
    assert!(matches!(refused, WorkspaceError::TenantNotActive(_)), "{refused}");
    assert!(world.members(&solar).await.is_empty());
    world.audited(JOINED, 0).await;
}

async fn a_suspended_user_joins_no_tenant(on: On) {
    let world = World::new(on).await;
    let solar = world.solar("uid-1").await;
    let user = world.storage.user().await;
    world.execute("UPDATE users SET status = 'suspended'").await;
    let refused = world.begin_join(&solar, user).await.unwrap_err();
    assert!(matches!(refused, WorkspaceError::NotActive), "{refused}");
    assert!(world.members(&solar).await.is_empty());
}

async fn a_user_who_left_has_no_membership_and_joins_again_with_a_new_account(on: On) {
    let world = World::new(on).await;
    let solar = world.solar("uid-1").await;
    let user = world.storage.user().await;
    let caller = world.caller(user, Role::User);
    let id = world.member(&solar, user).await;
    world.workspaces.begin_leave(id, Some("why".to_owned())).await.unwrap();
    assert_eq!(world.row(id).await.status(), Status::Suspending);
    let refused = world.begin_join(&solar, user).await.unwrap_err();
    assert!(matches!(refused, WorkspaceError::NotReady(Status::Suspending)), "{refused}");
    world.advance(id, Event::RightsGone).await;
    world.leave(id).await;
    world.audited(LEFT, 1).await;

    assert!(world.members(&solar).await.is_empty());
    assert!(world.workspaces.memberships_of(user).await.unwrap().is_empty());
    assert!(world.workspaces.usable_by(&caller).await.unwrap().is_empty());
    assert!(world.workspaces.page_of(&caller, None, 10).await.unwrap().items.is_empty());
    let operator = world.caller(Uuid::nil(), Role::Admin);
    let everything = access::authorize_all::<ReadEverything>(&operator).unwrap();
    let all = world.workspaces.page_of_all(&everything, None, 10).await.unwrap().items;
    assert_eq!(all.iter().map(|it| it.id).collect::<Vec<_>>(), [id]);
    let permit = world.workspaces.authorize::<UseWorkspace>(&caller, id).await.unwrap();
    let refused = world.workspaces.active(&permit).unwrap_err();
    assert!(matches!(&refused, WorkspaceError::NotMember(it) if it == "solar"), "{refused}");
    world.storage.clock.advance(TOKEN_CACHE_MS - 1);
    let early = world.begin_join(&solar, user).await.unwrap_err();
    assert!(matches!(early, WorkspaceError::TooEarly(1)), "{early}");
    world.storage.clock.advance(1);
    let permit = world.kill(id).await;
    let refused = world.workspaces.resume(&permit, None).await.unwrap_err();
    assert!(matches!(refused, WorkspaceError::NotMember(_)), "{refused}");
    let mut tx = world.storage.db.begin().await.unwrap();
    let resumed = store::advance(&mut tx, &world.storage.clock, id, Event::Resume).await.unwrap();
    assert!(!resumed, "not even by a resumption that began before the user left");
    drop(tx);

    let again = world.begin_join(&solar, user).await.unwrap();
    assert_eq!((again.id, again.status()), (id, Status::Resuming));
    assert_eq!(world.members(&solar).await, [(user, Status::Resuming)]);
    world.audited(JOINED, 2).await;
    let personal = world.storage.workspace(user, Status::Provisioned).await;
    let refused = world.workspaces.begin_leave(personal, None).await.unwrap_err();
    assert!(matches!(refused, WorkspaceError::Access(AccessError::WorkspaceNotFound)), "{refused}");
}

async fn a_suspended_member_stays_suspended_after_leaving_and_joining_again(on: On) {
    let world = World::new(on).await;
    let solar = world.solar("uid-1").await;
    let user = world.storage.user().await;
    let id = world.member(&solar, user).await;
    world.suspend(id).await;
    world.leave(id).await;
    world.storage.clock.advance(TOKEN_CACHE_MS);
    let again = world.begin_join(&solar, user).await.unwrap();
    assert_eq!((again.id, again.status()), (id, Status::Suspended));
    assert_eq!(world.members(&solar).await, [(user, Status::Suspended)]);
    let request = request(&solar, user);
    let refused = world.workspaces.add_member(&request).await.unwrap_err();
    assert!(matches!(refused, WorkspaceError::Suspended), "{refused}");
}

async fn a_member_who_is_suspended_after_leaving_does_not_become_active(on: On) {
    const SUSPENDED: &str = "SELECT COUNT(*) FROM audit_logs WHERE action = 'SuspendWorkspace'";
    let world = World::new(on).await;
    let solar = world.solar("uid-1").await;
    let user = world.storage.user().await;
    let id = world.member(&solar, user).await;
    world.leave(id).await;
    for _ in 0..2 {
        world.suspend(id).await;
        world.audited(SUSPENDED, 1).await;
    }
    world.storage.clock.advance(TOKEN_CACHE_MS);
    assert_eq!(world.begin_join(&solar, user).await.unwrap().status(), Status::Suspended);
}

async fn a_tenant_that_was_made_again_waits_for_the_end_of_the_earlier_membership(on: On) {
    let world = World::new(on).await;
    let first = world.solar("uid-1").await;
    let user = world.storage.user().await;
    let earlier = world.member(&first, user).await;
    let second = world.solar("uid-2").await;
    assert_ne!(first.id, second.id);
    let refused = world.begin_join(&second, user).await.unwrap_err();
    assert!(matches!(refused, WorkspaceError::NotReady(Status::Provisioned)), "{refused}");
    world.storage.clock.advance(1);
    world.leave(earlier).await;
    world.storage.clock.advance(TOKEN_CACHE_MS);
    let row = world.begin_join(&second, user).await.unwrap();
    assert_eq!((row.status(), row.namespace()), (Status::Provisioning, "tenant-solar"));
    assert_ne!(row.id, earlier);
    // Their ServiceAccounts have one name, so drift and sweep leave the later one's alone.
    let earlier = world.row(earlier).await;
    assert_eq!(earlier.service_account(), row.service_account());
    for (of, succeeded) in [(&earlier, true), (&row, false)] {
        let found = store::membership::is_succeeded(&world.storage.db, of).await.unwrap();
        assert_eq!(found, succeeded);
    }
}

async fn a_member_suspended_in_an_earlier_tenant_of_the_name_stays_suspended(on: On) {
    let world = World::new(on).await;
    let first = world.solar("uid-1").await;
    let user = world.storage.user().await;
    let id = world.member(&first, user).await;
    world.suspend(id).await;
    world.leave(id).await;
    let second = world.solar("uid-2").await;
    let row = world.begin_join(&second, user).await.unwrap();
    assert_eq!(row.status(), Status::Suspended);
    assert_ne!(row.id, id);
}

async fn members_of_a_suspended_tenant_get_no_tokens_until_it_is_resumed(on: On) {
    let world = World::new(on).await;
    let solar = world.solar("uid-1").await;
    let (user, other) = (world.storage.user().await, world.storage.user().await);
    let id = world.member(&solar, user).await;
    let suspended = world.member(&solar, other).await;
    world.suspend(suspended).await;
    world.advance(suspended, Event::RightsGone).await;
    let personal = world.storage.workspace(user, Status::Provisioned).await;

    // The cluster does not answer. The decision is on record all the same.
    for _ in 0..2 {
        world.workspaces.revoke_tokens_of_members(solar.id).await.unwrap_err();
        let row = world.row(id).await;
        assert_eq!(row.retired_sa_uid.as_deref(), Some(SA_UID));
        assert!(row.is_rotating() && !row.issues_with(SA_UID));
    }
    let caller = world.caller(user, Role::User);
    let refusal = async || {
        let permit = world.workspaces.authorize::<UseWorkspace>(&caller, id).await.unwrap();
        world.workspaces.active(&permit).unwrap_err()
    };
    let refused = refusal().await;
    assert!(matches!(&refused, WorkspaceError::TenantNotActive(it) if it == "solar"), "{refused}");
    assert!(world.row(personal).await.issues_with(SA_UID));
    let later = world.storage.clock.now_ms() + 1_000_000_000;
    let due = async || work::due(&world.storage.db, later, 10).await.unwrap().len();
    assert_eq!(due().await, 0, "the sweep makes no account");
    world.workspaces.allow_tokens_of_members(solar.id).await.unwrap();
    assert!(matches!(refusal().await, WorkspaceError::Rotating));
    assert_eq!(due().await, 1);
    assert_eq!(world.row(suspended).await.status(), Status::Suspended);
}

/// A join and the end of a tenant lock the same row: an earlier join is seen after the end, and a
/// later one is refused.
async fn nobody_who_joins_during_the_end_of_a_tenant_stays_a_member(on: On) {
    let world = World::new(on).await;
    for round in 0..5 {
        let solar = world.solar(&format!("uid-{round}")).await;
        let mut users = Vec::new();
        for _ in 0..8 {
            users.push(world.storage.user().await);
        }
        let joins = users.iter().map(|user| world.begin_join(&solar, *user));
        let end = async {
            world.tenants.close(solar.id).await.unwrap();
            for (user, _) in world.members(&solar).await {
                let all = world.workspaces.memberships_of(user).await.unwrap();
                let joined = all.iter().find(|it| it.tenant == solar.id).unwrap();
                world.workspaces.begin_leave(joined.workspace, None).await.unwrap();
            }
        };
        let (joined, ()) = tokio::join!(futures_util::future::join_all(joins), end);
        for refused in joined.into_iter().filter_map(Result::err) {
            assert!(matches!(refused, WorkspaceError::TenantNotActive(_)), "{refused}");
        }
        assert!(world.members(&solar).await.is_empty());
        assert!(!world.workspaces.tenants_with_members().await.unwrap().contains(&solar.id));
    }
}
