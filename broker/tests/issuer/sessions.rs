//! Sessions: listed and ended by their user and by administrators, and ended by a suspension.

use reqwest::{Method, StatusCode};
use serde_json::json;
use tenant_shared::{
    BROKER_VERSION_HEADER, EndedSessions, MIN_PLUGIN_VERSION, MIN_PLUGIN_VERSION_HEADER, Role,
    SessionInfo, SessionList, UserInfo, UserList, UserStatus,
};
use uuid::Uuid;

use crate::world::{
    BrowserSignIn, EMAIL, JsonResponse, On, PASSWORD, REDIRECT, Tokens, World, on_both_engines,
};

on_both_engines!(
    a_user_lists_and_ends_their_sessions,
    nobody_lists_or_ends_another_users_session,
    all_sessions_end_immediately,
    an_administrator_lists_and_ends_any_session,
    a_suspension_applies_immediately_on_every_replica,
    the_workspaces_of_a_suspended_user_are_marked_even_if_the_cluster_is_down,
    a_code_from_before_a_suspension_is_invalid_after_the_resumption,
    of_administrators_who_suspend_each_other_one_stays_active,
    an_administrator_changes_an_address_and_nothing_else,
    only_administrators_manage_users,
    sessions_and_users_are_paginated,
    a_user_is_found_by_address_and_identifier,
    ended_sessions_are_deleted_after_a_month,
    authenticated_callers_learn_the_versions_of_broker_and_plugin,
);

pub(crate) const ADMIN: &str = "root@example.com";
const OTHER: &str = "eve@example.com";

pub(crate) async fn call(world: &World, method: Method, path: &str, who: &Tokens) -> JsonResponse {
    let request = world.http.request(method, world.at(&format!("/api/v1{path}")));
    JsonResponse::send(request.bearer_auth(&who.access)).await
}

async fn sessions(world: &World, who: &Tokens) -> Vec<SessionInfo> {
    let answer = call(world, Method::GET, "/me/sessions", who).await;
    serde_json::from_value::<SessionList>(answer.body).unwrap().items
}

pub(crate) async fn as_user(world: &World, email: &str, role: Role) -> (Uuid, Tokens) {
    let id = world.identity.create_user(email, PASSWORD.into(), role).await.unwrap();
    let attempt = BrowserSignIn::begin(world, REDIRECT).await;
    let response = attempt.post(world, email, PASSWORD).await;
    let code = crate::world::query(crate::world::location(&response), "code").unwrap();
    (id, world.token(&attempt.redeeming(&code)).await.tokens())
}

async fn a_user_lists_and_ends_their_sessions(on: On) {
    let world = World::start(on).await;
    let first = world.sign_in().await;
    world.advance_seconds(1);
    let second = world.sign_in().await;
    let listed = sessions(&world, &second).await;
    assert_eq!(listed.len(), 2);
    assert!(listed[0].current && !listed[1].current, "the newest first: {listed:?}");
    assert_eq!(listed[1].client, "kubectl-tenant");
    assert_eq!(listed[1].ip_address.as_deref(), Some("127.0.0.1"));

    let path = format!("/me/sessions/{}", listed[1].id);
    assert_eq!(call(&world, Method::DELETE, &path, &second).await.status, 204);
    assert_eq!(world.me(&first.access).await, Err(StatusCode::UNAUTHORIZED));
    world.refresh(&first.refresh).await.refused(400, "invalid_grant");
    assert_eq!(call(&world, Method::DELETE, &path, &second).await.status, 404, "it is over");
    assert_eq!(sessions(&world, &second).await.len(), 1);
    assert_eq!(world.count_audited("SignOut").await, 1);
}

async fn nobody_lists_or_ends_another_users_session(on: On) {
    let world = World::start(on).await;
    let victim = world.sign_in().await;
    let id = sessions(&world, &victim).await[0].id;
    let (_, eve) = as_user(&world, OTHER, Role::User).await;
    assert!(sessions(&world, &eve).await.iter().all(|session| session.id != id));
    let path = format!("/me/sessions/{id}");
    assert_eq!(call(&world, Method::DELETE, &path, &eve).await.status, 404);
    let answer = call(&world, Method::DELETE, "/me/sessions", &eve).await;
    assert_eq!(serde_json::from_value::<EndedSessions>(answer.body).unwrap().ended, 1);
    world.me(&victim.access).await.unwrap();
}

