//! The command `audit`: entries of the broker's audit trail.

use tenant_shared::{AuditEntry, AuditPage, Me};
use uuid::Uuid;

use crate::{
    account::Account,
    broker::Page,
    cli::workspaces::Audit as Options,
    error::Error,
    lookup,
    output::{self, Format},
    runtime,
    store::AccountFlags,
    world::World,
};

/// Runs `audit`.
pub(crate) fn audit(
    flags: &AccountFlags,
    options: &Options,
    world: &mut World,
) -> Result<(), Error> {
    let account = Account::open(flags, world)?;
    let broker = &account.broker.with_list_timeout();
    let (items, me) = runtime::block_on(async {
        let id = match &options.workspace {
            Some(name) => Some(lookup::resolve(broker, Some(name)).await?),
            None => None,
        };
        let items = broker.audit(id, options.action.as_deref(), options.limit).await?;
        let is_table = options.shown.output == Format::Table;
        Ok::<_, Error>((items, if is_table { Some(broker.me().await?) } else { None }))
    })??;
    let Page { items, next_cursor, more } = items;
    let page = AuditPage { items, next_cursor };
    output::show(world, options.shown.output, &page, |it| table(&it.items, me.as_ref()))?;
    if page.items.is_empty() {
        world.print_message("no entries were found; docs/audit.md lists the names of actions");
    }
    output::report_truncation(world, page.items.len(), more);
    Ok(())
}

fn table(entries: &[AuditEntry], me: Option<&Me>) -> String {
    // The broker returns e-mail addresses to administrators only; everybody knows their own.
    let who = |id: Option<Uuid>, email: &Option<String>| {
        let mine = me.filter(|me| Some(me.id) == id).map(|me| me.email.clone());
        let shown = email.clone().or(mine).or_else(|| id.map(|id| id.to_string()));
        shown.unwrap_or_default()
    };
    let rows: Vec<[String; 8]> = entries
        .iter()
        .map(|it| {
            [
                it.created_at.to_string(),
                it.action.clone(),
                it.outcome.clone(),
                who(it.user_id, &it.user_email),
                who(it.subject_user_id, &it.subject_email),
                it.ip_address.clone().unwrap_or_default(),
                it.credential_id.clone().unwrap_or_default(),
                it.reason.clone().unwrap_or_default(),
            ]
        })
        .collect();
    let head = ["TIME", "ACTION", "OUTCOME", "WHO", "TO WHOM", "ADDRESS", "CREDENTIAL", "REASON"];
    output::columns(head, &rows)
}
