//! Tests of the dashboard and the alerts in `deploy/monitoring`.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod promql;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use integration::exposition::{DocumentedMetric, documented_metrics};
use integration::promtool::Promtool;
use promql::Expression;
use serde_json::{Value, json};

/// Labels that Prometheus adds to each series.
const TARGET_LABELS: [&str; 3] = ["job", "instance", "namespace"];
/// Address of the sections that explain the alerts.
const RUNBOOK: &str =
    "https://github.com/kubectl-tenant/kubectl-tenant/blob/main/docs/operations.md#";

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(file: &str) -> String {
    std::fs::read_to_string(root().join(file)).unwrap()
}

fn dashboard() -> Value {
    serde_json::from_str(&read("deploy/monitoring/dashboard.json")).unwrap()
}

/// The panels that show something.
fn panels(dashboard: &Value) -> impl Iterator<Item = &Value> {
    dashboard["panels"].as_array().unwrap().iter().filter(|panel| panel["type"] != "row")
}

fn alerts() -> Vec<Value> {
    let file: Value = serde_norway::from_str(&read("deploy/monitoring/alerts.yaml")).unwrap();
    let groups = file["groups"].as_array().unwrap();
    groups.iter().flat_map(|group| group["rules"].as_array().unwrap()).cloned().collect()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_else(|| panic!("{key} is missing in {value}"))
}

/// The expressions of panels, without the variables that are not part of a string.
fn dashboard_expressions() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for panel in panels(&dashboard()) {
        for target in panel["targets"].as_array().unwrap() {
            let expression = text(target, "expr").replace("$__rate_interval", "5m");
            found.push((text(panel, "title").to_owned(), expression));
        }
    }
    found
}

/// All expressions with the place where they are.
fn expressions() -> Vec<(String, String)> {
    let mut found = dashboard_expressions();
    for variable in dashboard()["templating"]["list"].as_array().unwrap() {
        // label_values(SELECTOR, LABEL)
        if let Some(definition) = variable["definition"].as_str() {
            let (selector, _) = definition.rsplit_once(", ").unwrap();
            let selector = selector.strip_prefix("label_values(").unwrap();
            found.push((format!("the variable {}", text(variable, "name")), selector.to_owned()));
        }
    }
    found.extend(
        alerts().iter().map(|rule| (text(rule, "alert").to_owned(), text(rule, "expr").to_owned())),
    );
    found
}

/// The documented metrics by the names of their samples.
fn by_sample(documented: &[DocumentedMetric]) -> BTreeMap<String, &DocumentedMetric> {
    let samples = |metric| (DocumentedMetric::sample_names(metric).into_iter(), metric);
    let pairs = documented.iter().map(samples);
    pairs.flat_map(|(names, metric)| names.map(move |name| (name, metric))).collect()
}

/// The values in a matcher that are plain text: those between `|`, without other characters of
/// regular expressions.
fn plain_values(value: &str) -> impl Iterator<Item = &str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    value.split('|').filter(move |part| part.chars().all(is_plain))
}

