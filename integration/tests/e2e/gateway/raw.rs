//! Raw requests that no ordinary client sends: the broker responds as the API server does.

use std::sync::Arc;
use std::time::Duration;

use integration::person::Person;
use integration::probe::{self, Probe};
use integration::world::World;
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use secrecy::ExposeSecret as _;

use super::{exchange, raw};

/// A route to the API server on the wire.
struct RawRoute {
    authority: String,
    /// Prefix of the path of the API.
    prefix: &'static str,
    token: String,
    /// The certificate authority as PEM, if the route uses TLS.
    certificate: Option<String>,
}

impl RawRoute {
    async fn send(&self, request: impl AsRef<[u8]>) -> String {
        let Some(certificate) = &self.certificate else {
            return raw(&self.authority, request).await;
        };
        let mut roots = rustls::RootCertStore::empty();
        let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
        roots.add(certificate).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let stream = tokio::net::TcpStream::connect(&self.authority).await.unwrap();
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let stream = connector.connect(name, stream).await.unwrap();
        exchange(stream, request.as_ref()).await
    }
}

/// Returns the direct route and the route through the gateway.
async fn routes(world: &World) -> (Person, [RawRoute; 2]) {
    let person = world.person("alice").await.unwrap();
    let session = person.sign_in().await.unwrap();
    let api = world.anonymous_api().unwrap().with_token(session.access_token.clone());
    let (workspace, _) = api.init("basic").await.unwrap();
    let credential = api.credential(workspace.id).await.unwrap();
    let direct = RawRoute {
        authority: world.cluster().url().authority().to_owned(),
        prefix: "",
        token: credential.token.clone(),
        certificate: Some(world.cluster().authority().certificate().to_owned()),
    };
    let gateway = RawRoute {
        authority: world.broker().url().unwrap().authority().to_owned(),
        prefix: "/clusters/internal-cluster",
        token: session.access_token.expose_secret().to_owned(),
        certificate: None,
    };
    (person, [direct, gateway])
}

