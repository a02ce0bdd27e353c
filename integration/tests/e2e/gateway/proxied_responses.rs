//! Responses of a program behind `/proxy/`: they must not act as the broker.

use http::{Method, StatusCode};
use integration::chromium::Chromium;
use integration::person::Person;
use integration::proxied_program::ProxiedProgram;
use integration::world::World;
use serde_json::json;

use crate::account::sign_in;

/// Headers that affect an origin, a connection or a browser.
const HOSTILE: &str = "Set-Cookie: tenant-session=attacker; Path=/; HttpOnly\r\n\
    Set-Cookie: __Host-tenant-session=attacker; Path=/; Secure\r\n\
    Clear-Site-Data: \"*\"\r\n\
    Strict-Transport-Security: max-age=31536000; includeSubDomains\r\n\
    Alt-Svc: h3=\":443\"\r\n\
    Refresh: 0; url=/account\r\n\
    Service-Worker-Allowed: /\r\n\
    WWW-Authenticate: Basic realm=\"broker\"\r\n\
    Report-To: {\"group\":\"g\",\"max_age\":60,\"endpoints\":[{\"url\":\"https://evil.example\"}]}\r\n\
    NEL: {\"report_to\":\"g\",\"max_age\":60}\r\n\
    Reporting-Endpoints: g=\"https://evil.example\"\r\n\
    Link: </account>; rel=preload\r\n\
    SourceMap: /account\r\n\
    X-Program: 1\r\n";
/// The headers of [`HOSTILE`] that must not arrive.
const REMOVED: [&str; 13] = [
    "set-cookie",
    "clear-site-data",
    "strict-transport-security",
    "alt-svc",
    "refresh",
    "service-worker-allowed",
    "www-authenticate",
    "report-to",
    "nel",
    "reporting-endpoints",
    "link",
    "sourcemap",
    "x-program",
];

fn answer(request: &str) -> Vec<u8> {
    let target = request.split(' ').nth(1).unwrap_or_default();
    let text = |status: &str, more: &str| {
        format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/html\r\nContent-Length: 2\r\n\
             ETag: \"e\"\r\nCache-Control: no-cache\r\n{more}Connection: close\r\n\r\nhi"
        )
    };
    match target.rsplit('/').next().unwrap_or_default() {
        "hostile" => text("200 OK", HOSTILE),
        "unauthorized" => text("401 Unauthorized", HOSTILE),
        "here" => text("302 Found", "Location: /there?a=b\r\n"),
        "away" => text("302 Found", "Location: https://evil.example/\r\n"),
        "climb" => text("302 Found", "Location: ../../../../../../../../../../account\r\n"),
        "trailers" => "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: Set-Cookie\r\n\
            Connection: close\r\n\r\n2\r\nhi\r\n0\r\nSet-Cookie: tenant-session=attacker\r\n\r\n"
            .to_owned(),
        "switch" => {
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n\
            tunnelled"
                .to_owned()
        }
        // Returns the received request as the first bytes of the tunnel.
        "tunnel" => format!(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n\
             {request}"
        ),
        // Returns the received request as the body.
        "echo" => {
            let length = request.len();
            format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{request}"
            )
        }
        _ => text("404 Not Found", ""),
    }
    .into_bytes()
}

