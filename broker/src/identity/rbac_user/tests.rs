//! Names and groups of people, on both engines.

use proptest::{prelude::*, strategy::ValueTree as _, test_runner::TestRunner};
use tenant_shared::Role;
use uuid::Uuid;

use super::*;
use crate::{
    base::{clock::Clock, db::Db, telemetry::Metrics},
    identity::{
        BrowserSessions, Email, Identity, NotAdmitted, UpstreamClaims, UpstreamIdentity,
        users::{self, EmailVerifier, NewUser},
    },
    on_engine,
    testing::{On, Storage, on_both_engines, run_concurrently},
};

on_both_engines!(
    a_group_that_the_provider_no_longer_names_is_gone,
    an_administrator_gives_groups_to_local_accounts_only,
    only_an_address_that_somebody_vouches_for_is_a_name,
    the_first_person_of_a_provider_keeps_a_user_name,
    of_people_who_take_a_user_name_at_once_one_gets_it,
    two_rows_with_one_name_are_refused,
    no_two_people_ever_have_one_user_name,
    many_people_are_read_and_those_who_may_not_sign_in_are_left_out,
);

const ISSUERS: [&str; 2] = ["https://one.example.com", "https://two.example.com"];

fn identity(db: &Db, clock: &Clock) -> Identity {
    let url = "http://127.0.0.1:8080".parse().unwrap();
    let browser = BrowserSessions::new(&url, Vec::new(), 60, 60);
    Identity::new(db.clone(), clock.clone(), Metrics::default(), browser)
}

/// What a provider says at a sign-in.
#[derive(Clone, Debug, Default)]
struct SignIn {
    issuer: usize,
    subject: String,
    email: Option<String>,
    user_name: Option<String>,
    groups: Vec<String>,
}

impl SignIn {
    /// A person of the first provider.
    fn of(subject: &str) -> Self {
        Self { subject: subject.to_owned(), ..Self::default() }
    }

    fn email(self, email: &str) -> Self {
        Self { email: Some(email.to_owned()), ..self }
    }

    fn named(self, user_name: &str) -> Self {
        Self { user_name: Some(user_name.to_owned()), ..self }
    }

    fn groups(self, groups: &[&str]) -> Self {
        Self { groups: groups.iter().map(|group| (*group).to_owned()).collect(), ..self }
    }

    async fn run(&self, identity: &Identity) -> sqlx::Result<Result<Uuid, NotAdmitted>> {
        let email = self.email.as_ref().map(|email| email.parse::<Email>().unwrap());
        let groups = Groups::of_provider(self.groups.iter().map(String::as_str)).unwrap();
        let user_name = self.user_name.as_deref();
        let person = UpstreamIdentity {
            connector: "corp",
            issuer: ISSUERS[self.issuer],
            subject: &self.subject,
            username: user_name,
            claims: UpstreamClaims {
                email: email.as_ref(),
                role: Role::User,
                user_name,
                groups: &groups,
            },
        };
        Ok(identity.admit(&person).await?.map(|admitted| admitted.user_id))
    }

    async fn admitted(&self, storage: &Storage) -> Uuid {
        self.run(&identity(&storage.db, &storage.clock)).await.unwrap().unwrap()
    }
}

fn by_email() -> RbacUserRules {
    RbacUserRules::new(UserNameSource::Email, "", "everybody").unwrap()
}

fn by_username(issuer: usize) -> RbacUserRules {
    let source = UserNameSource::Username { issuer: ISSUERS[issuer].to_owned() };
    RbacUserRules::new(source, "sso:", "everybody").unwrap()
}

async fn person(storage: &Storage, rules: &RbacUserRules, user: Uuid) -> RbacUser {
    rbac_users(&storage.db, rules, &[user]).await.unwrap().remove(&user).unwrap()
}

async fn email_name(storage: &Storage, user: Uuid) -> Option<String> {
    person(storage, &by_email(), user).await.user_name
}

async fn username(storage: &Storage, user: Uuid) -> Option<String> {
    person(storage, &by_username(0), user).await.user_name
}

async fn groups(storage: &Storage, user: Uuid) -> Vec<String> {
    person(storage, &by_email(), user).await.groups.into_iter().collect()
}

