//! Groups and user names of people for Tenants: taken over from the provider at each sign-in and
//! check, or given by an administrator.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tenant_broker::identity::{
    RbacUser, RbacUserRules, UserNameSource, rbac_users, rbac_users_changed_since,
};
use tenant_shared::{Role, UserGroups};
use uuid::Uuid;

use crate::{
    sessions::{ADMIN, as_user, call},
    upstream::{ProviderWorld, claims, reasons},
    world::{JsonResponse, On, Tokens, World, on_both_engines},
};

on_both_engines!(
    a_sign_in_keeps_the_groups_that_the_provider_names,
    a_group_removed_at_the_provider_is_gone_after_the_next_refresh,
    a_sign_in_with_too_many_groups_works_and_keeps_none,
    without_tenants_no_groups_are_kept,
    an_address_that_changed_at_the_provider_is_taken_over_at_the_next_refresh,
    an_administrator_gives_groups_to_a_local_account,
    a_registered_address_is_no_user_name,
);

async fn keeping(on: On) -> ProviderWorld {
    ProviderWorld::with(on, |connector| connector.keep_groups = true).await
}

fn by_email() -> RbacUserRules {
    RbacUserRules::new(UserNameSource::Email, "", "everybody").unwrap()
}

async fn person(world: &World, user: Uuid) -> RbacUser {
    rbac_users(&world.db, &by_email(), &[user]).await.unwrap().remove(&user).unwrap()
}

async fn groups(world: &World, user: Uuid) -> Vec<String> {
    person(world, user).await.groups.into_iter().collect()
}

async fn user_of(world: &World, tokens: &Tokens) -> Uuid {
    world.me(&tokens.access).await.unwrap().id
}

async fn a_sign_in_keeps_the_groups_that_the_provider_names(on: On) {
    let fixture = keeping(on).await;
    let world = &fixture.world;
    fixture.person("ada", &["ops", "dev", "system:masters"]).await;
    let ada = user_of(world, &fixture.sign_in("ada").await).await;
    assert_eq!(groups(world, ada).await, ["dev", "everybody", "ops"]);
    assert_eq!(person(world, ada).await.user_name.as_deref(), Some("ada@corp.example"));
    let source = UserNameSource::Username { issuer: fixture.provider.issuer().to_owned() };
    let rules = RbacUserRules::new(source, "sso:", "everybody").unwrap();
    let named = rbac_users(&world.db, &rules, &[ada]).await.unwrap().remove(&ada).unwrap();
    assert_eq!(named.user_name.as_deref(), Some("sso:ada"));
    fixture.person("ada", &["dev", "net"]).await;
    fixture.sign_in("ada").await;
    assert_eq!(groups(world, ada).await, ["dev", "everybody", "net"]);
    assert_eq!(
        fixture.audit("ChangeGroups").await,
        [
            r#"corp says: added ["net"], removed ["ops"]"#,
            r#"corp says: added ["dev","ops"], removed []"#
        ]
    );
}

async fn a_group_removed_at_the_provider_is_gone_after_the_next_refresh(on: On) {
    let fixture = keeping(on).await;
    let world = &fixture.world;
    fixture.person("ada", &["dev", "ops"]).await;
    let mut tokens = fixture.sign_in("ada").await;
    let ada = user_of(world, &tokens).await;
    let mut since = world.clock.now_ms();
    for (named, expected) in [
        (&["dev"][..], &["dev", "everybody"][..]),
        (&[], &["everybody"]),
        (&["net"], &["everybody", "net"]),
    ] {
        fixture.person("ada", named).await;
        world.advance_seconds(900);
        tokens = world.refresh(&tokens.refresh).await.tokens();
        assert_eq!(groups(world, ada).await, expected);
        let changed = rbac_users_changed_since(&world.db, since).await.unwrap();
        assert_eq!(changed.into_iter().map(|(user, _)| user).collect::<Vec<_>>(), [ada]);
        since = world.clock.now_ms();
    }
    // Nothing changed since then, and a provider that does not answer says nothing.
    world.advance_seconds(900);
    tokens = world.refresh(&tokens.refresh).await.tokens();
    fixture.provider.outage(Some(503)).await.unwrap();
    world.advance_seconds(900);
    world.refresh(&tokens.refresh).await.tokens();
    assert_eq!(groups(world, ada).await, ["everybody", "net"]);
    assert!(rbac_users_changed_since(&world.db, since).await.unwrap().is_empty());
    assert_eq!(fixture.audit("ChangeGroups").await.len(), 4);
}

