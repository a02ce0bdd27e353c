//! The policy for namespaces of tenants and their homes (`tenant-broker-fence-tenant-namespaces`).
//! It computes from the label with the tenant's name what a namespace may be called.

use tenant_shared::{
    BINDINGS_LABEL, FORMER_TENANT_LABEL, HOME_LABEL, LABEL_PREFIX, MANAGED_BY_LABEL,
    MANAGED_BY_VALUE, SUSPENDED_LABEL, TENANT_LABEL, TIER_LABEL,
};

use super::{
    namespace_conditions,
    namespaces::{refuse_deletion, refuse_subresources},
};
use crate::{
    cluster::{POD_SECURITY, POD_SECURITY_PREFIX, POD_SECURITY_RESTRICTED, POD_SECURITY_WARN},
    install::{
        Parameters,
        cel::{WRITE_OPERATIONS, fixed, has_label, is_list_unchanged, is_protected_label, label},
        policy::{Message, Namespaces, Policy, rule},
        quoted, quoted_list,
    },
    tenant::{LAST_APPLIED_ANNOTATION, NODE_SELECTOR_ANNOTATION, tenant_name_rules},
};

pub(super) fn policy(parameters: &Parameters) -> Policy {
    let mut validations = vec![
        refuse_deletion(),
        refuse_subresources(),
        require_tenant_name(),
        require_name_of_tenant(parameters),
        refuse_more_rights_in_protected(parameters),
        require_labels(parameters),
        refuse_other_labels(),
        refuse_finalizers_and_owners(),
        refuse_changed_labels(parameters),
        refuse_removed_labels(),
        refuse_new_kubernetes_annotations(),
        refuse_removed_kubernetes_annotations(),
    ];
    validations.extend(is_protected_label(parameters).map(|it| refuse_protected_labels(&it)));
    Policy {
        name: "tenant-broker-fence-tenant-namespaces",
        reason: "The broker creates homes tenant-NAME and namespaces NAME-* of tenants, and keeps \
                 their metadata as the Tenant says. It may not take protected names, move a \
                 namespace to another tenant, make a home of one, nor weaken pod security.",
        rules: vec![rule("", &["namespaces", "namespaces/*"], &WRITE_OPERATIONS, "Cluster")],
        conditions: namespace_conditions(parameters, true),
        variables: variables(),
        validations,
        namespaces: Namespaces::All,
    }
}

fn variables() -> Vec<(&'static str, String)> {
    let metadata = |field: &str| {
        let of = |object: &str| format!("{object}.metadata.?{field}.orValue({{}})");
        let before = format!("request.operation == \"CREATE\" ? {{}} : {}", of("oldObject"));
        (before, of("object"))
    };
    let (labels_before, labels) = metadata("labels");
    let (annotations_before, annotations) = metadata("annotations");
    vec![
        ("written", "request.operation == \"CREATE\" ? object : oldObject".to_owned()),
        ("name", "variables.written.metadata.name".to_owned()),
        ("tenant", label("variables.written", TENANT_LABEL)),
        ("home", "variables.name == \"tenant-\" + variables.tenant".to_owned()),
        ("labels", labels),
        ("labelsBefore", labels_before),
        ("annotations", annotations),
        ("annotationsBefore", annotations_before),
    ]
}

/// Validation: the label of a new namespace has a name that a tenant can have. A uuid as a name
/// would make the namespace of a personal workspace the home of a tenant.
fn require_tenant_name() -> (String, Message) {
    let rules = tenant_name_rules("variables.tenant").map(|(rule, _)| rule);
    (
        format!("request.operation != \"CREATE\" || ({})", rules.join(" && ")),
        Message::Fixed(format!(
            "the label {TENANT_LABEL} has the name of a tenant: it begins with a letter, and is \
             neither reserved nor a uuid"
        )),
    )
}

