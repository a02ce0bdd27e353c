//! The command `audit`: what happened, as the broker's audit trail has it.

use tenant_shared::{AuditEntry, AuditPage, Me, Role, UserInfo};
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
    let (items, people) = runtime::block_on(async {
        let id = match &options.workspace {
            Some(named) => Some(workspace::named(broker, Some(named)).await?),
            None => None,
        };
        let items = broker.audit(id, options.action.as_deref(), options.limit).await?;
        let mut people = People::default();
        if options.shown.output == Format::Table {
            let me = broker.me().await?;
            if me.role == Role::Admin {
                // Only for show: without it the identifiers have to do.
                people.others = broker.users().await.unwrap_or_default();
            }
            people.me = Some(me);
        }
        Ok::<_, Error>((items, people))
    })??;
    let page = AuditPage { items, next_cursor: None };
    output::show(world, options.shown.output, &page, |it| table(&it.items, &people))?;
    if page.items.is_empty() {
        world.say("nothing was found; actions are named as in the table of docs/audit.md");
    }
    Ok(())
}

/// Who is known by more than an identifier.
#[derive(Default)]
struct People {
    me: Option<Me>,
    others: Vec<UserInfo>,
}

impl People {
    fn name(&self, id: Uuid) -> String {
        let me = self.me.as_ref().filter(|me| me.id == id).map(|me| me.email.as_str());
        let other = || self.others.iter().find(|it| it.id == id).map(|it| it.email.as_str());
        me.or_else(other).map_or_else(|| id.to_string(), output::plain)
    }
}

fn table(entries: &[AuditEntry], people: &People) -> String {
    let rows: Vec<[String; 8]> = entries
        .iter()
        .map(|it| {
            let text = |field: &Option<String>| output::plain(field.as_deref().unwrap_or_default());
            let name = |id: Option<Uuid>| id.map(|id| people.name(id)).unwrap_or_default();
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
