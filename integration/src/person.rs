//! A person with an account, at one machine.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use secrecy::{ExposeSecret, SecretString};
use tenant_shared::{BROKER_ENV, tenant_namespace};
use url::Url;
use uuid::Uuid;

use crate::api::Api;
use crate::binaries::Binaries;
use crate::kubectl::Kubectl;
use crate::oidc::{Issuer, TokenResponse};
use crate::process::Finished;

/// The broker as its users see it.
#[derive(Clone, Debug)]
pub struct BrokerAccess {
    /// The broker's public URL.
    pub url: Url,
    /// The CA (PEM) to trust in addition to the system's, and its file, if the broker serves TLS.
    pub authority: Option<(String, PathBuf)>,
}

/// A person with an account, and a machine with an empty home.
#[derive(Clone, Debug)]
pub struct Person {
    email: String,
    password: SecretString,
    id: Uuid,
    broker: BrokerAccess,
    home: PathBuf,
    binaries: Arc<Binaries>,
    kubectl: Kubectl,
}

impl Person {
    /// Creates a person whose home is this folder. The kubeconfig is `.kube/config` in it.
    ///
    /// # Errors
    /// The folder cannot be made, or there is no kubectl.
    pub fn new(
        email: &str,
        password: SecretString,
        id: Uuid,
        broker: BrokerAccess,
        home: PathBuf,
        binaries: Arc<Binaries>,
    ) -> Result<Self> {
        std::fs::create_dir_all(home.join(".kube"))
            .with_context(|| format!("make the home {}", home.display()))?;
        let mut kubectl = Kubectl::new(&home, &home.join(".kube/config"), Some(binaries.folder()))?
            .env(BROKER_ENV, broker.url.as_str())
            .env("BROWSER", binaries.headless_sign_in())
            .env("TENANT_USER_EMAIL", email)
            .env("TENANT_USER_PASSWORD", password.expose_secret());
        if let Some((_, file)) = &broker.authority {
            kubectl = kubectl.env("TENANT_BROKER_CA", file);
        }
        Ok(Self { email: email.to_owned(), password, id, broker, home, binaries, kubectl })
    }

    /// Returns the same person at another machine, which has none of the first one's files.
    ///
    /// # Errors
    /// As [`Person::new`].
    pub fn at_another_machine(&self, name: &str) -> Result<Self> {
        let home = self.home.with_file_name(name);
        let (broker, binaries) = (self.broker.clone(), Arc::clone(&self.binaries));
        Self::new(&self.email, self.password.clone(), self.id, broker, home, binaries)
    }

    /// The e-mail address of the account.
    pub fn email(&self) -> &str {
        &self.email
    }

    /// The password of the account.
    pub fn password(&self) -> &str {
        self.password.expose_secret()
    }

    /// The user id of the account.
    pub fn id(&self) -> Uuid {
        self.id
    }

    /// The namespace of the person's workspace.
    pub fn namespace(&self) -> String {
        tenant_namespace(self.id)
    }

    /// The home folder.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// The kubeconfig in the home folder.
    pub fn kubeconfig(&self) -> PathBuf {
        self.home.join(".kube/config")
    }

    /// kubectl at the person's machine, with the plugin on `PATH`, the broker in its environment
    /// and a browser that signs in by itself.
    pub fn kubectl(&self) -> &Kubectl {
        &self.kubectl
    }

    /// Runs `kubectl tenant login` with these further arguments. A failure exit status is no error
    /// here.
    ///
    /// # Errors
    /// The command cannot be started or does not end.
    pub async fn login(&self, args: &[&str]) -> Result<Finished> {
        self.kubectl.run(["tenant", "login"].iter().chain(args)).await
    }

    /// Returns the issuer, by its discovery document.
    ///
    /// # Errors
    /// The document cannot be read.
    pub async fn issuer(&self) -> Result<Issuer> {
        Issuer::discover(&self.broker.url, self.authority()).await
    }

    /// Signs in by the protocol, without the plugin.
    ///
    /// # Errors
    /// The issuer refuses.
    pub async fn sign_in(&self) -> Result<TokenResponse> {
        self.issuer().await?.sign_in(&self.email, self.password()).await
    }

    /// Returns the API with a fresh session of this person.
    ///
    /// # Errors
    /// The issuer refuses.
    pub async fn api(&self) -> Result<Api> {
        let session = self.sign_in().await?;
        Ok(Api::anonymous(&self.broker.url, self.authority())?.with_token(session.access_token))
    }

    fn authority(&self) -> Option<&str> {
        self.broker.authority.as_ref().map(|(pem, _)| pem.as_str())
    }
}
