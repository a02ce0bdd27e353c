use std::collections::HashMap;

use super::*;

const ONE: &str = "https://one.example";
const TWO: &str = "https://two.example";

fn identity(broker: &str, profile: Option<&str>) -> Identity {
    Identity {
        broker: BrokerUrl::parse(broker).unwrap(),
        profile: profile.map(|name| ProfileName::parse(name).unwrap()),
    }
}

fn profiles() -> Profiles {
    let mut profiles =
        Profiles { current: Some(identity(ONE, Some("work"))), ..Profiles::default() };
    for (broker, name) in [(ONE, None), (ONE, Some("work")), (TWO, Some("home"))] {
        profiles.set(&identity(broker, name), Profile::default());
    }
    profiles
}

fn env(variables: &[(&str, &str)]) -> Env {
    let map: HashMap<_, _> =
        variables.iter().map(|(name, value)| (name.into(), value.into())).collect();
    Env::Fixed(map)
}

fn choice(broker: Option<&str>, profile: Option<&str>) -> Choice {
    Choice { broker: broker.map(str::to_owned), profile: profile.map(str::to_owned) }
}

#[test]
fn flags_come_before_variables_and_variables_before_what_is_remembered() {
    let profiles = profiles();
    let (broker, profile) = ("TENANT_BROKER_URL", "TENANT_PROFILE");
    for (flags, variables, expected) in [
        ((None, None), &[][..], (ONE, Some("work"))),
        ((Some(ONE), None), &[], (ONE, None)),
        // What a kubeconfig says is not bent by variables.
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
        let found = profiles.choose(&choice(flags.0, flags.1), &env(variables)).unwrap();
        assert_eq!(found, identity(expected.0, expected.1), "{flags:?} {variables:?}");
    }
}

#[test]
fn a_new_name_is_for_a_sign_in_only() {
    let profiles = profiles();
    let asked = choice(None, Some("new"));
    assert!(profiles.choose(&asked, &env(&[])).unwrap_err().message.contains("no profile \"new\""));
    let login = |variables: &[(&str, &str)]| profiles.choose_for_login(&asked, &env(variables));
    assert_eq!(login(&[]).unwrap(), identity(ONE, Some("new")));
    assert_eq!(login(&[("TENANT_BROKER_URL", TWO)]).unwrap(), identity(TWO, Some("new")));
    let none = Profiles::default().choose_for_login(&asked, &env(&[])).unwrap_err();
    assert!(none.hint.unwrap().contains("--broker"));
}

#[test]
fn a_name_stays_with_its_broker() {
    for asked in [choice(Some(TWO), Some("work")), choice(Some(TWO), Some(ONE))] {
        let error = profiles().choose_for_login(&asked, &env(&[])).unwrap_err();
        assert!(error.message.contains("belongs to https://one.example"), "{error}");
    }
}

#[test]
fn what_is_written_is_read() {
    let home = tempfile::tempdir().unwrap();
    let messages = Messages::to(std::io::sink());
    let mut profiles = profiles();
    let context = Some("c".to_owned());
    profiles.set(&identity(ONE, None), Profile { context, ..Profile::default() });
    profiles.write(home.path()).unwrap();
    assert_eq!(Profiles::read(home.path(), &messages).unwrap(), profiles);
}

#[test]
fn the_first_layout_is_read() {
    let text = r#"{"version":1,"default":"https://one.example",
        "brokers":{"https://one.example":{"context":"c"},"https://two.example":{}}}"#;
    let Ok(read) = Profiles::parse(text.as_bytes()) else { panic!("not read") };
    assert_eq!(read.current, Some(identity(ONE, None)));
    assert_eq!(read.of(&identity(ONE, None)).context.as_deref(), Some("c"));
    assert_eq!(read.all().count(), 2);
}

#[test]
fn odd_files_are_damaged_or_newer() {
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
fn entries_are_called_what_the_person_calls_them() {
    let named = Profile { context: Some("c".to_owned()), ..Profile::default() };
    let name = |profile: &Profile, name| profile.entry_name(&identity(ONE, name));
    assert_eq!(name(&named, Some("work")).as_deref(), Some("c"));
    assert_eq!(name(&Profile::default(), Some("work")).as_deref(), Some("work"));
    assert_eq!(name(&Profile::default(), None), None);
}

proptest::proptest! {
    #[test]
    fn no_file_is_a_panic(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)) {
        let _ = Profiles::parse(&bytes);
    }
}
