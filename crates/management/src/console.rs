//! The files of the web console, as they are embedded in the binary: which one a path names, and what is said of it.
//!
//! `console/dist` is embedded when this crate is compiled. A path that is no file is a page of the console, which finds
//! out by itself what it shows: all these are answered with `index.html`. What the node or RabbitMQ has below other
//! paths is never a page, or a tool that asks there would take one for its answer.

use std::io::Write as _;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderMap, header};
use include_dir::{Dir, include_dir};
use sha2::{Digest as _, Sha256};

/// What `npm run build` has made.
static DIST: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/../../console/dist");

const INDEX: &str = "index.html";

/// First parts of paths that are no pages: the API, what the port of metrics has, and what RabbitMQ's plugin has.
const NO_PAGES: [&str; 6] = ["api", "metrics", "health", "ready", "status", "cli"];

/// Nothing from another host, nothing inline, and no page of others around it.
pub(crate) const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                                 connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'self'; \
                                 frame-ancestors 'none'";

/// Headers of every file.
pub(crate) const HEADERS: [(header::HeaderName, &str); 7] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (header::VARY, "accept-encoding"),
];

/// How long a browser keeps a file whose name changes with what is in it: for good. The page is asked for each time.
const KEPT: &str = "public, max-age=31536000, immutable";
const NOT_KEPT: &str = "no-cache";

/// All files, each also compressed. Made once: it takes some milliseconds.
#[derive(Debug)]
pub(crate) struct Console {
    files: Vec<File>,
}

/// A file of the console.
#[derive(Debug)]
pub(crate) struct File {
    name: &'static str,
    plain: Form,
    /// `None`: it gets no smaller.
    packed: Option<Form>,
    pub(crate) content_type: &'static str,
    pub(crate) cache_control: &'static str,
}

/// Bytes as they are sent, and what browsers know them by.
#[derive(Clone, Debug)]
pub(crate) struct Form {
    pub(crate) bytes: Bytes,
    pub(crate) tag: String,
    pub(crate) is_packed: bool,
}

impl Console {
    pub(crate) fn new() -> Self {
        let files = DIST.files().filter_map(|file| {
            let name = file.path().to_str()?;
            Some(File::new(name, file.contents()))
        });
        Self { files: files.collect() }
    }

    /// What a path is answered with. `None`: nothing is there, and it is no page.
    pub(crate) fn find(&self, path: &str) -> Option<&File> {
        let path = path.trim_start_matches('/');
        let first = path.split('/').next().unwrap_or_default();
        if NO_PAGES.contains(&first) {
            return None;
        }
        self.named(path).or_else(|| self.named(INDEX))
    }

    fn named(&self, name: &str) -> Option<&File> {
        self.files.iter().find(|file| file.name == name)
    }
}

impl File {
    fn new(name: &'static str, contents: &'static [u8]) -> Self {
        let hash = hex(&Sha256::digest(contents)[..16]);
        let plain = Form {
            bytes: Bytes::from_static(contents),
            tag: format!("\"{hash}\""),
            is_packed: false,
        };
        let packed = packed(contents).filter(|packed| packed.len() < contents.len());
        let packed = packed.map(|packed| Form {
            bytes: packed.into(),
            tag: format!("\"{hash}-gzip\""),
            is_packed: true,
        });
        let cache_control = if name == INDEX { NOT_KEPT } else { KEPT };
        Self { name, plain, packed, content_type: content_type(name), cache_control }
    }

    /// As the client takes it.
    pub(crate) fn form(&self, asked: &HeaderMap) -> &Form {
        self.packed.as_ref().filter(|_| takes_gzip(asked)).unwrap_or(&self.plain)
    }
}

impl Form {
    /// Whether the client has it already (RFC 9110 13.1.2).
    pub(crate) fn is_known(&self, asked: &HeaderMap) -> bool {
        let known = asked.get_all(header::IF_NONE_MATCH).iter();
        let mut known = known.filter_map(|it| it.to_str().ok()).flat_map(|it| it.split(','));
        known.any(|tag| {
            let tag = tag.trim();
            tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == self.tag
        })
    }
}