#[test]
fn every_expression_uses_documented_metrics_labels_and_values() {
    let (documented, actions) = (documented_metrics().unwrap(), read("docs/audit.md"));
    let metrics = by_sample(&documented);
    let mut faults = Vec::new();
    for (place, text) in expressions() {
        let expression = Expression::scan(&text);
        assert!(!expression.selectors.is_empty(), "{place} uses no metric");
        let mut labels = BTreeSet::from(TARGET_LABELS);
        for selector in &expression.selectors {
            let name = selector.name.as_str();
            let metric = metrics.get(name).copied();
            if metric.is_none() && name != "up" {
                faults.push(format!("{place}: docs/metrics.md has no {name}"));
                continue;
            }
            let own = metric.map(|metric| &metric.labels);
            labels.extend(own.into_iter().flatten().map(|(label, _)| label.as_str()));
            labels.extend(name.ends_with("_bucket").then_some("le"));
            for (label, value) in &selector.matchers {
                if TARGET_LABELS.contains(&label.as_str()) {
                    continue;
                }
                let Some(values) = own.and_then(|labels| labels.get(label)) else {
                    faults.push(format!("{place}: {name} has no label {label}"));
                    continue;
                };
                let is_known = |part: &&str| match values {
                    Some(values) => values.contains(*part),
                    None if label == "action" => actions.contains(&format!("| `{part}` |")),
                    None => true,
                };
                let unknown = plain_values(value).filter(|part| !is_known(part));
                faults.extend(unknown.map(|part| format!("{place}: {label} is never {part}")));
            }
        }
        for label in expression.groupings {
            if !labels.contains(label.as_str()) {
                faults.push(format!("{place}: no metric has the label {label}"));
            }
        }
    }
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn the_dashboard_shows_every_documented_metric() {
    let expressions: Vec<Expression> =
        dashboard_expressions().iter().map(|(_, text)| Expression::scan(text)).collect();
    let selectors = expressions.iter().flat_map(|expression| &expression.selectors);
    let shown: BTreeSet<&str> = selectors.map(|selector| selector.name.as_str()).collect();
    let is_shown = |metric: &DocumentedMetric| {
        metric.sample_names().iter().any(|name| shown.contains(name.as_str()))
    };
    for metric in documented_metrics().unwrap() {
        assert!(is_shown(&metric), "no panel shows {}", metric.name);
    }
}

#[test]
fn the_dashboard_can_be_imported_and_read() {
    let dashboard = dashboard();
    let (mut ids, mut cells) = (BTreeSet::new(), BTreeSet::new());
    for panel in dashboard["panels"].as_array().unwrap() {
        let title = text(panel, "title");
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{title} has the id of another panel");
        let [x, y, width, height] =
            ["x", "y", "w", "h"].map(|key| panel["gridPos"][key].as_u64().unwrap());
        assert!(width > 0 && x + width <= 24, "{title} is wider than the page");
        for cell in (x..x + width).flat_map(|x| (y..y + height).map(move |y| (x, y))) {
            assert!(cells.insert(cell), "{title} overlaps another panel");
        }
    }
    for panel in panels(&dashboard) {
        let title = text(panel, "title");
        assert!(text(panel, "description").ends_with('.'), "{title}");
        assert!(!text(&panel["fieldConfig"]["defaults"], "unit").is_empty(), "{title}");
        let mut references = BTreeSet::new();
        for target in panel["targets"].as_array().unwrap() {
            assert!(references.insert(text(target, "refId")), "{title}");
            for place in [panel, target] {
                assert_eq!(place["datasource"]["uid"], "${datasource}", "{title}");
            }
            let expression = Expression::scan(&text(target, "expr").replace('$', ""));
            for part in text(target, "legendFormat").split("{{").skip(1) {
                let label = part.split_once("}}").unwrap().0;
                let is_shown = if expression.groupings.is_empty() {
                    TARGET_LABELS.contains(&label)
                } else {
                    expression.groupings.contains(label)
                };
                assert!(is_shown, "{title}: the result has no label {label}");
            }
        }
    }
    let declared = dashboard["templating"]["list"].as_array().unwrap();
    let declared: BTreeSet<&str> = declared.iter().map(|it| text(it, "name")).collect();
    let file = read("deploy/monitoring/dashboard.json");
    for part in file.split('$').skip(1).map(|part| part.trim_start_matches('{')) {
        let end = part.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap();
        let variable = &part[..end];
        assert!(variable.starts_with("__") || declared.contains(variable), "${variable}");
    }
}

#[test]
fn every_alert_has_a_runbook_and_tests_of_both_outcomes() {
    let file: Value = serde_norway::from_str(&read("deploy/monitoring/alerts_test.yaml")).unwrap();
    let cases = file["tests"].as_array().unwrap();
    let cases: Vec<&Value> =
        cases.iter().flat_map(|test| test["alert_rule_test"].as_array().unwrap()).collect();
    let page = read("docs/operations.md");
    let mut names = BTreeSet::new();
    for rule in alerts() {
        let name = text(&rule, "alert");
        assert!(names.insert(name.to_owned()), "{name} exists twice");
        assert!(["critical", "warning"].contains(&text(&rule["labels"], "severity")), "{name}");
        let annotations = &rule["annotations"];
        assert!(!text(annotations, "summary").ends_with('.'), "{name}");
        assert!(text(annotations, "description").ends_with('.'), "{name}");
        let address = format!("{RUNBOOK}{}", name.to_lowercase());
        assert_eq!(text(annotations, "runbook_url"), address, "{name}");
        let heading = format!("### {name}");
        assert!(page.lines().any(|line| line == heading), "docs/operations.md has no {name}");
        let expected = cases.iter().filter(|case| text(case, "alertname") == name);
        let expected = expected.map(|case| case["exp_alerts"].as_array().unwrap().is_empty());
        let outcomes: BTreeSet<bool> = expected.collect();
        assert_eq!(outcomes.len(), 2, "{name} has no test in which it fires, or none in which not");
    }
    let sections = page.lines().filter_map(|line| line.strip_prefix("### TenantBroker"));
    for section in sections {
        let name = format!("TenantBroker{section}");
        assert!(names.contains(&name), "docs/operations.md explains {name}, which is no alert");
    }
}

#[tokio::test]
async fn promtool_accepts_rules_and_dashboard_and_the_tests_of_the_alerts_pass() {
    let promtool = Promtool::find().await.unwrap();
    let folder = root().join("deploy/monitoring");
    promtool.run(&folder, ["check", "rules", "alerts.yaml"]).await.unwrap().success().unwrap();
    promtool.run(&folder, ["test", "rules", "alerts_test.yaml"]).await.unwrap().success().unwrap();

    // Recording rules, because promtool reads no dashboards.
    let rules = dashboard_expressions().into_iter().enumerate();
    let rules: Vec<Value> = rules
        .map(|(number, (_, expression))| {
            json!({"record": format!("dashboard:panel_{number}"), "expr": expression})
        })
        .collect();
    let scratch = tempfile::tempdir().unwrap();
    let file = json!({"groups": [{"name": "dashboard", "rules": rules}]});
    std::fs::write(scratch.path().join("dashboard.json"), file.to_string()).unwrap();
    let check = ["check", "rules", "dashboard.json"];
    promtool.run(scratch.path(), check).await.unwrap().success().unwrap();

    // A wrong expression is refused.
    let wrong =
        r#"{"groups": [{"name": "a", "rules": [{"alert": "a", "expr": "sum by (rate("}]}]}"#;
    std::fs::write(scratch.path().join("wrong.json"), wrong).unwrap();
    let refused = promtool.run(scratch.path(), ["check", "rules", "wrong.json"]).await.unwrap();
    assert!(!refused.status.success(), "{refused:?}");
}
