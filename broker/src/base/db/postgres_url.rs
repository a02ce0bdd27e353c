//! Parsing of PostgreSQL URLs without secrets in errors or in the log.

use sqlx::{ConnectOptions as _, postgres::PgConnectOptions};
use url::Url;

/// The parameters that the driver knows (sqlx-postgres, `PgConnectOptions::parse_from_url`), besides
/// `options[NAME]`.
const PARAMETERS: [&str; 18] = [
    "sslmode",
    "ssl-mode",
    "sslrootcert",
    "ssl-root-cert",
    "ssl-ca",
    "sslcert",
    "ssl-cert",
    "sslkey",
    "ssl-key",
    "statement-cache-capacity",
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "password",
    "application_name",
    "options",
];
/// Maximum length of a parameter's name that is logged, in bytes.
const MAX_NAME_BYTES: usize = 64;

/// Parses a URL. Parameters that the driver does not know are ignored with a warning, which names
/// them: the driver's own warning would contain their values, such as that of a misspelt `password`.
/// `None` if it is no PostgreSQL URL, or if an unknown parameter is about TLS (`ssl…`), because
/// without it the server would not be verified; the error of the parser is left out, because it can repeat the
/// URL.
pub(super) fn parse(url: &str) -> Option<PgConnectOptions> {
    let mut url: Url = url.parse().ok()?;
    let parameters: Vec<(String, String)> = url.query_pairs().into_owned().collect();
    let (known, unknown): (Vec<_>, Vec<_>) =
        parameters.into_iter().partition(|(name, _)| is_known(name));
    if unknown.iter().any(|(name, _)| name.to_ascii_lowercase().starts_with("ssl")) {
        return None;
    }
    if !unknown.is_empty() {
        let names: Vec<&str> = unknown.iter().map(|(name, value)| printable(name, value)).collect();
        tracing::warn!(
            parameters = names.join(", "),
            "parameters of the database URL are not supported and are ignored"
        );
        url.query_pairs_mut().clear().extend_pairs(known);
    }
    PgConnectOptions::from_url(&url).ok()
}

fn is_known(name: &str) -> bool {
    PARAMETERS.contains(&name) || name.starts_with("options[")
}

/// The name of a parameter; `?` if it may be a part of a password that contains `?` or `&`.
fn printable<'a>(name: &'a str, value: &str) -> &'a str {
    let is_letter = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    let is_name = !name.is_empty() && name.len() <= MAX_NAME_BYTES && name.chars().all(is_letter);
    // The URL of a password with `?` has the rest of the address in a value.
    let is_value = !value.is_empty() && !value.contains('@');
    if is_name && is_value { name } else { "?" }
}

#[cfg(test)]
mod tests {
    use sqlx::postgres::PgSslMode;

    use super::*;
    use crate::testing::Log;

    #[test]
    fn the_log_has_the_names_of_unknown_parameters_and_no_values() {
        let log = Log::of(|| {
            let url = "postgres://u:p@h/d?pasword=hunter2&sslmode=require&hunter%20=2&hunter2&hunter=@h/d&x=1";
            let options = parse(url).unwrap();
            assert_eq!((options.get_host(), options.get_database()), ("h", Some("d")));
            assert!(matches!(options.get_ssl_mode(), PgSslMode::Require));
        });
        assert!(log.contains(r#"parameters="pasword, ?, ?, ?, x""#), "{log}");
        assert!(!log.contains("hunter"), "{log}");
        assert_eq!(log.lines().count(), 1, "the driver logs nothing: {log}");
    }

    #[test]
    fn the_driver_knows_all_parameters_that_pass() {
        let log = Log::of(|| {
            for name in PARAMETERS {
                let value = match name {
                    "sslmode" | "ssl-mode" => "verify-full",
                    "hostaddr" => "127.0.0.1",
                    _ => "1",
                };
                assert!(parse(&format!("postgres://u:p@h/d?{name}={value}")).is_some(), "{name}");
            }
            assert!(parse("postgres://u:p@h/d?options[search_path]=a").is_some());
        });
        assert_eq!(log, "");
    }

    #[test]
    fn what_is_no_url_is_refused() {
        for url in [
            "postgres://u:p@h:port/d",
            "postgres://u:p@h/d?port=x",
            "postgres://[",
            "postgres://u:p@h/d?ssl_mode=verify-full",
            "postgres://u:p@h/d?SSLMODE=verify-full",
        ] {
            assert!(parse(url).is_none(), "{url}");
        }
    }
}
