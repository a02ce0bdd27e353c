//! Concurrent changes by two replicas.

use super::*;
use crate::testing::run_concurrently;

on_both_engines!(
    of_twenty_claims_at_quota_five_exactly_five_succeed,
    of_concurrent_claims_of_one_name_one_succeeds,
    concurrent_observations_of_an_object_see_one_row,
    concurrent_observations_of_a_new_object_close_the_old_row_once,
    no_claim_survives_the_close_of_its_tenant,
    claims_that_exchange_gone_names_do_not_block_each_other,
);

/// The rows as two replicas access them. On SQLite they are two processes.
async fn replicas(storage: &Storage) -> [Tenants; 2] {
    let other = storage.database.connect().await;
    [tenants(storage), Tenants::new(other, storage.clock.clone())]
}

async fn of_twenty_claims_at_quota_five_exactly_five_succeed(on: On) {
    let storage = Storage::new(on).await;
    let replicas = replicas(&storage).await;
    let row = open(&replicas[0], "solar").await;
    let claims = run_concurrently((0..20).map(|n| {
        let (tenants, id) = (replicas[n % 2].clone(), row.id);
        async move { claim(&tenants, id, &format!("solar-{n}"), 5).await }
    }))
    .await;
    let created = claims.iter().filter(|claim| **claim == Claim::Created).count();
    let full = Claim::QuotaExceeded { used: 5, quota: 5 };
    let refused = claims.iter().filter(|claim| **claim == full).count();
    assert_eq!((created, refused), (5, 15), "{claims:?}");
    assert_eq!(replicas[1].namespaces(row.id).await.unwrap().len(), 5);
}

async fn of_concurrent_claims_of_one_name_one_succeeds(on: On) {
    let storage = Storage::new(on).await;
    let replicas = replicas(&storage).await;
    let rows = [open(&replicas[0], "solar").await, open(&replicas[0], "lunar").await];
    for round in 0..3 {
        let namespace = format!("shared-{round}");
        let claims = run_concurrently((0..16).map(|n| {
            let (tenants, id) = (replicas[n % 2].clone(), rows[n / 2 % 2].id);
            let namespace = namespace.clone();
            async move { (id, claim(&tenants, id, &namespace, 100).await) }
        }))
        .await;
        let winners: Vec<Uuid> = claims
            .iter()
            .filter(|(_, claim)| *claim == Claim::Created)
            .map(|(id, _)| *id)
            .collect();
        let [winner] = winners[..] else { panic!("{claims:?}") };
        for (id, claim) in claims {
            match claim {
                Claim::Exists(row) => assert_eq!((id, row.tenant_id), (winner, winner)),
                Claim::OtherTenant => assert_ne!(id, winner),
                Claim::Created => assert_eq!(id, winner),
                Claim::QuotaExceeded { .. } => panic!("nobody has a hundred"),
            }
        }
    }
}

async fn concurrent_observations_of_an_object_see_one_row(on: On) {
    let storage = Storage::new(on).await;
    let replicas = replicas(&storage).await;
    let observed = run_concurrently((0..16).map(|n| {
        let tenants = replicas[n % 2].clone();
        async move { open(&tenants, "solar").await.id }
    }))
    .await;
    assert!(observed.iter().all(|id| *id == observed[0]), "{observed:?}");
    assert_eq!(storage.number("SELECT COUNT(*) FROM tenants").await, 1);
}

async fn concurrent_observations_of_a_new_object_close_the_old_row_once(on: On) {
    let storage = Storage::new(on).await;
    let replicas = replicas(&storage).await;
    let old = open(&replicas[0], "solar").await;
    let observed = run_concurrently((0..16).map(|n| {
        let tenants = replicas[n % 2].clone();
        async move { tenants.observe(&name("solar"), BROKER_GROUP, "uid-2").await.unwrap() }
    }))
    .await;
    let current = replicas[1].by_name(&old.name).await.unwrap().unwrap();
    let again = Observed::Recreated(current.clone());
    assert_eq!(observed.iter().filter(|observed| **observed == again).count(), 1, "{observed:?}");
    let same = Observed::Current(current);
    assert_eq!(observed.iter().filter(|observed| **observed == same).count(), 15, "{observed:?}");
    assert_eq!(storage.number("SELECT COUNT(*) FROM tenants").await, 2);
}

async fn no_claim_survives_the_close_of_its_tenant(on: On) {
    let storage = Storage::new(on).await;
    let replicas = replicas(&storage).await;
    let row = open(&replicas[0], "solar").await;
    assert_eq!(claim(&replicas[0], row.id, "solar-first", 100).await, Claim::Created);
    run_concurrently((0..16).map(|n| {
        let (tenants, id) = (replicas[n % 2].clone(), row.id);
        async move {
            if n == 8 {
                tenants.close(id).await.unwrap();
                return;
            }
            match tenants.claim_namespace(id, &format!("solar-{n}"), None, None).await {
                Ok(Claim::Created) | Err(sqlx::Error::RowNotFound) => {}
                other => panic!("{other:?}"),
            }
        }
    }))
    .await;
    let statuses = statuses(&replicas[0], row.id).await;
    assert!(!statuses.is_empty());
    let orphaned = statuses.iter().all(|(_, status)| *status == NamespaceStatus::Orphaned);
    assert!(orphaned, "{statuses:?}");
}

/// Each tenant claims names that were the other's. A deadlock would fail one of them.
async fn claims_that_exchange_gone_names_do_not_block_each_other(on: On) {
    let storage = Storage::new(on).await;
    let replicas = replicas(&storage).await;
    let rows = [open(&replicas[0], "solar").await, open(&replicas[0], "lunar").await];
    for (owner, row) in rows.iter().enumerate() {
        for n in 0..8 {
            let namespace = format!("shared-{owner}-{n}");
            assert_eq!(claim(&replicas[0], row.id, &namespace, 100).await, Claim::Created);
            let (creating, gone) = ([NamespaceStatus::Creating], NamespaceStatus::Gone);
            let set = replicas[0].set_namespace_status(row.id, &namespace, &creating, gone).await;
            assert!(set.unwrap());
        }
    }
    let claims = run_concurrently((0..16).map(|n| {
        let (owner, tenants) = (n % 2, replicas[n % 2].clone());
        let (id, namespace) = (rows[1 - owner].id, format!("shared-{owner}-{}", n / 2));
        async move { claim(&tenants, id, &namespace, 100).await }
    }))
    .await;
    assert!(claims.iter().all(|claim| *claim == Claim::Created), "{claims:?}");
}
