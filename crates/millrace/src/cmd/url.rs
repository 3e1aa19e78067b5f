//! A broker's URL on the command line. What is wrong with one is said without the URL itself: clap would repeat
//! it, with its password.

use std::ffi::OsStr;

use clap::builder::TypedValueParser;
use clap::error::ErrorKind;
use client::Url;

/// Reads a [`Url`].
#[derive(Clone)]
pub(crate) struct UrlParser;

impl TypedValueParser for UrlParser {
    type Value = Url;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<Url, clap::Error> {
        let said = match value.to_str().map(str::parse) {
            Some(Ok(url)) => return Ok(url),
            Some(Err(bad)) => bad.to_string(),
            None => "it is not UTF-8".into(),
        };
        let name = argument.map_or_else(|| "the URL".into(), ToString::to_string);
        let text = format!("{name}: {said}\n");
        Err(clap::Error::raw(ErrorKind::ValueValidation, text).with_cmd(command))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[arg(long, value_parser = UrlParser)]
        url: Url,
    }

    #[test]
    fn a_bad_url_is_told_without_its_password() {
        let words = |url: &'static str| ["millrace", "--url", url];
        let good = Line::try_parse_from(words("amqp://ann:hunter2@host/")).unwrap();
        assert_eq!(good.url.host, "host");
        let told = Line::try_parse_from(words("amqp://ann:hunter2@host:port/")).unwrap_err();
        let told = told.to_string();
        assert!(told.contains("--url") && told.contains("not a port"), "{told}");
        assert!(!told.contains("hunter2"), "{told}");
    }
}
