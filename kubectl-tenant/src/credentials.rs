//! The command `credentials`: lists the credentials of a workspace and revokes one.

use tenant_shared::{
    CredentialInfo, CredentialPage, Revocation, RevocationState, RevokedBy, StepResult,
};

use crate::{
    account::Account,
    broker::Page,
    cli::credentials::{
        Credentials as Options, CredentialsAction, ListedCredentials, RevokeCredential,
    },
    credential::Cache,
    error::Error,
    lookup, output, runtime,
    store::AccountFlags,
    world::World,
};

/// Runs `credentials`.
pub(crate) fn credentials(
    flags: &AccountFlags,
    options: &Options,
    world: &mut World,
) -> Result<(), Error> {
    match &options.action {
        None => list(flags, &options.listed, world),
        Some(CredentialsAction::List(listed)) => list(flags, listed, world),
        Some(CredentialsAction::Revoke(revoked)) => revoke(flags, revoked, world),
    }
}

fn list(flags: &AccountFlags, options: &ListedCredentials, world: &mut World) -> Result<(), Error> {
    let account = Account::open(flags, world)?;
    let broker = &account.broker.with_list_timeout();
    let Page { items, next_cursor, more } = runtime::block_on(async {
        let id = lookup::resolve(broker, options.workspace.as_ref()).await?;
        broker.credentials(id, options.all, options.listed.limit).await
    })??;
    let page = CredentialPage { items, next_cursor };
    output::show(world, options.listed.shown.output, &page, |it| table(&it.items))?;
    output::report_truncation(world, page.items.len(), more);
    Ok(())
}

fn revoke(
    flags: &AccountFlags,
    options: &RevokeCredential,
    world: &mut World,
) -> Result<(), Error> {
    let account = Account::open(flags, world)?;
    let broker = &account.broker;
    let revoked = runtime::block_on(async {
        let id = lookup::resolve(broker, options.workspace.as_ref()).await?;
        broker.revoke_credential(id, &options.id, options.reason.text.as_deref()).await
    })??;
    output::show(world, options.shown.output, &revoked, table_of_one)?;
    for line in explanation(&revoked) {
        world.print_message(line);
    }
    let all = revoked.by == Some(RevokedBy::ServiceAccount);
    let ended = |id: &str| all || (revoked.by.is_some() && id == revoked.credential_id);
    Cache::remove_revoked(&account.paths.tokens(), &account.key, revoked.workspace_id, ended)
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

/// Messages that explain a revocation.
fn explanation(it: &Revocation) -> Vec<String> {
    let mut lines = Vec::new();
    match it.state {
        RevocationState::Over => {
            return vec!["The credential was no longer valid, so nothing was done.".to_owned()];
        }
        RevocationState::Revoking => {
            let open: Vec<&str> = it
                .steps
                .iter()
                .filter(|step| step.result == StepResult::Open)
                .map(|step| step.step.as_str())
                .collect();
            lines.push(format!(
                "The revocation is recorded, but the credential may still work: the broker continues with {}.",
                open.join(", ")
            ));
        }
        RevocationState::Revoked => lines.push(format!(
            "An API server that accepted it recently may still accept it for {} s.",
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
            lines.push("The workspace's other credentials remain valid.".to_owned());
        }
        None => {}
    }
    lines
}
