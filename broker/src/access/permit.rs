//! Permits: proofs of an authorization.

use std::marker::PhantomData;

use super::{GeneralAction, Resource, ResourceAction};
use crate::identity::Caller;

/// All resources, as the resource of a [`Permit`].
#[derive(Clone, Copy, Debug)]
pub struct AllResources;

/// Proof that a caller may take action `A` on the resource that it contains, or on every resource.
#[derive(Clone, Debug)]
pub struct Permit<A, R = AllResources> {
    caller: Caller,
    resource: R,
    action: PhantomData<A>,
}

impl<A, R> Permit<A, R> {
    pub(super) fn grant(caller: &Caller, resource: R) -> Self {
        Self { caller: caller.clone(), resource, action: PhantomData }
    }

    /// The caller who has the permit.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// The resource that the permit is for.
    pub fn resource(&self) -> &R {
        &self.resource
    }
}

impl<A: GeneralAction + ResourceAction> Permit<A> {
    /// The same permit for one resource.
    pub fn on<R: Resource>(&self, resource: R) -> Permit<A, R> {
        Permit::grant(&self.caller, resource)
    }
}
