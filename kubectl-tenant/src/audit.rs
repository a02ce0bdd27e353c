//! The command `audit`: what happened, as the broker's audit trail has it.

use std::collections::HashMap;

use tenant_shared::{AuditEntry, AuditPage, Role};
use uuid::Uuid;

use crate::{
    account::Account,
    cli::Audit as Options,
    error::Error,
    output::{self, Format},
    runtime,
    store::Choice,
    workspace,
    world::World,
};

/// Runs `audit`.
pub(crate) fn audit(choice: &Choice, options: &Options, world: &mut World) -> Result<(), Error> {
    let account = Account::open(choice, world)?;
    let broker = &account.broker;
    let (items, names) = runtime::block_on(async {
        let id = match &options.workspace {
            Some(named) => Some(workspace::named(broker, Some(named)).await?),
            None => None,
        };
        let items = broker.audit(id, options.action.as_deref(), options.limit).await?;
        let mut names = Names::new();
        if options.shown.output == Format::Table {
            let me = broker.me().await?;
            if me.role == Role::Admin {
                let users = broker.users().await.unwrap_or_default();
                names.extend(users.into_iter().map(|user| (user.id, user.email)));
            }
            names.insert(me.id, me.email);
        }
        Ok::<_, Error>((items, names))
    })??;
    let page = AuditPage { items, next_cursor: None };
    output::show(world, options.shown.output, &page, |it| table(&it.items, &names))?;
    if page.items.is_empty() {
        world.say("nothing was found; actions are named as in the table of docs/audit.md");
    }
    Ok(())
}

/// Addresses of people, for show; without one the identifier has to do.
type Names = HashMap<Uuid, String>;

fn table(entries: &[AuditEntry], names: &Names) -> String {
    let rows: Vec<[String; 8]> = entries
        .iter()
        .map(|it| {
            let text = |field: &Option<String>| output::plain(field.as_deref().unwrap_or_default());
            let name = |id: Option<Uuid>| {
                let shown =
                    |id| names.get(&id).map_or_else(|| id.to_string(), |it| output::plain(it));
                id.map(shown).unwrap_or_default()
            };
            [
                it.created_at.to_string(),
                output::plain(&it.action),
                output::plain(&it.outcome),
                name(it.user_id),
                name(it.subject_user_id),
                text(&it.ip_address),
                text(&it.credential_id),
                text(&it.reason),
            ]
        })
        .collect();
    let head = ["TIME", "ACTION", "OUTCOME", "WHO", "TO WHOM", "ADDRESS", "CREDENTIAL", "REASON"];
    output::columns(head, &rows)
}