async fn all_sessions_end_immediately(on: On) {
    let world = World::start(on).await;
    let mut all = Vec::new();
    for _ in 0..3 {
        all.push(world.sign_in().await);
    }
    let keeping = "/me/sessions?keep_current=true";
    let answer = call(&world, Method::DELETE, keeping, &all[2]).await;
    assert_eq!(answer.body["ended"], 2);
    assert_eq!(world.me(&all[0].access).await, Err(StatusCode::UNAUTHORIZED));
    world.me(&all[2].access).await.unwrap();
    let answer = call(&world, Method::DELETE, "/me/sessions", &all[2]).await;
    assert_eq!(answer.body["ended"], 1);
    assert_eq!(world.me(&all[2].access).await, Err(StatusCode::UNAUTHORIZED));
}

async fn an_administrator_lists_and_ends_any_session(on: On) {
    let world = World::start(on).await;
    let (victim, (_, admin)) = (world.sign_in().await, as_user(&world, ADMIN, Role::Admin).await);
    let of_victim = format!("/users/{}/sessions", world.user);
    let answer = call(&world, Method::GET, &of_victim, &admin).await;
    let listed: SessionList = serde_json::from_value(answer.body).unwrap();
    assert_eq!(listed.items.len(), 1);
    assert!(!listed.items[0].current);
    let unknown = format!("{of_victim}?session_id={}", Uuid::nil());
    let answer = call(&world, Method::DELETE, &unknown, &admin).await;
    assert_eq!(answer.body["ended"], 0);
    let answer = call(&world, Method::DELETE, &of_victim, &admin).await;
    assert_eq!(answer.body["ended"], 1);
    assert_eq!(world.me(&victim.access).await, Err(StatusCode::UNAUTHORIZED));
    world.me(&admin.access).await.unwrap();
}

async fn a_suspension_applies_immediately_on_every_replica(on: On) {
    let world = World::start(on).await;
    let (victim, (admin_id, admin)) =
        (world.sign_in().await, as_user(&world, ADMIN, Role::Admin).await);
    let waiting = BrowserSignIn::begin(&world, REDIRECT).await;
    let code = waiting.code(&world).await;

    let path = format!("/users/{}/suspend", world.user);
    let answer = call(&world, Method::POST, &path, &admin).await;
    let user: UserInfo = serde_json::from_value(answer.body).unwrap();
    assert_eq!(user.status, UserStatus::Suspended);
    assert_eq!(world.me(&victim.access).await, Err(StatusCode::UNAUTHORIZED));
    world.refresh(&victim.refresh).await.refused(400, "invalid_grant");
    world.token(&waiting.redeeming(&code)).await.refused(400, "invalid_grant");
    let again = BrowserSignIn::begin(&world, REDIRECT).await.post(&world, EMAIL, PASSWORD).await;
    assert_eq!(again.status(), 401);
    // The same call again changes nothing and says the same.
    assert_eq!(call(&world, Method::POST, &path, &admin).await.status, 200);
    assert_eq!(world.count_audited("SuspendUser").await, 1);

    let path = format!("/users/{}/resume", world.user);
    assert_eq!(call(&world, Method::POST, &path, &admin).await.body["status"], "active");
    assert_eq!(world.me(&victim.access).await, Err(StatusCode::UNAUTHORIZED), "it stays ended");
    world.sign_in().await;
    let own = format!("/users/{admin_id}/suspend");
    assert_eq!(call(&world, Method::POST, &own, &admin).await.status, 403, "not oneself");
}

