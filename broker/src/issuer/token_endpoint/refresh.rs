//! Refresh token rotation: each token works once and yields its successor (RFC 9700 section
//! 4.14.2).
//!
//! A reused token indicates that somebody else has it, so its session ends. The exception is a lost
//! response: within a short grace period the client gets one more successor, as long as none of the
//! successors was used. The first successor that is used makes its siblings void. The use of a void
//! token ends the session, so two chains never grow from one token.
//!
//! Refreshes of one session are serialized, because each locks the row of the session.

use uuid::Uuid;

use crate::{
    audit::{self, Action, Event},
    base::{
        db::Tx,
        secret::{PlainSecret, SecretHash},
    },
    identity::sessions,
    issuer::{
        Issuer,
        connector::check,
        parameters::{MAX_SECRET_BYTES, Parameters},
        tokens::{
            issued_tokens::{self, IssuedTokens},
            refresh_tokens,
            token_error::TokenError,
        },
    },
    on_engine,
};

/// Successors of one token at most, which bounds the rows that a client in a loop creates.
const MAX_SUCCESSORS: i64 = 16;

/// `Retry-After` for a client that retried too often, in seconds: well before the grace period
/// ends, because a use after it ends the session.
const RETRY_AFTER_SECONDS: u64 = 1;

/// The same error for every refresh token that is not valid.
const INVALID_TOKEN: TokenError = TokenError::Grant("the session is over; sign in again");

/// Redeems a refresh token for new tokens, and extends the idle timeout of its session.
pub(in crate::issuer) async fn redeem(
    issuer: &Issuer,
    params: &Parameters,
    client_id: &str,
) -> Result<IssuedTokens, TokenError> {
    let token = PlainSecret::presented(params.required("refresh_token", MAX_SECRET_BYTES)?).hash();
    let scope = params.optional("scope", 256)?.unwrap_or_default();
    // An unknown token costs a read and not a writing transaction.
    let Some(session_id) = refresh_tokens::find_session(issuer.db(), token).await? else {
        return Err(INVALID_TOKEN);
    };
    check::check_before_refresh(issuer, token).await?;
    let (now, settings) = (issuer.clock().now_ms(), issuer.settings());
    let mut tx = issuer.db().begin().await?;
    let idle_expires_at = now + i64::from(settings.session_idle_seconds) * 1000;
    // This comes first, because it locks the row of the session.
    let Some(session) =
        sessions::extend_idle_timeout(&mut tx, session_id, now, idle_expires_at).await?
    else {
        return Err(INVALID_TOKEN);
    };
    let Some(state) = read_state(&mut tx, token).await? else { return Err(INVALID_TOKEN) };
    match state.classify(now, i64::from(settings.refresh_grace_seconds) * 1000) {
        RefreshTokenUse::First => mark_used(&mut tx, token, now).await?,
        RefreshTokenUse::Retry => {}
        RefreshTokenUse::TooMany(seconds) => return Err(TokenError::TooMany(seconds)),
        RefreshTokenUse::Reuse => {
            return Err(end_session_of_reused_token(issuer, tx, session_id, now).await?);
        }
    }
    // A token of another client, or too wide a scope: the transaction is rolled back, and the token
    // stays unused.
    if session.client_id != client_id {
        return Err(INVALID_TOKEN);
    }
    if !scope.split(' ').filter(|scope| !scope.is_empty()).all(|scope| session.has_scope(scope)) {
        return Err(TokenError::Scope);
    }
    let tokens = issued_tokens::issue(issuer, &mut tx, &session, None, Some(token), now).await?;
    tx.commit().await?;
    Ok(tokens)
}

/// Classification of the use of a refresh token.
#[derive(Debug, PartialEq, Eq)]
enum RefreshTokenUse {
    First,
    /// A retry of a client that did not get the response.
    Retry,
    /// One retry too many; the next may come after this number of seconds.
    TooMany(u64),
    /// A reuse: somebody else may have the token.
    Reuse,
}

/// State of a presented refresh token, its successors and its siblings.
#[derive(Debug, sqlx::FromRow)]
struct RefreshTokenState {
    used_at: Option<i64>,
    /// Number of successors.
    successors: i64,
    /// Number of used successors.
    used_successors: i64,
    /// Number of used siblings, which are other successors of its parent.
    used_siblings: i64,
}

