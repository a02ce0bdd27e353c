//! Tests of key files, key sets and signatures.

use std::os::unix::fs::PermissionsExt as _;

use super::*;

/// The P-256 example key of RFC 7515 appendix A.3 as SEC1, after its parameters, as openssl writes
/// them.
const SEC1: &str = include_str!("testdata/rfc7515-a3.pem");

fn load(paths: &[PathBuf]) -> Result<Vec<PrivateKey>, KeyError> {
    PrivateKey::load(paths, &mut Files::default())
}

fn written(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn the_example_key_of_the_rfc_has_its_published_coordinates() {
    let folder = tempfile::tempdir().unwrap();
    let keys = load(&[written(folder.path(), "key.pem", SEC1)]).unwrap();
    let [key] = keys.as_slice() else { panic!("one key") };
    let jwk = serde_json::to_value(key.jwk()).unwrap();
    assert_eq!(jwk["x"], "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU");
    assert_eq!(jwk["y"], "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0");
    // Of the RFC's key, as RFC 7638 section 3 makes it.
    assert_eq!(jwk["kid"], "oKIywvGUpTVTyxMQ3bwIIeQUudfr_CkLMjCE19ECD-U");
    assert!(!format!("{keys:?}").contains("jpsQnnGQmL"), "the private part prints");
}

#[test]
fn a_generated_key_is_private_loads_and_is_never_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("issuer-key.pem");
    let racing: Vec<_> = (0..8)
        .map(|_| {
            let path = path.clone();
            std::thread::spawn(move || {
                generate_if_missing(&path).unwrap();
                std::fs::read(&path).unwrap()
            })
        })
        .collect();
    let seen: std::collections::HashSet<_> =
        racing.into_iter().map(|thread| thread.join().unwrap()).collect();
    assert_eq!(seen.len(), 1, "everybody sees the same key");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left over");
    assert_eq!(load(&[path]).unwrap().len(), 1);
}

#[test]
fn a_signature_names_its_key() {
    let folder = tempfile::tempdir().unwrap();
    let first = folder.path().join("first.pem");
    generate_if_missing(&first).unwrap();
    let second = written(folder.path(), "second.pem", SEC1);
    let keys = load(&[first.clone(), second.clone()]).unwrap();
    assert_eq!(keys.len(), 2);
    let token = keys[0].sign("JWT", &serde_json::json!({})).unwrap();
    let header = jsonwebtoken::decode_header(&token).unwrap();
    assert_eq!(header.kid.as_deref(), Some(keys[0].jwk().kid()));
    let twice = load(&[first, second.clone(), second]);
    assert!(matches!(twice, Err(KeyError::Twice { .. })));
}

#[test]
fn a_file_without_a_key_is_named_in_the_error() {
    let folder = tempfile::tempdir().unwrap();
    let empty = written(folder.path(), "empty.pem", "");
    assert!(matches!(load(&[]), Err(KeyError::None)));
    let error = load(&[empty]).unwrap_err();
    assert!(matches!(error, KeyError::File(FileError::Empty { .. })));
    assert!(error.to_string().contains("empty.pem"), "{error}");
    let none = written(folder.path(), "none.pem", "no key");
    let error = load(&[none]).unwrap_err();
    assert!(matches!(error, KeyError::NotAKey { .. }) && error.to_string().contains("none.pem"));
    let missing = load(&[folder.path().join("missing.pem")]).unwrap_err();
    assert!(matches!(missing, KeyError::File(FileError::Unreadable { .. })));
}

#[test]
fn a_file_may_hold_several_keys_and_nothing_incomplete() {
    let folder = tempfile::tempdir().unwrap();
    let generated = folder.path().join("generated.pem");
    generate_if_missing(&generated).unwrap();
    let pem = std::fs::read_to_string(&generated).unwrap();
    let both = written(folder.path(), "both.pem", &format!("{pem}{SEC1}"));
    let keys = load(std::slice::from_ref(&both)).unwrap();
    let [first, second] = keys.as_slice() else { panic!("two keys") };
    assert_eq!(first.jwk(), load(std::slice::from_ref(&generated)).unwrap()[0].jwk());
    assert_eq!(second.jwk().kid(), "oKIywvGUpTVTyxMQ3bwIIeQUudfr_CkLMjCE19ECD-U");
    assert!(matches!(load(&[both, generated]), Err(KeyError::Twice { .. })));
    let half = &pem[..pem.len() / 2];
    let half = written(folder.path(), "half.pem", &format!("{SEC1}{half}"));
    assert!(matches!(load(&[half]), Err(KeyError::NotAKey { .. })));
}

#[test]
fn a_signature_verifies_only_with_its_key_and_its_kind() {
    let (key, other) = (PrivateKey::generate(), PrivateKey::generate());
    let claims = serde_json::json!({"a": 1});
    let jws = key.sign("this+jws", &claims).unwrap();
    let verify = |keys: &PublicKeys, typ, jws: &str| keys.verify::<serde_json::Value>(typ, jws);
    let known = PublicKeys::from_private(std::slice::from_ref(&key));
    assert_eq!(verify(&known, "this+jws", &jws).unwrap(), claims);
    assert_eq!(verify(&known, "that+jws", &jws), Err(SignatureError::Malformed));
    let kid = key.jwk().kid().to_owned();
    let others = PublicKeys::from_private(std::slice::from_ref(&other));
    assert_eq!(verify(&others, "this+jws", &jws), Err(SignatureError::UnknownKey(kid)));
    // Another's signature under the known key's name.
    let forged = other.sign("this+jws", &claims).unwrap();
    let (header, rest) = (jws.split_once('.').unwrap().0, forged.split_once('.').unwrap().1);
    assert_eq!(
        verify(&known, "this+jws", &format!("{header}.{rest}")),
        Err(SignatureError::Forged)
    );
    assert_eq!(verify(&known, "this+jws", "no signature"), Err(SignatureError::Malformed));
    // As published and read again.
    let published = PublicKeys::parse(&known.to_jwks().to_string()).unwrap();
    assert_eq!(verify(&published, "this+jws", &jws).unwrap(), claims);
    assert!(matches!(PublicKeys::parse(r#"{"keys":[{"kty":"RSA"}]}"#), Err(JwksError::None)));
    assert!(matches!(PublicKeys::parse("{}"), Err(JwksError::Malformed(_))));
}
