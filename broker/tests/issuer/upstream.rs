//! Fixture: a company with a real OpenID provider, a broker that trusts it, and users with
//! browsers.

use std::collections::BTreeMap;

use integration::{
    browser::{Browser, Page},
    oidc_provider::OidcProvider,
};
use reqwest::StatusCode;
use serde_json::{Value, json};
use tenant_broker::issuer::{
    IssuerSettings,
    connector::{ClientSecret, ConnectorSettings},
};
use url::Url;

use crate::world::{On, REDIRECT, Tokens, World, authorization_parameters, query};

pub(crate) const CLIENT_ID: &str = "broker";
pub(crate) const CLIENT_SECRET: &str = "a secret of the tests";

/// A company's provider and the broker.
pub(crate) struct ProviderWorld {
    pub(crate) world: World,
    pub(crate) provider: OidcProvider,
}

impl ProviderWorld {
    pub(crate) async fn start(on: On) -> Self {
        Self::with(on, |_| {}).await
    }

    /// A company whose connector `corp` has other settings than the usual ones.
    pub(crate) async fn with(on: On, change: impl FnOnce(&mut ConnectorSettings)) -> Self {
        Self::with_both(on, change, |_| {}).await
    }

    /// A company whose broker has other settings than the usual ones.
    pub(crate) async fn with_settings(on: On, change: impl FnOnce(&mut IssuerSettings)) -> Self {
        Self::with_both(on, |_| {}, change).await
    }

    async fn with_both(
        on: On,
        change_connector: impl FnOnce(&mut ConnectorSettings),
        change: impl FnOnce(&mut IssuerSettings),
    ) -> Self {
        let provider = OidcProvider::start().await.unwrap();
        let mut connector = connector(&provider);
        change_connector(&mut connector);
        let world = World::with(on, |settings| {
            settings.connectors = BTreeMap::from([("corp".to_owned(), connector)]);
            change(settings);
        })
        .await;
        let fixture = Self { world, provider };
        register(&fixture.provider, &fixture.world, "corp").await;
        fixture.person("ada", &["dev"]).await;
        fixture
    }

    /// Creates or changes a person with a verified address `NAME@corp.example`.
    pub(crate) async fn person(&self, name: &str, groups: &[&str]) {
        let claims = json!({
            "email": format!("{name}@corp.example"), "email_verified": true,
            "preferred_username": name, "groups": groups,
        });
        self.provider.person(name, claims).await.unwrap();
    }

    /// A person signs in with a browser; returns the last page.
    pub(crate) async fn sign_in_page(&self, name: &str) -> Page {
        let visit = SignInVisit::begin(&self.world, "corp").await;
        self.provider.sign_in(&visit.browser, visit.url, name).await.unwrap()
    }

    /// A person signs in, and the plugin redeems the code.
    pub(crate) async fn sign_in(&self, name: &str) -> Tokens {
        let page = self.sign_in_page(name).await;
        redeem(&self.world, &page).await
    }

    /// Asserts that a sign-in is refused with this text on the page.
    pub(crate) async fn refused(&self, name: &str, text: &str) {
        let page = self.sign_in_page(name).await;
        assert_eq!(page.status, StatusCode::FORBIDDEN, "{}", page.body);
        assert!(page.body.contains(text), "{text} is not in:\n{}", page.body);
    }

    /// Number of requests to the provider for this path.
    pub(crate) async fn asked(&self, path: &str) -> u64 {
        self.provider.counts().await.unwrap().get(path).copied().unwrap_or(0)
    }

    /// The reasons of all rows of the audit trail with this action.
    pub(crate) async fn audit(&self, action: &str) -> Vec<String> {
        reasons(&self.world, action).await
    }
}

/// The usual settings of a connector to this provider.
pub(crate) fn connector(provider: &OidcProvider) -> ConnectorSettings {
    ConnectorSettings {
        issuer: provider.issuer().to_owned(),
        client_id: CLIENT_ID.to_owned(),
        client_secret: Some(ClientSecret::Text(CLIENT_SECRET.to_owned().into())),
        display_name: "Example Corp".to_owned(),
        scopes: "openid email profile groups offline_access".to_owned(),
        groups_claim: "groups".to_owned(),
        allowed_groups: vec![],
        allowed_domains: vec![],
        admin_groups: vec!["ops".to_owned()],
        ca_file: None,
        outage_seconds: 3600,
        unchecked_seconds: 7200,
        keep_groups: false,
    }
}

/// Registers the broker's URLs with the provider.
pub(crate) async fn register(provider: &OidcProvider, world: &World, name: &str) {
    let clients = json!([{
        "client_id": CLIENT_ID, "client_secret": CLIENT_SECRET,
        "redirect_uris": [world.at(&format!("/login/callback/{name}"))],
        "backchannel_logout_uri": world.at(&format!("/login/backchannel/{name}")),
        "backchannel_logout_session_required": true,
    }]);
    provider.clients(clients).await.unwrap();
}

/// A browser that is about to open a provider's page.
pub(crate) struct SignInVisit {
    pub(crate) browser: Browser,
    pub(crate) url: Url,
}

impl SignInVisit {
    /// Opens the sign-in page, which offers this provider.
    pub(crate) async fn begin(world: &World, name: &str) -> Self {
        let browser = Browser::new(None).unwrap().stopping_at(REDIRECT.parse().unwrap());
        let mut url = Url::parse(&world.at("/oauth2/authorize")).unwrap();
        url.query_pairs_mut().extend_pairs(authorization_parameters(REDIRECT));
        let page = browser.open(url).await.unwrap();
        let handle = query(page.url.as_str(), "request").unwrap();
        let path = format!("/login/with/{name}?request={handle}");
        assert!(page.body.contains(&path), "{path} is not in:\n{}", page.body);
        Self { browser, url: world.at(&path).parse().unwrap() }
    }
}

/// Redeems the code at the end of a sign-in, as the plugin does.
pub(crate) async fn redeem(world: &World, page: &Page) -> Tokens {
    assert!(page.url.as_str().starts_with(REDIRECT), "{} {}\n{}", page.url, page.status, page.body);
    let code = query(page.url.as_str(), "code").unwrap();
    let form = [
        ("grant_type", "authorization_code"),
        ("client_id", crate::world::CLIENT),
        ("redirect_uri", REDIRECT),
        ("code_verifier", crate::world::VERIFIER),
        ("code", &code),
    ];
    world.token(&form).await.tokens()
}

/// The reasons of all rows of the audit trail with this action, newest first.
pub(crate) async fn reasons(world: &World, action: &str) -> Vec<String> {
    world.audited(action).await.into_iter().map(|row| row.reason.unwrap_or_default()).collect()
}

/// Settings with these connectors.
pub(crate) fn with_connectors(
    settings: &mut IssuerSettings,
    connectors: impl IntoIterator<Item = (&'static str, ConnectorSettings)>,
) {
    settings.connectors =
        connectors.into_iter().map(|(name, settings)| (name.to_owned(), settings)).collect();
}

/// A person's claims with an address.
pub(crate) fn claims(email: &str, verified: bool) -> Value {
    json!({ "email": email, "email_verified": verified, "groups": ["dev"] })
}
