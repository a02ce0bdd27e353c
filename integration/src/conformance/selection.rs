//! Which specs of the suite are run.

/// Those of these groups that every conforming cluster has to pass.
pub(super) const FOCUS: &str =
    r"\[sig-(api-machinery|apps|auth|instrumentation)\].*\[Conformance\]";

/// Those of them that are left out: a pattern, and what is missing here.
pub(super) const LEFT_OUT: [(&str, &str); 8] = [
    (
        "AdmissionWebhook|CustomResourceConversionWebhook|CustomResourceFieldSelectors",
        "a webhook that is a pod's program",
    ),
    ("Aggregator|each replica with a public image", "a server that is a pod's program"),
    ("ServiceAccountIssuerDiscovery|should mount ", "a pod's program that reads a mounted token"),
    (r"\[sig-apps\] Job |CronJob should (schedule|not|replace)", "a pod's program that ends"),
    ("rolling updates and roll backs|Should recreate evicted", "a kubelet that looks after a pod"),
    ("proportional scaling", "an image that cannot be found"),
    ("Daemon set .* should rollback without", "a second node"),
    (r"\[Slow\]|changes to a resourcequota status", "patience: each waits for minutes"),
];

/// How many remain, in the pinned version.
pub(super) const SPECS: usize = 116;
