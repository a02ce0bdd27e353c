//! Sign-in at an upstream provider: admission, linking to users, and refusals.

use integration::{browser::Browser, oidc_provider::OidcProvider};
use reqwest::Method;
use serde_json::json;
use tenant_shared::Role;

use crate::{
    sessions::{ADMIN, as_user, call},
    upstream::{ProviderWorld, SignInVisit, claims, connector, redeem, register, with_connectors},
    world::{BrowserSignIn, EMAIL, On, PASSWORD, REDIRECT, World, on_both_engines, query},
};

on_both_engines!(
    a_person_signs_in_at_the_provider_and_stays_the_same_user,
    concurrent_first_sign_ins_create_one_user,
    an_email_address_takes_over_no_account,
    a_registered_address_does_not_lock_out_its_owner,
    groups_decide_admission_and_the_administrator_role,
    another_browser_cannot_complete_the_callback,
    a_state_is_valid_once_for_its_provider_and_expires,
    refused_provider_sign_ins_count_for_the_address,
    password_failures_do_not_limit_provider_sign_ins,
);

async fn a_person_signs_in_at_the_provider_and_stays_the_same_user(on: On) {
    let fixture = ProviderWorld::start(on).await;
    let first = fixture.sign_in("ada").await;
    let me = fixture.world.me(&first.access).await.unwrap();
    assert_eq!((me.email.as_str(), me.role), ("ada@corp.example", Role::User));
    let provider = me.provider.unwrap();
    assert_eq!((provider.name.as_str(), provider.username.as_deref()), ("corp", Some("ada")));
    // An outage of an hour, the last answer, an access token, a Kubernetes token.
    assert_eq!(provider.removal_seconds, 3600 + 10 + 900 + 7270);
    // Another browser, another day, another name: the subject is what counts.
    fixture.world.advance_seconds(3600);
    let renamed = json!({ "email": "ada.l@corp.example", "email_verified": true });
    fixture.provider.person("ada", renamed).await.unwrap();
    let again = fixture.sign_in("ada").await;
    let again = fixture.world.me(&again.access).await.unwrap();
    assert_eq!((again.id, again.email.as_str()), (me.id, "ada.l@corp.example"));
    assert_eq!(fixture.world.number("SELECT COUNT(*) FROM identities").await, 1);
    let reasons = fixture.audit("SignIn").await;
    assert!(reasons[0].contains("corp as \"ada\""), "{reasons:?}");
    assert_eq!(fixture.audit("CreateUser").await[0], "from corp, role user");
}

async fn concurrent_first_sign_ins_create_one_user(on: On) {
    let fixture = ProviderWorld::start(on).await;
    let before = fixture.world.number("SELECT COUNT(*) FROM users").await;
    let pages = futures(8, || fixture.sign_in_page("ada")).await;
    let mut users = std::collections::BTreeSet::new();
    for page in &pages {
        let tokens = redeem(&fixture.world, page).await;
        users.insert(fixture.world.me(&tokens.access).await.unwrap().id);
    }
    assert_eq!(users.len(), 1);
    assert_eq!(fixture.world.number("SELECT COUNT(*) FROM users").await, before + 1);
    assert_eq!(fixture.audit("CreateUser").await.len(), 2);
}

