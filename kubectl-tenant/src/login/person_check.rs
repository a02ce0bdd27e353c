//! Check that a sign-in is of the person of the account, because all contexts of the account in the
//! kubeconfig act as the person who signed in last.

use crate::{
    error::Error,
    store::{Session, SessionUser},
};

/// Command that starts a sign-in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SignInTrigger {
    /// `login`, which a person typed.
    Login,
    /// `get-token`, which kubectl runs.
    GetToken,
}

/// Compares the person of a new session with the person of the account: that of the session that is
/// stored, else that of the session that ended at the broker.
///
/// Another person is refused while the stored session is live. After its end `get-token` refuses
/// another person, too, and `login` accepts one: then the returned text is a warning.
pub(super) fn check_person(
    stored: Option<&Session>,
    ended: Option<SessionUser>,
    session: &Session,
    (trigger, now): (SignInTrigger, i64),
) -> Result<Option<String>, Error> {
    let is_live = stored.is_some_and(|stored| !stored.is_over(now));
    let before = stored.map(SessionUser::from).or(ended);
    let Some(before) = before.filter(|before| before.subject != session.subject) else {
        return Ok(None);
    };
    if is_live {
        return Err(live_session_error(&before, session));
    }
    match trigger {
        SignInTrigger::GetToken => Err(ended_session_error(&before, session)),
        SignInTrigger::Login => Ok(Some(format!(
            "warning: {} has the session of {} now. Its last session was that of {}; its contexts \
             in the kubeconfig act as the new person",
            session.account(),
            new_name(session),
            old_name(&before)
        ))),
    }
}

/// The error for another person while the account has a live session, which its person would lose.
fn live_session_error(before: &SessionUser, session: &Session) -> Error {
    let account = session.account();
    Error::other(format!(
        "you signed in as {}, but {account} has the session of {}; nothing was replaced",
        new_name(session),
        old_name(before)
    ))
    .hint(format!(
        "to keep both, sign in to another account: kubectl tenant login --broker {} --profile \
         NAME; to replace the session, end it first: {}",
        account.broker,
        account.command("logout")
    ))
}

/// The error for another person in a sign-in that kubectl caused, after the session of the account
/// ended. It asks for a sign-in, because only a person can decide whose account it is.
fn ended_session_error(before: &SessionUser, session: &Session) -> Error {
    let account = session.account();
    Error::sign_in(format!(
        "you signed in as {}, but {account} is the account of {}, whose session ended; nothing was \
         stored",
        new_name(session),
        old_name(before)
    ))
    .hint(format!(
        "to sign in as before, sign out at {} in the browser, then run: {}; for another person use \
         another account: kubectl tenant login --broker {} --profile NAME",
        account.broker.join("/account"),
        account.command("login"),
        account.broker
    ))
}

/// E-mail address of the person who signed in, if the ID token has one.
fn new_name(session: &Session) -> &str {
    if session.email.is_empty() { "another person" } else { &session.email }
}

/// E-mail address of the person before, if it was known.
fn old_name(before: &SessionUser) -> &str {
    if before.email.is_empty() { "somebody else" } else { &before.email }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        account_key::AccountKey,
        broker_url::BrokerUrl,
        error::Kind,
        store::{AccessToken, Storage},
    };

    const NOW: i64 = 1_800_000_000;
    const LOGIN: (SignInTrigger, i64) = (SignInTrigger::Login, NOW);
    const GET_TOKEN: (SignInTrigger, i64) = (SignInTrigger::GetToken, NOW);

    /// A live session whose subject is the e-mail address.
    fn session(email: &str) -> Session {
        let account = AccountKey::unnamed(BrokerUrl::parse("https://broker.example.com").unwrap());
        let endpoints = ("https://broker.example.com/oauth2/token".to_owned(), None);
        let access =
            AccessToken { token: "access".into(), received_at: NOW, expires_at: NOW + 900 };
        let mut session = Session::new(account, email.to_owned(), endpoints, Storage::File, access);
        email.clone_into(&mut session.email);
        session
    }

    #[test]
    fn another_person_is_refused_while_a_session_is_live() {
        let (alice, bob) = (session("alice@example.com"), session("bob@example.com"));
        for trigger in [LOGIN, GET_TOKEN] {
            let error = check_person(Some(&alice), None, &bob, trigger).unwrap_err();
            assert_eq!(error.kind, Kind::Other);
            let text =
                "as bob@example.com, but https://broker.example.com has the session of alice";
            assert!(error.message.contains(text), "{}", error.message);
            assert_eq!(check_person(Some(&alice), None, &alice, trigger), Ok(None));
        }
    }

    #[test]
    fn after_the_end_of_a_session_get_token_refuses_another_person_and_login_warns() {
        let (alice, bob) = (session("alice@example.com"), session("bob@example.com"));
        let ended = || Some(SessionUser::from(&alice));
        let mut over = alice.clone();
        over.storage = Storage::None;
        over.access.expires_at = NOW;
        for (stored, ended) in [(None, ended()), (Some(&over), None)] {
            let error = check_person(stored, ended.clone(), &bob, GET_TOKEN).unwrap_err();
            assert_eq!(error.kind, Kind::SignIn);
            let text = "as bob@example.com, but https://broker.example.com is the account of alice";
            assert!(error.message.contains(text), "{}", error.message);
            let hint = error.hint.unwrap();
            let command = "kubectl tenant login --broker https://broker.example.com";
            assert!(hint.contains(&format!("{command};")), "{hint}");
            assert!(hint.contains(&format!("{command} --profile NAME")), "{hint}");
            let warning = check_person(stored, ended.clone(), &bob, LOGIN).unwrap().unwrap();
            assert!(warning.contains("has the session of bob@example.com now"), "{warning}");
            assert!(warning.contains("was that of alice@example.com"), "{warning}");
            for trigger in [LOGIN, GET_TOKEN] {
                assert_eq!(check_person(stored, ended.clone(), &alice, trigger), Ok(None));
            }
        }
        // A stored session is newer than one that ended.
        assert_eq!(check_person(Some(&bob), ended(), &bob, GET_TOKEN), Ok(None));
    }

    #[test]
    fn an_account_without_a_person_accepts_everybody() {
        for trigger in [LOGIN, GET_TOKEN] {
            assert_eq!(check_person(None, None, &session("bob@example.com"), trigger), Ok(None));
        }
    }

    #[test]
    fn a_person_whose_address_is_not_known_has_other_words() {
        let (mut alice, mut bob) = (session("alice@example.com"), session("bob@example.com"));
        (alice.email, bob.email) = (String::new(), String::new());
        let error = check_person(None, Some((&alice).into()), &bob, GET_TOKEN).unwrap_err();
        let text = "you signed in as another person, but https://broker.example.com is the account \
                    of somebody else, whose session ended";
        assert!(error.message.contains(text), "{}", error.message);
    }
}
