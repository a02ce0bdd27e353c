//! Amounts of a quota for the whole tenant (`scope: Tenant`), divided between its namespaces. Pure.
//!
//! Each namespace has a ResourceQuota of its own. The sum of what they grant is at most the limit at
//! every moment: first amounts are lowered ([`lower_quotas`]), and only then others are raised, by
//! what nobody has any more ([`raise_quotas`]). Admission compares with `status.hard`, which the
//! quota controller takes from `spec.hard` some time after a change, so a namespace has the larger
//! of both, or what it uses. Each change is a PUT with the `resourceVersion` that was read:
//! admission counts usage by a write of the same object, so who uses quota meanwhile causes a
//! conflict, and the change is left for the next round. A request whose result is unknown counts as
//! the larger of both amounts, until the object is read again after the timeout of the request.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::cluster::{NANOS_PER_UNIT, nanos_of, quantity_of};

/// Amounts by resource, such as `requests.cpu`.
type Amounts = BTreeMap<String, Quantity>;

/// Slack of less than this part of an allocation is too little.
const LOW_SLACK: i128 = 10;

/// The ResourceQuota of a namespace as it was read.
#[derive(Clone, Debug, PartialEq)]
pub struct ObservedQuota {
    pub namespace: String,
    /// `metadata.resourceVersion`.
    pub resource_version: String,
    /// `spec.hard`.
    pub hard: BTreeMap<String, Quantity>,
    /// `status.hard`, with which admission compares.
    pub enforced: BTreeMap<String, Quantity>,
    /// `status.used`.
    pub used: BTreeMap<String, Quantity>,
    /// Kind of the allocation.
    pub allocation: AllocationKind,
}

/// Kinds of allocations of a division.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocationKind {
    /// Its usage and an equal part of the unallocated amount.
    Grows,
    /// Its usage, because it is over the quota of namespaces, or being deleted.
    Kept,
    /// Its present quota, which cannot be changed, because the namespace has the label of
    /// another tenant.
    Fixed,
}

impl ObservedQuota {
    /// Whether admission compares with the amounts that are specified for the resources of a limit.
    pub fn is_enforced(&self, limit: &BTreeMap<String, Quantity>) -> bool {
        let amount = |amounts: &Amounts, resource| amounts.get(resource).and_then(nanos_of);
        limit
            .keys()
            .all(|resource| amount(&self.hard, resource) == amount(&self.enforced, resource))
    }
}

/// A change of a ResourceQuota: a PUT with these amounts.
#[derive(Clone, Debug, PartialEq)]
pub struct QuotaChange {
    pub namespace: String,
    /// The version that the PUT has to name.
    pub resource_version: String,
    /// All of `spec.hard`.
    pub hard: BTreeMap<String, Quantity>,
}

/// The limit while a namespace has no quota that shows what it uses, such as one that is being
/// deleted: what the others have now, so that they get nothing of what may be in use.
pub fn limit_at_present(
    limit: &BTreeMap<String, Quantity>,
    observed: &[ObservedQuota],
) -> BTreeMap<String, Quantity> {
    let present = |resource: &str, amount: &Quantity| {
        let allocations = Allocations::of(resource, amount, observed)?;
        let total = allocations.enforced_total()?;
        Some(quantity_of(total.min(allocations.limit)))
    };
    limit
        .iter()
        .map(|(resource, amount)| {
            (resource.clone(), present(resource, amount).unwrap_or_else(|| amount.clone()))
        })
        .collect()
}

/// The first step of a round: the quotas that have to be lowered. There is none if every namespace
/// has slack, or if that of the ones without can be raised by what nobody has.
pub fn lower_quotas(
    limit: &BTreeMap<String, Quantity>,
    observed: &[ObservedQuota],
) -> Vec<QuotaChange> {
    let mut hard = hard_of(observed);
    for (resource, amount) in limit {
        let Some(allocations) = Allocations::of(resource, amount, observed) else { continue };
        if !allocations.needs_division() {
            continue;
        }
        for (allocation, hard) in allocations.quotas.iter().zip(&mut hard) {
            if allocation.kind != AllocationKind::Fixed
                && allocation.hard.is_none_or(|hard| hard > allocation.target)
            {
                hard.insert(resource.clone(), quantity_of(allocation.target));
            }
        }
    }
    changes(observed, hard)
}

