//! The program that the tests set as `BROWSER`: opens the given address and signs in there with
//! `TENANT_USER_EMAIL` and `TENANT_USER_PASSWORD`, as a person with a browser would. It trusts the
//! PEM file in `TENANT_BROKER_CA`.

use std::env;

use anyhow::{Context, Result, ensure};
use integration::browser::Browser;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let url = env::args().nth(1).context("usage: headless-sign-in URL")?;
    let url = url.parse().context("the argument is no URL")?;
    let variable = |name: &str| env::var(name).with_context(|| format!("{name} is not set"));
    let authority = env::var_os("TENANT_BROKER_CA")
        .map(|file| std::fs::read_to_string(&file).context("read TENANT_BROKER_CA"))
        .transpose()?;
    let browser = Browser::new(authority.as_deref())?;
    let email = variable("TENANT_USER_EMAIL")?;
    let page = browser.sign_in(url, &email, &variable("TENANT_USER_PASSWORD")?).await?;
    ensure!(page.status.is_success(), "signing in ended with {} at {}", page.status, page.url);
    Ok(())
}
