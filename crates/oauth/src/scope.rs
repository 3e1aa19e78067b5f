//! Scopes: `read:VHOST/NAME`, `write:VHOST/NAME/KEY`, `configure:…`, `tag:NAME`, as RabbitMQ has them.
//!
//! A part of a scope is a pattern on a name: `*` stands for any letters, none included, and all else for itself. What is
//! `*`, `/` or `%` itself is percent-encoded. A scope that cannot be read gives nothing.

/// What is done with an exchange or a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    Configure,
    Write,
    Read,
}

/// One scope, without the prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    Permission(Permission),
    Tag(String),
}

/// What a scope allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Permission {
    right: Right,
    vhost: Pattern,
    name: Pattern,
    /// Routing keys of topic exchanges. `None`: none of them.
    key: Option<Pattern>,
}

impl Scope {
    /// None: it is no scope of this form.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_once(':')?;
        let right = match kind {
            "configure" => Right::Configure,
            "write" => Right::Write,
            "read" => Right::Read,
            "tag" if !rest.is_empty() => return Some(Self::Tag(rest.to_owned())),
            _ => return None,
        };
        let mut parts = rest.split('/');
        let (vhost, name) = (Pattern::read(parts.next()?)?, Pattern::read(parts.next()?)?);
        let key = match parts.next() {
            Some(key) => Some(Pattern::read(key)?),
            None => None,
        };
        match parts.next() {
            Some(_) => None,
            None => Some(Self::Permission(Permission { right, vhost, name, key })),
        }
    }
}

impl Permission {
    pub(crate) fn is_in(&self, vhost: &str) -> bool {
        self.vhost.matches(vhost)
    }

    pub(crate) fn allows(&self, right: Right, vhost: &str, name: &str) -> bool {
        self.right == right && self.vhost.matches(vhost) && self.name.matches(name)
    }

    pub(crate) fn allows_key(&self, right: Right, vhost: &str, name: &str, key: &str) -> bool {
        self.allows(right, vhost, name)
            && self.key.as_ref().is_some_and(|pattern| pattern.matches(key))
    }
}

/// What stands between the stars, decoded: at least one piece.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pattern(Vec<Vec<u8>>);

impl Pattern {
    fn read(text: &str) -> Option<Self> {
        text.split('*').map(decoded).collect::<Option<_>>().map(Self)
    }

    /// In time linear in the name for each piece: names have at most 255 bytes.
    fn matches(&self, name: &str) -> bool {
        let Some((first, rest)) = self.0.split_first() else { return false };
        let Some(mut left) = name.as_bytes().strip_prefix(first.as_slice()) else { return false };
        let Some((last, middle)) = rest.split_last() else { return left.is_empty() };
        for piece in middle {
            // The first place is as good as any: what follows it may be anything.
            let Some(at) = place(left, piece) else { return false };
            left = &left[at + piece.len()..];
        }
        left.ends_with(last)
    }
}

fn place(bytes: &[u8], piece: &[u8]) -> Option<usize> {
    if piece.is_empty() {
        return Some(0);
    }
    bytes.windows(piece.len()).position(|window| window == piece)
}

/// As forms are encoded: `%2F` is a slash, `+` a space. None: a percent sign without two digits.
fn decoded(text: &str) -> Option<Vec<u8>> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    let digit = |bytes: &mut std::str::Bytes<'_>| {
        let digit = char::from(bytes.next()?).to_digit(16)?;
        u8::try_from(digit).ok()
    };
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => digit(&mut bytes)? << 4 | digit(&mut bytes)?,
            b'+' => b' ',
            byte => byte,
        });
    }
    Some(decoded)
}

#[cfg(test)]
mod tests {
    use super::Right::{Configure, Read, Write};
    use super::*;

    fn matches(name: &str, pattern: &str) -> bool {
        Pattern::read(pattern).is_some_and(|pattern| pattern.matches(name))
    }