async fn the_workspaces_of_a_suspended_user_are_marked_even_if_the_cluster_is_down(on: On) {
    let world = World::start(on).await;
    let (_, admin) = as_user(&world, ADMIN, Role::Admin).await;
    world
        .execute(
            "INSERT INTO workspaces (id, user_id, cluster, k8s_namespace, k8s_sa_name, tier, \
               quota_cpu, quota_memory, status, status_changed_at, created_at) \
             SELECT id, id, 'internal-cluster', 'tenant-ada', 'sa', 'basic', '4', '8Gi', \
               'provisioned', 0, 0 FROM users WHERE email = 'ada@example.com'",
        )
        .await;
    let path = format!("/users/{}/suspend", world.user);
    let answer = call(&world, Method::POST, &path, &admin).await;
    assert_eq!(answer.status, 202, "{answer:?}");
    assert_eq!(answer.body["status"], "suspended");
    assert_eq!(answer.body["workspaces"][0]["status"], "suspending");
    let open = "SELECT COUNT(*) FROM workspaces WHERE status = 'suspending'";
    assert_eq!(world.number(open).await, 1, "the sweep continues with it");
    assert_eq!(world.count_audited("SuspendWorkspace").await, 1);
    assert_eq!(world.count_audited("SuspendUser").await, 1);
}

async fn a_code_from_before_a_suspension_is_invalid_after_the_resumption(on: On) {
    let world = World::start(on).await;
    let (_, admin) = as_user(&world, ADMIN, Role::Admin).await;
    let waiting = BrowserSignIn::begin(&world, REDIRECT).await;
    let code = waiting.code(&world).await;
    for verb in ["suspend", "resume"] {
        let path = format!("/users/{}/{verb}", world.user);
        assert_eq!(call(&world, Method::POST, &path, &admin).await.status, 200);
    }
    world.token(&waiting.redeeming(&code)).await.refused(400, "invalid_grant");
    world.sign_in().await;
}

async fn of_administrators_who_suspend_each_other_one_stays_active(on: On) {
    let world = World::start(on).await;
    for round in 0..4 {
        let (one_id, one) = as_user(&world, &format!("a{round}@example.com"), Role::Admin).await;
        let (two_id, two) = as_user(&world, &format!("b{round}@example.com"), Role::Admin).await;
        let (by_one, by_two) =
            (format!("/users/{two_id}/suspend"), format!("/users/{one_id}/suspend"));
        let (first, second) = tokio::join!(
            call(&world, Method::POST, &by_one, &one),
            call(&world, Method::POST, &by_two, &two),
        );
        let mut statuses = [first.status.as_u16(), second.status.as_u16()];
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 401]);
        let mut alive = 0;
        for admin in [&one, &two] {
            alive += usize::from(world.me(&admin.access).await.is_ok());
        }
        assert_eq!(alive, 1);
    }
}

async fn an_administrator_changes_an_address_and_nothing_else(on: On) {
    let world = World::start(on).await;
    let (person, (_, admin)) = (world.sign_in().await, as_user(&world, ADMIN, Role::Admin).await);
    let path = format!("/users/{}/email", world.user);
    let change = async |body: serde_json::Value| {
        let request = world.http.post(world.at(&format!("/api/v1{path}")));
        JsonResponse::send(request.bearer_auth(&admin.access).json(&body)).await
    };
    let changed = change(json!({ "email": "Ada.L@Example.com", "reason": "married" })).await;
    assert_eq!(changed.body["email"], "ada.l@example.com", "{changed:?}");
    let me = world.me(&person.access).await.unwrap();
    assert_eq!((me.id, me.email.as_str()), (world.user, "ada.l@example.com"));
    let attempt = BrowserSignIn::begin(&world, REDIRECT).await;
    assert_eq!(attempt.post(&world, EMAIL, PASSWORD).await.status(), 401);
    assert_eq!(attempt.post(&world, "ada.l@example.com", PASSWORD).await.status(), 303);
    // The same again is no change.
    assert_eq!(change(json!({ "email": "ada.l@example.com" })).await.status, 200);
    let taken = change(json!({ "email": ADMIN })).await;
    assert_eq!((taken.status.as_u16(), &taken.body["code"]), (409, &json!("email_taken")));
    assert_eq!(change(json!({ "email": "no address" })).await.status, 400);
    assert_eq!(change(json!({ "role": "admin" })).await.status, 400);
    let nobody = format!("/users/{}/email", Uuid::nil());
    assert_eq!(call(&world, Method::POST, &nobody, &admin).await.status, 404);
    // Without an address the old one is free.
    let free = call(&world, Method::POST, &path, &admin).await;
    assert_eq!(free.body["email"], format!("{}@no-verified-email.invalid", world.user));
    world.identity.create_user(EMAIL, PASSWORD.into(), Role::User).await.unwrap();
    assert_eq!(
        crate::upstream::reasons(&world, "ChangeEmail").await,
        [
            &*format!(
                "ada.l@example.com is {}@no-verified-email.invalid from now on: no reason given",
                world.user
            ),
            "another user has this e-mail address; change theirs first",
            "ada@example.com is ada.l@example.com from now on: married",
        ]
    );
}

