//! How a transaction is written: etcdctl's text in three parts, or JSON. Both end as the same `Txn`, and the text's operations are
//! the very commands of this program, with the same options.

use std::{ffi::OsString, os::unix::ffi::OsStringExt};

use clap::Parser;
use serde::Deserialize;
use tenure_client::{
    Compare, Delete, Get, KeyRange, LeaseId, Put, Txn,
    etcdserverpb::{RequestOp, compare::CompareResult},
};

use super::kv;
use crate::cli;

/// A transaction, and whether it says what to do when the comparisons do not hold.
#[derive(Debug, Clone, PartialEq)]
pub struct Script {
    pub txn: Txn,
    pub has_failure_part: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Compare,
    Success,
    Failure,
}

impl Part {
    pub const ALL: [Part; 3] = [Part::Compare, Part::Success, Part::Failure];

    pub fn title(self) -> &'static str {
        match self {
            Part::Compare => "comparisons",
            Part::Success => "what to do when they hold (get, put, del)",
            Part::Failure => "what to do when they do not (get, put, del)",
        }
    }
}

impl Script {
    pub fn with_line(mut self, part: Part, line: &str) -> Result<Script, String> {
        match part {
            Part::Compare => self.txn = self.txn.when(comparison(line)?),
            Part::Success => self.txn = self.txn.then(operation(line)?),
            Part::Failure => {
                self.txn = self.txn.otherwise(operation(line)?);
                self.has_failure_part = true;
            }
        }
        Ok(self)
    }
}

pub fn parse(text: &str) -> Result<Script, String> {
    if text.trim_start().starts_with('{') { parse_json(text) } else { parse_text(text) }
}

fn parse_text(text: &str) -> Result<Script, String> {
    let mut script = Script { txn: Txn::new(), has_failure_part: false };
    let mut parts = Part::ALL.into_iter();
    let mut part = parts.next();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() {
            part = parts.next();
            continue;
        }
        let Some(part) = part else {
            return Err(format!("line {}: more than three parts; an empty line ends a part", index + 1));
        };
        script = script.with_line(part, line).map_err(|why| format!("line {}: {why}", index + 1))?;
    }
    Ok(script)
}

/// `mod("key") > "12"`.
fn comparison(line: &str) -> Result<Compare, String> {
    let shape = || format!("{line:?} is no comparison; write for example create(\"key\") = \"0\"");
    let (target, rest) = line.split_once('(').ok_or_else(shape)?;
    let (key, rest) = quoted_or_until(rest.trim_start(), ')').ok_or_else(shape)?;
    let rest = rest.trim_start().strip_prefix(')').ok_or_else(shape)?.trim_start();
    let op_len = rest.find(|one: char| !"=!<>".contains(one)).filter(|len| *len > 0).ok_or_else(shape)?;
    let (op, rest) = rest.split_at(op_len);
    let value = match quoted_or_until(rest.trim(), '\0').ok_or_else(shape)? {
        (value, "") => value,
        _ => return Err(shape()),
    };
    compare(target.trim(), key, op, &value)
}

fn compare(target: &str, key: Vec<u8>, op: &str, value: &[u8]) -> Result<Compare, String> {
    let op = match op {
        "=" | "==" => CompareResult::Equal,
        "!=" => CompareResult::NotEqual,
        ">" => CompareResult::Greater,
        "<" => CompareResult::Less,
        _ => return Err(format!("{op:?} is no relation; there are =, !=, < and >")),
    };
    if key.is_empty() {
        return Err("a key cannot be empty".into());
    }
    let text = || std::str::from_utf8(value).map_err(|error| error.to_string());
    let number =
        || text()?.parse::<i64>().map_err(|error| format!("{:?}: {error}", text().unwrap_or_default()));
    Ok(match target.to_ascii_lowercase().as_str() {
        "create" | "c" => Compare::create_revision(key).is(op, number()?),
        "mod" | "m" => Compare::mod_revision(key).is(op, number()?),
        "version" | "ver" => Compare::version(key).is(op, number()?),
        "value" | "val" => Compare::value(key).is(op, value.to_vec()),
        "lease" => Compare::lease(key).is(op, text()?.parse::<LeaseId>()?.0),
        _ => {
            return Err(format!(
                "{target:?} cannot be compared; there are create, mod, version, value and lease"
            ));
        }
    })
}

/// The operations that a transaction may have, with the options of the commands of the same name.
#[derive(Debug, Parser)]
#[command(no_binary_name = true, disable_help_flag = true, disable_help_subcommand = true)]
enum Operation {
    Put(cli::Put),
    Get(cli::Get),
    Del(cli::Del),
}