/// The second step of a round: the quotas that can be raised. `acknowledged` has the quotas as the
/// API server returned them after the first step, or as they were read, if a change was refused.
/// Resources that the limit does not have any more are removed.
pub fn raise_quotas(
    limit: &BTreeMap<String, Quantity>,
    acknowledged: &[ObservedQuota],
) -> Vec<QuotaChange> {
    let mut hard = hard_of(acknowledged);
    for (amounts, quota) in hard.iter_mut().zip(acknowledged) {
        amounts.retain(|resource, _| {
            quota.allocation == AllocationKind::Fixed || limit.contains_key(resource)
        });
    }
    for (resource, amount) in limit {
        let Some(allocations) = Allocations::of(resource, amount, acknowledged) else { continue };
        for (index, amount) in allocations.raised() {
            if let Some(hard) = hard.get_mut(index) {
                hard.insert(resource.clone(), quantity_of(amount));
            }
        }
    }
    changes(acknowledged, hard)
}

fn hard_of(quotas: &[ObservedQuota]) -> Vec<Amounts> {
    quotas.iter().map(|quota| quota.hard.clone()).collect()
}

fn changes(quotas: &[ObservedQuota], hard: Vec<Amounts>) -> Vec<QuotaChange> {
    quotas
        .iter()
        .zip(hard)
        .filter(|(quota, hard)| quota.hard != *hard)
        .map(|(quota, hard)| QuotaChange {
            namespace: quota.namespace.clone(),
            resource_version: quota.resource_version.clone(),
            hard,
        })
        .collect()
}

/// Amounts of one resource in one namespace, in units of 10⁻⁹.
#[derive(Clone, Copy, Debug)]
struct Allocation {
    /// `None`: not limited yet.
    hard: Option<i128>,
    /// Upper bound that admission may enforce; `None`: not limited yet.
    granted_max: Option<i128>,
    /// The same, or what is used if that is more.
    enforced_max: Option<i128>,
    used: i128,
    /// Usage and an equal part of the unallocated amount.
    target: i128,
    kind: AllocationKind,
}

impl Allocation {
    fn grows(&self) -> bool {
        self.kind == AllocationKind::Grows
    }

    fn slack(&self) -> i128 {
        self.hard.map_or(i128::MAX, |hard| hard - self.used)
    }
}

/// Amounts of one resource in all namespaces.
#[derive(Debug)]
struct Allocations {
    limit: i128,
    /// The smallest amount that is moved.
    unit: i128,
    /// Equal part of the unallocated amount for each growing namespace.
    equal_part: i128,
    quotas: Vec<Allocation>,
}

impl Allocations {
    /// `None` if the limit is no amount; the definition allows none of those.
    fn of(resource: &str, limit: &Quantity, quotas: &[ObservedQuota]) -> Option<Self> {
        let unit = unit_of(resource);
        let limit = nanos_of(limit)?;
        let amount = |amounts: &Amounts| amounts.get(resource).and_then(nanos_of);
        let mut allocations: Vec<Allocation> = quotas
            .iter()
            .map(|quota| {
                let used = amount(&quota.used).unwrap_or(0);
                let (hard, enforced) = (amount(&quota.hard), amount(&quota.enforced));
                let granted_max = hard.zip(enforced).map(|(hard, enforced)| hard.max(enforced));
                let enforced_max = granted_max.map(|granted| granted.max(used));
                let target = match quota.allocation {
                    AllocationKind::Grows | AllocationKind::Kept => used,
                    AllocationKind::Fixed => enforced_max.unwrap_or(used),
                };
                let kind = quota.allocation;
                Allocation { hard, granted_max, enforced_max, used, target, kind }
            })
            .collect();
        let used: i128 = allocations.iter().map(|allocation| allocation.target).sum();
        let growing: i128 =
            allocations.iter().map(|allocation| i128::from(allocation.grows())).sum();
        let free_units = (limit - used).max(0) / unit;
        let equal_part = free_units / growing.max(1);
        let mut rest = free_units - equal_part * growing;
        for allocation in allocations.iter_mut().filter(|allocation| allocation.grows()) {
            let extra = rest.clamp(0, 1);
            rest -= extra;
            allocation.target += (equal_part + extra) * unit;
        }
        Some(Self { limit, unit, equal_part: equal_part * unit, quotas: allocations })
    }

