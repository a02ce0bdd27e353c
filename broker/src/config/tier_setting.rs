//! Declarations of the fields of `[tiers.NAME]`, which have a default for each default tier.

use super::{
    Settings,
    declaration::{Declaration, Parser, Setting},
};

/// The table of a tier.
pub(super) fn table(tier: &str) -> String {
    format!("tiers.{tier}")
}

/// The default texts of a field in the default tiers.
pub(super) struct Defaults {
    pub(super) basic: &'static str,
    pub(super) standard: &'static str,
    pub(super) premium: &'static str,
}

impl Defaults {
    /// The names of the default tiers, in the order of the reference page.
    pub(super) const TIERS: [&str; 3] = ["basic", "standard", "premium"];

    /// The same default in all tiers.
    pub(super) const fn all(text: &'static str) -> Self {
        Self { basic: text, standard: text, premium: text }
    }

    /// The default in a tier; that of `basic` in additional tiers.
    pub(super) fn in_tier(&self, tier: &str) -> &'static str {
        match tier {
            "standard" => self.standard,
            "premium" => self.premium,
            _ => self.basic,
        }
    }

    /// The defaults in the order of [`Self::TIERS`].
    pub(super) fn texts(&self) -> [&'static str; 3] {
        Self::TIERS.map(|tier| self.in_tier(tier))
    }
}

/// A field of a tier with values of the type `T`.
pub(super) struct TierSetting<T> {
    key: &'static str,
    defaults: Defaults,
    parse: Parser<T>,
    doc: &'static str,
}

impl<T> TierSetting<T> {
    pub(super) const fn new(
        key: &'static str,
        defaults: Defaults,
        parse: Parser<T>,
        doc: &'static str,
    ) -> Self {
        Self { key, defaults, parse, doc }
    }

    pub(super) fn read(&self, s: &mut Settings, tier: &str) -> T {
        self.in_tier(tier).read_in(s, &table(tier))
    }

    /// The whole key of the field of this tier.
    pub(super) fn key_in(&self, tier: &str) -> String {
        self.in_tier(tier).key_in(&table(tier))
    }

    fn in_tier(&self, tier: &str) -> Setting<T> {
        Setting::new(self.key, self.defaults.in_tier(tier), self.parse, self.doc)
    }
}

impl<T> Declaration for TierSetting<T> {
    fn key(&self) -> &'static str {
        self.key
    }

    fn defaults(&self) -> Vec<&'static str> {
        self.defaults.texts().to_vec()
    }

    fn doc(&self) -> &'static str {
        self.doc
    }

    #[cfg(test)]
    fn check_defaults(&self) -> Result<(), String> {
        Defaults::TIERS.into_iter().try_for_each(|tier| self.in_tier(tier).check_defaults())
    }
}