/// Inserts a local account; false if the address is taken.
async fn add_account(storage: &Storage, email: &str, verifier: Option<EmailVerifier>) -> bool {
    let mut tx = storage.db.begin().await.unwrap();
    let new = NewUser {
        id: storage.clock.random_id(),
        email,
        email_verified_by: verifier,
        password_hash: None,
        role: Role::User,
    };
    let inserted = users::insert(&mut tx, &new, storage.clock.now_ms()).await.unwrap();
    tx.commit().await.unwrap();
    inserted
}

/// An administrator changes an address; without one it is the placeholder.
async fn change_email(storage: &Storage, user: Uuid, email: Option<&str>) -> sqlx::Result<()> {
    let placeholder = crate::identity::placeholder_email(user);
    let mut tx = storage.db.begin().await?;
    let (email, is_placeholder) = (email.unwrap_or(&placeholder), email.is_none());
    users::set_email(&mut tx, user, email, is_placeholder, storage.clock.now_ms()).await?;
    tx.commit().await
}

async fn give(storage: &Storage, user: Uuid, names: &[&str]) -> Option<GivenGroups> {
    let names = names.iter().map(|name| (*name).to_owned()).collect();
    let groups = Groups::given(names).unwrap();
    let mut tx = storage.db.begin().await.unwrap();
    let given = give_groups(&mut tx, user, &groups, storage.clock.now_ms()).await.unwrap();
    tx.commit().await.unwrap();
    given
}

async fn all_users(storage: &Storage) -> Vec<Uuid> {
    on_engine!(storage.db.reader(), pool =>
        sqlx::query_scalar("SELECT id FROM users").fetch_all(pool).await)
    .unwrap()
}

async fn user_with(storage: &Storage, email: &str) -> Uuid {
    on_engine!(storage.db.reader(), pool =>
        sqlx::query_scalar("SELECT id FROM users WHERE email = $1").bind(email).fetch_one(pool).await)
    .unwrap()
}

async fn changed_since(storage: &Storage, since: i64) -> Vec<Uuid> {
    let changed = rbac_users_changed_since(&storage.db, since).await.unwrap();
    changed
        .into_iter()
        .map(|(user, changed_at)| {
            assert!(changed_at > since, "{user} changed at {changed_at}");
            user
        })
        .collect()
}

async fn a_group_that_the_provider_no_longer_names_is_gone(on: On) {
    let storage = Storage::new(on).await;
    let ada = SignIn::of("ada").groups(&["ops", "dev"]).admitted(&storage).await;
    assert_eq!(groups(&storage, ada).await, ["dev", "everybody", "ops"]);
    let since = storage.clock.now_ms();
    storage.clock.advance(1000);
    SignIn::of("ada").groups(&["dev", "ops"]).admitted(&storage).await;
    assert!(changed_since(&storage, since).await.is_empty(), "the same groups are no change");
    SignIn::of("ada").groups(&["dev"]).admitted(&storage).await;
    assert_eq!(changed_since(&storage, since).await, [ada]);
    assert_eq!(groups(&storage, ada).await, ["dev", "everybody"]);
    SignIn::of("ada").admitted(&storage).await;
    assert_eq!(groups(&storage, ada).await, ["everybody"]);
    let rows = "SELECT COUNT(*) FROM identities WHERE groups IS NULL";
    assert_eq!(storage.number(rows).await, 1, "no group is NULL");
    let audited = "SELECT COUNT(*) FROM audit_logs WHERE action = 'ChangeGroups'";
    assert_eq!(storage.number(audited).await, 3);
}

