//! A minimal browser without a window: cookies, redirects and forms, as far as a sign-in needs
//! them.

mod form;

use anyhow::{Context, Result, bail};
use http::header::LOCATION;
use http::{Method, StatusCode};
use reqwest::{Client, Response};
use url::Url;

pub use form::Form;

use crate::http_client;

/// Redirects that are followed at most; browsers follow as many.
const MAX_REDIRECTS: usize = 20;

/// A browser with its own cookies. Clones share them.
#[derive(Clone, Debug)]
pub struct Browser {
    http: Client,
    stop_at: Option<Url>,
}

/// The page that the browser has open.
#[derive(Clone, Debug)]
pub struct Page {
    /// Its address, after all redirects.
    pub url: Url,
    /// Its status; a redirect only if it leads to the address where the browser stops.
    pub status: StatusCode,
    /// Its body.
    pub body: String,
}

impl Browser {
    /// Returns a browser without cookies that trusts this CA (PEM).
    ///
    /// # Errors
    /// The text is no certificate.
    pub fn new(authority: Option<&str>) -> Result<Self> {
        let http = http_client::builder(authority)?.cookie_store(true).build()?;
        Ok(Self { http, stop_at: None })
    }

    /// Returns the same browser, which stops when it is redirected to this address (query aside):
    /// the page is then the redirect, and its URL is the redirect's target.
    #[must_use]
    pub fn stopping_at(mut self, address: Url) -> Self {
        self.stop_at = Some(address);
        self
    }

    /// Opens an address.
    ///
    /// # Errors
    /// A server does not respond, or the redirects do not end.
    pub async fn open(&self, url: Url) -> Result<Page> {
        let answer = self.http.get(url).send().await.context("open a page")?;
        self.follow(answer).await
    }

    /// Fills in the first form of a page with these fields and its hidden ones, and submits it.
    ///
    /// # Errors
    /// The page has no form, or a server does not respond.
    pub async fn submit(&self, page: &Page, fields: &[(&str, &str)]) -> Result<Page> {
        let form = Form::first(&page.body)
            .with_context(|| format!("{} has no form:\n{}", page.url, page.body))?;
        let target = page.url.join(&form.action).context("read the form's action")?;
        let mut values = form.hidden;
        values.extend(fields.iter().map(|(name, value)| ((*name).into(), (*value).into())));
        let request = match form.method {
            Method::POST => self.http.post(target).form(&values),
            _ => self.http.get(target).query(&values),
        };
        let answer = request.send().await.context("submit a form")?;
        self.follow(answer).await
    }

    /// Opens an address that leads to a sign-in form, and signs in there.
    ///
    /// # Errors
    /// There is no such form, or the page after it is a refusal (status 4xx or 5xx).
    pub async fn sign_in(&self, url: Url, email: &str, password: &str) -> Result<Page> {
        let page = self.open(url).await?;
        if !page.status.is_success() {
            bail!("no sign-in page: {} answers {}\n{}", page.url, page.status, page.body);
        }
        let page = self.submit(&page, &[("email", email), ("password", password)]).await?;
        if page.status.is_client_error() || page.status.is_server_error() {
            bail!("sign-in failed: {} answers {}\n{}", page.url, page.status, page.body);
        }
        Ok(page)
    }

    async fn follow(&self, mut answer: Response) -> Result<Page> {
        for _ in 0..MAX_REDIRECTS {
            let (url, status) = (answer.url().clone(), answer.status());
            let target = answer.headers().get(LOCATION).filter(|_| status.is_redirection());
            let Some(target) = target else {
                let body = answer.text().await.context("read a page")?;
                return Ok(Page { url, status, body });
            };
            let target = target.to_str().context("read a redirect")?;
            let target = url.join(target).context("read a redirect")?;
            if self.stops_at(&target) {
                return Ok(Page { url: target, status, body: String::new() });
            }
            // 307 and 308 keep the method (RFC 9110). A sign-in does not need them, and posting a
            // password a second time would be a fault.
            if matches!(status.as_u16(), 307 | 308) {
                bail!("{url} redirects with {status}, which would send the form once more");
            }
            answer = self.http.get(target).send().await.context("follow a redirect")?;
        }
        bail!("more than {MAX_REDIRECTS} redirects, the last to {}", answer.url())
    }

    fn stops_at(&self, target: &Url) -> bool {
        self.stop_at
            .as_ref()
            .is_some_and(|stop| stop.origin() == target.origin() && stop.path() == target.path())
    }
}
