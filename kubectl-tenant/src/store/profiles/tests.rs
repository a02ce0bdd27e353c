use std::collections::HashMap;

use super::*;

const ONE: &str = "https://one.example";
const TWO: &str = "https://two.example";

fn account(broker: &str, profile: Option<&str>) -> AccountKey {
    AccountKey {
        broker: BrokerUrl::parse(broker).unwrap(),
        profile: profile.map(|name| ProfileName::parse(name).unwrap()),
    }
}

fn profiles() -> Profiles {
    let mut profiles =
        Profiles { current: Some(account(ONE, Some("work"))), ..Profiles::default() };
    for (broker, name) in [(ONE, None), (ONE, Some("work")), (TWO, Some("home"))] {
        profiles.set(&account(broker, name), Profile::default());
    }
    profiles
}

fn env(variables: &[(&str, &str)]) -> Env {
    let map: HashMap<_, _> =
        variables.iter().map(|(name, value)| (name.into(), value.into())).collect();
    Env::Fixed(map)
}

fn account_flags(broker: Option<&str>, profile: Option<&str>) -> AccountFlags {
    AccountFlags { broker: broker.map(str::to_owned), profile: profile.map(str::to_owned) }
}

#[test]
fn flags_precede_variables_and_variables_precede_the_current_account() {
    let profiles = profiles();
    let (broker, profile) = ("TENANT_BROKER_URL", "TENANT_PROFILE");
    for (flags, variables, expected) in [
        ((None, None), &[][..], (ONE, Some("work"))),
        ((Some(ONE), None), &[], (ONE, None)),
        // Variables do not override the broker in a kubeconfig.
        ((Some(ONE), None), &[(profile, "home")], (ONE, None)),
        ((None, Some("home")), &[(broker, ONE), (profile, "work")], (TWO, Some("home"))),
        ((None, None), &[(profile, "home")], (TWO, Some("home"))),
        ((None, None), &[(profile, "home"), (broker, ONE)], (TWO, Some("home"))),
        ((None, None), &[(broker, ONE)], (ONE, Some("work"))),
        ((None, None), &[(broker, TWO)], (TWO, None)),
        ((None, Some(TWO)), &[], (TWO, None)),
        ((Some(TWO), Some("home")), &[], (TWO, Some("home"))),
        ((Some(TWO), Some("new")), &[], (TWO, Some("new"))),
    ] {
        let found = profiles.choose(&account_flags(flags.0, flags.1), &env(variables)).unwrap();
        assert_eq!(found, account(expected.0, expected.1), "{flags:?} {variables:?}");
    }
}

#[test]
fn unknown_names_are_accepted_for_a_sign_in_only() {
    let profiles = profiles();
    let asked = account_flags(None, Some("new"));
    assert!(profiles.choose(&asked, &env(&[])).unwrap_err().message.contains("no profile \"new\""));
    let login = |variables: &[(&str, &str)]| profiles.choose_for_login(&asked, &env(variables));
    assert_eq!(login(&[]).unwrap(), account(ONE, Some("new")));
    assert_eq!(login(&[("TENANT_BROKER_URL", TWO)]).unwrap(), account(TWO, Some("new")));
    let none = Profiles::default().choose_for_login(&asked, &env(&[])).unwrap_err();
    assert!(none.hint.unwrap().contains("--broker"));
}

#[test]
fn a_profile_belongs_to_one_broker() {
    for asked in [account_flags(Some(TWO), Some("work")), account_flags(Some(TWO), Some(ONE))] {
        let error = profiles().choose_for_login(&asked, &env(&[])).unwrap_err();
        assert!(error.message.contains("belongs to https://one.example"), "{error}");
    }
}

#[test]
fn profiles_round_trip() {
    let home = tempfile::tempdir().unwrap();
    let messages = Messages::to(std::io::sink());
    let mut profiles = profiles();
    let context = Some("c".to_owned());
    let exec_api_version = Some(ExecApiVersion::V1Beta1);
    let profile = Profile { context, exec_api_version, ..Profile::default() };
    profiles.set(&account(ONE, None), profile);
    profiles.write(home.path()).unwrap();
    assert_eq!(Profiles::read(home.path(), &messages).unwrap(), profiles);
}

#[test]
fn version_1_is_read() {
    let text = r#"{"version":1,"default":"https://one.example",
        "brokers":{"https://one.example":{"context":"c"},"https://two.example":{}}}"#;
    let Ok(read) = Profiles::parse(text.as_bytes()) else { panic!("not read") };
    assert_eq!(read.current, Some(account(ONE, None)));
    assert_eq!(read.get(&account(ONE, None)).context.as_deref(), Some("c"));
    assert_eq!(read.all().count(), 2);
}

#[test]
fn invalid_files_are_damaged_or_newer() {
    for text in [
        "",
        "{}",
        r#"{"version":1,"brokers":[]}"#,
        r#"{"version":2,"profiles":{"a/b":{"broker":"https://one.example"}}}"#,
        r#"{"version":2,"profiles":{"work":{"broker":"ftp://one.example"}}}"#,
        r#"{"version":2,"current":"work","profiles":{}}"#,
    ] {
        assert!(matches!(Profiles::parse(text.as_bytes()), Err(Unusable::Damaged)), "{text}");
    }
    assert!(matches!(Profiles::parse(br#"{"version":3}"#), Err(Unusable::Newer)));
}

#[test]
fn entry_names_prefer_the_chosen_name() {
    let named = Profile { context: Some("c".to_owned()), ..Profile::default() };
    let name = |profile: &Profile, name| profile.entry_name(&account(ONE, name));
    assert_eq!(name(&named, Some("work")).as_deref(), Some("c"));
    assert_eq!(name(&Profile::default(), Some("work")).as_deref(), Some("work"));
    assert_eq!(name(&Profile::default(), None), None);
}

proptest::proptest! {
    #[test]
    fn parsing_never_panics(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)) {
        let _ = Profiles::parse(&bytes);
    }
}
