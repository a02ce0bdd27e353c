//! Calls to the API server, as metrics name them.

/// Declares a closed set of label values.
macro_rules! labels {
    ($(#[$meta:meta])* $name:ident { $($variant:ident = $text:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum $name {
            $($variant,)+
        }

        impl $name {
            /// All values of the label.
            pub(super) const LABELS: &[&'static str] = &[$($text),+];

            /// The value of the label.
            pub(super) fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }
        }
    };
}

labels! {
    /// Kind of a call.
    CallKind {
        SelfReview = "self_review",
        AccessReview = "access_review",
        RulesReview = "rules_review",
        Namespaces = "namespaces",
        Namespace = "namespace",
        Projects = "projects",
        Discovery = "discovery",
        InferenceServices = "inference_services",
        LlmInferenceServices = "llm_inference_services",
        ServingRuntimes = "serving_runtimes",
        Services = "services",
        ServiceAccounts = "service_accounts",
        Secrets = "secrets",
        Distributions = "distributions",
        ConfigMap = "config_map",
    }
}

labels! {
    /// How a call ended.
    CallOutcome {
        Success = "success",
        Refused = "refused",
        Failed = "failed",
        Cancelled = "cancelled",
    }
}
