//! Refresh token rotation: each token works once or within a short grace period, and never starts
//! two chains.

use std::collections::HashSet;

use crate::world::{CLIENT, On, World, on_both_engines};

on_both_engines!(
    a_refresh_issues_a_successor_and_keeps_the_access_token_valid,
    a_client_that_lost_the_response_retries_and_continues,
    a_void_sibling_ends_the_session,
    a_parent_whose_successor_was_used_ends_the_session,
    of_concurrently_used_siblings_one_works_and_the_session_ends,
    a_parent_and_its_successor_used_concurrently_leave_no_second_chain,
    the_successors_of_one_token_are_limited,
    a_token_from_before_parents_were_stored_still_works,
    after_the_grace_a_used_token_ends_the_session,
    eight_concurrent_refreshes_all_get_a_successor,
    without_grace_one_of_eight_refreshes_succeeds_and_the_session_ends,
    a_refresh_extends_the_idle_timeout_and_not_the_absolute_end,
    tokens_end_with_the_session,
    a_wider_scope_is_refused_and_does_not_use_the_token,
);

async fn a_refresh_issues_a_successor_and_keeps_the_access_token_valid(on: On) {
    let world = World::start(on).await;
    let first = world.sign_in().await;
    let second = world.refresh(&first.refresh).await.tokens();
    assert_ne!(first.refresh, second.refresh);
    let (one, two) =
        (world.me(&first.access).await.unwrap(), world.me(&second.access).await.unwrap());
    assert_eq!(one.session_id, two.session_id);
    world.refresh(&second.refresh).await.tokens();
    world.refresh("tbr_unknown").await.refused(400, "invalid_grant");
    world.refresh(&second.access).await.refused(400, "invalid_grant");
}

async fn a_client_that_lost_the_response_retries_and_continues(on: On) {
    let world = World::start(on).await;
    let first = world.sign_in().await;
    // The answer is lost twice; the client only has the first token.
    let lost = world.refresh(&first.refresh).await.tokens();
    world.refresh(&first.refresh).await.tokens();
    world.clock.advance(29_999);
    let mut tokens = world.refresh(&first.refresh).await.tokens();
    assert_ne!(lost.refresh, tokens.refresh);
    for _ in 0..3 {
        world.advance_seconds(900);
        tokens = world.refresh(&tokens.refresh).await.tokens();
        world.me(&tokens.access).await.unwrap();
    }
    assert_eq!(world.count_audited("RefreshReuse").await, 0);
}

async fn assert_ended(world: &World, tokens: &[&crate::world::Tokens]) {
    for tokens in tokens {
        assert_eq!(world.me(&tokens.access).await.unwrap_err(), 401, "everything of it is dead");
        world.refresh(&tokens.refresh).await.refused(400, "invalid_grant");
    }
}

/// An attacker copied the session file once and uses the grace period to get a chain of their own.
async fn a_void_sibling_ends_the_session(on: On) {
    let world = World::start(on).await;
    for copy_first in [true, false] {
        let first = world.sign_in().await;
        let owner = world.refresh(&first.refresh).await.tokens();
        let copy = world.refresh(&first.refresh).await.tokens();
        let (one, two) = if copy_first { (&copy, &owner) } else { (&owner, &copy) };
        let next = world.refresh(&one.refresh).await.tokens();
        world.advance_seconds(850);
        world.refresh(&two.refresh).await.refused(400, "invalid_grant");
        assert_ended(&world, &[&first, &owner, &copy, &next]).await;
    }
    assert_eq!(world.count_audited("RefreshReuse").await, 2, "once a session");
}

async fn a_parent_whose_successor_was_used_ends_the_session(on: On) {
    let world = World::start(on).await;
    let (first, other) = (world.sign_in().await, world.sign_in().await);
    let second = world.refresh(&first.refresh).await.tokens();
    let third = world.refresh(&second.refresh).await.tokens();
    world.clock.advance(1);
    world.refresh(&first.refresh).await.refused(400, "invalid_grant");
    assert_ended(&world, &[&first, &second, &third]).await;
    assert_eq!(world.count_audited("RefreshReuse").await, 1);
    world.me(&other.access).await.unwrap();
}

