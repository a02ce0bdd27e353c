//! Access reviews and dry runs: what the broker and the members of tenants may do.

mod dry_run;
mod member_review;
pub(super) mod self_review;

pub use self::{
    dry_run::{AccessReview, DryRunResult, SampleWorkspace, ServerInfo},
    member_review::MemberReviewError,
};