async fn only_administrators_manage_users(on: On) {
    let world = World::start(on).await;
    let (user, (_, admin)) = (world.sign_in().await, as_user(&world, ADMIN, Role::Admin).await);
    let id = world.user;
    for (method, path) in [
        (Method::GET, "/users".to_owned()),
        (Method::GET, format!("/users/lookup?name={EMAIL}")),
        (Method::GET, format!("/users/{id}")),
        (Method::POST, format!("/users/{id}/suspend")),
        (Method::POST, format!("/users/{id}/resume")),
        (Method::POST, format!("/users/{id}/email")),
        (Method::GET, format!("/users/{id}/groups")),
        (Method::POST, format!("/users/{id}/groups")),
        (Method::GET, format!("/users/{id}/sessions")),
        (Method::DELETE, format!("/users/{id}/sessions")),
    ] {
        let answer = call(&world, method, &path, &user).await;
        assert_eq!(answer.status, 403, "{path}: {answer:?}");
    }
    let answer = call(&world, Method::GET, "/users", &admin).await;
    let listed: UserList = serde_json::from_value(answer.body).unwrap();
    let emails: Vec<_> = listed.items.iter().map(|user| user.email.as_str()).collect();
    assert_eq!(emails, [EMAIL, ADMIN]);
    let nobody = format!("/users/{}", Uuid::nil());
    assert_eq!(call(&world, Method::GET, &nobody, &admin).await.status, 404);
}

async fn sessions_and_users_are_paginated(on: On) {
    let world = World::start(on).await;
    let (_, admin) = as_user(&world, ADMIN, Role::Admin).await;
    let mut mine = Vec::new();
    for _ in 0..3 {
        // Two of the same millisecond.
        mine.push(world.sign_in().await);
        mine.push(world.sign_in().await);
        world.advance_seconds(1);
    }
    let of_user = format!("/users/{}/sessions", world.user);
    for (path, who) in [("/me/sessions", &mine[0]), (&of_user, &admin)] {
        for size in [1, 2, 4, 6, 1000] {
            let (mut seen, mut next) = (Vec::new(), Some(String::new()));
            while let Some(cursor) = next {
                let cursor = if cursor.is_empty() { cursor } else { format!("&cursor={cursor}") };
                let page = format!("{path}?limit={size}{cursor}");
                let answer = call(&world, Method::GET, &page, who).await;
                let page: SessionList = serde_json::from_value(answer.body).unwrap();
                assert!(page.items.len() <= size && !page.items.is_empty());
                seen.extend(page.items.into_iter().map(|session| session.id));
                next = page.next_cursor;
            }
            let all = sessions(&world, &mine[0]).await;
            assert_eq!(seen, all.iter().map(|session| session.id).collect::<Vec<_>>());
            assert_eq!(seen.len(), 6);
        }
    }
    // A session that ends between two pages does not hide a session of the next page.
    let first = call(&world, Method::GET, "/me/sessions?limit=1", &mine[0]).await;
    let first: SessionList = serde_json::from_value(first.body).unwrap();
    let (id, cursor) = (first.items[0].id, first.next_cursor.unwrap());
    call(&world, Method::DELETE, &format!("/me/sessions/{id}"), &mine[0]).await;
    let rest = format!("/me/sessions?limit=9&cursor={cursor}");
    let rest = call(&world, Method::GET, &rest, &mine[0]).await;
    assert_eq!(serde_json::from_value::<SessionList>(rest.body).unwrap().items.len(), 5);

    let answer = call(&world, Method::GET, "/users?limit=1", &admin).await;
    let page: UserList = serde_json::from_value(answer.body).unwrap();
    assert_eq!((page.items[0].email.as_str(), page.next_cursor.as_deref()), (EMAIL, Some(EMAIL)));
    let answer = call(&world, Method::GET, &format!("/users?limit=1&cursor={EMAIL}"), &admin).await;
    let page: UserList = serde_json::from_value(answer.body).unwrap();
    assert_eq!((page.items[0].email.as_str(), page.next_cursor), (ADMIN, None));
    for bad in ["/users?limit=501", "/users?limit=0", &format!("{of_user}?limit=1001")] {
        assert_eq!(call(&world, Method::GET, bad, &admin).await.status, 400, "{bad}");
    }
}

