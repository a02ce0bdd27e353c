//! The command `import`: translates Tenants of `capsule.clastix.io` into those of this project, and
//! reports what the broker does not carry out. It asks neither the broker nor the cluster.

mod fields;
mod not_carried_out;
mod translate;

use self::translate::Translation;
use super::{documents, input_file, render};
use crate::{cli::tenants::Import, error::Error, world::World};

/// Runs `import`.
pub(crate) fn import(options: &Import, world: &mut World) -> Result<(), Error> {
    let name = match options.file.to_str() {
        Some("-") => "standard input".to_owned(),
        _ => options.file.display().to_string(),
    };
    let text = input_file::read(&options.file, &world.stdin)?;
    let in_file = |error: Error| Error { message: format!("{name}: {}", error.message), ..error };
    let mut output = Vec::new();
    for object in documents::read(&text).map_err(in_file)? {
        let place = object.place;
        match translate::translate(&object.value) {
            Ok(Some(translation)) => {
                report(&translation, world);
                output.push(render::render(&translation.object)?);
            }
            Ok(None) => world.print_message(format!(
                "{place} is left out: it is no Tenant of {}",
                translate::API_GROUP
            )),
            Err(why) => return Err(in_file(Error::other(format!("{place}: {why}")))),
        }
    }
    if output.is_empty() {
        return Err(Error::other(format!("{name} has no Tenant of {}", translate::API_GROUP)));
    }
    let count = output.len();
    if options.dry_run {
        world.print_message(format!(
            "Tenants that can be translated: {count}; nothing was printed."
        ));
        return Ok(());
    }
    world.print(&output.join("---\n"))?;
    world.print_message(format!("Tenants translated: {count}; apply them: kubectl apply -f -"));
    Ok(())
}

/// Reports what the broker does not carry out of a Tenant.
fn report(translation: &Translation, world: &World) {
    let Translation { name, kept, left_out, renamed_role, is_cordoned, .. } = translation;
    if !kept.is_empty() {
        world.print_message(format!("{name}: kept, but not carried out: {}", kept.join(", ")));
    }
    if !left_out.is_empty() {
        world.print_message(format!(
            "{name}: left out, because {} does not have it: {}",
            translate::NEW_API_VERSION,
            left_out.join(", ")
        ));
    }
    if *renamed_role {
        world.print_message(format!(
            "{name}: ClusterRole {} became {}",
            tenant_shared::CAPSULE_NAMESPACE_DELETER_ROLE,
            tenant_shared::NAMESPACE_DELETER_ROLE
        ));
    }
    if *is_cordoned {
        world.print_message(format!(
            "{name}: it is cordoned; an administrator suspends a tenant: kubectl tenant tenants \
             suspend {name}"
        ));
    }
}
