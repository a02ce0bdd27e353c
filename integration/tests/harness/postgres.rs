//! PostgreSQL in the harness: a real server with full durability and a fresh database for each
//! caller.

use integration::postgres::Postgres;
use sqlx::{Connection, PgConnection};

#[tokio::test]
async fn each_caller_gets_an_empty_database_of_its_own() {
    let server = Postgres::shared().await.unwrap();
    let (first, second) = tokio::join!(server.database("same"), server.database("same"));
    let (first, second) = (first.unwrap(), second.unwrap());
    assert_ne!(first.name(), second.name());

    let mut connection = PgConnection::connect(first.url().as_str()).await.unwrap();
    sqlx::query("CREATE TABLE mine (id BIGINT)").execute(&mut connection).await.unwrap();
    let mut connection = PgConnection::connect(second.url().as_str()).await.unwrap();
    let error = sqlx::query("SELECT id FROM mine").execute(&mut connection).await.unwrap_err();
    assert!(error.to_string().contains("does not exist"), "{error}");

    assert!(server.database("Robert'); --").await.is_err());
}

#[tokio::test]
async fn committed_rows_survive_a_crash() {
    let server = Postgres::start().await.unwrap();
    let database = server.database("crash").await.unwrap();
    let mut connection = PgConnection::connect(database.url().as_str()).await.unwrap();
    for setting in ["fsync", "synchronous_commit", "full_page_writes"] {
        let value: String = sqlx::query_scalar("SELECT current_setting($1)")
            .bind(setting)
            .fetch_one(&mut connection)
            .await
            .unwrap();
        assert_eq!(value, "on", "{setting}");
    }
    sqlx::query("CREATE TABLE kept AS SELECT 42::BIGINT AS id")
        .execute(&mut connection)
        .await
        .unwrap();
    server.kill().await.unwrap();
    assert!(PgConnection::connect(database.url().as_str()).await.is_err());
    server.restart().await.unwrap();
    let mut connection = PgConnection::connect(database.url().as_str()).await.unwrap();
    let id: i64 =
        sqlx::query_scalar("SELECT id FROM kept").fetch_one(&mut connection).await.unwrap();
    assert_eq!(id, 42);
}
