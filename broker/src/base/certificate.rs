//! X.509 certificates in PEM files, and the time in which a credential is valid.

use jiff::Timestamp;
use rustls_pki_types::{CertificateDer, pem::PemObject as _};

/// The time in which a certificate or a token is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// The first moment (`notBefore`, `iat`).
    pub from: Timestamp,
    /// The last moment (`notAfter`, `exp`).
    pub until: Timestamp,
}

/// A file contains no usable certificates.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A section is incomplete or malformed. The parser's error is left out, because it may quote
    /// a key that was written into the wrong file.
    #[error("a certificate is not complete PEM")]
    Pem,
    /// The file has no section `CERTIFICATE`.
    #[error("there is no certificate in the file")]
    Missing,
    /// A section is not a certificate (RFC 5280).
    #[error("a certificate is not X.509")]
    NotX509,
}

/// Parses all certificates of a PEM file, at least one; sections of other kinds are skipped.
///
/// # Errors
/// There is no certificate, or a section of the file is incomplete.
pub fn parse_certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    let certificates = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|_| CertificateError::Pem)?;
    if certificates.is_empty() { Err(CertificateError::Missing) } else { Ok(certificates) }
}

/// The validity of the first certificate of a chain: the one that names the server or the user. The
/// others are not looked at, because chains often contain an expired one that nobody uses.
///
/// # Errors
/// The chain is empty, or the certificate is not X.509.
pub fn validity(chain: &[CertificateDer<'_>]) -> Result<Validity, CertificateError> {
    let first = chain.first().ok_or(CertificateError::Missing)?;
    let (_, certificate) =
        x509_parser::parse_x509_certificate(first).map_err(|_| CertificateError::NotX509)?;
    let validity = certificate.validity();
    Ok(Validity {
        from: timestamp(validity.not_before.timestamp()),
        until: timestamp(validity.not_after.timestamp()),
    })
}

/// A time from seconds since 1970. The year 9999 of a certificate without an end (RFC 5280 section
/// 4.1.2.5) reaches beyond the last timestamp.
fn timestamp(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    fn pem(end: (i32, u8, u8)) -> String {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.not_before = date_time_ymd(2026, 1, 2);
        params.not_after = date_time_ymd(end.0, end.1, end.2);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem()
    }

    #[test]
    fn the_validity_is_that_of_the_first_certificate() {
        let chain = pem((2026, 4, 2)) + &pem((2020, 1, 1));
        let certificates = parse_certificates(chain.as_bytes()).unwrap();
        assert_eq!(certificates.len(), 2);
        let validity = validity(&certificates).unwrap();
        assert_eq!(validity.from, "2026-01-02T00:00:00Z".parse().unwrap());
        assert_eq!(validity.until, "2026-04-02T00:00:00Z".parse().unwrap());
    }

    #[test]
    fn a_certificate_without_an_end_has_the_last_timestamp() {
        let certificates = parse_certificates(pem((9999, 12, 31)).as_bytes()).unwrap();
        assert_eq!(validity(&certificates).unwrap().until, Timestamp::MAX);
    }

    #[test]
    fn an_incomplete_file_is_an_error() {
        let one = pem((2026, 4, 2));
        let two = one.clone() + &one[..one.len() / 2];
        assert!(matches!(parse_certificates(two.as_bytes()), Err(CertificateError::Pem)));
        assert!(matches!(parse_certificates(b""), Err(CertificateError::Missing)));
        assert!(matches!(parse_certificates(b"no PEM"), Err(CertificateError::Missing)));
        let section = b"-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";
        let certificates = parse_certificates(section).unwrap();
        assert!(matches!(validity(&certificates), Err(CertificateError::NotX509)));
        assert!(matches!(validity(&[]), Err(CertificateError::Missing)));
    }
}