/// Validation: the namespace is the home of its tenant, or a new one has a name with the tenant's
/// prefix that is not protected. One that has another name already may be suspended: the operator may
/// protect names later. Nobody gets rights there (`tenant-broker-fence-tenant-objects`).
fn require_name_of_tenant(parameters: &Parameters) -> (String, Message) {
    let prefix = if parameters.tenants.free_names {
        ""
    } else {
        "variables.name.startsWith(variables.tenant + \"-\") && "
    };
    (
        format!(
            "variables.name.startsWith(\"tenant-\") ? variables.home : (request.operation != \
             \"CREATE\" || ({prefix}!variables.name.matches({})))",
            quoted(parameters.tenants.protected_names.as_str())
        ),
        Message::Built(
            "\"the broker may not write namespace \" + variables.name + \": a namespace of tenant \
             \" + variables.tenant + \" is tenant-\" + variables.tenant + \", or begins with \" + \
             variables.tenant + \"- and is not protected (tenants.protected_names)\""
                .to_owned(),
            "the broker may write homes tenant-NAME and namespaces NAME-* of tenants only"
                .to_owned(),
        ),
    )
}

/// Validation: a namespace whose name was protected later gets no label that gives its users more: tier
/// and `bindings` stay as they are, or are removed.
fn refuse_more_rights_in_protected(parameters: &Parameters) -> (String, Message) {
    (
        format!(
            "request.operation != \"UPDATE\" || !variables.name.matches({}) || {}.all(k, !(k in \
             variables.labels) || k in variables.labelsBefore && variables.labels[k] == \
             variables.labelsBefore[k])",
            quoted(parameters.tenants.protected_names.as_str()),
            quoted_list(&[TIER_LABEL, BINDINGS_LABEL]),
        ),
        Message::Fixed(format!(
            "the broker gives a namespace with a protected name (tenants.protected_names) neither \
             {TIER_LABEL} nor {BINDINGS_LABEL}"
        )),
    )
}

/// Validation: a new home, and a new namespace, has its labels.
fn require_labels(parameters: &Parameters) -> (String, Message) {
    let home = format!(
        "{} == \"true\" && {} == {} && !({}) && !({})",
        label("object", HOME_LABEL),
        label("object", POD_SECURITY),
        quoted(POD_SECURITY_RESTRICTED),
        has_label("object", TIER_LABEL),
        has_label("object", BINDINGS_LABEL),
    );
    let other = format!(
        "!({}) && {} in {} && {} in [\"\", \"any\"]",
        has_label("object", HOME_LABEL),
        label("object", POD_SECURITY),
        quoted_list(&parameters.pod_security),
        label("object", BINDINGS_LABEL),
    );
    (
        format!(
            "request.operation != \"CREATE\" || ({} == {} && (variables.home ? ({home}) : \
             ({other})))",
            label("object", MANAGED_BY_LABEL),
            quoted(MANAGED_BY_VALUE),
        ),
        Message::Fixed(format!(
            "the broker makes homes with {HOME_LABEL}=true and \
             {POD_SECURITY}={POD_SECURITY_RESTRICTED}, and other namespaces of tenants with the \
             {POD_SECURITY} of a tier and, if they have it, {BINDINGS_LABEL}=any, both with \
             {MANAGED_BY_LABEL}={MANAGED_BY_VALUE}"
        )),
    )
}

/// Validation: a new namespace has no other labels of the broker and of Pod Security.
fn refuse_other_labels() -> (String, Message) {
    let ours = [TENANT_LABEL, HOME_LABEL, BINDINGS_LABEL, TIER_LABEL, SUSPENDED_LABEL];
    (
        format!(
            "request.operation != \"CREATE\" || variables.labels.all(k, k.startsWith({}) ? k in {} \
             : !k.startsWith({}) || k in {})",
            quoted(LABEL_PREFIX),
            quoted_list(&ours),
            quoted(POD_SECURITY_PREFIX),
            quoted_list(&[POD_SECURITY, POD_SECURITY_WARN]),
        ),
        Message::Fixed(format!(
            "the broker gives namespaces of tenants no other labels {LABEL_PREFIX}* and \
             {POD_SECURITY_PREFIX}* than {}, {POD_SECURITY} and {POD_SECURITY_WARN}",
            ours.join(", ")
        )),
    )
}

/// Validation: a write leaves finalizers, owners and `spec` as they are; a new namespace has none.
fn refuse_finalizers_and_owners() -> (String, Message) {
    (
        format!(
            "request.operation == \"DELETE\" || ({} && {} && (request.operation == \"CREATE\" ? \
             object.?spec.finalizers.orValue([]).all(f, f == \"kubernetes\") : object.spec == \
             oldObject.spec))",
            is_list_unchanged("finalizers"),
            is_list_unchanged("ownerReferences"),
        ),
        fixed("the broker changes no finalizers and no owners of namespaces"),
    )
}