/// Whether the client takes gzip (RFC 9110 12.5.3).
fn takes_gzip(asked: &HeaderMap) -> bool {
    let taken = asked.get_all(header::ACCEPT_ENCODING).iter();
    let mut taken = taken.filter_map(|it| it.to_str().ok()).flat_map(|it| it.split(','));
    taken.any(|coding| {
        let mut parts = coding.split(';').map(str::trim);
        let is_gzip = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
        let is_refused = parts.any(|part| {
            let weight = part.strip_prefix("q=").or_else(|| part.strip_prefix("Q="));
            weight.is_some_and(|weight| weight.parse() == Ok(0.0_f32))
        });
        is_gzip && !is_refused
    })
}

fn packed(contents: &[u8]) -> Option<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(contents).ok()?;
    encoder.finish().ok()
}

fn content_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map(|(_, extension)| extension) {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "application/octet-stream",
    }
}

/// In hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::GzDecoder;

    use super::*;

    fn asked(name: header::HeaderName, value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(name, http::HeaderValue::from_static(value))])
    }

    /// What the whole console may weigh, compressed.
    const BYTES_MAX: usize = 400 * 1024;

    #[test]
    fn all_files_are_there_and_the_page_or_a_script_names_each() {
        let console = Console::new();
        let page = console.named(INDEX).expect("console/dist has been built");
        let text = |file: &File| String::from_utf8_lossy(&file.plain.bytes).into_owned();
        let texts: Vec<String> = console.files.iter().map(text).collect();
        for file in console.files.iter().filter(|file| file.name != INDEX) {
            // The page names it from the root; what is loaded later, another script names beside itself.
            let [by_page, by_script] = ["/", "./"].map(|at| format!("\"{at}{}\"", file.name));
            let is_named = |text: &String| text.contains(&by_page) || text.contains(&by_script);
            assert!(texts.iter().any(is_named), "{}", file.name);
            assert_eq!(file.cache_control, KEPT);
            assert_ne!(file.content_type, "application/octet-stream", "{}", file.name);
        }
        assert_eq!(page.cache_control, NOT_KEPT);
        let packed = console.files.iter().map(|it| it.packed.as_ref().unwrap_or(&it.plain));
        let bytes: usize = packed.map(|form| form.bytes.len()).sum();
        assert!((1..BYTES_MAX).contains(&bytes), "{bytes}");
    }

    #[test]
    fn a_path_that_is_no_file_is_a_page_unless_tools_ask_there() {
        let console = Console::new();
        let name = |path: &str| console.find(path).map(|file| file.name);
        for page in ["/", "", "/queues", "/queue/../x", "/apiary", "/gone-0123456789.js", "/%61pi"]
        {
            assert_eq!(name(page), Some(INDEX), "{page}");
        }
        for none in
            ["/api", "/api/", "/api/nothing", "//api/x", "/metrics", "/health/live", "/cli/x"]
        {
            assert_eq!(name(none), None, "{none}");
        }
        let script = console.files.iter().find(|file| file.name.ends_with(".js")).unwrap();
        assert_eq!(name(&format!("/{}", script.name)), Some(script.name));
    }

    #[test]
    fn it_is_compressed_for_who_takes_that_and_is_the_same_then() {
        let console = Console::new();
        let page = console.named(INDEX).unwrap();
        for taken in ["gzip", "br, GZIP;q=0.5", "deflate,gzip ; q=1"] {
            assert!(page.form(&asked(header::ACCEPT_ENCODING, taken)).is_packed, "{taken}");
        }
        for refused in ["", "br", "gzip;q=0", "gzip;q=0.000", "xgzip"] {
            assert!(!page.form(&asked(header::ACCEPT_ENCODING, refused)).is_packed, "{refused}");
        }
        assert!(!page.form(&HeaderMap::new()).is_packed);
        for file in &console.files {
            let mut unpacked = Vec::new();
            let Some(packed) = &file.packed else { continue };
            GzDecoder::new(&packed.bytes[..]).read_to_end(&mut unpacked).unwrap();
            assert_eq!(unpacked, file.plain.bytes);
            assert_ne!(packed.tag, file.plain.tag, "other bytes have another tag");
        }
    }

    #[test]
    fn what_a_browser_has_is_not_sent_again() {
        let console = Console::new();
        let form = console.named(INDEX).unwrap().plain.clone();
        let known = |tag: String| {
            let value = http::HeaderValue::from_str(&tag).unwrap();
            form.is_known(&HeaderMap::from_iter([(header::IF_NONE_MATCH, value)]))
        };
        assert!(
            known(form.tag.clone()) && known(format!("\"x\", W/{}", form.tag)) && known("*".into())
        );
        assert!(!known("\"x\"".into()) && !form.is_known(&HeaderMap::new()));
    }
}
