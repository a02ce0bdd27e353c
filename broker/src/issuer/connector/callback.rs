//! `GET /login/callback/{name}`: the browser comes back from a provider.
//!
//! Each provider has an address of its own here, and the state knows where it was sent, so that one
//! provider's answer cannot be passed off as another's (RFC 9700 section 4.4).

use poem::{Request, Response, http::StatusCode};
use uuid::Uuid;

use super::{
    Connector, NoAnswer,
    binding::{MOST_STATE_BYTES, State},
    grant,
    person::Described,
    provider::Answer,
    start,
};
use crate::{
    audit::{self, Action, Event},
    identity::provider::{Known, NotAdmitted, Person},
    issuer::{
        Issuer,
        accept::SignedIn,
        pages,
        parameters::Parameters,
        waiting::{Waiting, over},
    },
    problem::{self, note},
    throttle::{self, Allowance, Limited, TooMany},
};

/// Bytes of a provider's code at most.
const MOST_CODE_BYTES: usize = 4096;

/// A sign-in that comes to nothing.
enum Refusal {
    /// There is no page to go back to: the state, or the browser, is not the right one.
    Over,
    /// The provider does not answer.
    Down(NoAnswer),
    /// It may not be; why, for the audit trail, and what the person is told.
    Refused { user_id: Option<Uuid>, why: String, told: String },
    /// Too many from this address came to nothing before.
    TooMany(TooMany),
    /// A fault of ours.
    Broken(String),
    /// The database's.
    Storage(sqlx::Error),
}

impl From<sqlx::Error> for Refusal {
    fn from(error: sqlx::Error) -> Self {
        Self::Storage(error)
    }
}

/// Answers a browser that comes back.
pub(in crate::issuer) async fn arrive(issuer: Issuer, request: Request) -> Response {
    let Some(connector) = start::named(&issuer, &request) else { return start::unknown() };
    let Ok(sent) = Parameters::of_query(&request) else { return over() };
    let found = waiting(&issuer, &request, connector, &sent).await;
    let (waiting, state) = match found {
        Ok(found) => found,
        Err(Refusal::Storage(error)) => return pages::storage(&error),
        Err(_) => return over(),
    };
    let arrival = Arrival { issuer: &issuer, connector, waiting: &waiting, sent: &sent };
    let refusal = match arrival.sign_in(&state).await {
        Ok(response) => return response,
        Err(refusal) => refusal,
    };
    match refusal {
        Refusal::Over => over(),
        Refusal::Down(error) => start::down(connector, &waiting, &error),
        Refusal::Broken(cause) => pages::broken(&cause),
        Refusal::Storage(error) => pages::storage(&error),
        Refusal::TooMany(limit) => {
            let text = "Too many sign-ins from your address were refused. Try again later.";
            let page = waiting.form(StatusCode::TOO_MANY_REQUESTS, "", Some(text));
            pages::later(page, limit.retry_after)
        }
        Refusal::Refused { user_id, why, told } => {
            let reason = format!("{}: {why}", connector.name);
            let event =
                Event { subject_user_id: user_id, ..Event::refused(Action::SignIn, reason) };
            if let Err(error) = count_refusal(&issuer, event).await {
                return pages::storage(&error);
            }
            issuer.metrics().action(Action::SignIn, "refused");
            waiting.form(StatusCode::FORBIDDEN, "", Some(&told))
        }
    }
}

/// Whether a sign-in from this address may be tried: refused ones count, because each costs a row of the
/// audit trail and a call of the provider. Wrong passwords are counted apart: many people may share an
/// address, and those of a provider have none.
async fn within_the_limit(issuer: &Issuer) -> Result<(), Refusal> {
    let (subject, allowance) = by_address(issuer);
    throttle::look(issuer.db(), issuer.clock(), Limited::SignInProvider, &subject, allowance)
        .await?
        .map_err(Refusal::TooMany)
}

/// Records a refusal and counts it for the address.
async fn count_refusal(issuer: &Issuer, event: Event) -> sqlx::Result<()> {
    let (subject, allowance) = by_address(issuer);
    let (mut tx, clock) = (issuer.db().begin().await?, issuer.clock());
    // Whether this one was the last allowed concerns the next one.
    let _ = throttle::take(&mut tx, clock, Limited::SignInProvider, &subject, allowance).await?;
    audit::record(&mut tx, clock, event).await?;
    tx.commit().await
}

fn by_address(issuer: &Issuer) -> (String, Allowance) {
    (throttle::requester(), issuer.settings().sign_in_address)
}

