//! The command `tenants edit`.

use std::io;

use tenant_shared::{ApplyTenantRequest, Code, TenantObject, TenantWrite};

use super::{
    editor::EditedFile,
    manifest::{self, Manifest},
    report,
};
use crate::{
    account::Account, broker::Broker, cli::tenants::EditTenant, error::Error, output, runtime,
    store::AccountFlags, tenants::calls::ApplyFlags, world::World,
};

/// The beginning of the file.
const HEAD: &str = "\
# Please edit the Tenant below. Lines at the top that begin with # are ignored, and an empty file
# cancels the edit. If the broker refuses the change, the file is opened again with the reason.
#
";

/// How an edit ended.
enum EditOutcome {
    Written(Box<TenantWrite>),
    /// The person changed nothing.
    Cancelled,
}

/// Runs `tenants edit`.
pub(in crate::tenants) fn edit(
    flags: &AccountFlags,
    options: &EditTenant,
    world: &mut World,
) -> Result<(), Error> {
    let account = Account::open(flags, world)?;
    let object = runtime::block_on(account.broker.tenant_spec(&options.tenant))??;
    let file = EditedFile::new(&object.name)?;
    match edit_until_accepted(&account.broker, &object, &file, options, world) {
        Ok(EditOutcome::Written(write)) => {
            output::show(world, options.shown.output, &*write, report::line)?;
            report::details(&write, world);
            Ok(())
        }
        Ok(EditOutcome::Cancelled) => {
            world.print_message("Edit cancelled, no changes made.");
            Ok(())
        }
        Err(error) if is_unchanged(&file, &object) => Err(error),
        Err(error) => {
            let path = file.keep();
            Err(error.also_hint(&format!("your text is in {}", path.display())))
        }
    }
}

/// Whether nothing is lost without the file: it has the Tenant as it was opened, or does not exist.
fn is_unchanged(file: &EditedFile, object: &TenantObject) -> bool {
    match (file.text(), manifest::print(&object.name, &object.spec)) {
        (Ok(text), Ok(original)) => without_head(&text) == original,
        (Err(error), _) => error.kind() == io::ErrorKind::NotFound,
        (Ok(_), Err(_)) => false,
    }
}

/// Opens the editor again as long as the broker refuses what the person wrote. A text that is the
/// same as the one before ends the edit with the error.
fn edit_until_accepted(
    broker: &Broker,
    object: &TenantObject,
    file: &EditedFile,
    options: &EditTenant,
    world: &World,
) -> Result<EditOutcome, Error> {
    let mut body = manifest::print(&object.name, &object.spec)?;
    let mut refused: Option<Error> = None;
    loop {
        let text = format!("{HEAD}{}{body}", refused.as_ref().map(comment).unwrap_or_default());
        let saved = without_head(&file.edit(&world.env, &text)?).to_owned();
        if let Some(error) = refused
            && (saved == body || saved.trim().is_empty())
        {
            return Err(error);
        }
        let result = parse(&saved, object).and_then(|edited| match edited {
            None => Ok(EditOutcome::Cancelled),
            Some(manifest) if manifest.spec == object.spec => Ok(EditOutcome::Cancelled),
            Some(manifest) => send(broker, object, manifest, options).map(EditOutcome::Written),
        });
        match result {
            Err(error) if may_be_corrected(&error) => refused = Some(error),
            other => return other,
        }
        body = saved;
    }
}

/// The Tenant of the file; `None` if the file is empty.
fn parse(text: &str, object: &TenantObject) -> Result<Option<Manifest>, Error> {
    let mut manifests = manifest::parse(text).map_err(malformed)?;
    match (manifests.pop(), manifests.is_empty()) {
        (None, _) => Ok(None),
        (Some(manifest), true) if manifest.name == object.name => Ok(Some(manifest)),
        _ => {
            let text = format!("the file has to have the Tenant {} and no other", object.name);
            Err(malformed(Error::other(text)))
        }
    }
}

/// An error of the text, which the person can correct.
fn malformed(error: Error) -> Error {
    Error { code: Some(Code::InvalidRequest), ..error }
}

fn may_be_corrected(error: &Error) -> bool {
    matches!(
        error.code,
        Some(Code::InvalidRequest | Code::FieldConflict | Code::Forbidden | Code::PayloadTooLarge)
    )
}

/// Sends the change. Its precondition is the version that was opened.
fn send(
    broker: &Broker,
    object: &TenantObject,
    manifest: Manifest,
    options: &EditTenant,
) -> Result<Box<TenantWrite>, Error> {
    let request = ApplyTenantRequest {
        spec: manifest.spec,
        uid: Some(object.uid.clone()),
        generation: Some(object.generation),
        reason: options.reason.text.clone(),
    };
    let flags = ApplyFlags { dry_run: false, force: options.force_conflicts };
    let write = runtime::block_on(broker.apply_tenant(&object.name, &request, flags))??;
    Ok(Box::new(write))
}

/// The reason of a refusal as lines of a comment.
fn comment(error: &Error) -> String {
    let hint = error.hint.iter().map(|hint| format!("# {hint}\n"));
    // Messages are on one line.
    format!("# The change was not accepted:\n# {}\n{}#\n", error.message, hint.collect::<String>())
}

/// A text without the comment lines at its top.
fn without_head(text: &str) -> &str {
    let mut rest = text;
    while rest.starts_with('#') {
        rest = rest.split_once('\n').map_or("", |(_, rest)| rest);
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_comment_at_the_top_is_removed_and_others_stay() {
        let text = format!("{HEAD}a: 1\n# mine\nb: 2\n");
        assert_eq!(without_head(&text), "a: 1\n# mine\nb: 2\n");
        assert_eq!(without_head(HEAD), "");
        assert_eq!(without_head("# no end"), "");
        assert_eq!(without_head("a: 1"), "a: 1");
        let error = Error::refused("spec.tier: no\nsecond").hint("do it");
        let text = format!("{HEAD}{}a: 1\n", comment(&error));
        assert!(text.contains("\n# spec.tier: no second\n# do it\n"), "{text}");
        assert_eq!(without_head(&text), "a: 1\n");
    }
}