async fn a_sign_in_with_too_many_groups_works_and_keeps_none(on: On) {
    let fixture = keeping(on).await;
    let world = &fixture.world;
    // As long as the identifiers of Microsoft Entra ID.
    let names: Vec<String> = (0..10_000).map(|number| format!("{number:036}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    fixture.person("ada", &names).await;
    let tokens = fixture.sign_in("ada").await;
    let ada = user_of(world, &tokens).await;
    assert_eq!(groups(world, ada).await, ["everybody"]);
    // An ID token with these groups has half a megabyte.
    fixture.provider.claims_in_id_token(true).await.unwrap();
    let tokens = fixture.sign_in("ada").await;
    assert_eq!(user_of(world, &tokens).await, ada);
    assert_eq!(groups(world, ada).await, ["everybody"]);
    fixture.person("ada", &names[..512]).await;
    world.advance_seconds(900);
    let tokens = world.refresh(&tokens.refresh).await.tokens();
    assert_eq!(groups(world, ada).await.len(), 512 + 1);
    fixture.person("ada", &names[..513]).await;
    world.advance_seconds(900);
    world.refresh(&tokens.refresh).await.tokens();
    assert_eq!(groups(world, ada).await, ["everybody"], "none is better than some of them");
}

async fn without_tenants_no_groups_are_kept(on: On) {
    let fixture = ProviderWorld::start(on).await;
    fixture.person("ada", &["dev", "ops"]).await;
    let tokens = fixture.sign_in("ada").await;
    assert_eq!(fixture.world.me(&tokens.access).await.unwrap().role, Role::Admin, "ops counts");
    fixture.world.advance_seconds(900);
    fixture.world.refresh(&tokens.refresh).await.tokens();
    let kept = "SELECT COUNT(*) FROM identities WHERE groups IS NOT NULL OR user_name IS NOT NULL";
    assert_eq!(fixture.world.number(kept).await, 0);
    assert!(fixture.audit("ChangeGroups").await.is_empty());
}

async fn an_address_that_changed_at_the_provider_is_taken_over_at_the_next_refresh(on: On) {
    let fixture = keeping(on).await;
    let world = &fixture.world;
    let mut tokens = fixture.sign_in("ada").await;
    let ada = user_of(world, &tokens).await;
    for (says, address, name) in [
        (claims("ada.l@corp.example", true), "ada.l@corp.example", Some("ada.l@corp.example")),
        // It stays, but nobody vouches for it any more.
        (claims("ada.m@corp.example", false), "ada.l@corp.example", None),
        (claims("ada.m@corp.example", true), "ada.m@corp.example", Some("ada.m@corp.example")),
        // The address of the world's local account.
        (claims(crate::world::EMAIL, true), "ada.m@corp.example", None),
    ] {
        fixture.provider.person("ada", says.clone()).await.unwrap();
        world.advance_seconds(900);
        tokens = world.refresh(&tokens.refresh).await.tokens();
        assert_eq!(world.me(&tokens.access).await.unwrap().email, address, "{says}");
        assert_eq!(person(world, ada).await.user_name.as_deref(), name, "{says}");
    }
}

async fn set_groups(world: &World, user: Uuid, admin: &Tokens, body: &Value) -> JsonResponse {
    let request = world.http.post(world.at(&format!("/api/v1/users/{user}/groups")));
    JsonResponse::send(request.bearer_auth(&admin.access).json(body)).await
}

async fn an_administrator_gives_groups_to_a_local_account(on: On) {
    let fixture = keeping(on).await;
    let world = &fixture.world;
    let (_, admin) = as_user(world, ADMIN, Role::Admin).await;
    let user = world.user;
    let set = async |body: Value| set_groups(world, user, &admin, &body).await;
    let given = set(json!({ "groups": ["ops", "dev", "ops"], "reason": "joined" })).await;
    assert_eq!(given.status, 200, "{given:?}");
    let given: UserGroups = serde_json::from_value(given.body).unwrap();
    assert_eq!((given.id, given.email.as_str()), (user, crate::world::EMAIL));
    assert_eq!((given.groups, given.issuer), (vec!["dev".to_owned(), "ops".to_owned()], None));
    assert_eq!(groups(world, user).await, ["dev", "everybody", "ops"]);
    // The same again is no change.
    assert_eq!(set(json!({ "groups": ["dev", "ops"] })).await.status, 200);
    for bad in [
        json!({}),
        json!({ "groups": null }),
        json!({ "groups": ["system:masters"] }),
        json!({ "groups": [""] }),
        json!({ "groups": ["x".repeat(340)] }),
        json!({ "groups": (0..65).map(|number| number.to_string()).collect::<Vec<_>>() }),
        json!({ "groups": "dev" }),
        json!({ "group": ["dev"] }),
    ] {
        let refused = set(bad.clone()).await;
        assert_eq!(refused.status, 400, "{bad}: {refused:?}");
    }
    assert_eq!(groups(world, user).await, ["dev", "everybody", "ops"]);
    assert_eq!(set(json!({ "groups": [] })).await.body["groups"], json!([]));
    assert_eq!(groups(world, user).await, ["everybody"]);

    fixture.person("ada", &["net"]).await;
    let ada = user_of(world, &fixture.sign_in("ada").await).await;
    let refused = set_groups(world, ada, &admin, &json!({ "groups": ["ops"] })).await;
    assert_eq!(
        (refused.status, refused.body["code"].as_str()),
        (StatusCode::CONFLICT, Some("provider_decides"))
    );
    let shown = call(world, Method::GET, &format!("/users/{ada}/groups"), &admin).await.body;
    assert_eq!(
        (&shown["groups"], &shown["issuer"]),
        (&json!(["net"]), &json!(fixture.provider.issuer()))
    );
    for (method, body) in [(Method::GET, None), (Method::POST, Some(json!({ "groups": [] })))] {
        let url = world.at(&format!("/api/v1/users/{}/groups", Uuid::nil()));
        let mut request = world.http.request(method.clone(), url).bearer_auth(&admin.access);
        if let Some(body) = body {
            request = request.json(&body);
        }
        assert_eq!(JsonResponse::send(request).await.status, 404, "{method}");
    }
    assert_eq!(
        reasons(world, "ChangeGroups").await,
        [
            "this user signs in at a provider, which decides on their groups: change them there. \
             The broker takes them over when the user signs in or renews the session",
            r#"corp says: added ["net"], removed []"#,
            r#"added [], removed ["dev","ops"]: no reason given"#,
            r#"added ["dev","ops"], removed []: joined"#,
        ]
    );
}

async fn a_registered_address_is_no_user_name(on: On) {
    let fixture = ProviderWorld::with_settings(on, |settings| settings.registration = true).await;
    let world = &fixture.world;
    let boss = "boss@corp.example";
    let body = json!({ "email": boss, "password": crate::world::PASSWORD });
    let request = world.http.post(world.at("/api/v1/auth/register")).json(&body);
    assert_eq!(JsonResponse::send(request).await.status, 202);
    let (_, admin) = as_user(world, ADMIN, Role::Admin).await;
    let found = call(world, Method::GET, &format!("/users/lookup?name={boss}"), &admin).await;
    let id: Uuid = serde_json::from_value(found.body["id"].clone()).unwrap();
    assert_eq!(person(world, id).await.user_name, None);
    let operators = person(world, world.user).await.user_name;
    assert_eq!(operators.as_deref(), Some(crate::world::EMAIL));
    // An administrator who knows the person vouches for the address.
    let request = world.http.post(world.at(&format!("/api/v1/users/{id}/email")));
    let body = json!({ "email": boss, "reason": "met them" });
    let confirmed = JsonResponse::send(request.bearer_auth(&admin.access).json(&body)).await;
    assert_eq!(confirmed.status, 200, "{confirmed:?}");
    assert_eq!(person(world, id).await.user_name.as_deref(), Some(boss));
    assert_eq!(reasons(world, "ChangeEmail").await, ["boss@corp.example is confirmed: met them"]);
}
