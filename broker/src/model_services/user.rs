//! The caller's own data: their name, and settings for a frontend.

use tenant_shared::{ModelServicesConfig, ModelServicesUser};

use super::{ModelServices, caller::ApiCaller, failure::Failure, limits::SERVICE_ACCOUNT_PREFIX};
use crate::gateway::Verb;

/// The name of a user, of a ServiceAccount its last part.
fn display_name(user: &str) -> &str {
    match user.strip_prefix(SERVICE_ACCOUNT_PREFIX).and_then(|rest| rest.split_once(':')) {
        Some((_, name)) if !name.is_empty() => name,
        _ => user,
    }
}

impl ModelServices {
    /// The name of the caller: the e-mail address of a session's user, because the ServiceAccounts
    /// of all workspaces have the same name.
    ///
    /// # Errors
    /// The API server does not accept the caller's token, or does not answer.
    pub(super) async fn user(&self, caller: &ApiCaller) -> Result<ModelServicesUser, Failure> {
        let user_id = match caller {
            ApiCaller::Session(session) => session.caller().email().to_owned(),
            ApiCaller::Kubernetes(_) => {
                let client = caller.begin(self, None, Verb::Get).await?;
                display_name(&client.who_am_i().await?.user).to_owned()
            }
        };
        Ok(ModelServicesUser { user_id })
    }

    /// The settings for a frontend. The API server is asked for the user of a Kubernetes token,
    /// because nothing else checks it.
    ///
    /// # Errors
    /// Like [`Self::user`]; the cluster is to name its domain, and does not.
    pub(super) async fn config(&self, caller: &ApiCaller) -> Result<ModelServicesConfig, Failure> {
        self.user(caller).await?;
        let cluster_domain = self.cluster_domain().await?;
        Ok(ModelServicesConfig { is_custom_lsd: false, cluster_domain })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_account_is_shown_by_its_name() {
        for (user, expected) in [
            ("system:serviceaccount:ns:builder", "builder"),
            ("system:serviceaccount:ns:", "system:serviceaccount:ns:"),
            ("alice@example.com", "alice@example.com"),
            ("system:admin", "system:admin"),
        ] {
            assert_eq!(display_name(user), expected);
        }
    }
}