/// CEL: whether an update may write the label `k`, whatever its value.
fn is_free_label() -> String {
    format!(
        "(k == {} || !variables.home && (k in {} || !(k.startsWith({}) || k.startsWith({}) || k == \
         {})))",
        quoted(SUSPENDED_LABEL),
        quoted_list(&[TIER_LABEL, BINDINGS_LABEL, FORMER_TENANT_LABEL]),
        quoted(LABEL_PREFIX),
        quoted(POD_SECURITY_PREFIX),
        quoted(MANAGED_BY_LABEL),
    )
}

/// CEL: whether the entry `k` of a map of variables is the same in another one.
fn is_same_entry(one: &str, other: &str) -> String {
    format!("(k in variables.{other} && variables.{other}[k] == variables.{one}[k])")
}

/// The message for a label of an update.
fn labels_message() -> Message {
    Message::Fixed(format!(
        "the broker may not change {TENANT_LABEL} and {HOME_LABEL} of a namespace, weaken its \
         pod security, or label a home with anything but {SUSPENDED_LABEL}"
    ))
}

/// Validation: an update keeps the tenant, whether the namespace is a home, and pod security, which
/// may become stricter. Of a home it changes nothing but whether it is suspended.
///
/// It is apart from the one for removed labels, and compares before everything else, so that many
/// labels cost less: the API server limits what one expression may cost, and a suspension that it
/// refuses would be none.
fn refuse_changed_labels(parameters: &Parameters) -> (String, Message) {
    let levels = quoted_list(&parameters.pod_security);
    let restricted = quoted(POD_SECURITY_RESTRICTED);
    let is_restored = format!(
        "(k == {} ? variables.labels[k] == {} : k == {} ? variables.labels[k] == {restricted} || \
         !(k in variables.labelsBefore) && variables.labels[k] in {levels} : k == {} && \
         (variables.labels[k] == {restricted} || variables.labels[k] in {levels}))",
        quoted(MANAGED_BY_LABEL),
        quoted(MANAGED_BY_VALUE),
        quoted(POD_SECURITY),
        quoted(POD_SECURITY_WARN),
    );
    (
        format!(
            "request.operation != \"UPDATE\" || variables.labels.all(k, {} || {} || {is_restored})",
            is_same_entry("labels", "labelsBefore"),
            is_free_label(),
        ),
        labels_message(),
    )
}

/// Validation: a write gives the namespace no label that the operator keeps from tenants, whatever the
/// Tenant says. It may remove one.
fn refuse_protected_labels(is_protected: &str) -> (String, Message) {
    (
        format!(
            "request.operation == \"DELETE\" || variables.labels.all(k, {} || !{is_protected})",
            is_same_entry("labels", "labelsBefore"),
        ),
        fixed("the broker gives namespaces no protected labels (tenants.protected_labels)"),
    )
}

/// Validation: an update removes none of these labels.
fn refuse_removed_labels() -> (String, Message) {
    (
        format!(
            "request.operation != \"UPDATE\" || variables.labelsBefore.all(k, k in variables.labels \
             || {})",
            is_free_label()
        ),
        labels_message(),
    )
}

/// Validation: a write adds and changes no annotation of Kubernetes, but for the node selector and
/// the one of `kubectl apply`, and none of a home.
fn refuse_new_kubernetes_annotations() -> (String, Message) {
    keep_kubernetes_annotations("annotations", "annotationsBefore")
}

/// Validation: a write removes none of them either.
fn refuse_removed_kubernetes_annotations() -> (String, Message) {
    keep_kubernetes_annotations("annotationsBefore", "annotations")
}

/// Validation: each annotation of Kubernetes in `one` is in `other`, too, with the same value.
fn keep_kubernetes_annotations(one: &str, other: &str) -> (String, Message) {
    let is_free = format!(
        "(!variables.home && (k in [{}, {}] || !k.contains(\"kubernetes.io/\")))",
        quoted(NODE_SELECTOR_ANNOTATION),
        quoted(LAST_APPLIED_ANNOTATION)
    );
    (
        format!(
            "request.operation == \"DELETE\" || variables.{one}.all(k, {} || {is_free})",
            is_same_entry(one, other),
        ),
        Message::Fixed(format!(
            "the broker writes no annotation of kubernetes.io but {NODE_SELECTOR_ANNOTATION} and \
             {LAST_APPLIED_ANNOTATION}, and none of a home"
        )),
    )
}