fn operation(line: &str) -> Result<RequestOp, String> {
    let words = split_words(line)?.into_iter().map(OsString::from_vec);
    // clap's own message says more than is of use here; its first line says what is wrong.
    let operation = Operation::try_parse_from(words).map_err(|error| {
        let text = error.to_string();
        text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
    })?;
    let built = match operation {
        Operation::Put(cli::Put { ttl: Some(_), .. }) => {
            return Err("a transaction cannot grant a lease; grant one first and use --lease".into());
        }
        Operation::Put(mut put) => {
            let value = put.value.take().ok_or("put needs a value here")?;
            kv::put_request(put, value.into_vec()).map(RequestOp::from)
        }
        Operation::Get(get) => kv::get_request(get).map(RequestOp::from),
        Operation::Del(del) => kv::del_request(del).map(RequestOp::from),
    };
    built.map_err(|error| error.to_string())
}

/// As a shell would split them: spaces, '…' as it is, and "…" with the escapes that Go and C share.
fn split_words(line: &str) -> Result<Vec<Vec<u8>>, String> {
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    while !rest.is_empty() {
        let mut word = Vec::new();
        while let Some(first) = rest.chars().next().filter(|one| !one.is_whitespace()) {
            match first {
                '"' => {
                    let (text, after) = unquote(rest)?;
                    word.extend(text);
                    rest = after;
                }
                '\'' => {
                    let (text, after) = rest[1..].split_once('\'').ok_or("a quote is not closed")?;
                    word.extend(text.as_bytes());
                    rest = after;
                }
                plain => {
                    let (text, after) = rest.split_at(plain.len_utf8());
                    word.extend(text.as_bytes());
                    rest = after;
                }
            }
        }
        words.push(word);
        rest = rest.trim_start();
    }
    Ok(words)
}

/// A quoted text, or everything up to `end` (or the end of the line); and what follows.
fn quoted_or_until(text: &str, end: char) -> Option<(Vec<u8>, &str)> {
    if text.starts_with('"') {
        return unquote(text).ok();
    }
    let len = text.find(end).unwrap_or(text.len());
    let (plain, rest) = text.split_at(len);
    let plain = plain.trim();
    (!plain.is_empty()).then(|| (plain.as_bytes().to_vec(), rest))
}

