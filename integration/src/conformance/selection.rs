//! The selection of the suite's specs.

/// Pattern of the conformance specs of these groups, which every conforming cluster has to pass.
pub(super) const FOCUS: &str =
    r"\[sig-(api-machinery|apps|auth|instrumentation)\].*\[Conformance\]";

/// Patterns of the specs that are skipped, and what is missing here.
pub(super) const SKIPPED: [(&str, &str); 8] = [
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

/// Number of remaining specs in the pinned version.
pub(super) const SPEC_COUNT: usize = 116;
