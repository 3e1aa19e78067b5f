//! Which user a client's certificate names. Its authority has signed what stands there, and that is all that is known of
//! it: a name that could be taken for another one, or that AMQP and a log cannot carry, names nobody.

use rustls::pki_types::CertificateDer;
use x509_parser::prelude::{
    AttributeTypeAndValue, FromDer as _, GeneralName, X509Certificate, X509Name,
};

/// Bytes of a user's name: AMQP carries no longer one.
pub const USER_BYTES_MAX: usize = 255;

/// The part of a certificate that is the user's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserFrom {
    /// The only common name of the subject.
    CommonName,
    /// The whole subject, as RFC 4514 writes it.
    DistinguishedName,
    /// The alternative name of this kind with this index.
    AlternativeName { kind: AlternativeKind, index: usize },
}

/// Kinds of alternative names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlternativeKind {
    Dns,
    Email,
    Uri,
}

/// Why a certificate names no user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoUser {
    Unreadable,
    /// Its time is over, or has not begun.
    NotNow,
    Missing,
    /// There are several common names.
    Ambiguous,
    Empty,
    /// Its letters are in an old encoding.
    NotText,
    /// A control character, such as NUL.
    ControlCharacter,
    TooLong,
}

impl std::fmt::Display for NoUser {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Self::Unreadable => "the client's certificate cannot be read",
            Self::NotNow => "the client's certificate has expired, or is not valid yet",
            Self::Missing => {
                "the client's certificate has no name of the kind that tls_certificate_user asks for"
            }
            Self::Ambiguous => {
                "the client's certificate has several common names, of which none can be preferred; use an alternative \
                 name (tls_certificate_user)"
            }
            Self::Empty => "the name in the client's certificate is empty",
            Self::NotText => {
                "the name in the client's certificate is in an encoding that is not read; it must be UTF-8 or ASCII"
            }
            Self::ControlCharacter => {
                "the name in the client's certificate has a control character"
            }
            Self::TooLong => "the name in the client's certificate is longer than 255 bytes",
        })
    }
}

/// The user that a certificate names at this time, in seconds since 1970. The handshake has verified the certificate;
/// its dates are looked at again, because a client that resumes an old TLS session makes no new one.
///
/// # Errors
/// Why it names none.
pub fn user_of(
    certificate: &CertificateDer<'_>,
    from: UserFrom,
    now_s: i64,
) -> Result<String, NoUser> {
    let (_, certificate) =
        X509Certificate::from_der(certificate).map_err(|_| NoUser::Unreadable)?;
    let validity = certificate.validity();
    if now_s < validity.not_before.timestamp() || now_s > validity.not_after.timestamp() {
        return Err(NoUser::NotNow);
    }
    let name = match from {
        UserFrom::CommonName => common_name(certificate.subject())?,
        UserFrom::DistinguishedName => distinguished_name(certificate.subject())?,
        UserFrom::AlternativeName { kind, index } => alternative(&certificate, kind, index)?,
    };
    checked(name)
}

/// A name that AMQP, a log and a person can tell from others.
fn checked(name: String) -> Result<String, NoUser> {
    if name.is_empty() {
        return Err(NoUser::Empty);
    }
    if name.chars().any(char::is_control) {
        return Err(NoUser::ControlCharacter);
    }
    if name.len() > USER_BYTES_MAX {
        return Err(NoUser::TooLong);
    }
    Ok(name)
}

fn common_name(subject: &X509Name<'_>) -> Result<String, NoUser> {
    let mut names = subject.iter_common_name();
    let name = names.next().ok_or(NoUser::Missing)?;
    if names.next().is_some() {
        return Err(NoUser::Ambiguous);
    }
    Ok(text(name)?.to_owned())
}

fn alternative(
    certificate: &X509Certificate<'_>,
    kind: AlternativeKind,
    index: usize,
) -> Result<String, NoUser> {
    let names = certificate.subject_alternative_name().map_err(|_| NoUser::Unreadable)?;
    let names = names.ok_or(NoUser::Missing)?;
    // What cannot be read counts: otherwise it would move the names behind it to another index.
    let mut of_kind = names.value.general_names.iter().filter_map(|name| match (name, kind) {
        (GeneralName::DNSName(name), AlternativeKind::Dns)
        | (GeneralName::RFC822Name(name), AlternativeKind::Email)
        | (GeneralName::URI(name), AlternativeKind::Uri) => Some(Ok((*name).to_owned())),
        (GeneralName::Invalid(tag, _), kind) if tag.0 == tag_of(kind) => Some(Err(NoUser::NotText)),
        _ => None,
    });
    of_kind.nth(index).ok_or(NoUser::Missing)?
}

/// RFC 5280, 4.2.1.6.
fn tag_of(kind: AlternativeKind) -> u32 {
    match kind {
        AlternativeKind::Email => 1,
        AlternativeKind::Dns => 2,
        AlternativeKind::Uri => 6,
    }
}

