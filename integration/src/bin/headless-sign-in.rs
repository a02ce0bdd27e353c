//! The program that tests and users of `cargo dev` set as `BROWSER`.

use std::{collections::BTreeMap, io::Write as _, process::ExitCode};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use integration::browser::Browser;
use url::Url;

/// Signs in at a page of the broker, as a person with a browser would
///
/// Set it as BROWSER: BROWSER=headless-sign-in kubectl tenant login, or for another account
/// BROWSER='headless-sign-in --as operator' kubectl tenant login --profile operator.
///
/// E-mail address and password are in `TENANT_USER_EMAIL` and `TENANT_USER_PASSWORD`, for --as in the
/// variables TENANT_…_EMAIL and TENANT_…_PASSWORD that `cargo dev` sets. The PEM file in
/// `TENANT_BROKER_CA` is trusted.
#[derive(Debug, Parser)]
#[command(name = "headless-sign-in")]
struct Args {
    /// E-mail address of the account, or its part before the @
    #[arg(long = "as", value_name = "ACCOUNT")]
    account: Option<String>,
    /// Address of the page
    url: Url,
}

type Variables = BTreeMap<String, String>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match sign_in(Args::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The plugin shows the last lines of stderr, which must not be those of a backtrace.
            let _ = writeln!(std::io::stderr(), "{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Signs in at the page of the arguments.
async fn sign_in(args: Args) -> Result<()> {
    let variables: Variables = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let (email, password) = account(args.account.as_deref(), &variables)?;
    let authority = std::env::var_os("TENANT_BROKER_CA")
        .map(|file| std::fs::read_to_string(&file).context("read TENANT_BROKER_CA"))
        .transpose()?;
    let browser = Browser::new(authority.as_deref())?;
    let page = browser.sign_in(args.url, email, password).await?;
    ensure!(page.status.is_success(), "signing in ended with {} at {}", page.status, page.url);
    Ok(())
}

/// Returns e-mail address and password of this account, or of `TENANT_USER_EMAIL`.
fn account<'a>(name: Option<&str>, variables: &'a Variables) -> Result<(&'a str, &'a str)> {
    let value = |name: &str| variables.get(name).with_context(|| format!("{name} is not set"));
    let Some(name) = name else {
        return Ok((value("TENANT_USER_EMAIL")?, value("TENANT_USER_PASSWORD")?));
    };
    let accounts = variables.iter().filter_map(|(variable, email)| {
        let prefix = variable.strip_suffix("_EMAIL").filter(|it| it.starts_with("TENANT_"))?;
        Some((prefix, email.as_str()))
    });
    let (prefix, email) = accounts
        .clone()
        .find(|(_, email)| *email == name || email.split('@').next() == Some(name))
        .with_context(|| {
            let known: Vec<&str> = accounts.map(|(_, email)| email).collect();
            format!(
                "no variable TENANT_…_EMAIL has an account {name}; there are: {}",
                known.join(", ")
            )
        })?;
    Ok((email, value(&format!("{prefix}_PASSWORD"))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_found_by_its_name_or_address() {
        let variables: Variables = [
            ("TENANT_USER_EMAIL", "alice@example.com"),
            ("TENANT_USER_PASSWORD", "a"),
            ("TENANT_USER2_EMAIL", "bob@example.com"),
            ("TENANT_USER2_PASSWORD", "b"),
            ("TENANT_OPERATOR_EMAIL", "operator@example.com"),
            ("OTHER_EMAIL", "eve@example.com"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
        assert_eq!(account(None, &variables).unwrap(), ("alice@example.com", "a"));
        assert_eq!(account(Some("bob"), &variables).unwrap(), ("bob@example.com", "b"));
        assert_eq!(account(Some("alice@example.com"), &variables).unwrap().1, "a");
        let told = |name| account(Some(name), &variables).unwrap_err().to_string();
        assert_eq!(told("operator"), "TENANT_OPERATOR_PASSWORD is not set");
        let known = "there are: operator@example.com, bob@example.com, alice@example.com";
        assert!(told("eve").ends_with(known), "{}", told("eve"));
        assert!(account(None, &Variables::new()).is_err());
    }
}
