//! Storage: hashed secrets, deletion of expired rows, and an unavailable database.

use reqwest::header;
use tenant_broker::on_engine;

use crate::world::{
    BrowserSignIn, CLIENT, EMAIL, JsonResponse, On, PASSWORD, REDIRECT, World,
    authorization_parameters, authorize, on_both_engines,
};

on_both_engines!(
    without_a_database_the_issuer_responds_with_retry_after,
    a_held_database_lock_gives_a_503_after_the_timeout,
    no_secret_is_stored_in_plain_text,
    expired_rows_are_deleted_and_valid_rows_stay,
);

async fn without_a_database_the_issuer_responds_with_retry_after(on: On) {
    let world = World::start(on).await;
    let tokens = world.sign_in().await;
    let attempt = BrowserSignIn::begin(&world, REDIRECT).await;
    let code = BrowserSignIn::begin(&world, REDIRECT).await.code(&world).await;
    world.db.close().await;
    let answers =
        [world.refresh(&tokens.refresh).await, world.token(&attempt.redeeming(&code)).await, {
            let form = [("token", tokens.refresh.as_str()), ("client_id", CLIENT)];
            JsonResponse::send(world.http.post(world.at("/oauth2/revoke")).form(&form)).await
        }];
    for answer in answers {
        answer.refused(503, "temporarily_unavailable");
        assert_eq!(answer.headers[header::RETRY_AFTER], "5");
    }
    for page in [
        authorize(&world, &authorization_parameters(REDIRECT)).await,
        attempt.page(&world).await,
        attempt.post(&world, EMAIL, PASSWORD).await,
    ] {
        assert_eq!(page.status(), 503);
        assert_eq!(page.headers()[header::RETRY_AFTER], "5");
        assert!(page.text().await.unwrap().contains("Try again in a moment"));
    }
    assert_eq!(world.me(&tokens.access).await.unwrap_err(), 503, "not 401: the token may be good");
}

async fn a_held_database_lock_gives_a_503_after_the_timeout(on: On) {
    let world = World::start(on).await;
    let tokens = world.sign_in().await;
    let other = world.another_process().await;
    let mut stuck = other.begin().await.unwrap();
    on_engine!(stuck.connection(), c =>
        sqlx::query("UPDATE sessions SET last_used_at = last_used_at").execute(c).await.map(drop))
    .unwrap();
    let refreshed = tokio::time::timeout(std::time::Duration::from_mins(1), async {
        world.refresh(&tokens.refresh).await
    });
    let answer = refreshed.await.expect("an answer in time");
    answer.refused(503, "temporarily_unavailable");
    assert_eq!(answer.headers[header::RETRY_AFTER], "5");
    drop(stuck);
    // Nothing was done, so the same token works.
    world.refresh(&tokens.refresh).await.tokens();
}

async fn no_secret_is_stored_in_plain_text(on: On) {
    let world = World::start(on).await;
    let attempt = BrowserSignIn::begin(&world, REDIRECT).await;
    // Somebody types the password into the wrong field.
    attempt.post(&world, "my own secret passphrase", "x").await;
    let code = attempt.code(&world).await;
    let tokens = world.token(&attempt.redeeming(&code)).await.tokens();
    // Without their prefixes, whose underscore base64url has, too.
    let secret = |text: &str| text[text.len() - 43..].to_owned();
    let secrets = [
        secret(&tokens.access),
        secret(&tokens.refresh),
        secret(&code),
        secret(&attempt.handle),
        secret(&attempt.cookie),
        PASSWORD.to_owned(),
        "my own secret passphrase".to_owned(),
    ];
    let kept = match on {
        On::Sqlite => ["broker.db", "broker.db-wal"]
            .iter()
            .filter_map(|name| std::fs::read(world.folder.path().join(name)).ok())
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .collect::<String>(),
        On::Postgres => {
            let mut all = String::new();
            for statement in [
                "SELECT t::text FROM users t",
                "SELECT t::text FROM sessions t",
                "SELECT t::text FROM access_tokens t",
                "SELECT t::text FROM refresh_tokens t",
                "SELECT t::text FROM authorizations t",
                "SELECT t::text FROM audit_logs t",
                "SELECT t::text FROM throttles t",
            ] {
                let tenant_broker::base::db::Db::Postgres(pool) = &world.db else {
                    panic!("{on:?}")
                };
                let rows: Vec<String> =
                    sqlx::query_scalar(statement).fetch_all(pool).await.unwrap();
                assert!(!rows.is_empty(), "{statement}");
                all.extend(rows);
            }
            all
        }
    };
    assert!(kept.contains(EMAIL), "this looks where the data is");
    for secret in secrets {
        assert!(secret.len() > 20 && !kept.contains(&secret), "{secret} is kept in clear");
    }
}

async fn expired_rows_are_deleted_and_valid_rows_stay(on: On) {
    let world = World::with(on, |settings| settings.session_idle_seconds = 10 * 24 * 3600).await;
    let count = async |table: &str| match table {
        "authorizations" => world.number("SELECT COUNT(*) FROM authorizations").await,
        "access_tokens" => world.number("SELECT COUNT(*) FROM access_tokens").await,
        "refresh_tokens" => world.number("SELECT COUNT(*) FROM refresh_tokens").await,
        "throttles" => world.number("SELECT COUNT(*) FROM throttles").await,
        other => panic!("{other}"),
    };
    let lives = world.sign_in().await;
    let ends = world.sign_in().await;
    let form = [("token", ends.refresh.as_str()), ("client_id", CLIENT)];
    JsonResponse::send(world.http.post(world.at("/oauth2/revoke")).form(&form)).await;
    let attempt = BrowserSignIn::begin(&world, REDIRECT).await;
    attempt.post(&world, EMAIL, "wrong").await;

    world.issuer.purge().await.unwrap();
    assert_eq!((count("authorizations").await, count("access_tokens").await), (3, 2));
    assert_eq!((count("refresh_tokens").await, count("throttles").await), (2, 4));
    assert_eq!(attempt.page(&world).await.status(), 200, "who is signing in may go on");

    world.advance_seconds(3600);
    world.issuer.purge().await.unwrap();
    // Redeemed rows stay, so that a reuse of a code is detected; the other rows are deleted.
    assert_eq!((count("authorizations").await, count("access_tokens").await), (2, 0));
    assert_eq!((count("refresh_tokens").await, count("throttles").await), (2, 4));

    world.advance_seconds(24 * 3600);
    world.issuer.purge().await.unwrap();
    assert_eq!((count("authorizations").await, count("access_tokens").await), (0, 0));
    assert_eq!((count("refresh_tokens").await, count("throttles").await), (1, 0));
    world.refresh(&lives.refresh).await.tokens();
}