async fn an_administrator_gives_groups_to_local_accounts_only(on: On) {
    let storage = Storage::new(on).await;
    // The row of a broker that does not know the columns.
    let local = storage.user().await;
    assert_eq!(groups(&storage, local).await, ["everybody"]);
    let since = storage.clock.now_ms();
    storage.clock.advance(1000);
    for (given, expected) in [(&["ops", "dev"][..], &["dev", "ops"][..]), (&["ops"], &["ops"])] {
        let before: Vec<String> = groups_of_user(&storage.db, local)
            .await
            .unwrap()
            .unwrap()
            .groups
            .into_names()
            .into_iter()
            .collect();
        match give(&storage, local, given).await {
            Some(GivenGroups::Replaced(replaced)) => {
                assert_eq!(replaced.into_names().into_iter().collect::<Vec<_>>(), before);
            }
            other => panic!("{other:?}"),
        }
        let row = groups_of_user(&storage.db, local).await.unwrap().unwrap();
        assert_eq!(row.groups.names().iter().collect::<Vec<_>>(), expected);
        assert_eq!((row.issuer, row.email), (None, format!("{local}@example.com")));
        assert_eq!(changed_since(&storage, since).await, [local]);
    }
    assert_eq!(groups(&storage, local).await, ["everybody", "ops"]);
    let ada = SignIn::of("ada").groups(&["dev"]).admitted(&storage).await;
    assert!(matches!(give(&storage, ada, &["ops"]).await, Some(GivenGroups::OfProvider)));
    let row = groups_of_user(&storage.db, ada).await.unwrap().unwrap();
    assert_eq!(row.groups.names().iter().collect::<Vec<_>>(), ["dev"]);
    assert_eq!(row.issuer.as_deref(), Some(ISSUERS[0]));
    let nobody = storage.clock.random_id();
    assert!(give(&storage, nobody, &["ops"]).await.is_none());
    assert!(groups_of_user(&storage.db, nobody).await.unwrap().is_none());
}

async fn only_an_address_that_somebody_vouches_for_is_a_name(on: On) {
    let storage = Storage::new(on).await;
    assert!(add_account(&storage, "boss@corp.example", None).await);
    let registered = user_with(&storage, "boss@corp.example").await;
    assert_eq!(email_name(&storage, registered).await, None, "people register any address");
    change_email(&storage, registered, Some("boss@corp.example")).await.unwrap();
    assert_eq!(email_name(&storage, registered).await.as_deref(), Some("boss@corp.example"));
    change_email(&storage, registered, None).await.unwrap();
    assert_eq!(email_name(&storage, registered).await, None, "nobody owns a placeholder");
    let by_operator = Some(EmailVerifier::Administrator);
    assert!(add_account(&storage, "root@corp.example", by_operator).await);
    let root = user_with(&storage, "root@corp.example").await;
    assert_eq!(email_name(&storage, root).await.as_deref(), Some("root@corp.example"));
    // The row of a broker that does not know the column.
    assert_eq!(email_name(&storage, storage.user().await).await, None);

    let ada = SignIn::of("ada").email("Ada@Corp.example").admitted(&storage).await;
    assert_eq!(email_name(&storage, ada).await.as_deref(), Some("ada@corp.example"));
    let since = storage.clock.now_ms();
    for (email, expected) in [
        (None, None),
        (Some("ada@corp.example"), Some("ada@corp.example")),
        (Some("ada.l@corp.example"), Some("ada.l@corp.example")),
        // Another user has it. The provider does not say any more that the old one is hers.
        (Some("root@corp.example"), None),
    ] {
        storage.clock.advance(1000);
        let now = storage.clock.now_ms();
        let again = SignIn { email: email.map(str::to_owned), ..SignIn::of("ada") };
        assert_eq!(again.admitted(&storage).await, ada);
        assert_eq!(email_name(&storage, ada).await.as_deref(), expected, "{email:?}");
        assert_eq!(changed_since(&storage, now - 1).await, [ada], "{email:?}");
    }
    assert_eq!(email_name(&storage, root).await.as_deref(), Some("root@corp.example"));
    assert_eq!(changed_since(&storage, since).await, [ada]);
    // Addresses that differ in upper and lower case are the same.
    let other = SignIn::of("bob").email("ROOT@corp.example");
    let refused = other.run(&identity(&storage.db, &storage.clock)).await.unwrap();
    assert_eq!(refused, Err(NotAdmitted::EmailTaken));
}

