use std::error::Error;

/// An error and its chain of sources on one line, separated by `: `. Of a refusal of the API server it
/// has the message, which `kube` would repeat three times.
pub fn error_chain(error: &(dyn Error + 'static)) -> String {
    let mut text = String::new();
    let mut next = Some(error);
    while let Some(error) = next {
        if !text.is_empty() {
            text.push_str(": ");
        }
        if let Some(kube::Error::Api(status)) = error.downcast_ref() {
            return text + &status.message;
        }
        text += &error.to_string();
        next = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("the cluster refused")]
    struct Refused(#[source] kube::Error);

    #[test]
    fn a_refusal_of_the_api_server_is_written_once() {
        let status = || Status::failure("pods is forbidden", "Forbidden").with_code(403).boxed();
        let error = Refused(kube::Error::Api(status()));
        assert_eq!(error_chain(&error), "the cluster refused: pods is forbidden");
        assert_eq!(error_chain(&kube::Error::Api(status())), "pods is forbidden");
        let other = Refused(kube::Error::Service("no route".into()));
        assert_eq!(error_chain(&other), "the cluster refused: ServiceError: no route: no route");
    }
}
