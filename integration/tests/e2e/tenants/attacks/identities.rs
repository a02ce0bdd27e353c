//! Identities that are half valid, at the gateway, and identities of others at the API server.

use std::collections::BTreeSet;

use http::{Method, StatusCode};
use integration::control_plane::BROKER_USER;
use integration::person::Person;
use secrecy::ExposeSecret as _;
use serde_json::json;
use tenant_shared::SuspendRequest;

use super::attacker::Attacker;
use super::two_tenants::{ELIGIBLE, TwoTenants};
use super::{OTHER, OWN};
use crate::gateway::GATEWAY;
use crate::tenants::attempt::{Answer, Attempt, apply, attempt, labels, namespace, patch, post};
use crate::tenants::audit_events::{events_of, until_logged};
use crate::tenants::cluster_state::ClusterState;
use crate::tenants::suspension::database;

/// Headers of a request, and the statuses of which its refusal has one.
struct Presented {
    what: &'static str,
    headers: Vec<(&'static str, String)>,
    statuses: &'static [u16],
}

fn presented(
    what: &'static str,
    headers: &[(&'static str, &str)],
    statuses: &'static [u16],
) -> Presented {
    let headers = headers.iter().map(|(name, value)| (*name, (*value).to_owned()));
    Presented { what, headers: headers.collect(), statuses }
}

/// A bearer token that is not valid.
fn bearer(what: &'static str, token: &str) -> Presented {
    presented(what, &[("authorization", &format!("Bearer {token}"))], &[401])
}

/// A valid token together with the request to act as somebody else.
fn impersonating(token: &str, header: &'static str, value: &str) -> Presented {
    let authorization = format!("Bearer {token}");
    presented(header, &[("authorization", &authorization), (header, value)], &[403])
}

/// Requests of an owner: the gateway answers some of them with the identity of the broker, and
/// forwards others.
fn requests() -> Vec<Attempt> {
    let new = || namespace("solar-half", &json!({}));
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": "create", "resource": "namespaces"}},
    });
    let path = format!("api/v1/namespaces/{OWN}");
    vec![
        attempt(Method::GET, "api/v1/namespaces"),
        attempt(Method::GET, "api/v1/namespaces?watch=1&timeoutSeconds=1"),
        post("api/v1/namespaces", new()),
        apply("api/v1/namespaces/solar-half?fieldManager=attacker", new()),
        attempt(Method::GET, format!("{path}/configmaps")),
        patch(path, labels(&json!({"team": "x"}))),
        post("apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review),
    ]
}

/// Credentials of an owner that have ended: the token expired, the session was ended, and the person
/// is suspended.
async fn ended(tenants: &TwoTenants, owner: &Person) -> Vec<Presented> {
    let world = &tenants.fixture.world;
    let (erin, frank) = (world.person("erin").await.unwrap(), world.person("frank").await.unwrap());
    let (expired, suspended) = (erin.sign_in().await.unwrap(), frank.sign_in().await.unwrap());
    let statement = "UPDATE access_tokens SET expires_at = 1 WHERE session_id IN \
                     (SELECT id FROM sessions WHERE user_id = $1)";
    let mut database = database(world).await;
    let done = sqlx::query(statement).bind(erin.id()).execute(&mut database).await.unwrap();
    assert!(done.rows_affected() > 0);
    let reason = SuspendRequest { reason: Some("leak".to_owned()) };
    tenants.fixture.operator.suspend_user(frank.id(), &reason).await.unwrap();
    let signed_out = owner.sign_in().await.unwrap();
    owner.issuer().await.unwrap().revoke(&signed_out.refresh_token).await.unwrap();
    vec![
        bearer("an expired token", expired.access_token.expose_secret()),
        bearer("a token of a suspended person", suspended.access_token.expose_secret()),
        bearer("a token of an ended session", signed_out.access_token.expose_secret()),
    ]
}

/// Headers with a part of a valid access token, and with what is none.
fn forged(token: &str) -> Vec<Presented> {
    let (most, last) = token.split_at(token.len() - 1);
    let other = if last == "A" { "B" } else { "A" };
    let unsigned = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJzeXN0ZW06YWRtaW4ifQ.";
    vec![
        presented("nothing", &[], &[401]),
        presented("an empty header", &[("authorization", "")], &[401]),
        presented("a scheme alone", &[("authorization", "Bearer")], &[401]),
        presented("another scheme", &[("authorization", &format!("Basic {token}"))], &[401]),
        bearer("an empty token", ""),
        bearer("an unknown token", &format!("tba_{}", "x".repeat(43))),
        bearer("a changed token", &format!("{most}{other}")),
        bearer("a part of a token", most),
        bearer("a longer token", &format!("{token}A")),
        bearer("another prefix", &token.replacen("tba_", "tbs_", 1)),
        bearer("two tokens", &format!("{token}, Bearer {token}")),
        bearer("an unsigned token", unsigned),
    ]
}

/// Other headers, alone and with a token.
fn with_other_headers(token: &str) -> Vec<Presented> {
    let (valid, invalid) = (format!("Bearer {token}"), "Bearer tba_x");
    let cookie = format!("tenant-session={token}");
    let unknown = format!("tenant-session=tbs_{}", "x".repeat(43));
    let protocols = "v4.channel.k8s.io, base64url.bearer.authorization.k8s.io.dG9rZW4";
    let proxy = [("x-remote-user", BROKER_USER), ("x-remote-group", "system:masters")];
    let with_proxy = [&[("authorization", invalid)][..], &proxy].concat();
    // A change with a cookie needs an origin that is listed.
    let of_cookie = &[401, 403];
    vec![
        presented("a token as a cookie", &[("cookie", &cookie)], of_cookie),
        presented("a cookie of a page", &[("cookie", &cookie), ("origin", "null")], of_cookie),
        presented("an unknown cookie", &[("cookie", &unknown)], of_cookie),
        presented("both", &[("authorization", invalid), ("cookie", &cookie)], &[401]),
        presented("the user of a proxy", &proxy, &[401]),
        presented("the user of a proxy with a token", &with_proxy, &[401]),
        presented("a subprotocol", &[("sec-websocket-protocol", protocols)], &[401]),
        presented("two", &[("authorization", invalid), ("authorization", &valid)], &[401]),
        presented("two valid", &[("authorization", &valid), ("authorization", &valid)], &[400]),
        impersonating(token, "impersonate-user", BROKER_USER),
        impersonating(token, "impersonate-group", "system:masters"),
        impersonating(token, "impersonate-uid", "1"),
        impersonating(token, "impersonate-extra-scopes", "all"),
    ]
}

/// All of them, with parts of the identity of somebody who owns solar and is no member yet.
async fn half_valid(tenants: &TwoTenants) -> Vec<Presented> {
    let owner = tenants.fixture.world.person("dora").await.unwrap();
    let session = owner.sign_in().await.unwrap();
    let (token, id_token) = (session.access_token.expose_secret(), session.id_token.unwrap());
    let mut all = forged(token);
    all.extend(with_other_headers(token));
    all.extend(ended(tenants, &owner).await);
    all.extend([
        bearer("a refresh token", session.refresh_token.expose_secret()),
        bearer("an ID token", id_token.expose_secret()),
        // The API server accepts them, and the gateway does not.
        bearer("a token of a member", &tenants.alice.token),
        bearer("a token of a pod", &tenants.pod_token),
        bearer("a token of an owner", &tenants.owner_token),
        bearer("a token of a namesake", &tenants.namesake_token),
    ]);
    all
}

/// None of the requests reaches the API server, with whatever identity.
pub(super) async fn half_valid_ones_reach_nothing(tenants: &TwoTenants) {
    let world = &tenants.fixture.world;
    let (all, requests) = (half_valid(tenants).await, requests());
    let anonymous = world.anonymous_api().unwrap();
    let before = ClusterState::read(world).await;
    let (mut failures, mut ids) = (Vec::new(), BTreeSet::new());
    for Presented { what, headers, statuses } in &all {
        for Attempt { method, path, body } in &requests {
            let url = format!("{GATEWAY}/{path}");
            let mut request = anonymous.request(method.clone(), &url).unwrap();
            for (name, value) in headers {
                request = request.header(*name, value);
            }
            if let Some((kind, body)) = body {
                request = request.header("content-type", *kind).body(body.to_string());
            }
            let answer = Answer::of(request).await;
            if !statuses.contains(&answer.status.as_u16()) {
                failures
                    .push(format!("{what}: {method} {path}: {} {}", answer.status, answer.text));
            }
            ids.insert(answer.id.expect("the broker's responses have the id of the request"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    before.assert_same(&ClusterState::read(world).await);

    // A request with a valid identity is in the log, with those before it.
    let owner = Attacker::at_gateway("an owner", tenants.alice.person.at(0), &[]);
    let read =
        owner.send(&attempt(Method::GET, format!("api/v1/namespaces/{OWN}/configmaps"))).await;
    assert_eq!(read.status, StatusCode::OK, "{}", read.text);
    let valid = BTreeSet::from_iter(read.id);
    until_logged(world, &valid).await;
    let forwarded = events_of(world, &ids);
    assert!(forwarded.is_empty(), "{forwarded:#?}");
}

/// No right on users, groups and ServiceAccounts comes with a tenant.
pub(super) async fn nobody_impersonates_others(tenants: &TwoTenants) {
    let world = &tenants.fixture.world;
    let (vera, alice) = (&tenants.vera.person.email, &tenants.alice.token);
    let path = format!("api/v1/namespaces/{OTHER}/configmaps");
    for attacker in [
        Attacker::with_token(world, "an owner", alice, &[]),
        Attacker::with_certificate(world, vera, Some(ELIGIBLE), &[]),
        Attacker::with_token(world, "a program", &tenants.pod_token, &[]),
        Attacker::with_token(world, "a namesake", &tenants.namesake_token, &[]),
        Attacker::broker(world),
    ] {
        for user in [
            tenants.carol.person.email.as_str(),
            BROKER_USER,
            "system:serviceaccount:robots:robot",
            "system:admin",
        ] {
            let request = attacker.request(&Method::GET, &path).header("impersonate-user", user);
            let answer = Answer::of(request).await;
            let is_refused = answer.status == StatusCode::FORBIDDEN;
            let what = format!("{} as {user}: {} {}", attacker.who, answer.status, answer.text);
            assert!(is_refused && answer.text.contains("cannot impersonate"), "{what}");
        }
    }
}