async fn the_first_person_of_a_provider_keeps_a_user_name(on: On) {
    let storage = Storage::new(on).await;
    let ada = SignIn::of("1").named("ada").admitted(&storage).await;
    let other = SignIn::of("2").named("ada").admitted(&storage).await;
    assert_eq!(username(&storage, ada).await.as_deref(), Some("sso:ada"));
    assert_eq!(username(&storage, other).await, None);
    // The name of another provider's person is not this provider's.
    let foreign = SignIn { issuer: 1, ..SignIn::of("1").named("ada") }.admitted(&storage).await;
    assert_eq!(username(&storage, foreign).await, None);
    let theirs = person(&storage, &by_username(1), foreign).await.user_name;
    assert_eq!(theirs.as_deref(), Some("sso:ada"));
    assert_eq!(username(&storage, storage.user().await).await, None, "a local account");
    // A person who is called otherwise now does not keep the old name.
    SignIn::of("1").named("countess").admitted(&storage).await;
    SignIn::of("2").named("ada").admitted(&storage).await;
    assert_eq!(username(&storage, ada).await.as_deref(), Some("sso:countess"));
    assert_eq!(username(&storage, other).await.as_deref(), Some("sso:ada"));
    SignIn::of("1").named("ada").admitted(&storage).await;
    assert_eq!(username(&storage, ada).await, None);
    assert_eq!(email_name(&storage, ada).await, None, "an address is not verified either");
}

async fn of_people_who_take_a_user_name_at_once_one_gets_it(on: On) {
    let storage = Storage::new(on).await;
    for round in 0..4 {
        let name = format!("name-{round}");
        let tasks = (0..4).map(|number| {
            let sign_in = SignIn::of(&format!("{round}-{number}")).named(&name);
            let identity = identity(&storage.db, &storage.clock);
            async move { sign_in.run(&identity).await }
        });
        for result in run_concurrently(tasks).await {
            result.unwrap().unwrap();
        }
        let named = "SELECT COUNT(*) FROM identities WHERE user_name IS NOT NULL";
        assert_eq!(storage.number(named).await, round + 1);
    }
}

async fn two_rows_with_one_name_are_refused(on: On) {
    let storage = Storage::new(on).await;
    SignIn::of("1").named("ada").email("ada@corp.example").admitted(&storage).await;
    SignIn::of("2").named("bob").email("bob@corp.example").admitted(&storage).await;
    for statement in [
        "UPDATE identities SET user_name = 'ada' WHERE subject = '2'",
        "UPDATE users SET email = 'ada@corp.example' WHERE email = 'bob@corp.example'",
    ] {
        let mut tx = storage.db.begin().await.unwrap();
        let result = on_engine!(tx.connection(), c =>
            sqlx::query(statement).execute(c).await.map(drop));
        let Err(sqlx::Error::Database(error)) = result else { panic!("{statement}") };
        assert!(error.is_unique_violation(), "{statement}: {error}");
    }
}

/// Something that changes who people are.
#[derive(Clone, Debug)]
enum Change {
    SignIn(SignIn),
    /// Somebody registers an address, or an operator creates an account with it.
    AddAccount(String, bool),
    /// An administrator changes the address of a user, the first but so many.
    SetEmail(usize, Option<String>),
}

fn change() -> impl Strategy<Value = Change> {
    let email = || "[abc]@corp\\.example";
    let sign_in = (
        0..ISSUERS.len(),
        "[12345]",
        proptest::option::of(email()),
        proptest::option::of("[abc]|[abc]@corp\\.example"),
    );
    let sign_in = sign_in.prop_map(|(issuer, subject, email, user_name)| {
        Change::SignIn(SignIn { issuer, subject, email, user_name, groups: Vec::new() })
    });
    prop_oneof![
        4 => sign_in,
        1 => (email(), any::<bool>()).prop_map(|(email, own)| Change::AddAccount(email, own)),
        2 => (0..20_usize, proptest::option::of(email()))
            .prop_map(|(user, email)| Change::SetEmail(user, email)),
    ]
}

async fn no_two_people_ever_have_one_user_name(on: On) {
    let storage = Storage::new(on).await;
    let identity = identity(&storage.db, &storage.clock);
    let mut runner = TestRunner::deterministic();
    let (mut done, mut most) = (Vec::new(), 0);
    for _ in 0..80 {
        let change = change().new_tree(&mut runner).unwrap().current();
        done.push(change.clone());
        match change {
            Change::SignIn(sign_in) => {
                // Another user may have the address.
                let _ = sign_in.run(&identity).await.unwrap();
            }
            Change::AddAccount(email, is_registered) => {
                let verifier = (!is_registered).then_some(EmailVerifier::Administrator);
                add_account(&storage, &email, verifier).await;
            }
            Change::SetEmail(number, email) => {
                if let Some(user) = all_users(&storage).await.get(number) {
                    // Another user may have the address.
                    let _ = change_email(&storage, *user, email.as_deref()).await;
                }
            }
        }
        let users = all_users(&storage).await;
        for rules in [by_email(), by_username(0), by_username(1)] {
            let persons = rbac_users(&storage.db, &rules, &users).await.unwrap();
            assert_eq!(persons.len(), users.len());
            let named = persons.values().filter_map(|person| person.user_name.as_deref());
            let named: Vec<&str> = named.collect();
            let distinct: BTreeSet<&str> = named.iter().copied().collect();
            assert_eq!(named.len(), distinct.len(), "{rules:?}: {named:?} after {done:#?}");
            most = most.max(named.len());
        }
    }
    assert!(most > 1, "nobody had a name: {done:#?}");
}