    fn permission(text: &str) -> Permission {
        match Scope::read(text) {
            Some(Scope::Permission(permission)) => permission,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn without_a_star_a_pattern_is_the_name() {
        assert!(matches("value", "value") && matches("", ""));
        assert!(!matches("value", "val") && !matches("val", "value") && !matches("Value", "value"));
    }

    #[test]
    fn a_star_is_any_letters_at_the_begin_the_end_and_between() {
        for pattern in ["*", "**", "star*", "*end", "start*end", "st*t*e*d", "*start*end*"] {
            assert!(matches("start-middle-end", pattern), "{pattern}");
        }
        for pattern in ["*middle", "middle*", "start*middle", "end*start", "*x*", "startend"] {
            assert!(!matches("start-middle-end", pattern), "{pattern}");
        }
        assert!(
            matches("", "*") && matches("a", "a*") && matches("a", "*a") && matches("a", "*a*")
        );
        assert!(!matches("a", "a*a") && matches("aa", "a*a") && matches("abab", "*ab"));
        assert!(matches("юникод", "ю*д") && matches("foo/bar/*", "*"));
    }

    #[test]
    fn what_is_encoded_stands_for_itself() {
        assert!(matches("/", "%2F") && matches("/", "%2f") && matches("a b", "a+b"));
        assert!(matches("bar*/baz", "bar%2A%2Fbaz") && !matches("barx/baz", "bar%2A%2Fbaz"));
        assert!(matches("50%", "50%25") && matches("юникод", "%D1%8E*"));
        for broken in ["%", "%2", "%zz", "a%2", "*%g0"] {
            assert!(Pattern::read(broken).is_none(), "{broken}");
        }
    }

    #[test]
    fn a_scope_of_everything_allows_its_right_in_every_vhost_and_no_other_right() {
        for (text, right) in [("configure", Configure), ("write", Write), ("read", Read)] {
            for form in ["*/*", "*/*/*"] {
                let scope = permission(&format!("{text}:{form}"));
                for vhost in ["/", "foo", "*", "foo/bar", "юникод"] {
                    assert!(scope.is_in(vhost));
                    for name in ["foo", "foo/bar", "*", "*/*", "юникод", ""] {
                        for asked in [Configure, Write, Read] {
                            assert_eq!(scope.allows(asked, vhost, name), asked == right);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_scope_of_a_vhost_or_a_name_allows_no_other() {
        let scope = permission("read:foo%2Fbar%2F%2A%2F/*");
        assert!(scope.allows(Read, "foo/bar/*/", "anything"));
        assert!(!scope.allows(Read, "foo/bar/x/", "anything") && !scope.is_in("foo"));
        let scope = permission("write:vhost1/some*");
        assert!(scope.allows(Write, "vhost1", "something"));
        assert!(!scope.allows(Write, "vhost1", "other") && !scope.allows(Write, "v", "some"));
    }

    #[test]
    fn routing_keys_are_allowed_by_scopes_with_three_parts_only() {
        let allows =
            |text, vhost, exchange, key| permission(text).allows_key(Read, vhost, exchange, key);
        assert!(allows("read:*/*/*", "v", "e", "any.key") && allows("read:*/*/*", "v", "e", ""));
        assert!(
            allows("read:v/*/rout", "v", "e", "rout") && !allows("read:v/*/rout", "v", "e", "r")
        );
        assert!(allows("read:*/e/*rout", "v", "e", "sprout"));
        assert!(
            !allows("read:*/e/*", "v", "other", "rout") && !allows("read:o/*/*", "v", "e", "k")
        );
        assert!(!allows("read:*/*", "v", "e", "any.key"), "two parts give no routing key");
        assert!(!permission("read:*/*/*").allows_key(Write, "v", "e", "k"));
    }

    #[test]
    fn what_is_no_scope_gives_nothing() {
        for text in [
            "",
            "read",
            "read:",
            "read:*",
            "read:a/b/c/d",
            "Read:*/*",
            "delete:*/*",
            "read:%/*",
            "read:*/%2",
            "tag:",
            "openid",
            "{vhost}",
        ] {
            assert_eq!(Scope::read(text), None, "{text}");
        }
        let tag = Scope::Tag("administrator".to_owned());
        assert_eq!(Scope::read("tag:administrator"), Some(tag));
    }

    proptest::proptest! {
        /// Against the plain recursive meaning.
        #[test]
        fn patterns_match_as_their_meaning_says(name in "[ab]{0,8}", pattern in "[ab*]{0,6}") {
            fn means(name: &[u8], pattern: &[u8]) -> bool {
                match pattern.split_first() {
                    None => name.is_empty(),
                    Some((b'*', rest)) => (0..=name.len()).any(|at| means(&name[at..], rest)),
                    Some((first, rest)) => {
                        name.split_first().is_some_and(|(one, left)| one == first && means(left, rest))
                    }
                }
            }
            let expected = means(name.as_bytes(), pattern.as_bytes());
            proptest::prop_assert_eq!(matches(&name, &pattern), expected);
        }

        #[test]
        fn no_text_makes_a_scope_panic(text in ".*", name in ".*") {
            if let Some(Scope::Permission(scope)) = Scope::read(&text) {
                scope.allows_key(Right::Read, &name, &name, &name);
            }
        }
    }
}
