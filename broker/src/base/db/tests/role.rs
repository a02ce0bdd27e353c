//! Tests of the attributes of the broker's role.

use sqlx::AssertSqlSafe;

use super::*;

on_both_engines!(attributes_that_reach_beyond_the_database_are_found);

async fn attributes_that_reach_beyond_the_database_are_found(on: On) {
    if matches!(on, On::Sqlite) {
        let storage = Storage::new(on).await;
        assert_eq!(storage.db.role().await.unwrap(), None);
        return;
    }
    let server = Server::shared().await.unwrap();
    let database = server.database("role").await.unwrap();
    let name = format!("{}_broker", database.name());
    let mut admin = PgConnection::connect(database.url().as_str()).await.unwrap();
    let create = format!("CREATE ROLE {name} LOGIN PASSWORD '{name}'");
    sqlx::query(AssertSqlSafe(create)).execute(&mut admin).await.unwrap();
    let mut url = database.url().clone();
    url.set_username(&name).unwrap();
    url.set_password(Some(&name)).unwrap();
    let db = Db::connect(&url.as_str().parse().unwrap()).await.unwrap();

    let role = db.role().await.unwrap().unwrap();
    assert_eq!(role, DatabaseRole { name: name.clone(), excess_attributes: Vec::new() });
    for (given, expected) in [
        ("CREATEROLE", vec!["CREATEROLE"]),
        ("BYPASSRLS", vec!["CREATEROLE", "BYPASSRLS"]),
        ("SUPERUSER", vec!["SUPERUSER", "CREATEROLE", "BYPASSRLS"]),
    ] {
        let alter = format!("ALTER ROLE {name} {given}");
        sqlx::query(AssertSqlSafe(alter)).execute(&mut admin).await.unwrap();
        assert_eq!(db.role().await.unwrap().unwrap().excess_attributes, expected);
    }
    // The advice works.
    let alter = db.role().await.unwrap().unwrap().alter_statement();
    sqlx::query(AssertSqlSafe(alter)).execute(&mut admin).await.unwrap();
    assert_eq!(db.role().await.unwrap().unwrap(), role);

    db.close().await;
    sqlx::query(AssertSqlSafe(format!("DROP ROLE {name}"))).execute(&mut admin).await.unwrap();
}

#[test]
fn the_name_of_a_role_is_quoted() {
    let role = DatabaseRole { name: "a\"b".to_owned(), excess_attributes: vec!["SUPERUSER"] };
    assert_eq!(role.alter_statement(), "ALTER ROLE \"a\"\"b\" NOSUPERUSER");
}
