//! The command `credentials`: what was issued for a workspace, and taking one back.

use tenant_shared::{
    CredentialInfo, CredentialPage, Revocation, RevocationState, RevokedBy, StepResult,
};

use crate::{
    account::Account,
    broker::Page,
    cli::{Credentials as Options, CredentialsAction, ListedCredentials, RevokeCredential},
    credential::Cache,
    error::Error,
    output, runtime,
    store::Choice,
    workspace,
    world::World,
};

/// Runs `credentials`.
pub(crate) fn credentials(
    choice: &Choice,
    options: &Options,
    world: &mut World,
) -> Result<(), Error> {
    match &options.action {
        None => list(choice, &options.listed, world),
        Some(CredentialsAction::List(listed)) => list(choice, listed, world),
        Some(CredentialsAction::Revoke(revoked)) => revoke(choice, revoked, world),
    }
}

fn list(choice: &Choice, options: &ListedCredentials, world: &mut World) -> Result<(), Error> {
    let account = Account::open(choice, world)?;
    let broker = &account.broker.for_a_list();
    let Page { items, next_cursor, more } = runtime::block_on(async {
        let id = workspace::named(broker, options.workspace.as_ref()).await?;
        broker.credentials(id, options.all, options.listed.limit).await
    })??;
    let page = CredentialPage { items, next_cursor };
    output::show(world, options.listed.shown.output, &page, |it| table(&it.items))?;
    output::say_if_there_is_more(world, page.items.len(), more);
    Ok(())
}

fn revoke(choice: &Choice, options: &RevokeCredential, world: &mut World) -> Result<(), Error> {
    let account = Account::open(choice, world)?;
    let broker = &account.broker;
    let revoked = runtime::block_on(async {
        let id = workspace::named(broker, options.workspace.as_ref()).await?;
        broker.revoke_credential(id, &options.id, options.reason.as_deref()).await
    })??;
    output::show(world, options.shown.output, &revoked, table_of_one)?;
    for line in words(&revoked) {
        world.say(line);
    }
    let all = revoked.by == Some(RevokedBy::ServiceAccount);
    let ended = |id: &str| all || (revoked.by.is_some() && id == revoked.credential_id);
    Cache::forget_revoked(&account.paths.tokens(), &account.identity, revoked.workspace_id, ended)
}

fn table(credentials: &[CredentialInfo]) -> String {
    let rows: Vec<[String; 8]> = credentials
        .iter()
        .map(|it| {
            let who = it.email.clone().unwrap_or_else(|| it.user_id.to_string());
            [
                it.credential_id.clone(),
                it.kind.as_str().to_owned(),
                it.state.as_str().to_owned(),
                if it.bound { "yes" } else { "no" }.to_owned(),
                who,
                it.client.clone().unwrap_or_default(),
                it.issued_at.to_string(),
                it.expires_at.to_string(),
            ]
        })
        .collect();
    let head = ["ID", "KIND", "STATE", "BOUND", "WHO", "CLIENT", "ISSUED", "UNTIL"];
    output::columns(head, &rows)
}

fn table_of_one(it: &Revocation) -> String {
    let row = [
        it.credential_id.clone(),
        match it.state {
            RevocationState::Revoked => "revoked",
            RevocationState::Revoking => "revoking",
            RevocationState::Over => "over",
        }
        .to_owned(),
        match it.by {
            Some(RevokedBy::Secret) => "secret",
            Some(RevokedBy::ServiceAccount) => "service_account",
            None => "",
        }
        .to_owned(),
        it.others_revoked.to_string(),
    ];
    output::columns(["ID", "STATE", "BY", "OTHERS"], &[row])
}

/// What a person has to know about it.
fn words(it: &Revocation) -> Vec<String> {
    let mut lines = Vec::new();
    match it.state {
        RevocationState::Over => {
            return vec!["It was over already, so nothing was done.".to_owned()];
        }
        RevocationState::Revoking => {
            let open: Vec<&str> = it
                .steps
                .iter()
                .filter(|step| step.result == StepResult::Open)
                .map(|step| step.step.as_str())
                .collect();
            lines.push(format!(
                "It is decided but still works: the broker goes on with {}.",
                open.join(", ")
            ));
        }
        RevocationState::Revoked => lines.push(format!(
            "An API server that accepted it a moment ago may do so for {} s more, then never again.",
            it.accepted_for_seconds
        )),
    }
    match it.by {
        Some(RevokedBy::ServiceAccount) => lines.push(format!(
            "All credentials of the workspace end with it ({} others): kubectl gets new ones by \
             itself, downloaded kubeconfigs have to be downloaded again.",
            it.others_revoked
        )),
        Some(RevokedBy::Secret) => {
            lines.push("The workspace's other credentials go on.".to_owned());
        }
        None => {}
    }
    lines
}
