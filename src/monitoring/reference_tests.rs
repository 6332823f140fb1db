//! `docs/metrics.md`, written from the table.

use std::fmt::Write;
use std::path::Path;

use super::table::{ALL, Metric, Values};

const HEAD: &str = "\
# Metrics

All metrics of a server: for operators who read them on `GET /metrics` ([settings](settings.md#monitoring)), and write
rules and boards. [grafana.json](deploy/grafana.json) and [alerts.yml](deploy/alerts.yml) are samples. A node has the
metrics of its role. No label has a uaid, a token, a sender or an address.

`UPDATE_DOCS=1 cargo test --workspace -q --lib -- metrics` writes this page from `src/monitoring/table.rs`.

";

fn markdown() -> String {
    ALL.iter().fold(HEAD.to_owned(), |text, metric| text + &item(metric))
}

fn item(metric: &Metric) -> String {
    let mut text = format!("- **`{}`** ({}): ", metric.name, metric.kind.name());
    text.push_str(metric.help());
    for label in metric.labels {
        let values = match &label.values {
            Values::These(values) => {
                values.iter().map(|value| format!("`{value}`")).collect::<Vec<_>>().join(", ")
            }
            Values::Nodes => "names of nodes, at most `nodes_max`".to_owned(),
            Values::Version => "the version".to_owned(),
        };
        write!(text, " Label `{}`: {values}.", label.name).unwrap();
    }
    wrapped(&text)
}

fn wrapped(text: &str) -> String {
    let (mut lines, mut width) = (String::new(), 0);
    for word in text.split(' ') {
        if width + word.len() >= 118 {
            lines.push_str("\n ");
            width = 1;
        }
        if width > 0 {
            lines.push(' ');
        }
        lines.push_str(word);
        width += word.len() + 1;
    }
    lines + "\n"
}

#[test]
fn the_page_of_metrics_is_what_the_code_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/metrics.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, markdown()).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(written, markdown(), "docs/metrics.md differs from the code: UPDATE_DOCS=1");
}
