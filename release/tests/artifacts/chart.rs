//! The Helm chart, as Helm reads it.

use std::ffi::OsStr;
use std::path::Path;

use integration::helm::Helm;
use integration::kubectl::Kubectl;
use release::BROKER;

use crate::fixture::Release;

#[tokio::test]
async fn helm_renders_the_packed_chart_as_the_folder() {
    let release = Release::shared().await;
    let home = release.work_folder("helm");
    let kubectl = Kubectl::new(&home, &home.join("kubeconfig"), None).unwrap();
    let helm = Helm::for_kubectl(&kubectl).await.unwrap();
    let folder = release.source.root.join("deploy/helm").join(BROKER);
    let packed = release.folder().join(format!("{BROKER}-{}.tgz", release.source.version));
    let values = folder.join("ci/minimal.yaml");
    let render = async |chart: &Path| {
        let command = ["template", BROKER].map(OsStr::new);
        let files = [chart.as_os_str(), OsStr::new("--values"), values.as_os_str()];
        let rendered = helm.run([&command[..], &files[..]].concat()).await.unwrap();
        rendered.success().unwrap().stdout
    };
    let expected = render(&folder).await;
    assert!(expected.contains("kind: Deployment"), "{expected}");
    assert_eq!(render(&packed).await, expected);
}