async fn many_people_are_read_and_those_who_may_not_sign_in_are_left_out(on: On) {
    let storage = Storage::new(on).await;
    let (first, last) = (storage.user().await, storage.user().await);
    let suspended = storage.user().await;
    let mut tx = storage.db.begin().await.unwrap();
    assert!(users::set_suspended(&mut tx, suspended).await.unwrap());
    tx.commit().await.unwrap();
    let mut asked = vec![first, suspended];
    asked.extend((0..1200).map(|_| storage.clock.random_id()));
    asked.push(last);
    let found = rbac_users(&storage.db, &by_email(), &asked).await.unwrap();
    assert_eq!(found.into_keys().collect::<BTreeSet<_>>(), BTreeSet::from([first, last]));
    assert!(rbac_users(&storage.db, &by_email(), &[]).await.unwrap().is_empty());
}

#[test]
fn rules_that_could_name_a_person_like_another_user_are_refused() {
    let rules = |source, prefix: &str, everybody: &str| {
        RbacUserRules::new(source, prefix, everybody).map(drop)
    };
    let username = || UserNameSource::Username { issuer: ISSUERS[0].to_owned() };
    assert_eq!(rules(UserNameSource::Email, "", "everybody"), Ok(()));
    assert_eq!(rules(UserNameSource::Email, "sso:", "everybody"), Ok(()));
    assert_eq!(rules(username(), "sso:", "projectcapsule.dev"), Ok(()));
    assert_eq!(rules(username(), "", "everybody"), Err(RbacUserRulesError::NoPrefix));
    for prefix in ["system:", "system:serviceaccount:", "a\n", &"x".repeat(65)] {
        let refused = rules(UserNameSource::Email, prefix, "everybody");
        assert_eq!(refused, Err(RbacUserRulesError::Prefix), "{prefix:?}");
    }
    for everybody in ["", "system:authenticated", "a\u{7f}", &"x".repeat(340)] {
        let refused = rules(username(), "sso:", everybody);
        assert_eq!(refused, Err(RbacUserRulesError::Everybody), "{everybody:?}");
    }
}

#[test]
fn the_group_scope_needs_one_of_its_groups() {
    let person = RbacUser { user_name: None, groups: ["dev".into(), "everybody".into()].into() };
    let is_in = |groups: &[&str]| {
        let groups: Vec<String> = groups.iter().map(|group| (*group).to_owned()).collect();
        person.is_in_scope(&groups)
    };
    assert!(is_in(&[]) && is_in(&["dev"]) && is_in(&["ops", "everybody"]));
    assert!(!is_in(&["ops"]) && !is_in(&["de", "Dev", ""]));
}

proptest! {
    #[test]
    fn names_are_distinct_and_none_belongs_to_kubernetes(
        prefix in "sys|system|s|[a-z:]{1,5}",
        one in "(tem)?:?[a-z:]{0,6}|.{0,10}|x{330,345}",
        other in "(tem)?:?[a-z:]{0,6}|.{0,10}|x{330,345}",
    ) {
        let issuer = ISSUERS[0];
        let source = UserNameSource::Username { issuer: issuer.to_owned() };
        let Ok(rules) = RbacUserRules::new(source, &prefix, "everybody") else { return Ok(()) };
        let name = |of: &str| {
            rules.user_name(&NameOwnership { verified_email: None, at_provider: Some((issuer, of)) })
        };
        for name in [name(&one), name(&other)].into_iter().flatten() {
            prop_assert!(!name.starts_with("system:") && name.chars().count() <= 339, "{name}");
        }
        if one != other {
            prop_assert!(name(&one).is_none() || name(&one) != name(&other));
        }
    }
}