fn unquote(text: &str) -> Result<(Vec<u8>, &str), String> {
    let mut bytes = Vec::new();
    let mut rest = text.strip_prefix('"').ok_or("a quote is missing")?;
    loop {
        let one = rest.chars().next().ok_or("a quote is not closed")?;
        rest = &rest[one.len_utf8()..];
        match one {
            '"' => return Ok((bytes, rest)),
            '\\' => {
                let escape = rest.chars().next().ok_or("a quote is not closed")?;
                rest = &rest[escape.len_utf8()..];
                match escape {
                    'n' => bytes.push(b'\n'),
                    't' => bytes.push(b'\t'),
                    'r' => bytes.push(b'\r'),
                    '0' => bytes.push(0),
                    'x' => {
                        let digits = rest.get(..2).ok_or("\\x needs two hex digits")?;
                        bytes.push(u8::from_str_radix(digits, 16).map_err(|_| "\\x needs two hex digits")?);
                        rest = &rest[2..];
                    }
                    '\\' | '"' | '\'' => bytes.push(escape as u8),
                    other => return Err(format!("\\{other} is no escape")),
                }
            }
            plain => bytes.extend(plain.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonTxn {
    #[serde(default)]
    compare: Vec<JsonCompare>,
    #[serde(default)]
    success: Vec<JsonOperation>,
    #[serde(default)]
    failure: Vec<JsonOperation>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonCompare {
    key: String,
    target: String,
    op: String,
    value: JsonValue,
}

/// A number may be written as one, or as the string that JSON needs for large ones.
#[derive(Deserialize)]
#[serde(untagged)]
enum JsonValue {
    Number(i64),
    Text(String),
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
enum JsonOperation {
    Put {
        key: String,
        value: String,
        lease: Option<String>,
        #[serde(default)]
        prev_kv: bool,
    },
    Get {
        #[serde(flatten)]
        keys: JsonKeys,
    },
    Del {
        #[serde(flatten)]
        keys: JsonKeys,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonKeys {
    key: String,
    range_end: Option<String>,
    #[serde(default)]
    prefix: bool,
    /// Only of use in a `del`.
    #[serde(default)]
    prev_kv: bool,
    /// Only of use in a `get`.
    #[serde(default)]
    limit: i64,
}

fn parse_json(text: &str) -> Result<Script, String> {
    let json: JsonTxn = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let has_failure_part = !json.failure.is_empty();
    let mut txn = Txn::new();
    for JsonCompare { key, target, op, value } in json.compare {
        let value = match value {
            JsonValue::Number(number) => number.to_string(),
            JsonValue::Text(text) => text,
        };
        txn = txn.when(compare(&target, key.into_bytes(), &op, value.as_bytes())?);
    }
    for operation in json.success {
        txn = txn.then(operation.request()?);
    }
    for operation in json.failure {
        txn = txn.otherwise(operation.request()?);
    }
    Ok(Script { txn, has_failure_part })
}

impl JsonKeys {
    fn range(self) -> Result<KeyRange, String> {
        match self {
            JsonKeys { range_end: Some(_), prefix: true, .. } => {
                Err("prefix and range_end exclude each other".into())
            }
            JsonKeys { key, prefix: true, .. } => Ok(KeyRange::prefix(key)),
            JsonKeys { key, range_end: Some(end), .. } => Ok(KeyRange::between(key, end)),
            JsonKeys { key, .. } if key.is_empty() => Err("a key cannot be empty".into()),
            JsonKeys { key, .. } => Ok(KeyRange::one(key)),
        }
    }
}

impl JsonOperation {
    fn request(self) -> Result<RequestOp, String> {
        Ok(match self {
            JsonOperation::Put { key, value, lease, prev_kv } => {
                if key.is_empty() {
                    return Err("a key cannot be empty".into());
                }
                let mut put = Put::new(key, value);
                if let Some(lease) = lease {
                    put = put.lease(lease.parse()?);
                }
                if prev_kv { put.prev_kv() } else { put }.into()
            }
            JsonOperation::Get { keys } => {
                let limit = keys.limit;
                Get::new(keys.range()?).limit(limit).into()
            }
            JsonOperation::Del { keys } => {
                let prev_kv = keys.prev_kv;
                let delete = Delete::new(keys.range()?);
                if prev_kv { delete.prev_kv() } else { delete }.into()
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
create(\"lock\") = \"0\"
value(flag) != \"on off\"

put lock 'my own' --lease 0x7
get -p \"a\\x01\"

del old/ --prefix --prev-kv

";

    #[test]
    fn text_and_json_say_the_same() {
        let text = parse(TEXT).expect("well formed");
        let json = parse(
            r#"{"compare": [{"key": "lock", "target": "create", "op": "=", "value": 0},
                            {"key": "flag", "target": "value", "op": "!=", "value": "on off"}],
                "success": [{"put": {"key": "lock", "value": "my own", "lease": "0x7"}},
                            {"get": {"key": "a\u0001", "prefix": true}}],
                "failure": [{"del": {"key": "old/", "prefix": true, "prev_kv": true}}]}"#,
        )
        .expect("well formed");
        assert_eq!(text, json);
        assert!(text.has_failure_part);
    }

    #[test]
    fn every_target_and_relation_is_understood() {
        for line in
            ["create(k) = 0", "mod(\"k\") > \"12\"", "version(k)<3", "value(k) = x", "lease(k) != 0x1f"]
        {
            assert!(comparison(line).is_ok(), "{line}: {:?}", comparison(line));
        }
        assert_eq!(comparison("MOD(\"k\") = 1"), Ok(Compare::mod_revision("k").equal(1)));
        assert_eq!(comparison(r#"value("a)b") = "c\nd""#), Ok(Compare::value("a)b").equal("c\nd")));
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        for (text, part_of_message) in [
            ("nonsense", "line 1: \"nonsense\" is no comparison"),
            ("mod(k) ~ 1", "is no comparison"),
            ("mod(k) >> 1", "is no relation"),
            ("mod(k) = x", "invalid digit"),
            ("size(k) = 1", "cannot be compared"),
            ("mod(k) = 1 2 3", "invalid digit"),
            ("\nput k", "line 2: put needs a value"),
            ("\nput k v --ttl 5s", "cannot grant a lease"),
            ("\nfly k", "unrecognized subcommand"),
            ("\nput 'k v", "a quote is not closed"),
            ("\n\n\nget k", "line 4: more than three parts"),
            (r#"{"compares": []}"#, "unknown field"),
            (r#"{"success": [{"get": {"key": ""}}]}"#, "cannot be empty"),
        ] {
            let why = parse(text).expect_err(text);
            assert!(why.contains(part_of_message), "{text:?}: {why}");
        }
    }

    #[test]
    fn an_empty_text_is_an_empty_transaction() {
        let script = parse("\n\n\n").expect("allowed");
        assert_eq!(script, Script { txn: Txn::new(), has_failure_part: false });
    }

    #[test]
    fn words_are_split_as_a_shell_does() {
        let words = |line| split_words(line).expect("closed quotes");
        assert_eq!(words("  put  a\"b c\"'d\\e' "), [b"put".to_vec(), b"ab cd\\e".to_vec()]);
        assert_eq!(words(r#""\x00\"" """#), [b"\x00\"".to_vec(), b"".to_vec()]);
        assert!(split_words(r#""\q""#).is_err());
    }
}
