//! The Compose file: the reference parser accepts it, and the broker becomes ready with its files,
//! environment, command and user.

use std::collections::HashSet;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use integration::compose::ComposeSpec;
use integration::machine;
use integration::postgres::Postgres;
use integration::process::{Finished, Program};
use integration::scratch::Scratch;
use serde_json::Value;
use url::Url;

use super::cluster::Cluster;
use super::place::{Access, Environment, Place, USER};
use super::{VERSION, deploy, read};

/// Returns the resolved project.
async fn project() -> Value {
    let parser = ComposeSpec::find().await.unwrap();
    let checked = parser.check(&deploy("compose.yaml")).await.unwrap().success().unwrap();
    serde_json::from_str(&checked.stdout).unwrap()
}

fn texts(value: &Value) -> Vec<&str> {
    value.as_array().unwrap().iter().map(|item| item.as_str().unwrap()).collect()
}

/// The items of a list of a service, or none.
fn items<'a>(service: &'a Value, list: &str) -> &'a [Value] {
    service[list].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn environment(service: &Value) -> Environment {
    let variables = service["environment"].as_object().unwrap().iter();
    variables.map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned())).collect()
}

fn variable<'a>(service: &'a Value, name: &str) -> &'a str {
    service["environment"][name].as_str().unwrap()
}

/// The names that the project declares.
fn names(project: &Value, kind: &str) -> HashSet<String> {
    project[kind].as_object().unwrap().keys().cloned().collect()
}

#[tokio::test]
async fn the_compose_file_conforms_to_the_specification_and_uses_all_that_it_declares() {
    let project = project().await;
    let services = project["services"].as_object().unwrap();
    for kind in ["configs", "secrets"] {
        let used = services.values().flat_map(|service| items(service, kind));
        let used: HashSet<String> =
            used.map(|item| item["source"].as_str().unwrap().to_owned()).collect();
        assert_eq!(used, names(&project, kind), "{kind}");
    }
    let networks = services.values().flat_map(|service| service["networks"].as_object().unwrap());
    let networks: HashSet<String> = networks.map(|(name, _)| name.clone()).collect();
    assert_eq!(networks, names(&project, "networks"));
    let volumes = services.values().flat_map(|service| items(service, "volumes"));
    let volumes = volumes.filter(|volume| volume["type"] == "volume");
    let volumes: HashSet<String> =
        volumes.map(|volume| volume["source"].as_str().unwrap().to_owned()).collect();
    assert_eq!(volumes, names(&project, "volumes"));
}

/// Otherwise the test above could not fail.
#[tokio::test]
async fn a_compose_file_with_an_unknown_key_is_refused() {
    let scratch = Scratch::new("compose").unwrap();
    let file = scratch.path().join("compose.yaml");
    std::fs::write(&file, read(&deploy("compose.yaml")).replace("read_only:", "readonly:"))
        .unwrap();
    let checked = ComposeSpec::find().await.unwrap().check(&file).await.unwrap();
    assert!(!checked.status.success());
    assert!(checked.stderr.contains("readonly"), "{}", checked.stderr);
}

#[tokio::test]
async fn every_service_is_restricted_and_pinned_and_its_secrets_are_files() {
    let project = project().await;
    for (name, service) in project["services"].as_object().unwrap() {
        assert_eq!(service["read_only"], true, "{name}");
        assert_eq!(texts(&service["cap_drop"]), ["ALL"], "{name}");
        assert_eq!(texts(&service["security_opt"]), ["no-new-privileges:true"], "{name}");
        for key in ["privileged", "cap_add", "pid", "ipc", "network_mode", "devices", "env_file"] {
            assert_eq!(service.get(key), None, "{name}: {key}");
        }
        let (user, group) = service["user"].as_str().unwrap().split_once(':').unwrap();
        assert!(user.parse::<u32>().unwrap() > 0 && group.parse::<u32>().unwrap() > 0, "{name}");
        assert!(service["healthcheck"]["test"].is_array(), "{name}");
        assert!(service["pids_limit"].is_number() && service["stop_grace_period"].is_string());
        let (_, tag) = service["image"].as_str().unwrap().rsplit_once(':').unwrap();
        assert!(tag.starts_with(|digit: char| digit.is_ascii_digit()), "{name}: {tag}");
        for (key, value) in environment(service) {
            let value = value.to_lowercase();
            assert!(!value.contains("postgres://") && !value.contains("-----begin"), "{key}");
            assert!(!key.ends_with("PASSWORD") && !key.ends_with("URL"), "{name}: {key}");
        }
    }
    let broker = &project["services"]["broker"];
    assert_eq!(broker["user"], format!("{}:{}", USER.uid, USER.gid));
    assert_eq!(broker["image"], format!("kubectl-tenant/tenant-broker:{VERSION}"));
    // The name has no registry, so a pull could get somebody else's image.
    assert_eq!(broker["pull_policy"], "never");
    // Only the broker is reached from outside.
    assert_eq!(project["services"]["postgres"].get("ports"), None);
    assert_eq!(project["networks"]["database"]["internal"], true);
}

