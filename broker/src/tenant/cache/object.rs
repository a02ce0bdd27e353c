//! The cached part of a Tenant.

use std::{collections::BTreeSet, sync::Arc};

use jiff::Timestamp;
use kube::api::DynamicObject;
use serde_json::Value;
use tenant_shared::TenantCondition;

use crate::tenant::{
    ApiGroup, ConditionType, Subject, Tenant, TenantName,
    limits::MAX_CONDITIONS,
    subject::{SERVICE_ACCOUNT, SERVICE_ACCOUNTS_OF},
};

/// A Tenant that keeps the rules of its definition, with what its status says.
#[derive(Clone, Debug, PartialEq)]
pub struct CachedTenant {
    /// API group of the object.
    pub group: ApiGroup,
    /// Its name and specification.
    pub tenant: Tenant,
    /// `status.state`; empty until the controller wrote a status.
    pub state: String,
    /// Whether the status is that of the current generation: the controller has reconciled it, except for
    /// what the conditions say.
    pub is_observed: bool,
    /// `status.size`: number of namespaces.
    pub size: u32,
    /// What could not be done: the conditions that hold, without `Ready`.
    pub conditions: Vec<TenantCondition>,
}

/// An object of the kind `Tenant`.
#[derive(Clone, Debug)]
pub(super) struct TenantObject {
    pub(super) name: TenantName,
    pub(super) group: ApiGroup,
    pub(super) uid: String,
    pub(super) created_at: Option<Timestamp>,
    /// `None` if the object breaks rules of the definition.
    pub(super) tenant: Option<Arc<CachedTenant>>,
    /// Namespaces whose ServiceAccounts the object names, also if it breaks rules of the definition.
    pub(super) accounts: BTreeSet<String>,
}

impl TenantObject {
    /// Whether the controller has carried out what the object says, as far as its status says.
    pub(super) fn is_carried_out(&self) -> bool {
        // Of an object whose name is taken nothing is carried out.
        let failures = [ConditionType::ApplyFailed, ConditionType::NameTaken];
        let failed = |it: &TenantCondition| failures.iter().any(|kind| it.kind == kind.as_str());
        let of_object = self.tenant.as_ref();
        of_object.is_some_and(|it| it.is_observed && !it.conditions.iter().any(failed))
    }

    /// Reads an object; `None` if its name is none of a tenant.
    pub(super) fn parse(group: ApiGroup, object: &DynamicObject) -> Option<Self> {
        let name: TenantName = object.metadata.name.as_deref()?.parse().ok()?;
        let tenant = Tenant::parse(name.as_str(), &object.data["spec"]).ok();
        let status = &object.data["status"];
        let accounts = match &tenant {
            Some(tenant) => subjects(tenant).filter_map(Subject::namespace_of_accounts).collect(),
            None => accounts_in(&object.data["spec"]),
        };
        let accounts = accounts.into_iter().map(str::to_owned).collect();
        let tenant = tenant.map(|tenant| CachedTenant {
            group,
            tenant,
            state: status["state"].as_str().unwrap_or_default().to_owned(),
            is_observed: status["observedGeneration"].as_i64() == object.metadata.generation,
            size: status["size"].as_u64().and_then(|size| size.try_into().ok()).unwrap_or_default(),
            conditions: conditions(status),
        });
        Some(Self {
            name,
            group,
            uid: object.metadata.uid.clone().unwrap_or_default(),
            created_at: object.metadata.creation_timestamp.as_ref().map(|created| created.0),
            tenant: tenant.map(Arc::new),
            accounts,
        })
    }
}

/// Everybody whom a Tenant names.
pub(super) fn subjects(tenant: &Tenant) -> impl Iterator<Item = &Subject> {
    let owners = tenant.owners.iter().map(|owner| &owner.subject);
    let bindings = tenant.additional_role_bindings.iter();
    owners.chain(bindings.flat_map(|binding| &binding.subjects))
}

/// Namespaces whose ServiceAccounts a specification seems to name that breaks rules of the definition.
fn accounts_in(spec: &Value) -> BTreeSet<&str> {
    let (mut found, mut left) = (BTreeSet::new(), vec![spec]);
    while let Some(value) = left.pop() {
        match value {
            Value::Array(items) => left.extend(items),
            Value::Object(fields) => {
                if fields.get("kind").is_some_and(|kind| kind == "ServiceAccount") {
                    found.extend(fields.get("namespace").and_then(Value::as_str));
                }
                left.extend(fields.values());
            }
            Value::String(text) => {
                let prefixes = [SERVICE_ACCOUNT, SERVICE_ACCOUNTS_OF];
                let rest = prefixes.iter().find_map(|prefix| text.strip_prefix(prefix));
                found.extend(rest.and_then(|rest| rest.split(':').next()));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    found
}

fn conditions(status: &Value) -> Vec<TenantCondition> {
    let all = status["conditions"].as_array().into_iter().flatten();
    let held = all.take(MAX_CONDITIONS).filter_map(|condition| {
        let kind = condition["type"].as_str()?;
        let holds = condition["status"] == "True" && kind != ConditionType::Ready.as_str();
        let message = condition["message"].as_str().unwrap_or_default();
        holds.then(|| TenantCondition { kind: kind.to_owned(), message: message.to_owned() })
    });
    held.collect()
}