    /// The sum of all quotas as they are specified; `None` if a namespace is not limited yet.
    fn granted(&self) -> Option<i128> {
        self.quotas.iter().map(|allocation| allocation.hard).sum()
    }

    /// The sum of the upper bounds that admission may enforce; `None` if a namespace is not limited
    /// yet.
    fn enforced_total(&self) -> Option<i128> {
        self.quotas.iter().map(|allocation| allocation.enforced_max).sum()
    }

    /// Unallocated amount; 0 if a namespace is not limited yet.
    fn unallocated(&self) -> i128 {
        let unallocated = self.enforced_total().map_or(0, |total| (self.limit - total).max(0));
        unallocated - unallocated % self.unit
    }

    /// Whether amounts have to be lowered: too much is granted, or the namespaces with too little
    /// slack need more than nobody has.
    fn needs_division(&self) -> bool {
        let Some(granted) = self.granted() else { return true };
        let is_low = |allocation: &&Allocation| {
            allocation.grows() && allocation.slack().saturating_mul(LOW_SLACK) < self.equal_part
        };
        let missing =
            |allocation: &Allocation| allocation.target - allocation.used - allocation.slack();
        let need: i128 = self.quotas.iter().filter(is_low).map(missing).sum();
        granted > self.limit || need > self.unallocated()
    }

    /// The namespaces that get more, with their new amounts; those with the least slack first.
    fn raised(&self) -> Vec<(usize, i128)> {
        let mut unallocated = self.unallocated();
        let is_exceeded = self.enforced_total().is_some_and(|total| total > self.limit);
        let mut indexes: Vec<usize> = (0..self.quotas.len()).collect();
        indexes.sort_by_key(|index| self.quotas[*index].slack());
        let mut raised = Vec::new();
        for index in indexes {
            let quota = &self.quotas[index];
            // What the namespace uses beyond its amounts would be granted in addition to those of
            // the others, if all use more than the limit.
            let present = if is_exceeded { quota.granted_max } else { quota.enforced_max };
            let Some((hard, present)) =
                quota.hard.zip(present).filter(|(hard, _)| quota.grows() && *hard < quota.target)
            else {
                continue;
            };
            // What the namespace has already costs nothing.
            let amount = quota.target.min(present + unallocated);
            if amount > hard {
                raised.push((index, amount));
                unallocated -= (amount - present).max(0);
            }
        }
        raised
    }
}