/// Returns the status of a response.
fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or(answer)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_the_api_server_refuses_are_refused() {
    let world = World::builder().start().await.unwrap();
    let (person, routes) = routes(&world).await;
    let maps = format!("/api/v1/namespaces/{}/configmaps", person.namespace());
    let chunked = "Transfer-Encoding: chunked\r\nContent-Type: application/json\r\n";
    let object = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"a-"}}"#;
    let chunk = format!("{:x}\r\n{object}\r\n0\r\n\r\n", object.len());
    // Method, path, headers with a `Host` unless they have their own, body, the status on both
    // routes.
    let host = "Host: HOST\r\n";
    let cases = [
        ("GET", "/version", host.to_owned(), "", "200"),
        ("POST", &*maps, format!("{host}{chunked}"), &*chunk, "201"),
        ("GET", "/version", String::new(), "", "400"),
        ("GET", "/version", "Host: a b\r\n".to_owned(), "", "400"),
        ("GET", "/version", "Host: a/b\r\n".to_owned(), "", "400"),
        ("GET", "/version", format!("{host}{host}"), "", "400"),
        ("GET", "/version", format!("{host}Expect: 200-ok\r\n"), "", "417"),
        ("GET", "/version", format!("{host}Expect: 100-continue\r\n"), "", "200"),
        ("POST", &*maps, format!("{host}Transfer-Encoding: chunked, chunked\r\n"), &*chunk, "501"),
        ("POST", &*maps, format!("{host}Transfer-Encoding: gzip, chunked\r\n"), &*chunk, "501"),
        ("POST", &*maps, format!("{host}{chunked}Transfer-Encoding: chunked\r\n"), &*chunk, "501"),
    ];
    let mut others = Vec::new();
    for (method, path, headers, body, expected) in cases {
        for route in &routes {
            let request = format!(
                "{method} {}{path} HTTP/1.1\r\n{}Authorization: Bearer {}\r\n\
                 Connection: close\r\n\r\n{body}",
                route.prefix,
                headers.replace("HOST", &route.authority),
                route.token,
            );
            let answer = route.send(&request).await;
            if status(&answer) != expected {
                others.push(format!("{expected}: {method} {headers:?} {body:?}: {answer}"));
            }
        }
    }
    assert!(others.is_empty(), "{}", others.join("\n\n"));

    // On a malformed chunk the API server reports an internal error (500).
    for body in ["zz\r\n{}\r\n0\r\n\r\n", "2\r\n{}0\r\n\r\n"] {
        for (route, expected) in routes.iter().zip(["500", "400"]) {
            let request = format!(
                "POST {}{maps} HTTP/1.1\r\nHost: {}\r\n{chunked}Authorization: Bearer {}\r\n\
                 Connection: close\r\n\r\n{body}",
                route.prefix, route.authority, route.token
            );
            let answer = route.send(&request).await;
            assert_eq!(status(&answer), expected, "{body:?}: {answer}");
        }
    }

    // The API server takes these for requests that need a right of RBAC.
    let [_, gateway] = &routes;
    let broker = &gateway.authority;
    // hyper refuses more than a hundred headers by itself, without a body.
    let many: String = "X-Again: 1\r\n".repeat(101);
    for (line, more, expected) in [
        (format!("CONNECT {broker}"), "", "405"),
        (format!("TRACE {}/version", gateway.prefix), "", "405"),
        (format!("GET {}/version", gateway.prefix), &*many, "431"),
    ] {
        let request = format!(
            "{line} HTTP/1.1\r\nHost: {broker}\r\nAuthorization: Bearer {}\r\n{more}\
             Connection: close\r\n\r\n",
            gateway.token
        );
        let answer = gateway.send(&request).await;
        assert_eq!(status(&answer), expected, "{line}: {answer}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_malformed_chunk_is_the_clients_fault() {
    let world = World::builder().start().await.unwrap();
    let (person, [_, gateway]) = routes(&world).await;
    let request = format!(
        "POST {}/api/v1/namespaces/{}/configmaps HTTP/1.1\r\nHost: {}\r\n\
         Authorization: Bearer {}\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        gateway.prefix,
        person.namespace(),
        gateway.authority,
        gateway.token,
    );
    let answer = gateway.send(&request).await;
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert!(answer.contains(r#""kind":"Status""#) && answer.contains("malformed"), "{answer}");
    assert!(!answer.to_lowercase().contains("retry-after"), "{answer}");
}

/// The broker builds the list with requests of its own, which have no body.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_synthesized_list_announces_no_body_to_the_api_server() {
    let world = World::builder().start().await.unwrap();
    let (person, [_, gateway]) = routes(&world).await;
    let request = format!(
        "GET {}/api/v1/namespaces HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\
         Content-Length: 10\r\nConnection: close\r\n\r\n0123456789",
        gateway.prefix, gateway.authority, gateway.token,
    );
    let answer = tokio::time::timeout(Duration::from_secs(20), gateway.send(&request)).await;
    let answer = answer.expect("the API server waits for the body");
    assert_eq!(status(&answer), "200", "{answer}");
    assert!(answer.contains(&person.namespace()), "{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn options_of_a_path_are_read_as_the_api_server_reads_them() {
    let world = World::builder().start().await.unwrap();
    let (person, routes) = routes(&world).await;
    let base = format!("/api/v1/namespaces/{}/configmaps", person.namespace());
    for (query, is_watch) in [
        ("watch", true),
        ("watch=", true),
        ("watch=1", true),
        ("watch=f", true),
        ("watch=F", true),
        ("watch=no", true),
        ("watch=true&watch=false", true),
        ("watch=0", false),
        ("watch=false", false),
        ("watch=fAlSe", false),
        ("watch=false&watch=true", false),
    ] {
        for route in &routes {
            let request = format!(
                "GET {}{base}?{query}&timeoutSeconds=1 HTTP/1.1\r\nHost: {}\r\n\
                 Authorization: Bearer {}\r\nConnection: close\r\n\r\n",
                route.prefix, route.authority, route.token
            );
            let answer = route.send(&request).await;
            assert_eq!(!answer.contains("ConfigMapList"), is_watch, "{query}: {answer}");
            if route.prefix.is_empty() {
                continue;
            }
            // The broker's log tells how it classified the request.
            let id = answer.lines().find_map(|line| line.strip_prefix("audit-id: ")).unwrap();
            let kind = if is_watch { "watch" } else { "call" };
            probe::until("the broker's log line", Duration::from_secs(10), || async {
                let log = world.broker().log()?;
                let found = log
                    .lines()
                    .any(|line| line.contains(id) && line.contains("kind") && line.contains(kind));
                Ok(if found { Probe::Ready(()) } else { Probe::NotYet(kind.to_owned()) })
            })
            .await
            .unwrap();
        }
    }
}
