//! Kubeconfig entries: parsed from the broker's document, validated, renamed and marked with their
//! owner.

use std::path::Path;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_norway::{Mapping, Value};
use tenant_shared::{EXTENSION_NAME, ExecApiVersion, GATEWAY_PATH, PLUGIN_COMMAND, Workspace};
use uuid::Uuid;

use crate::{account_key::AccountKey, broker::Mode, broker_url::BrokerUrl, error::Error};

/// The three kinds of entries: the key of their list, and the key of an entry's content.
pub(crate) const ENTRY_KINDS: [(&str, &str); 3] =
    [("clusters", "cluster"), ("contexts", "context"), ("users", "user")];

/// A cluster, a context and a user that refer to each other.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entries {
    /// Name and content of each entry, in the order of [`ENTRY_KINDS`].
    pub(crate) items: [(String, Mapping); 3],
    /// Account that owns the entries.
    pub(crate) account: AccountKey,
    /// Identifier of the workspace that the entries are for.
    pub(crate) workspace: Option<String>,
}

/// Choices of the person for their entries; the default is the broker's document.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EntryChoices<'a> {
    /// Name of all three entries.
    pub(crate) name: Option<&'a str>,
    /// Path of the plugin instead of its bare name.
    pub(crate) command: Option<&'a str>,
    /// Version of the exec credential protocol.
    pub(crate) exec_api_version: Option<ExecApiVersion>,
}

impl Entries {
    /// Parses the broker's document. Accepts nothing but a call of this plugin for this broker,
    /// because the content of a kubeconfig decides which program kubectl runs.
    pub(crate) fn read(document: &str, mode: Mode, account: &AccountKey) -> Result<Self, Error> {
        let broker = &account.broker;
        let odd = |what: &str| {
            Error::refused(format!("the kubeconfig of {broker} was not used: {what}"))
                .hint("the broker and kubectl-tenant may be of different versions")
        };
        let document: Value =
            serde_norway::from_str(document).map_err(|_| odd("it is not a YAML document"))?;
        let context_name =
            text(&document, "current-context").ok_or_else(|| odd("it names no current-context"))?;
        let context = content(&document, "contexts", "context", context_name)
            .ok_or_else(|| odd("its current-context is missing"))?;
        let named = |key: &str| context.get(key).and_then(Value::as_str);
        let (cluster_name, user_name) =
            named("cluster").zip(named("user")).ok_or_else(|| odd("its context is incomplete"))?;
        let cluster = content(&document, "clusters", "cluster", cluster_name)
            .ok_or_else(|| odd("its cluster is missing"))?;
        let user = content(&document, "users", "user", user_name)
            .ok_or_else(|| odd("its user is missing"))?;
        let workspace = match mode {
            Mode::Exec => Some(check_exec(user, broker, None).map_err(odd)?),
            Mode::Gateway => {
                let server = cluster.get("server").and_then(Value::as_str).unwrap_or_default();
                // The session's own token is sent to this server, so it must be this broker.
                if !server.starts_with(&broker.join(GATEWAY_PATH)) {
                    return Err(odd("its cluster is not the broker's gateway"));
                }
                Some(check_exec(user, broker, Some("gateway")).map_err(odd)?)
            }
            Mode::Static => {
                let only_token = user.len() == 1 && user.get("token").is_some_and(Value::is_string);
                if !only_token {
                    return Err(odd("its user is not just a token"));
                }
                None
            }
        };
        Ok(Self {
            items: [
                (cluster_name.to_owned(), cluster.clone()),
                (context_name.to_owned(), context.clone()),
                (user_name.to_owned(), user.clone()),
            ],
            account: account.clone(),
            workspace,
        })
    }

    /// Sets the workspace by its namespace, if the document did not name it.
    pub(crate) fn set_workspace_by_namespace(&mut self, workspaces: &[Workspace]) {
        let namespace = self.items[1].1.get("namespace").and_then(Value::as_str);
        let found = workspaces.iter().find(|it| Some(it.namespace.as_str()) == namespace);
        self.workspace = found.map(|it| it.id.to_string());
    }

    /// Sets the workspace that the document was requested for. It must not name another one.
    pub(crate) fn set_workspace(&mut self, workspace: Uuid) -> Result<(), Error> {
        let workspace = workspace.to_string();
        if self.workspace.as_ref().is_some_and(|named| *named != workspace) {
            let broker = &self.account.broker;
            return Err(Error::refused(format!(
                "the kubeconfig of {broker} was not used: it is for another workspace"
            )));
        }
        self.workspace = Some(workspace);
        Ok(())
    }

    /// Sets the default namespace of the context, or removes it.
    pub(crate) fn set_namespace(&mut self, namespace: Option<&str>) {
        let context = &mut self.items[1].1;
        match namespace {
            Some(namespace) => {
                context.insert("namespace".into(), namespace.into());
            }
            None => {
                context.shift_remove("namespace");
            }
        }
    }

    /// Applies the person's choices, and marks the entries as ours.
    pub(crate) fn prepare(&mut self, choices: EntryChoices<'_>) {
        if let Some(name) = choices.name {
            self.rename(name);
        }
        if let Some(command) = choices.command {
            self.set_exec_field("command", command);
        }
        if let Some(version) = choices.exec_api_version {
            self.set_exec_field("apiVersion", version.as_str());
        }
        self.add_profile_argument();
        self.add_owner_extension();
    }

