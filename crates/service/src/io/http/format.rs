//! How metrics are written: as OpenMetrics where the reader takes that, else in Prometheus' own text format 0.0.4.

use axum::http::{HeaderMap, HeaderValue, header};

const OPEN_METRICS: &str = "application/openmetrics-text";
const TEXT: &str = "text/plain";

/// A way to write metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    OpenMetrics,
    Text,
}

impl Format {
    /// What a request would rather have (RFC 9110, 12.5.1).
    pub(super) fn wanted(headers: &HeaderMap) -> Self {
        let (mut open_metrics, mut text) = (0.0, 0.0);
        let accepted = headers.get_all(header::ACCEPT).into_iter();
        for range in accepted.filter_map(|it| it.to_str().ok()).flat_map(|it| it.split(',')) {
            let mut words = range.split(';').map(str::trim);
            let media = words.next().unwrap_or_default();
            let weight = words.find_map(|word| word.strip_prefix("q=")?.parse().ok());
            let weight: f32 = weight.unwrap_or(1.0);
            if media.eq_ignore_ascii_case(OPEN_METRICS) {
                open_metrics = weight.max(open_metrics);
            } else if media.eq_ignore_ascii_case(TEXT) {
                text = weight.max(text);
            }
        }
        if open_metrics > 0.0 && open_metrics >= text { Self::OpenMetrics } else { Self::Text }
    }

    pub(super) fn content_type(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        })
    }

    pub(super) fn write(self, open_metrics: String) -> String {
        match self {
            Self::OpenMetrics => open_metrics,
            Self::Text => as_text(&open_metrics),
        }
    }
}

/// The same samples in the older format, where a counter's description carries the name of its samples, and units and
/// the end are not told.
fn as_text(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len());
    let mut help = "";
    for line in open_metrics.lines() {
        if let Some(told) = line.strip_prefix("# HELP ") {
            help = told.split_once(' ').map_or("", |(_, words)| words);
        } else if let Some(told) = line.strip_prefix("# TYPE ") {
            let (name, kind) = told.split_once(' ').unwrap_or((told, "unknown"));
            let (suffix, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                "stateset" => ("", "gauge"),
                "unknown" => ("", "untyped"),
                known => ("", known),
            };
            for (what, words) in [("HELP", help), ("TYPE", kind)] {
                text.extend(["# ", what, " ", name, suffix, " ", words, "\n"]);
            }
        } else if !line.starts_with('#') {
            text.extend([line, "\n"]);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(accept: &'static str) -> Format {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
        Format::wanted(&headers)
    }

    #[test]
    fn who_asks_for_openmetrics_gets_it_and_everybody_else_gets_text() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.4,*/*;q=0.1";
        assert_eq!(wanted(prometheus), Format::OpenMetrics);
        assert_eq!(wanted("Application/OpenMetrics-Text"), Format::OpenMetrics);
        for accept in
            ["*/*", "text/plain", "application/openmetrics-text;q=0, */*", "nonsense;;q=x"]
        {
            assert_eq!(wanted(accept), Format::Text, "{accept}");
        }
        assert_eq!(wanted("text/plain;q=1, application/openmetrics-text;q=0.9"), Format::Text);
        assert_eq!(Format::wanted(&HeaderMap::new()), Format::Text);
    }

    #[test]
    fn text_names_counters_as_their_samples_and_knows_neither_units_nor_an_end() {
        let open_metrics = "# HELP jobs_seconds How long.\n# TYPE jobs_seconds counter\n# UNIT jobs_seconds seconds\n\
                            jobs_seconds_total{kind=\"# a\"} 7\n# HELP open Open.\n# TYPE open gauge\nopen 1\n\
                            # HELP build Built.\n# TYPE build info\nbuild_info{version=\"1\"} 1\n# EOF\n";
        let text = "# HELP jobs_seconds_total How long.\n# TYPE jobs_seconds_total counter\n\
                    jobs_seconds_total{kind=\"# a\"} 7\n# HELP open Open.\n# TYPE open gauge\nopen 1\n\
                    # HELP build_info Built.\n# TYPE build_info gauge\nbuild_info{version=\"1\"} 1\n";
        assert_eq!(as_text(open_metrics), text);
    }
}