/// RFC 4514: the last part first, and whatever could be taken for a mark is escaped.
fn distinguished_name(subject: &X509Name<'_>) -> Result<String, NoUser> {
    let parts: Vec<_> = subject.iter_rdn().collect();
    let mut name = String::new();
    for part in parts.into_iter().rev() {
        for (at, attribute) in part.iter().enumerate() {
            if at > 0 {
                name.push('+');
            } else if !name.is_empty() {
                name.push(',');
            }
            let kind = attribute.attr_type().to_id_string();
            name.push_str(short_name(&kind).unwrap_or(&kind));
            name.push('=');
            escape(text(attribute)?, &mut name);
        }
    }
    Ok(name)
}

/// The short names that RabbitMQ writes.
fn short_name(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "2.5.4.3" => "CN",
        "2.5.4.4" => "SN",
        "2.5.4.5" => "SERIALNUMBER",
        "2.5.4.6" => "C",
        "2.5.4.7" => "L",
        "2.5.4.8" => "ST",
        "2.5.4.9" => "STREET",
        "2.5.4.10" => "O",
        "2.5.4.11" => "OU",
        "2.5.4.12" => "TITLE",
        "2.5.4.42" => "GIVENNAME",
        "2.5.4.43" => "INITIALS",
        "2.5.4.44" => "GENERATIONQUALIFIER",
        "2.5.4.65" => "PSEUDONYM",
        "0.9.2342.19200300.100.1.25" => "DC",
        "0.9.2342.19200300.100.1.1" => "UID",
        "1.2.840.113549.1.9.1" => "EMAILADDRESS",
        _ => return None,
    })
}

fn escape(value: &str, name: &mut String) {
    let last = value.chars().count().saturating_sub(1);
    for (at, letter) in value.chars().enumerate() {
        let is_mark = matches!(letter, ',' | '+' | '"' | '\\' | '<' | '>' | ';');
        let is_edge = letter == ' ' && (at == 0 || at == last);
        if is_mark || is_edge || (letter == '#' && at == 0) {
            name.push('\\');
        }
        name.push(letter);
    }
}