    /// Makes kubectl trust the CAs of this PEM file.
    pub(crate) fn trust(&mut self, ca: &Path) -> Result<(), Error> {
        let pem = std::fs::read(ca).map_err(|error| Error::file("read the CA file", ca, &error))?;
        let data = STANDARD.encode(pem);
        self.items[0].1.insert("certificate-authority-data".into(), data.into());
        Ok(())
    }

    /// Name of the context.
    pub(crate) fn context(&self) -> &str {
        &self.items[1].0
    }

    /// Gives all three entries the same name, and makes the context refer to it.
    fn rename(&mut self, name: &str) {
        for (old, _) in &mut self.items {
            name.clone_into(old);
        }
        let context = &mut self.items[1].1;
        context.insert("cluster".into(), name.into());
        context.insert("user".into(), name.into());
    }

    /// Sets a field of the entry that calls the plugin, if there is one.
    fn set_exec_field(&mut self, key: &str, value: &str) {
        if let Some(exec) = self.items[2].1.get_mut("exec").and_then(Value::as_mapping_mut) {
            exec.insert(key.into(), value.into());
        }
    }

    /// Adds `--profile` to the plugin's arguments. client-go shares the credential of identical
    /// user entries, so the entries of two accounts must differ.
    fn add_profile_argument(&mut self) {
        let Some(profile) = &self.account.profile else { return };
        let exec = self.items[2].1.get_mut("exec");
        if let Some(Value::Sequence(arguments)) = exec.and_then(|exec| exec.get_mut("args")) {
            arguments.push(format!("--profile={profile}").into());
        }
    }

    /// Adds the extension [`EXTENSION_NAME`] to all three entries, which marks them as ours.
    fn add_owner_extension(&mut self) {
        let mut owner = Mapping::new();
        owner.insert("broker".into(), self.account.broker.as_str().into());
        if let Some(profile) = &self.account.profile {
            owner.insert("profile".into(), profile.as_str().into());
        }
        if let Some(workspace) = &self.workspace {
            owner.insert("workspace".into(), workspace.as_str().into());
        }
        let mut extension = Mapping::new();
        extension.insert("name".into(), EXTENSION_NAME.into());
        extension.insert("extension".into(), Value::Mapping(owner));
        for (_, content) in &mut self.items {
            content.insert(
                "extensions".into(),
                Value::Sequence(vec![Value::Mapping(extension.clone())]),
            );
        }
    }
}

/// Owner that an entry's content is marked with: the broker and, if the account has one, the
/// profile name. [`None`] if the entry is not ours.
pub(crate) fn owner(content: &Value) -> Option<(&str, Option<&str>)> {
    let extensions = content.get("extensions")?.as_sequence()?;
    let ours = extensions.iter().find(|it| text(it, "name") == Some(EXTENSION_NAME))?;
    let owner = ours.get("extension")?;
    Some((text(owner, "broker")?, text(owner, "profile")))
}

/// Value of a key, if it is a string.
pub(crate) fn text<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.get(key).and_then(Value::as_str)
}

/// Content of the entry of this name in a list.
fn content<'a>(document: &'a Value, list: &str, key: &str, name: &str) -> Option<&'a Mapping> {
    let entries = document.get(list)?.as_sequence()?;
    entries.iter().find(|entry| text(entry, "name") == Some(name))?.get(key)?.as_mapping()
}

/// Checks that a user entry calls this plugin for this broker and does nothing else. Returns the
/// workspace in its arguments.
fn check_exec(
    user: &Mapping,
    broker: &BrokerUrl,
    mode: Option<&str>,
) -> Result<String, &'static str> {
    const ALLOWED_EXEC_FIELDS: [&str; 6] =
        ["apiVersion", "command", "args", "interactiveMode", "provideClusterInfo", "installHint"];
    let exec = user.get("exec").and_then(Value::as_mapping).ok_or("its user runs no plugin")?;
    if user.len() != 1 {
        return Err("its user does more than run a plugin");
    }
    for (key, value) in exec {
        if !value.is_null() && !key.as_str().is_some_and(|key| ALLOWED_EXEC_FIELDS.contains(&key)) {
            return Err("it sets something for the plugin that is not known here");
        }
    }
    if exec.get("command").and_then(Value::as_str) != Some(PLUGIN_COMMAND) {
        return Err("it runs another program");
    }
    let arguments: Vec<&str> = exec
        .get("args")
        .and_then(Value::as_sequence)
        .map(|arguments| arguments.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    let value = |flag: &str| {
        arguments.iter().find_map(|argument| argument.strip_prefix(flag)?.strip_prefix('='))
    };
    if arguments.first() != Some(&"get-token") {
        return Err("it runs another command than get-token");
    }
    if value("--broker").and_then(|url| BrokerUrl::parse(url).ok()).as_ref() != Some(broker) {
        return Err("it names another broker");
    }
    if value("--mode") != mode {
        return Err("it asks for a token of another kind");
    }
    value("--workspace").map(str::to_owned).ok_or("it names no workspace")
}