async fn a_user_is_found_by_address_and_identifier(on: On) {
    let world = World::start(on).await;
    let (_, admin) = as_user(&world, ADMIN, Role::Admin).await;
    world.sign_in().await;
    for name in [EMAIL.to_owned(), EMAIL.to_uppercase(), world.user.to_string()] {
        let path = format!("/users/lookup?name={name}");
        let found = call(&world, Method::GET, &path, &admin).await;
        let found: UserInfo = serde_json::from_value(found.body).unwrap();
        assert_eq!((found.id, found.email.as_str()), (world.user, EMAIL));
    }
    for (name, status) in
        [("nobody@example.com", 404), ("tenant-x", 404), ("%25@example.com", 404), ("a%20b", 400)]
    {
        let path = format!("/users/lookup?name={name}");
        assert_eq!(call(&world, Method::GET, &path, &admin).await.status, status, "{name}");
    }
}

async fn ended_sessions_are_deleted_after_a_month(on: On) {
    let world = World::start(on).await;
    let over = world.sign_in().await;
    call(&world, Method::DELETE, "/me/sessions", &over).await;
    let rows = "SELECT COUNT(*) FROM sessions";
    world.advance_seconds(29 * 24 * 3600);
    world.issuer.purge().await.unwrap();
    assert_eq!(world.number(rows).await, 1);
    let alive = world.sign_in().await;
    world.advance_seconds(24 * 3600 - 60);
    world.issuer.purge().await.unwrap();
    world.advance_seconds(61);
    // Its tokens go first, then the session itself.
    world.issuer.purge().await.unwrap();
    world.issuer.purge().await.unwrap();
    assert_eq!(world.number(rows).await, 1);
    assert_eq!(world.me(&alive.access).await, Err(StatusCode::UNAUTHORIZED), "idle for a day");
}

async fn authenticated_callers_learn_the_versions_of_broker_and_plugin(on: On) {
    let world = World::start(on).await;
    let who = world.sign_in().await;
    // A refused request has the headers, too, because the versions may be the reason.
    for (path, status) in [("/me", 200_u16), ("/users", 403)] {
        let answer = call(&world, Method::GET, path, &who).await;
        assert_eq!(answer.status, status, "{path}");
        assert_eq!(answer.headers[BROKER_VERSION_HEADER], env!("CARGO_PKG_VERSION"), "{path}");
        assert_eq!(answer.headers[MIN_PLUGIN_VERSION_HEADER], MIN_PLUGIN_VERSION, "{path}");
    }
    let forged = Tokens { access: "tba_forged".to_owned(), ..who };
    for (path, status) in [("/me", 401_u16), ("/nowhere", 404)] {
        let answer = call(&world, Method::GET, path, &forged).await;
        assert_eq!(answer.status, status, "{path}");
        assert!(!answer.headers.contains_key(BROKER_VERSION_HEADER), "{path}");
        assert!(!answer.headers.contains_key(MIN_PLUGIN_VERSION_HEADER), "{path}");
    }
}
