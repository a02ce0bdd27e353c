//! Settings of the OpenID provider (`issuer.*`).

use std::path::{Path, PathBuf};

use url::Url;

use super::{
    Settings, connector,
    declaration::{Declaration, Setting},
    limits,
    parse::{from_str, list, within},
    workload,
};
use crate::{base::db::Location, issuer::IssuerSettings};

pub(super) const SIGNING_KEY_FILES: Setting<Vec<PathBuf>> = Setting::derived(
    "issuer.signing_key_files",
    "<state_dir>/issuer-key.pem",
    list,
    "PEM files of P-256 keys, one or more in each: the first key of the first file signs, all are \
     published. They are read again when they change. With PostgreSQL they must be set, because \
     replicas share them.",
);
const ACCESS_TOKEN_SECONDS: Setting<u32> = Setting::new(
    "issuer.access_token_seconds",
    "900",
    within::<60, 3600>,
    "Lifetime of the issuer's access tokens (not of Kubernetes tokens, which live 7200 s).",
);
const SESSION_IDLE_SECONDS: Setting<u32> = Setting::new(
    "issuer.session_idle_seconds",
    "604800",
    within::<300, 31_536_000>,
    "Seconds without use after which a session ends.",
);
const SESSION_MAX_SECONDS: Setting<u32> = Setting::new(
    "issuer.session_max_seconds",
    "2592000",
    within::<300, 31_536_000>,
    "Seconds after which a session ends, however often it is used.",
);
const LOCAL_ACCOUNTS: Setting<bool> = Setting::new(
    "issuer.local_accounts",
    "true",
    from_str,
    "Whether people may sign in with e-mail address and password; false needs a connector.",
);
const REFRESH_GRACE_SECONDS: Setting<u32> = Setting::new(
    "issuer.refresh_grace_seconds",
    "30",
    within::<0, 300>,
    "Seconds in which a used refresh token may be used again, after a lost response or by two \
     concurrent processes, as long as none of its successors was used.",
);
const REGISTRATION: Setting<bool> = Setting::new(
    "issuer.registration",
    "false",
    from_str,
    "Whether people may register accounts themselves.",
);
pub(super) const SETTINGS: &[&dyn Declaration] = &[
    &SIGNING_KEY_FILES,
    &ACCESS_TOKEN_SECONDS,
    &SESSION_IDLE_SECONDS,
    &SESSION_MAX_SECONDS,
    &LOCAL_ACCOUNTS,
    &REFRESH_GRACE_SECONDS,
    &REGISTRATION,
];

pub(super) fn read(
    s: &mut Settings,
    state_dir: &Path,
    database: &Location,
    public_url: Url,
) -> IssuerSettings {
    let mut signing_key_files = SIGNING_KEY_FILES.read(s);
    if signing_key_files.is_empty() {
        if matches!(database, Location::Postgres(_)) {
            SIGNING_KEY_FILES.fault(
                s,
                "replicas on PostgreSQL share their signing key: make one with \
                 `openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out issuer-key.pem` \
                 and name it",
            );
        }
        signing_key_files.push(generated_key_file(state_dir));
    }
    let connectors = connector::connectors(s);
    let local_accounts = LOCAL_ACCOUNTS.read(s);
    if !local_accounts && connectors.is_empty() {
        LOCAL_ACCOUNTS.fault(s, "nobody could sign in: configure a connector first");
    }
    IssuerSettings {
        public_url,
        signing_key_files,
        access_token_seconds: ACCESS_TOKEN_SECONDS.read(s),
        id_token_seconds: 300,
        session_idle_seconds: SESSION_IDLE_SECONDS.read(s),
        session_max_seconds: SESSION_MAX_SECONDS.read(s),
        refresh_grace_seconds: REFRESH_GRACE_SECONDS.read(s),
        authorization_seconds: 600,
        sign_in_account: limits::SIGN_IN_FAILURES_PER_ACCOUNT.read(s),
        sign_in_address: limits::SIGN_IN_FAILURES_PER_ADDRESS.read(s),
        sign_in_everywhere: limits::SIGN_IN_FAILURES_EVERYWHERE.read(s),
        sign_in_start: limits::SIGN_INS_BEGUN_PER_ADDRESS.read(s),
        device_start: limits::DEVICE_CODES_PER_ADDRESS.read(s),
        user_code: limits::USER_CODE_FAILURES_PER_ADDRESS.read(s),
        register: limits::REGISTRATIONS_PER_ADDRESS.read(s),
        registration: REGISTRATION.read(s),
        exchange: limits::EXCHANGES_PER_ADDRESS.read(s),
        local_accounts,
        connectors,
        workloads: workload::workloads(s),
    }
}

/// The signing key that the broker generates if none is configured.
pub(super) fn generated_key_file(state_dir: &Path) -> PathBuf {
    state_dir.join("issuer-key.pem")
}