async fn futures<T, F: Future<Output = T>>(count: usize, make: impl Fn() -> F) -> Vec<T> {
    let mut running: Vec<_> = (0..count).map(|_| Box::pin(make())).collect();
    let mut done = Vec::new();
    std::future::poll_fn(|context| {
        running.retain_mut(|future| match future.as_mut().poll(context) {
            std::task::Poll::Ready(value) => {
                done.push(value);
                false
            }
            std::task::Poll::Pending => true,
        });
        if running.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    done
}

async fn an_email_address_takes_over_no_account(on: On) {
    let fixture = ProviderWorld::start(on).await;
    // The local account of the world has this address. The provider's word for it counts for
    // nothing here, verified or not.
    fixture.provider.person("mallory", claims(EMAIL, true)).await.unwrap();
    fixture.refused("mallory", "Another user here has your e-mail address").await;
    fixture.provider.person("mallory", claims(EMAIL, false)).await.unwrap();
    let tokens = fixture.sign_in("mallory").await;
    let me = fixture.world.me(&tokens.access).await.unwrap();
    assert_ne!(me.id, fixture.world.user);
    assert_eq!(me.email, format!("{}@no-verified-email.invalid", me.id));
    // An address that is verified later is taken only if it is free.
    fixture.provider.person("mallory", claims(EMAIL, true)).await.unwrap();
    let tokens = fixture.sign_in("mallory").await;
    let again = fixture.world.me(&tokens.access).await.unwrap();
    assert_eq!((again.id, &again.email), (me.id, &me.email));
    fixture.provider.person("mallory", claims("mallory@corp.example", true)).await.unwrap();
    let tokens = fixture.sign_in("mallory").await;
    assert_eq!(fixture.world.me(&tokens.access).await.unwrap().email, "mallory@corp.example");
}

async fn a_registered_address_does_not_lock_out_its_owner(on: On) {
    let fixture = ProviderWorld::start(on).await;
    let world = &fixture.world;
    let taken = "ada@corp.example";
    let mallory = world.identity.create_user(taken, PASSWORD.into(), Role::User).await.unwrap();
    fixture.refused("ada", "Another user here has your e-mail address").await;
    let (_, admin) = as_user(world, ADMIN, Role::Admin).await;
    let path = format!("/users/{mallory}/email");
    assert_eq!(call(world, Method::POST, &path, &admin).await.status, 200);
    let me = world.me(&fixture.sign_in("ada").await.access).await.unwrap();
    assert_eq!(me.email, taken);
    assert_ne!(me.id, mallory);
}

async fn groups_decide_admission_and_the_administrator_role(on: On) {
    let fixture = ProviderWorld::with(on, |connector| {
        connector.allowed_groups = vec!["dev".into()];
        connector.allowed_domains = vec!["corp.example".into()];
    })
    .await;
    let role = async |groups: &[&str]| {
        fixture.person("ada", groups).await;
        fixture.world.me(&fixture.sign_in("ada").await.access).await.unwrap().role
    };
    assert_eq!(role(&["dev", "ops"]).await, Role::Admin);
    assert_eq!(role(&["dev"]).await, Role::User);
    assert_eq!(role(&["ops", "dev"]).await, Role::Admin);
    assert_eq!(fixture.audit("ChangeRole").await, ["corp says: admin", "corp says: user"]);
    fixture.person("ada", &["ops"]).await;
    fixture.refused("ada", "not in a group that may sign in").await;
    fixture.provider.person("eve", claims("eve@evil.example", true)).await.unwrap();
    fixture.refused("eve", "no verified e-mail address of a domain").await;
    fixture.provider.person("eve", claims("eve@corp.example", false)).await.unwrap();
    fixture.refused("eve", "no verified e-mail address of a domain").await;
    let refused = fixture.audit("SignIn").await;
    assert!(refused[0].contains("corp: \"eve\" is no verified"), "{refused:?}");
    assert_eq!(fixture.world.number("SELECT COUNT(*) FROM identities").await, 1);
}

async fn another_browser_cannot_complete_the_callback(on: On) {
    let fixture = ProviderWorld::start(on).await;
    let callback = fixture.world.at("/login/callback/corp").parse().unwrap();
    let visit = SignInVisit::begin(&fixture.world, "corp").await;
    let stopping = visit.browser.clone().stopping_at(callback);
    let back = fixture.provider.sign_in(&stopping, visit.url.clone(), "ada").await.unwrap();
    assert!(query(back.url.as_str(), "code").is_some(), "{}", back.url);
    // A victim is lured to the attacker's answer, or has a waiting sign-in of their own.
    let stranger = Browser::new(None).unwrap();
    let page = stranger.open(back.url.clone()).await.unwrap();
    assert_eq!(page.status, 400, "{}", page.body);
    let other = SignInVisit::begin(&fixture.world, "corp").await;
    let page = other.browser.open(back.url.clone()).await.unwrap();
    assert_eq!(page.status, 400, "{}", page.body);
    // Nor does it help to begin at the provider with another's request.
    let page = stranger.open(visit.url).await.unwrap();
    assert_eq!(page.status, 400, "{}", page.body);
    assert_eq!(fixture.world.number("SELECT COUNT(*) FROM identities").await, 0);
}

async fn a_state_is_valid_once_for_its_provider_and_expires(on: On) {
    let (one, two) = (OidcProvider::start().await.unwrap(), OidcProvider::start().await.unwrap());
    let world = World::with(on, |settings| {
        with_connectors(settings, [("corp", connector(&one)), ("other", connector(&two))]);
    })
    .await;
    register(&one, &world, "corp").await;
    register(&two, &world, "other").await;
    one.person("ada", claims("ada@corp.example", true)).await.unwrap();
    let callback = world.at("/login/callback/corp");
    // Everything is done but for the last request.
    let arrive = async || {
        let visit = SignInVisit::begin(&world, "corp").await;
        let stopping = visit.browser.clone().stopping_at(callback.parse().unwrap());
        let back = one.sign_in(&stopping, visit.url, "ada").await.unwrap();
        (visit.browser, back.url)
    };
    let status = async |browser: &Browser, url: &str| {
        browser.open(url.parse().unwrap()).await.unwrap().status.as_u16()
    };
    // Mix-up: the answer of one provider at the address of another.
    let (browser, url) = arrive().await;
    let moved = url.as_str().replace("/callback/corp", "/callback/other");
    assert_eq!(status(&browser, &moved).await, 400);
    assert_eq!(status(&browser, url.as_str()).await, 400, "and the state is used up");
    // The sender is another one, or is not named although the provider names itself.
    for sender in [format!("iss={}", two.issuer()), String::new()] {
        let (browser, mut url) = arrive().await;
        let kept: Vec<_> = url.query_pairs().into_owned().filter(|(k, _)| k != "iss").collect();
        url.query_pairs_mut().clear().extend_pairs(kept);
        assert_eq!(status(&browser, &format!("{url}&{sender}")).await, 403, "{sender}");
    }
    // Somebody else's code, and none of ours.
    let (browser, url) = arrive().await;
    let (_, foreign) = arrive().await;
    let (mine, theirs) =
        (query(url.as_str(), "code").unwrap(), query(foreign.as_str(), "code").unwrap());
    assert_eq!(status(&browser, &url.as_str().replace(&mine, &theirs)).await, 403);
    // In time, once.
    let (browser, url) = arrive().await;
    world.advance_seconds(601);
    assert_eq!(status(&browser, url.as_str()).await, 400, "too late");
    let (browser, url) = arrive().await;
    let browser = browser.stopping_at(crate::world::REDIRECT.parse().unwrap());
    let page = browser.open(url.clone()).await.unwrap();
    redeem(&world, &page).await;
    assert_eq!(status(&browser, url.as_str()).await, 400, "once");
    world.advance_seconds(601);
    world.issuer.purge().await.unwrap();
    assert_eq!(world.number("SELECT COUNT(*) FROM upstream_attempts").await, 0);
}

async fn refused_provider_sign_ins_count_for_the_address(on: On) {
    let provider = OidcProvider::start().await.unwrap();
    let mut corp = connector(&provider);
    corp.allowed_groups = vec!["nobody".into()];
    let world = World::with(on, |settings| {
        settings.sign_in_address.count = 2;
        with_connectors(settings, [("corp", corp)]);
    })
    .await;
    register(&provider, &world, "corp").await;
    provider.person("eve", claims("eve@corp.example", true)).await.unwrap();
    let arrive = async || {
        let visit = SignInVisit::begin(&world, "corp").await;
        let page = provider.sign_in(&visit.browser, visit.url, "eve").await.unwrap();
        page.status.as_u16()
    };
    assert_eq!([arrive().await, arrive().await, arrive().await], [403, 403, 429]);
    let asked = provider.counts().await.unwrap().get("/token").copied();
    assert_eq!(arrive().await, 429);
    let again = provider.counts().await.unwrap().get("/token").copied();
    assert_eq!(again, asked, "the provider is left in peace");
    assert_eq!(world.number("SELECT COUNT(*) FROM audit_logs WHERE action = 'SignIn'").await, 2);
    world.advance_seconds(301);
    assert_eq!(arrive().await, 403);
}

/// Many people share an address, so failed passwords must not block those who sign in at a
/// provider.
async fn password_failures_do_not_limit_provider_sign_ins(on: On) {
    let fixture =
        ProviderWorld::with_settings(on, |settings| settings.sign_in_address.count = 2).await;
    let attempt = BrowserSignIn::begin(&fixture.world, REDIRECT).await;
    for status in [401, 401, 429] {
        assert_eq!(attempt.post(&fixture.world, EMAIL, "wrong").await.status().as_u16(), status);
    }
    let tokens = fixture.sign_in("ada").await;
    assert_eq!(fixture.world.me(&tokens.access).await.unwrap().email, "ada@corp.example");
    // Nor do sign-ins that the provider refuses keep people from their passwords.
    fixture.world.advance_seconds(301);
    for status in [403, 403, 429] {
        let visit = SignInVisit::begin(&fixture.world, "corp").await;
        let callback = fixture.world.at("/login/callback/corp");
        let stopping = visit.browser.clone().stopping_at(callback.parse().unwrap());
        let back = fixture.provider.sign_in(&stopping, visit.url, "ada").await.unwrap();
        let code = query(back.url.as_str(), "code").unwrap();
        let spoilt = back.url.as_str().replace(&code, "spoilt");
        let page = visit.browser.open(spoilt.parse().unwrap()).await.unwrap();
        assert_eq!(page.status.as_u16(), status);
    }
    assert_eq!(attempt.post(&fixture.world, EMAIL, PASSWORD).await.status(), 303);
}