fn text<'a>(attribute: &AttributeTypeAndValue<'a>) -> Result<&'a str, NoUser> {
    attribute.as_str().map_err(|_| NoUser::NotText)
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue, KeyPair, SanType};

    use super::*;

    /// A time at which rcgen's certificates are valid.
    const NOW_S: i64 = 1_800_000_000;

    fn made(subject: &[(DnType, DnValue)], alternatives: Vec<SanType>) -> CertificateDer<'static> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        for (kind, value) in subject {
            params.distinguished_name.push(kind.clone(), value.clone());
        }
        params.subject_alt_names = alternatives;
        let key = KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().clone()
    }

    fn first_of(kind: AlternativeKind) -> UserFrom {
        UserFrom::AlternativeName { kind, index: 0 }
    }

    fn utf8(text: &str) -> DnValue {
        DnValue::Utf8String(text.to_owned())
    }

    fn named(common_name: &str) -> Result<String, NoUser> {
        let certificate = made(&[(DnType::CommonName, utf8(common_name))], Vec::new());
        user_of(&certificate, UserFrom::CommonName, NOW_S)
    }

    #[test]
    fn the_common_name_is_taken_as_it_is_up_to_255_bytes() {
        assert_eq!(named("ann"), Ok("ann".to_owned()));
        assert_eq!(named("Jürgen, O=shop"), Ok("Jürgen, O=shop".to_owned()));
        assert_eq!(named(&"x".repeat(255)), Ok("x".repeat(255)));
        assert_eq!(named(&"x".repeat(256)), Err(NoUser::TooLong));
        assert_eq!(named(&"ü".repeat(128)), Err(NoUser::TooLong), "bytes count, not letters");
    }

    #[test]
    fn a_name_that_is_empty_or_has_control_characters_names_nobody() {
        assert_eq!(named(""), Err(NoUser::Empty));
        for odd in ["ann\0", "\0", "ann\n", "a\u{7f}", "a\u{85}b"] {
            assert_eq!(named(odd), Err(NoUser::ControlCharacter), "{odd:?}");
        }
    }

    #[test]
    fn a_certificate_without_the_wanted_name_names_nobody() {
        let bare = made(&[(DnType::OrganizationName, utf8("shop"))], Vec::new());
        assert_eq!(user_of(&bare, UserFrom::CommonName, NOW_S), Err(NoUser::Missing));
        let kinds = [AlternativeKind::Dns, AlternativeKind::Email, AlternativeKind::Uri];
        for kind in kinds {
            assert_eq!(user_of(&bare, first_of(kind), NOW_S), Err(NoUser::Missing));
        }
        let nothing = made(&[], Vec::new());
        assert_eq!(user_of(&nothing, UserFrom::DistinguishedName, NOW_S), Err(NoUser::Empty));
        let noise = CertificateDer::from(vec![0x30, 0x03, 0x01]);
        assert_eq!(user_of(&noise, UserFrom::CommonName, NOW_S), Err(NoUser::Unreadable));
    }

    /// `rcgen` writes each kind once, so the second one is put where another kind stood.
    #[test]
    fn of_several_common_names_none_is_preferred() {
        let organization = [0x06, 0x03, 0x55, 0x04, 0x0a];
        let common_name = [0x06, 0x03, 0x55, 0x04, 0x03];
        let two = [(DnType::CommonName, utf8("ann")), (DnType::OrganizationName, utf8("bob"))];
        let mut bytes = made(&two, Vec::new()).to_vec();
        for place in 0..bytes.len() - 5 {
            if bytes[place..place + 5] == organization {
                bytes[place..place + 5].copy_from_slice(&common_name);
            }
        }
        let certificate = CertificateDer::from(bytes);
        assert_eq!(user_of(&certificate, UserFrom::CommonName, NOW_S), Err(NoUser::Ambiguous));
    }

    #[test]
    fn a_name_in_an_old_encoding_names_nobody() {
        let wide = DnValue::BmpString("ann".try_into().unwrap());
        let certificate = made(&[(DnType::CommonName, wide)], Vec::new());
        assert_eq!(user_of(&certificate, UserFrom::CommonName, NOW_S), Err(NoUser::NotText));
        let plain = DnValue::PrintableString("ann".try_into().unwrap());
        let certificate = made(&[(DnType::CommonName, plain)], Vec::new());
        assert_eq!(user_of(&certificate, UserFrom::CommonName, NOW_S), Ok("ann".to_owned()));
    }

    #[test]
    fn alternative_names_are_counted_by_kind() {
        let ia5 = |text: &str| rcgen::string::Ia5String::try_from(text).unwrap();
        let names = vec![
            SanType::DnsName(ia5("one.example")),
            SanType::Rfc822Name(ia5("ann@example.com")),
            SanType::URI(ia5("spiffe://example.com/ann")),
            SanType::DnsName(ia5("two.example")),
        ];
        let certificate = made(&[(DnType::CommonName, utf8("other"))], names);
        let user =
            |kind, index| user_of(&certificate, UserFrom::AlternativeName { kind, index }, NOW_S);
        assert_eq!(user(AlternativeKind::Dns, 0), Ok("one.example".to_owned()));
        assert_eq!(user(AlternativeKind::Dns, 1), Ok("two.example".to_owned()));
        assert_eq!(user(AlternativeKind::Dns, 2), Err(NoUser::Missing));
        assert_eq!(user(AlternativeKind::Email, 0), Ok("ann@example.com".to_owned()));
        assert_eq!(user(AlternativeKind::Uri, 0), Ok("spiffe://example.com/ann".to_owned()));
        let odd = made(&[], vec![SanType::DnsName(ia5("ann\0.example"))]);
        let found = user_of(&odd, first_of(AlternativeKind::Dns), NOW_S);
        assert_eq!(found, Err(NoUser::ControlCharacter));
    }

    /// The forms that `openssl x509 -nameopt RFC2253` and RabbitMQ print.
    #[test]
    fn the_distinguished_name_is_written_so_that_no_other_subject_reads_the_same() {
        let subject = [
            (DnType::CountryName, utf8("DE")),
            (DnType::OrganizationName, utf8("Shop, Inc.")),
            (DnType::CommonName, utf8("ann")),
        ];
        let whole = |subject: &[(DnType, DnValue)]| {
            user_of(&made(subject, Vec::new()), UserFrom::DistinguishedName, NOW_S)
        };
        assert_eq!(whole(&subject), Ok(r"CN=ann,O=Shop\, Inc.,C=DE".to_owned()));
        let posing = [(DnType::CommonName, utf8("ann,O=Shop"))];
        assert_eq!(whole(&posing), Ok(r"CN=ann\,O=Shop".to_owned()));
        let edges = [(DnType::CommonName, utf8(r#" #a"b\c+<d>; "#))];
        assert_eq!(whole(&edges), Ok(r#"CN=\ #a\"b\\c\+\<d\>\;\ "#.to_owned()));
        let mark = [(DnType::CommonName, utf8("#1"))];
        assert_eq!(whole(&mark), Ok(r"CN=\#1".to_owned()));
        let unknown = [(DnType::CustomDnType(vec![1, 2, 3, 4]), utf8("x"))];
        assert_eq!(whole(&unknown), Ok("1.2.3.4=x".to_owned()));
        let control = [(DnType::CommonName, utf8("ann\u{1b}[2J"))];
        assert_eq!(whole(&control), Err(NoUser::ControlCharacter));
    }

    #[test]
    fn a_certificate_names_a_user_in_its_time_only() {
        let certificate = made(&[(DnType::CommonName, utf8("ann"))], Vec::new());
        for never in [0, 99_999_999_999] {
            let found = user_of(&certificate, UserFrom::CommonName, never);
            assert_eq!(found, Err(NoUser::NotNow), "{never}");
        }
    }
}