/// The request that this browser left for this provider with, and its state. The state is used up,
/// whatever comes of it.
async fn waiting(
    issuer: &Issuer,
    request: &Request,
    connector: &Connector,
    sent: &Parameters,
) -> Result<(Waiting, State), Refusal> {
    let presented = sent.required("state", MOST_STATE_BYTES).ok().and_then(State::presented);
    let (state, handle) = presented.ok_or(Refusal::Over)?;
    let mut tx = issuer.db().begin().await?;
    let now = issuer.clock().now_ms();
    let taken = grant::take_attempt(&mut tx, state.secret().hash(), now).await?;
    tx.commit().await?;
    let (authorization_id, name) = taken.ok_or(Refusal::Over)?;
    let waiting = Waiting::find(issuer, request, handle).await?.ok_or(Refusal::Over)?;
    if name != connector.name || waiting.pending.id != authorization_id {
        return Err(Refusal::Over);
    }
    Ok((waiting, state))
}

/// A browser that left and came back.
struct Arrival<'a> {
    issuer: &'a Issuer,
    connector: &'a Connector,
    waiting: &'a Waiting,
    sent: &'a Parameters,
}

impl Arrival<'_> {
    async fn sign_in(&self, state: &State) -> Result<Response, Refusal> {
        within_the_limit(self.issuer).await?;
        let iss = self.sent.optional("iss", 512).map_err(|_| Refusal::Over)?;
        let provider = &self.connector.provider;
        provider.check_sender(iss).await.map_err(|error| self.failed(error))?;
        if let Ok(Some(error)) = self.sent.optional("error", 64) {
            return Err(self.refused(
                None,
                format!("the provider answers {error}"),
                "The sign-in there was refused or given up.",
            ));
        }
        let code = self.sent.required("code", MOST_CODE_BYTES).map_err(|_| Refusal::Over)?;
        let (verifier, nonce) =
            (state.verifier(&self.waiting.proof), state.nonce(&self.waiting.proof));
        let answer = provider
            .redeem(code.to_owned(), verifier, &nonce)
            .await
            .map_err(|error| self.failed(error))?;
        let claims = answer.claims.clone().unwrap_or_default();
        let described = self.connector.settings.describe(&claims).map_err(|not_allowed| {
            let why = not_allowed.why();
            self.refused(
                None,
                format!("{:?} is {why}", answer.subject),
                &format!("Your account there may not sign in here: {why}. Ask an administrator."),
            )
        })?;
        let known = self.admit(&answer, &described).await?;
        let grant_id = self.keep(&answer, &described, known).await?;
        let who = SignedIn {
            user_id: known.user_id,
            how: format!("{} as {:?}", self.connector.name, answer.subject),
            grant_id: Some(grant_id),
        };
        Ok(self.waiting.accept(self.issuer, &who).await?)
    }

    async fn admit(&self, answer: &Answer, described: &Described) -> Result<Known, Refusal> {
        let person = Person {
            connector: &self.connector.name,
            issuer: &self.connector.settings.issuer,
            subject: &answer.subject,
            username: described.username.as_deref(),
            email: described.email.as_ref(),
            role: described.role,
        };
        self.issuer.identity().admit(&person).await?.map_err(|not_admitted| match not_admitted {
            NotAdmitted::EmailTaken => self.refused(
                None,
                format!("the address of {:?} belongs to another user", answer.subject),
                "Another user here has your e-mail address, and nobody is given an account by \
                 its address. Ask an administrator.",
            ),
            NotAdmitted::Suspended(user_id) => self.refused(
                Some(user_id),
                "the account is suspended".to_owned(),
                "Your account here is suspended. Ask an administrator.",
            ),
        })
    }

    /// Keeps what the provider gave, for the session that begins.
    async fn keep(
        &self,
        answer: &Answer,
        described: &Described,
        known: Known,
    ) -> Result<Uuid, Refusal> {
        let (issuer, clock) = (self.issuer, self.issuer.clock());
        let id = clock.random_id();
        let seal = |token| issuer.keys().seals().seal(token, id.as_bytes());
        let refresh_token = answer.refresh_token.as_ref().map(seal).transpose();
        let refresh_token =
            refresh_token.map_err(|error| Refusal::Broken(problem::chain(&error)))?;
        let can_be_asked = refresh_token.is_some();
        let new = grant::New {
            id,
            identity_id: known.identity_id,
            connector: &self.connector.name,
            username: described.username.as_deref(),
            sid: answer.sid.as_deref(),
            refresh_token,
            removal_seconds: self.connector.removal_seconds(issuer.settings(), can_be_asked),
            now: clock.now_ms(),
        };
        let mut tx = issuer.db().begin().await?;
        grant::add(&mut tx, &new).await?;
        tx.commit().await?;
        Ok(id)
    }

    fn failed(&self, error: NoAnswer) -> Refusal {
        match error {
            NoAnswer::Outage(_) => Refusal::Down(error),
            NoAnswer::No(_) | NoAnswer::Unsound(_) => {
                note("cause", error.to_string());
                let told = "Its answer could not be used. Try again.";
                self.refused(None, error.to_string(), told)
            }
        }
    }

    fn refused(&self, user_id: Option<Uuid>, why: String, told: &str) -> Refusal {
        let told =
            format!("You were not signed in with {}. {told}", self.connector.settings.display_name);
        Refusal::Refused { user_id, why, told }
    }
}