async fn of_concurrently_used_siblings_one_works_and_the_session_ends(on: On) {
    let world = World::start(on).await;
    for _ in 0..4 {
        let first = world.sign_in().await;
        let mut siblings = Vec::new();
        for _ in 0..4 {
            siblings.push(world.refresh(&first.refresh).await.tokens().refresh);
        }
        let (won, lost) = race(&world, &siblings).await;
        assert_eq!((won.len(), lost), (1, 3));
        assert_ended(&world, &[&first, &won[0]]).await;
    }
    assert_eq!(world.count_audited("RefreshReuse").await, 4);
}

async fn a_parent_and_its_successor_used_concurrently_leave_no_second_chain(on: On) {
    let world = World::start(on).await;
    for _ in 0..4 {
        let first = world.sign_in().await;
        let second = world.refresh(&first.refresh).await.tokens();
        let (won, lost) = race(&world, &[first.refresh, second.refresh]).await;
        // The parent came first and got a sibling of its successor, or came second and was refused.
        assert_eq!(won.len() + lost, 2);
        let mut chains = 0;
        for tokens in &won {
            chains += usize::from(world.refresh(&tokens.refresh).await.status == 200);
        }
        assert!(chains < 2, "{won:?}");
    }
}

async fn the_successors_of_one_token_are_limited(on: On) {
    let world = World::start(on).await;
    let first = world.sign_in().await;
    let mut last = first.clone();
    for _ in 0..16 {
        last = world.refresh(&first.refresh).await.tokens();
    }
    let refused = world.refresh(&first.refresh).await;
    refused.refused(429, "temporarily_unavailable");
    assert_eq!(refused.headers["retry-after"], "1", "well before the grace ends");
    world.refresh(&last.refresh).await.tokens();
    assert_eq!(world.number("SELECT COUNT(*) FROM refresh_tokens").await, 18);
}

async fn a_token_from_before_parents_were_stored_still_works(on: On) {
    let world = World::start(on).await;
    let mut tokens = world.sign_in().await;
    for _ in 0..2 {
        tokens = world.refresh(&tokens.refresh).await.tokens();
    }
    world.execute("UPDATE refresh_tokens SET parent_hash = NULL").await;
    let lost = world.refresh(&tokens.refresh).await.tokens();
    let next = world.refresh(&tokens.refresh).await.tokens();
    tokens = world.refresh(&next.refresh).await.tokens();
    world.me(&tokens.access).await.unwrap();
    // The successors of an old token follow the same rule.
    world.refresh(&lost.refresh).await.refused(400, "invalid_grant");
    assert_ended(&world, &[&tokens]).await;
}

async fn after_the_grace_a_used_token_ends_the_session(on: On) {
    let world = World::start(on).await;
    let (first, other) = (world.sign_in().await, world.sign_in().await);
    let second = world.refresh(&first.refresh).await.tokens();
    world.advance_seconds(30);
    world.refresh(&first.refresh).await.refused(400, "invalid_grant");
    for tokens in [&first, &second] {
        assert_eq!(world.me(&tokens.access).await.unwrap_err(), 401, "everything of it is dead");
        world.refresh(&tokens.refresh).await.refused(400, "invalid_grant");
    }
    assert_eq!(world.count_audited("RefreshReuse").await, 1);
    assert!(world.me(&other.access).await.is_ok(), "another session of the person lives on");
}

/// Uses these tokens concurrently; returns the issued tokens and the number of refusals.
async fn race(world: &World, tokens: &[String]) -> (Vec<crate::world::Tokens>, usize) {
    let asked = tokens.iter().map(|token| {
        let (http, url, token) = (world.http.clone(), world.at("/oauth2/token"), token.clone());
        tokio::spawn(async move {
            let form = [
                ("grant_type", "refresh_token"),
                ("client_id", CLIENT),
                ("refresh_token", &*token),
            ];
            crate::world::JsonResponse::send(http.post(url).form(&form)).await
        })
    });
    let (mut won, mut lost) = (Vec::new(), 0);
    for answer in asked.collect::<Vec<_>>() {
        let answer = answer.await.unwrap();
        if answer.status == 200 {
            won.push(answer.tokens());
        } else {
            answer.refused(400, "invalid_grant");
            lost += 1;
        }
    }
    (won, lost)
}