/// Returns a person with a pod that responds, and the path of the pod's program from the base of
/// the API.
pub(super) async fn with_pod() -> (World, Person, String) {
    let program = ProxiedProgram::start(answer).unwrap();
    let world = World::builder().apiserver_flag(program.apiserver_flag()).start().await.unwrap();
    let alice = world.person("alice").await.unwrap();
    alice.api().await.unwrap().init("basic").await.unwrap();
    let namespace = alice.namespace();
    program.pod(&world.admin_kubectl().unwrap(), &namespace, "p").await.unwrap();
    let path = format!("/clusters/internal-cluster/api/v1/namespaces/{namespace}/pods/p:80/proxy");
    (world, alice, path)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn headers_of_a_program_do_not_reach_clients() {
    let (world, alice, path) = with_pod().await;
    let api = alice.api().await.unwrap();
    let get = async |page: &str, headers: &[(&str, &str)]| {
        let mut request = api.request(Method::GET, &format!("../..{path}/{page}")).unwrap();
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.send().await.unwrap()
    };

    for headers in [&[][..], &[("sec-fetch-site", "same-origin")]] {
        let answer = get("hostile", headers).await;
        assert_eq!(answer.status(), StatusCode::OK);
        for name in REMOVED {
            assert!(!answer.headers().contains_key(name), "{name}: {answer:?}");
        }
        for (name, value) in [("content-type", "text/html"), ("etag", "\"e\"")] {
            assert_eq!(answer.headers()[name], value, "{answer:?}");
        }
        let cached: Vec<_> = answer.headers().get_all("cache-control").iter().collect();
        assert_eq!(cached, ["no-cache, private", "no-cache"], "the API server's and the program's");
        assert!(answer.headers().contains_key("audit-id"));
        assert_eq!(answer.headers().contains_key("content-security-policy"), !headers.is_empty());
        assert_eq!(answer.text().await.unwrap(), "hi");
    }

    // The program's own 401 does not make the broker issue another token.
    for _ in 0..3 {
        let answer = get("unauthorized", &[]).await;
        assert_eq!(answer.status(), StatusCode::UNAUTHORIZED);
        assert!(!answer.headers().contains_key("www-authenticate"), "{answer:?}");
        assert_eq!(answer.text().await.unwrap(), "hi");
    }
    let issued = api.audit_logs("action=IssueGatewayToken").await.unwrap();
    assert_eq!(issued.items.len(), 1, "{issued:?}");

    // Redirects stay below the gateway.
    for (page, expected) in [
        ("here", Some(format!("{path}/there?a=b"))),
        ("away", None),
        ("climb", Some("/clusters/internal-cluster/account".to_owned())),
    ] {
        let answer = raw_get(&world, &alice, &format!("{path}/{page}")).await;
        assert!(answer.starts_with("HTTP/1.1 302 "), "{answer}");
        let location = answer.lines().find_map(|line| line.strip_prefix("location: "));
        assert_eq!(location, expected.as_deref(), "{page}: {answer}");
    }
    let answer = raw_get(&world, &alice, &format!("{path}/trailers")).await;
    assert!(answer.contains("hi") && !answer.contains("attacker"), "{answer}");
}

/// Sends a GET that accepts trailers and follows no redirects.
async fn raw_get(world: &World, person: &Person, path: &str) -> String {
    use secrecy::ExposeSecret as _;
    let broker = world.broker().url().unwrap();
    let token = person.sign_in().await.unwrap().access_token;
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nTE: trailers\r\n\
         Connection: close, TE\r\n\r\n",
        broker.authority(),
        token.expose_secret(),
    );
    super::raw(broker.authority(), request).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_changes_nothing_in_a_browser() {
    let (world, alice, path) = with_pod().await;
    let chromium = Chromium::start().await.unwrap();
    let broker = world.broker().public_url().unwrap();
    chromium.open(broker.as_str()).await.unwrap();
    sign_in(&chromium, alice.email(), alice.password()).await;
    chromium.until("document.querySelector('header button') !== null").await.unwrap();
    chromium.value("localStorage.setItem('kept', 'yes')").await.unwrap();
    let cookies = async || {
        let url = json!({"urls": [broker.as_str()]});
        let found = chromium.call("Network.getCookies", url).await.unwrap();
        let cookies = found["cookies"].as_array().unwrap().clone();
        let mut cookies: Vec<_> =
            cookies.iter().map(|one| format!("{}={}", one["name"], one["value"])).collect();
        cookies.sort_unstable();
        cookies
    };
    let before = cookies().await;
    assert!(!before.is_empty());

    for page in ["hostile", "unauthorized"] {
        chromium.open(broker.join(&format!("{path}/{page}")).unwrap().as_str()).await.unwrap();
        chromium.until("document.body?.innerText === 'hi'").await.unwrap();
        assert_eq!(cookies().await, before, "{page}");
    }

    chromium.open(broker.join("account").unwrap().as_str()).await.unwrap();
    chromium.until("document.querySelector('header button') !== null").await.unwrap();
    assert_eq!(chromium.value("localStorage.getItem('kept')").await.unwrap(), "yes");
    let signed_in = format!("document.body.innerText.includes('{}')", alice.email());
    chromium.until(&signed_in).await.unwrap();
}