/// Copies what a person has, and returns the folder.
fn copied(scratch: &Scratch) -> std::path::PathBuf {
    let folder = scratch.path().join("compose");
    std::fs::create_dir(&folder).unwrap();
    for file in ["broker.toml", "database.sql", "prepare.sh"] {
        std::fs::copy(deploy("compose").join(file), folder.join(file)).unwrap();
    }
    // As a checkout with another umask.
    for file in ["broker.toml", "database.sql"] {
        std::fs::set_permissions(folder.join(file), Permissions::from_mode(0o600)).unwrap();
    }
    folder
}

async fn prepare(folder: &Path) -> Finished {
    machine::find("openssl").expect("openssl is not on PATH: apt-get install openssl");
    let script = folder.join("prepare.sh");
    Program::new(script).run(Duration::from_secs(30)).await.unwrap()
}

fn mode(file: &Path) -> u32 {
    std::fs::metadata(file).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn prepare_makes_what_is_missing_once_and_names_the_rest() {
    let scratch = Scratch::new("compose").unwrap();
    let folder = copied(&scratch);
    let first = prepare(&folder).await;
    assert_eq!(first.code(), 1, "{}", first.stderr);
    let renewed = ["tls.crt", "tls.key", "broker.kubeconfig"];
    for file in renewed {
        assert!(first.stderr.contains(&format!("secrets/renewed/{file}: ")), "{}", first.stderr);
        let file = folder.join("secrets/renewed").join(file);
        std::fs::write(&file, "theirs").unwrap();
        std::fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    }
    let made = ["postgres-password", "database-password", "database-url", "issuer-key.pem"];
    let contents = || made.map(|file| read(&folder.join("secrets").join(file)));
    let before = contents();
    let second = prepare(&folder).await;
    assert_eq!(second.code(), 0, "{}", second.stderr);
    assert_eq!(contents(), before);

    // The containers' users may read the files, and nobody else can reach them.
    let secrets = folder.join("secrets");
    assert_eq!((mode(&secrets), mode(&secrets.join("renewed"))), (0o700, 0o755));
    for file in made {
        assert_eq!(mode(&secrets.join(file)), 0o444, "{file}");
    }
    for file in renewed {
        assert_eq!(mode(&secrets.join("renewed").join(file)), 0o444, "{file}");
        assert_eq!(read(&secrets.join("renewed").join(file)), "theirs");
    }
    for file in ["broker.toml", "database.sql"] {
        assert_eq!(mode(&folder.join(file)) & 0o444, 0o444, "{file}");
    }
}

/// Runs psql, and returns what it prints.
async fn psql(url: &Url, args: &[&str]) -> String {
    let program = machine::find("psql")
        .expect("psql is not on PATH; install it: apt-get install postgresql-client");
    let options = ["--no-psqlrc", "--set=ON_ERROR_STOP=1", "--dbname", url.as_str()];
    let ran = Program::new(program).args(options).args(args).run(Duration::from_secs(30)).await;
    ran.unwrap().success().unwrap().stdout
}

/// Runs the files that the image of PostgreSQL runs on an empty volume, as its superuser. Returns
/// the URL that `prepare.sh` wrote, with the address of this server.
async fn initialize(postgres: &Postgres, project: &Value, folder: &Path) -> Url {
    assert!(postgres.log().is_some(), "unset TENANT_TEST_POSTGRES_URL: this test makes a role");
    let (service, secrets) = (&project["services"]["postgres"], folder.join("secrets"));
    let superuser = postgres.database("compose").await.unwrap();
    for config in items(service, "configs") {
        let target = config["target"].as_str().unwrap();
        let name = target.strip_prefix("/docker-entrypoint-initdb.d/").unwrap();
        assert_eq!(config["source"], name);
        let text = read(&folder.join(name));
        let there = text.replace("/run/secrets", secrets.to_str().unwrap());
        assert_ne!(there, text, "the script reads no secret");
        let file = secrets.join(name);
        std::fs::write(&file, there).unwrap();
        psql(superuser.url(), &["--file", file.to_str().unwrap()]).await;
    }

    let mut url: Url = read(&secrets.join("database-url")).trim().parse().unwrap();
    assert_eq!(url.host_str(), Some("postgres"), "the name of the service");
    assert_ne!(url.username(), variable(service, "POSTGRES_USER"));
    let names: Vec<_> = items(service, "secrets").iter().map(|it| &it["target"]).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    assert!(names.iter().any(|name| **name == *variable(service, "POSTGRES_PASSWORD_FILE")));
    url.set_host(superuser.url().host_str()).unwrap();
    url.set_port(superuser.url().port()).unwrap();
    url
}

/// A superuser of the database could read files and run programs of its container.
#[tokio::test]
async fn the_role_of_the_broker_is_no_superuser_and_owns_its_database() {
    let project = project().await;
    let scratch = Scratch::new("compose").unwrap();
    let folder = copied(&scratch);
    assert_eq!(prepare(&folder).await.code(), 1);
    let postgres = Postgres::start().await.unwrap();
    let url = initialize(&postgres, &project, &folder).await;
    let roles = "SELECT rolsuper OR rolcreatedb OR rolcreaterole OR rolreplication OR rolbypassrls \
                 FROM pg_roles WHERE rolname = current_user";
    assert_eq!(psql(&url, &["-At", "--command", roles]).await, "f\n");
    let granted = "SELECT count(*) FROM pg_auth_members m JOIN pg_roles r ON r.oid = m.member \
                   WHERE r.rolname = current_user";
    assert_eq!(psql(&url, &["-At", "--command", granted]).await, "0\n");
    let owner = "SELECT pg_get_userbyid(datdba) = current_user FROM pg_database \
                 WHERE datname = current_database()";
    assert_eq!(psql(&url, &["-At", "--command", owner]).await, "t\n");
}

/// Copies the files that the service's container has into the place, with their modes.
fn mount(place: &Place, project: &Value, service: &Value, folder: &Path) {
    for kind in ["configs", "secrets"] {
        for item in items(service, kind) {
            let source = project[kind][item["source"].as_str().unwrap()]["file"].as_str().unwrap();
            // The parser resolves the path from the folder of the Compose file.
            let source = Path::new(source).strip_prefix(deploy("compose")).unwrap();
            let source = folder.join(source);
            assert_eq!(mode(&source) & 0o444, 0o444, "{}", source.display());
            let text = read(&source);
            let text = if kind == "configs" { place.mapped(&text) } else { text };
            place.write(item["target"].as_str().unwrap(), text, Access::Everybody).unwrap();
        }
    }
    for volume in items(service, "volumes") {
        let target = volume["target"].as_str().unwrap();
        let source = Path::new(volume["source"].as_str().unwrap());
        let source = folder.join(source.strip_prefix(deploy("compose")).unwrap());
        for file in std::fs::read_dir(source).unwrap() {
            let file = file.unwrap().path();
            assert_eq!(mode(&file), 0o444, "{}", file.display());
            let target = format!("{target}/{}", file.file_name().unwrap().display());
            place.write(&target, read(&file), Access::Everybody).unwrap();
        }
    }
}

#[tokio::test]
async fn the_broker_of_the_compose_file_becomes_ready_and_its_health_check_says_so() {
    let project = project().await;
    let cluster = Cluster::shared().await.unwrap();
    let authority = cluster.control_plane.authority();
    let scratch = Scratch::new("compose").unwrap();
    let folder = copied(&scratch);
    assert_eq!(prepare(&folder).await.code(), 1);
    let serving = authority.server("tenant-broker").unwrap();
    let renewed = folder.join("secrets/renewed");
    std::fs::write(renewed.join("tls.crt"), &serving.certificate).unwrap();
    std::fs::write(renewed.join("tls.key"), &serving.key).unwrap();
    let kubeconfig = cluster.kubeconfig_of_broker().unwrap();
    std::fs::write(renewed.join("broker.kubeconfig"), kubeconfig).unwrap();
    prepare(&folder).await.success().unwrap();

    // `install` reads the settings where no secret is.
    let _installed = cluster.install(&folder.join("broker.toml")).await.unwrap();
    let service = &project["services"]["broker"];
    let place = Place::new(&cluster.binaries).unwrap();
    mount(&place, &project, service, &folder);
    // Its PostgreSQL has another address here.
    let postgres = Postgres::start().await.unwrap();
    let url = initialize(&postgres, &project, &folder).await;
    let url_file = variable(service, "TENANT_BROKER_DATABASE__URL_FILE");
    place.write(url_file, url.as_str(), Access::Everybody).unwrap();

    let mut command = texts(&service["entrypoint"]);
    command.extend(texts(&service["command"]));
    let broker = place.serve(&command, &environment(service)).await.unwrap();
    let issuer = broker.issuer(Some(authority.certificate())).await.unwrap();
    assert_eq!(issuer, "https://tenants.example.com:8443");
    let test = texts(&service["healthcheck"]["test"]);
    let &["CMD", ref health @ ..] = test.as_slice() else { panic!("{test:?}") };
    let healthy = broker.run(health).await.unwrap();
    assert_eq!((healthy.code(), healthy.stdout.as_str()), (0, "ready\n"), "{}", healthy.stderr);
    broker.stop().await.unwrap();
    let gone = broker.run(health).await.unwrap();
    assert_eq!(gone.code(), 1, "{}", gone.stdout);
    assert!(gone.stderr.contains("does the broker run?"), "{}", gone.stderr);
}