async fn eight_concurrent_refreshes_all_get_a_successor(on: On) {
    let world = World::start(on).await;
    let first = world.sign_in().await;
    let (won, lost) = race(&world, &vec![first.refresh.clone(); 8]).await;
    assert_eq!((won.len(), lost), (8, 0));
    let different: HashSet<_> = won.iter().map(|tokens| tokens.refresh.clone()).collect();
    assert_eq!(different.len(), 8);
    for tokens in &won {
        assert!(world.me(&tokens.access).await.is_ok());
    }
    assert_eq!(world.number("SELECT COUNT(*) FROM sessions WHERE ended_at IS NULL").await, 1);
}

async fn without_grace_one_of_eight_refreshes_succeeds_and_the_session_ends(on: On) {
    let world = World::with(on, |settings| settings.refresh_grace_seconds = 0).await;
    for _ in 0..3 {
        let first = world.sign_in().await;
        let (won, lost) = race(&world, &vec![first.refresh.clone(); 8]).await;
        assert_eq!((won.len(), lost), (1, 7));
        assert_eq!(world.me(&won[0].access).await.unwrap_err(), 401);
    }
    assert_eq!(world.count_audited("RefreshReuse").await, 3);
}

async fn a_refresh_extends_the_idle_timeout_and_not_the_absolute_end(on: On) {
    let world = World::with(on, |settings| {
        settings.session_idle_seconds = 3600;
        settings.session_max_seconds = 10_000;
    })
    .await;
    let idle = world.sign_in().await;
    let mut tokens = world.sign_in().await;
    let absolute = world.me(&tokens.access).await.unwrap().session_expires_at;
    for _ in 0..3 {
        world.advance_seconds(3000);
        tokens = world.refresh(&tokens.refresh).await.tokens();
        assert_eq!(world.me(&tokens.access).await.unwrap().session_expires_at, absolute);
    }
    world.refresh(&idle.refresh).await.refused(400, "invalid_grant");
    // 9 000 s have passed; an access token does not outlive its session.
    world.advance_seconds(900);
    tokens = world.refresh(&tokens.refresh).await.tokens();
    assert_eq!(tokens.expires_in, 100);
    world.advance_seconds(99);
    assert!(world.me(&tokens.access).await.is_ok());
    world.advance_seconds(1);
    assert_eq!(world.me(&tokens.access).await.unwrap_err(), 401);
    world.refresh(&tokens.refresh).await.refused(400, "invalid_grant");
}

async fn tokens_end_with_the_session(on: On) {
    let world = World::with(on, |settings| {
        settings.session_idle_seconds = 300;
        settings.access_token_seconds = 900;
    })
    .await;
    let tokens = world.sign_in().await;
    world.advance_seconds(299);
    assert!(world.me(&tokens.access).await.is_ok());
    world.advance_seconds(1);
    assert_eq!(world.me(&tokens.access).await.unwrap_err(), 401, "idle for too long");
}

async fn a_wider_scope_is_refused_and_does_not_use_the_token(on: On) {
    let world = World::start(on).await;
    let tokens = world.sign_in().await;
    let form = |scope: &'static str| {
        vec![
            ("grant_type", "refresh_token"),
            ("client_id", CLIENT),
            ("refresh_token", &*tokens.refresh),
            ("scope", scope),
        ]
    };
    world.token(&form("openid admin")).await.refused(400, "invalid_scope");
    let without_client: Vec<_> =
        form("openid").into_iter().filter(|(name, _)| *name != "client_id").collect();
    world.token(&without_client).await.refused(400, "invalid_request");
    world.advance_seconds(60);
    world.token(&form("openid email")).await.tokens();
}