impl RefreshTokenState {
    fn classify(&self, now: i64, grace_ms: i64) -> RefreshTokenUse {
        if self.used_siblings > 0 || self.used_successors > 0 {
            return RefreshTokenUse::Reuse;
        }
        let Some(used_at) = self.used_at else { return RefreshTokenUse::First };
        let left = used_at + grace_ms - now;
        if left <= 0 {
            RefreshTokenUse::Reuse
        } else if self.successors >= MAX_SUCCESSORS {
            RefreshTokenUse::TooMany(RETRY_AFTER_SECONDS)
        } else {
            RefreshTokenUse::Retry
        }
    }
}

/// Ends the session of a token that was reused: after the grace period, or after the use of a
/// successor or sibling.
async fn end_session_of_reused_token(
    issuer: &Issuer,
    mut tx: Tx,
    session_id: Uuid,
    now: i64,
) -> sqlx::Result<TokenError> {
    let ended = sessions::end(&mut tx, session_id, now, "refresh token used again").await?;
    if let Some(user_id) = ended {
        let event = Event {
            user_id: Some(user_id),
            session_id: Some(session_id),
            ..Event::refused(
                Action::RefreshReuse,
                "the refresh token was used again; its session is ended",
            )
        };
        audit::record(&mut tx, issuer.clock(), event).await?;
    }
    tx.commit().await?;
    if ended.is_some() {
        issuer.metrics().action(Action::RefreshReuse.as_str(), "refused");
    }
    Ok(INVALID_TOKEN)
}

const READ_STATE: &str = "\
SELECT used_at, \
  (SELECT COUNT(*) FROM refresh_tokens s WHERE s.parent_hash = t.token_hash) AS successors, \
  (SELECT COUNT(*) FROM refresh_tokens s WHERE s.parent_hash = t.token_hash \
     AND s.used_at IS NOT NULL) AS used_successors, \
  (SELECT COUNT(*) FROM refresh_tokens s WHERE s.parent_hash = t.parent_hash \
     AND s.token_hash <> t.token_hash AND s.used_at IS NOT NULL) AS used_siblings \
FROM refresh_tokens t WHERE token_hash = $1";

/// Reads the state of a token while the row of the session is locked.
async fn read_state(tx: &mut Tx, token: SecretHash) -> sqlx::Result<Option<RefreshTokenState>> {
    on_engine!(tx.connection(), c => sqlx::query_as(READ_STATE)
        .bind(token.as_bytes()).fetch_optional(c).await)
}

const MARK_USED: &str = "UPDATE refresh_tokens SET used_at = $2 WHERE token_hash = $1";

async fn mark_used(tx: &mut Tx, token: SecretHash, now: i64) -> sqlx::Result<()> {
    on_engine!(tx.connection(), c => sqlx::query(MARK_USED)
        .bind(token.as_bytes()).bind(now).execute(c).await.map(drop))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE_MS: i64 = 30_000;

    fn classify(used_at: Option<i64>, successors: [i64; 2], used_siblings: i64) -> RefreshTokenUse {
        let [successors, used_successors] = successors;
        RefreshTokenState { used_at, successors, used_successors, used_siblings }
            .classify(100_000, GRACE_MS)
    }

    #[test]
    fn a_use_is_classified_by_the_token_its_successors_and_its_siblings() {
        let (late, in_time) = (Some(70_000), Some(70_001));
        assert_eq!(classify(None, [0, 0], 0), RefreshTokenUse::First);
        assert_eq!(classify(None, [0, 0], 1), RefreshTokenUse::Reuse, "a void sibling");
        assert_eq!(classify(in_time, [1, 0], 0), RefreshTokenUse::Retry);
        assert_eq!(
            classify(in_time, [0, 0], 0),
            RefreshTokenUse::Retry,
            "its successors are not known"
        );
        assert_eq!(classify(in_time, [MAX_SUCCESSORS, 0], 0), RefreshTokenUse::TooMany(1));
        assert_eq!(classify(in_time, [2, 1], 0), RefreshTokenUse::Reuse, "a successor was used");
        assert_eq!(classify(in_time, [1, 0], 1), RefreshTokenUse::Reuse, "a sibling was used");
        assert_eq!(classify(late, [1, 0], 0), RefreshTokenUse::Reuse);
        let at_once = RefreshTokenState {
            used_at: Some(5),
            successors: 1,
            used_successors: 0,
            used_siblings: 0,
        };
        assert_eq!(at_once.classify(5, 0), RefreshTokenUse::Reuse, "without a grace");
    }
}