/// Processors are divided by thousandths, everything else by whole units, because bytes and objects
/// have no parts.
fn unit_of(resource: &str) -> i128 {
    let is_cpu = ["cpu", "requests.cpu", "limits.cpu"].contains(&resource);
    if is_cpu { NANOS_PER_UNIT / 1000 } else { NANOS_PER_UNIT }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn amounts(resource: &str, amount: &str) -> Amounts {
        Amounts::from([(resource.to_owned(), Quantity(amount.to_owned()))])
    }

    fn quota(namespace: &str, hard: &str, used: &str) -> ObservedQuota {
        ObservedQuota {
            namespace: namespace.to_owned(),
            resource_version: "1".to_owned(),
            hard: amounts("pods", hard),
            enforced: amounts("pods", hard),
            used: amounts("pods", used),
            allocation: AllocationKind::Grows,
        }
    }

    fn texts(changes: &[QuotaChange]) -> Vec<(&str, &str)> {
        changes.iter().map(|it| (it.namespace.as_str(), it.hard["pods"].0.as_str())).collect()
    }

    fn apply(quotas: &mut [ObservedQuota], changes: Vec<QuotaChange>) {
        for change in changes {
            let quota = quotas.iter_mut().find(|it| it.namespace == change.namespace).unwrap();
            quota.hard = change.hard;
            quota.enforced = quota.hard.clone();
        }
    }

    #[test]
    fn new_namespaces_share_what_is_free() {
        let limit = amounts("pods", "10");
        let quotas = [quota("a", "0", "0"), quota("b", "0", "0"), quota("c", "0", "0")];
        assert!(lower_quotas(&limit, &quotas).is_empty());
        let raised = raise_quotas(&limit, &quotas);
        assert_eq!(texts(&raised), [("a", "4"), ("b", "3"), ("c", "3")]);
        assert!(raised.iter().all(|change| change.resource_version == "1"));
    }

    #[test]
    fn slack_moves_to_a_namespace_without_it() {
        let limit = amounts("pods", "20");
        let mut quotas = [quota("a", "10", "10"), quota("b", "10", "2")];
        let lowered = lower_quotas(&limit, &quotas);
        assert_eq!(texts(&lowered), [("b", "6")]);
        apply(&mut quotas, lowered);
        let raised = raise_quotas(&limit, &quotas);
        assert_eq!(texts(&raised), [("a", "14")]);
    }

    #[test]
    fn slack_moves_once_admission_compares_with_the_lower_amount() {
        let limit = amounts("pods", "20");
        let mut quotas = [quota("a", "10", "10"), quota("b", "6", "2")];
        quotas[1].enforced = amounts("pods", "10");
        assert!(!quotas[1].is_enforced(&limit));
        assert!(raise_quotas(&limit, &quotas).is_empty());
        // Meanwhile it used more than the lower amount.
        quotas[1].used = amounts("pods", "8");
        quotas[1].enforced = amounts("pods", "6");
        assert!(quotas[1].is_enforced(&limit));
        assert_eq!(texts(&raise_quotas(&limit, &quotas)), [("a", "11"), ("b", "9")]);
        quotas[1].enforced.clear();
        assert!(raise_quotas(&limit, &quotas).is_empty(), "nothing limits it");
    }

    /// Kubernetes misses objects after a deletion, and counts them later.
    #[test]
    fn nobody_gets_what_they_use_too_much_while_all_use_more_than_the_limit() {
        let limit = amounts("pods", "20");
        let mut quotas = [quota("a", "10", "11"), quota("b", "10", "3")];
        let lowered = lower_quotas(&limit, &quotas);
        assert_eq!(texts(&lowered), [("b", "6")]);
        quotas[1].hard = amounts("pods", "6");
        assert!(raise_quotas(&limit, &quotas).is_empty(), "admission compares b with 10");
        quotas[1].enforced = amounts("pods", "6");
        assert_eq!(texts(&raise_quotas(&limit, &quotas)), [("a", "14")]);
    }

    #[test]
    fn namespaces_with_slack_are_left_alone() {
        let limit = amounts("pods", "20");
        let quotas = [quota("a", "10", "9"), quota("b", "10", "0")];
        assert!(lower_quotas(&limit, &quotas).is_empty());
        assert!(raise_quotas(&limit, &quotas).is_empty());
    }

    #[test]
    fn a_refused_step_raises_nobody() {
        let limit = amounts("pods", "20");
        let quotas = [quota("a", "10", "10"), quota("b", "10", "2")];
        // The API server refused to lower b.
        assert!(raise_quotas(&limit, &quotas).is_empty());
    }

    #[test]
    fn a_lower_limit_takes_what_is_not_used_and_raises_nobody() {
        let limit = amounts("pods", "6");
        let mut quotas = [quota("a", "10", "7"), quota("b", "10", "2")];
        let lowered = lower_quotas(&limit, &quotas);
        assert_eq!(texts(&lowered), [("a", "7"), ("b", "2")]);
        apply(&mut quotas, lowered);
        assert!(lower_quotas(&limit, &quotas).is_empty());
        assert!(raise_quotas(&limit, &quotas).is_empty());
    }

    #[test]
    fn a_namespace_that_does_not_grow_keeps_what_it_uses() {
        let limit = amounts("pods", "10");
        let gone = ObservedQuota { allocation: AllocationKind::Kept, ..quota("a", "8", "3") };
        let mut quotas = [gone, quota("b", "2", "2")];
        let lowered = lower_quotas(&limit, &quotas);
        assert_eq!(texts(&lowered), [("a", "3")]);
        apply(&mut quotas, lowered);
        assert_eq!(texts(&raise_quotas(&limit, &quotas)), [("b", "7")]);
    }

    #[test]
    fn a_quota_that_cannot_be_changed_counts_with_all_that_it_has() {
        let limit = amounts("pods", "20");
        let fixed = ObservedQuota { allocation: AllocationKind::Fixed, ..quota("a", "8", "1") };
        let mut quotas = [fixed, quota("b", "12", "11"), quota("c", "0", "0")];
        let lowered = lower_quotas(&limit, &quotas);
        assert_eq!(texts(&lowered), []);
        // Of the 9 that are free of 20, 8 belong to the first.
        quotas[1].hard = amounts("pods", "11");
        quotas[1].enforced = quotas[1].hard.clone();
        assert_eq!(texts(&raise_quotas(&limit, &quotas)), [("b", "12")]);
        quotas[0].hard.insert("secrets".to_owned(), Quantity("9".to_owned()));
        assert!(raise_quotas(&limit, &quotas).iter().all(|change| change.namespace != "a"));
    }

    /// A namespace that is being deleted has lost its quota, and not yet what it used of it.
    #[test]
    fn without_growth_slack_moves_and_the_sum_stays() {
        let limit = amounts("pods", "30");
        let mut quotas = [quota("a", "10", "10"), quota("b", "10", "2")];
        let if_free = raise_quotas(&limit, &quotas);
        assert_eq!(texts(&if_free), [("a", "19"), ("b", "11")], "if the rest were free");
        let present = limit_at_present(&limit, &quotas);
        assert_eq!(present["pods"].0, "20");
        let lowered = lower_quotas(&present, &quotas);
        assert_eq!(texts(&lowered), [("b", "6")]);
        apply(&mut quotas, lowered);
        assert_eq!(texts(&raise_quotas(&present, &quotas)), [("a", "14")]);
        // A lower limit holds even so.
        assert_eq!(limit_at_present(&amounts("pods", "4"), &quotas)["pods"].0, "4");
        quotas[0].hard.clear();
        assert_eq!(limit_at_present(&limit, &quotas)["pods"].0, "30", "and nothing is spare");
    }

    #[test]
    fn a_new_resource_is_limited_first_and_an_old_one_is_removed_last() {
        let limit = amounts("pods", "4");
        let mut quotas = [quota("a", "2", "0"), quota("b", "2", "0")];
        quotas[0].hard = amounts("secrets", "9");
        let lowered = lower_quotas(&limit, &quotas);
        assert_eq!(texts(&lowered), [("a", "2")]);
        assert!(lowered[0].hard.contains_key("secrets"));
        apply(&mut quotas, lowered);
        let raised = raise_quotas(&limit, &quotas);
        assert_eq!(texts(&raised), [("a", "2")]);
        assert!(!raised[0].hard.contains_key("secrets"));
    }

    #[test]
    fn processors_are_divided_by_thousandths_and_bytes_are_not_divided() {
        for (resource, limit, allocation) in
            [("requests.cpu", "1", "500m"), ("requests.memory", "3", "2")]
        {
            let quota = |namespace: &str| ObservedQuota {
                hard: amounts(resource, "0"),
                enforced: amounts(resource, "0"),
                used: Amounts::new(),
                ..quota(namespace, "0", "0")
            };
            let raised = raise_quotas(&amounts(resource, limit), &[quota("a"), quota("b")]);
            assert_eq!(raised[0].hard[resource].0, allocation);
        }
    }

    /// A namespace: its part of the limit, what of it is used, whether it grows, whether the API
    /// server refuses its changes, how much more it uses before each step, and whether the quota
    /// controller takes over its amounts after each step.
    type Case = (u64, u64, bool, bool, [u64; 2], [bool; 2]);

    fn sum_of_granted(quotas: &[ObservedQuota]) -> i128 {
        let amount = |amounts: &Amounts| nanos_of(&amounts["pods"]).unwrap();
        quotas.iter().map(|quota| amount(&quota.hard).max(amount(&quota.enforced))).sum()
    }

    /// Namespaces use more, as far as their quotas allow, at the same time as a change is made.
    fn use_more(quotas: &mut [ObservedQuota], cases: &[Case], step: usize) {
        for (quota, case) in quotas.iter_mut().zip(cases) {
            let (hard, used) = (&quota.enforced["pods"], &quota.used["pods"]);
            let (hard, used) = (nanos_of(hard).unwrap(), nanos_of(used).unwrap());
            let more = i128::from(case.4[step]) * NANOS_PER_UNIT;
            let used = (used + more).min(hard.max(used));
            quota.used.insert("pods".to_owned(), quantity_of(used));
        }
    }

    proptest! {
        #[test]
        fn the_sum_is_within_the_limit_at_every_moment(
            cases in proptest::collection::vec(
                (
                    0..50_u64, 0..50_u64, any::<bool>(), any::<bool>(), [0..9_u64, 0..9_u64],
                    [any::<bool>(), any::<bool>()],
                ),
                1..7,
            ),
            unallocated in 0..30_u64,
        ) {
            let granted: u64 = cases.iter().map(|case| case.0).sum();
            let limit = amounts("pods", &(granted + unallocated).to_string());
            let most = nanos_of(&limit["pods"]).unwrap();
            let mut quotas: Vec<ObservedQuota> = cases.iter().enumerate().map(|(index, case)| {
                let used = case.1.min(case.0).to_string();
                let quota = quota(&index.to_string(), &case.0.to_string(), &used);
                let allocation = if case.2 { AllocationKind::Grows } else { AllocationKind::Kept };
                ObservedQuota { allocation, ..quota }
            }).collect();
            for round in 0..4 {
                // In the last rounds nothing is refused, and everything is taken over.
                let is_quiet = round >= 2;
                for (step, plan) in [lower_quotas, raise_quotas].into_iter().enumerate() {
                    for change in plan(&limit, &quotas) {
                        let index: usize = change.namespace.parse().unwrap();
                        if is_quiet || !cases[index].3 {
                            quotas[index].hard = change.hard;
                        }
                        prop_assert!(sum_of_granted(&quotas) <= most);
                    }
                    for (quota, case) in quotas.iter_mut().zip(&cases) {
                        if is_quiet || case.5[step] {
                            quota.enforced = quota.hard.clone();
                        }
                    }
                    if !is_quiet {
                        use_more(&mut quotas, &cases, step);
                    }
                }
            }
            let used: i128 = quotas.iter().map(|quota| nanos_of(&quota.used["pods"]).unwrap()).sum();
            prop_assert!(used <= most);
            // What is free is granted, and then nothing changes any more.
            if quotas.iter().any(|quota| quota.allocation == AllocationKind::Grows) {
                prop_assert!(lower_quotas(&limit, &quotas).is_empty());
                prop_assert!(raise_quotas(&limit, &quotas).is_empty());
            }
        }
    }
}
