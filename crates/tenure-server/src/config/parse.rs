//! Which value each flag has, and from where: the command line before `TENURE_*` before `ETCD_*`; a file stands
//! alone, as on etcd. What the command has as defaults of its own comes after all of them.

use std::collections::BTreeMap;

use serde_norway::Value as Yaml;

use super::flags::{self, FLAGS, Kind};
use super::{ConfigError, duration};

#[derive(Debug)]
pub(super) enum Parsed {
    Help,
    Version,
    Values(Box<Values>),
}

/// What was set, by the place in the table.
#[derive(Debug, Default)]
pub(super) struct Values {
    set: BTreeMap<usize, Value>,
    pub(super) warnings: Vec<String>,
}

#[derive(Debug, Clone)]
pub(super) struct Value {
    pub(super) text: String,
    /// How the person who set it knows it: `--name`, `ETCD_NAME` or `name in FILE`.
    pub(super) origin: String,
}

impl Values {
    pub(super) fn get(&self, flag: usize) -> Option<&Value> {
        self.set.get(&flag)
    }

    fn set(&mut self, flag: usize, text: String, origin: String) {
        self.set.insert(flag, Value { text, origin });
    }
}

pub(super) fn parse(
    args: impl IntoIterator<Item = String>,
    env: impl IntoIterator<Item = (String, String)>,
    defaults: impl FnOnce(&dyn Fn(&str) -> bool) -> Vec<(&'static str, String)>,
) -> Result<Parsed, ConfigError> {
    let mut given = Values::default();
    match from_args(&mut given, args)? {
        Special::Help => return Ok(Parsed::Help),
        Special::Version => return Ok(Parsed::Version),
        Special::None => {}
    }
    let config_file = flags::find("config-file").expect("it is in the table");
    let mut heard: Vec<String> = given
        .set
        .iter()
        .filter(|(place, _)| **place != config_file)
        .map(|(_, value)| value.origin.clone())
        .collect();
    let variables = from_env(&mut given, env);
    let path = given.get(config_file).map(|value| value.text.clone()).filter(|path| !path.is_empty());
    let mut values = match path {
        None => given,
        Some(path) => {
            let text = std::fs::read_to_string(&path)
                .map_err(|error| ConfigError::new(format!("--config-file {path} cannot be read: {error}")))?;
            let mut values = from_yaml(&path, &text)?;
            heard.extend(
                variables.into_iter().filter(|(place, _)| *place != config_file).map(|(_, name)| name),
            );
            if !heard.is_empty() {
                let unheard = heard.join(", ");
                values.warnings.push(format!("{path} alone decides, as on etcd: not looked at {unheard}"));
            }
            values.warnings.extend(given.warnings);
            values
        }
    };
    let missing =
        defaults(&|name| values.get(flags::find(name).expect("defaults are of known flags")).is_some());
    for (name, text) in missing {
        let place = flags::find(name).expect("defaults are of known flags");
        if values.get(place).is_none() {
            values.set(place, text, format!("the default of --{name}"));
        }
    }
    Ok(Parsed::Values(Box::new(values)))
}

enum Special {
    None,
    Help,
    Version,
}

/// As Go's flag package reads them: one dash or two, `--name=value` or `--name value`, a bare switch is true, the
/// last one of several wins.
fn from_args(values: &mut Values, args: impl IntoIterator<Item = String>) -> Result<Special, ConfigError> {
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        let Some(flag) = arg.strip_prefix("--").or_else(|| arg.strip_prefix('-')) else {
            return Err(ConfigError::new(format!(
                "{arg:?} is not a flag. Values follow their flag (--name {arg}), those of switches after '=' \
                 (--pre-vote=true)"
            )));
        };
        if flag.is_empty() {
            match args.next() {
                None => break,
                Some(rest) => return Err(ConfigError::new(format!("{rest:?} is not a flag"))),
            }
        }
        let (name, value) = match flag.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (flag, None),
        };
        match name {
            "h" | "help" => return Ok(Special::Help),
            "version" if value.as_deref().is_none_or(|value| parse_bool(value) == Some(true)) => {
                return Ok(Special::Version);
            }
            "version" => continue,
            _ => {}
        }
        let place = known(values, name, "flag", "--")?;
        let value = match value {
            Some(value) => value,
            None if FLAGS[place].kind == Kind::Bool => "true".to_owned(),
            None => args.next().ok_or_else(|| ConfigError::new(format!("--{name} needs a value")))?,
        };
        values.set(place, value, format!("--{name}"));
    }
    Ok(Special::None)
}

/// Variables of ours that are none of the server's business: the client's, and what Kubernetes sets for a service called tenure.
const OF_OTHERS: [&str; 4] = ["ENDPOINTS", "COMMAND_TIMEOUT", "DIAL_TIMEOUT", "PORT"];

/// Returns which variables it knew, and for which flag.
fn from_env(values: &mut Values, env: impl IntoIterator<Item = (String, String)>) -> Vec<(usize, String)> {
    // Ours come after etcd's, and so win.
    let env: BTreeMap<String, String> = env.into_iter().filter(|(_, value)| !value.is_empty()).collect();
    let mut found = BTreeMap::new();
    let mut known = Vec::new();
    for prefix in ["ETCD_", "TENURE_"] {
        for (name, value) in &env {
            let Some(flag) = name.strip_prefix(prefix) else { continue };
            match place_of_env(flag) {
                Some(place) => {
                    found.insert(place, (name, value));
                    known.push((place, name.clone()));
                }
                None => values.warnings.extend(stranger(prefix, flag)),
            }
        }
    }
    for (place, (name, value)) in found {
        if values.get(place).is_none() {
            values.set(place, value.clone(), name.clone());
        }
    }
    known
}

/// What to say of a variable that is no setting. Those of etcd are all settings. Of ours only what looks like one is worth a word:
/// there are others.
fn stranger(prefix: &str, name: &str) -> Option<String> {
    let settings: Vec<String> =
        FLAGS.iter().map(|flag| flag.name.replace('-', "_").to_ascii_uppercase()).collect();
    let names = settings.iter().map(String::as_str);
    if prefix == "ETCD_" {
        let hint =
            nearest(name, names).map_or_else(String::new, |near| format!("; did you mean {prefix}{near}?"));
        return Some(format!("{prefix}{name} in the environment is none of etcd's settings{hint}"));
    }
    let near = nearest(name, names.chain(OF_OTHERS))?;
    (!OF_OTHERS.contains(&near))
        .then(|| format!("{prefix}{name} in the environment is no setting; did you mean {prefix}{near}?"))
}

fn place_of_env(name: &str) -> Option<usize> {
    let flag = name.to_ascii_lowercase().replace('_', "-");
    flags::find(&flag).or_else(|| flags::find(flag.strip_prefix("experimental-")?))
}

/// Finds a flag by the name that a person wrote; what is unknown is refused with the nearest name.
fn known(values: &mut Values, name: &str, what: &str, dashes: &str) -> Result<usize, ConfigError> {
    if let Some(place) = flags::find(name) {
        return Ok(place);
    }
    if let Some(place) = name.strip_prefix("experimental-").and_then(flags::find) {
        let now = FLAGS[place].name;
        values.warnings.push(format!("{dashes}{name} is called {dashes}{now} now"));
        return Ok(place);
    }
    let hint = match nearest(name, FLAGS.iter().map(|flag| flag.name)) {
        Some(near) => format!("; did you mean {dashes}{near}?"),
        None => ". `tenure serve --help` lists them all".to_owned(),
    };
    Err(ConfigError::new(format!("{dashes}{name} is not a known {what}{hint}")))
}

fn from_yaml(path: &str, text: &str) -> Result<Values, ConfigError> {
    let wrong = |what: String| ConfigError::new(format!("{path}: {what}"));
    let parsed: Yaml = serde_norway::from_str(text).map_err(|error| wrong(error.to_string()))?;
    let mapping = match parsed {
        Yaml::Mapping(mapping) => mapping,
        Yaml::Null => serde_norway::Mapping::new(),
        _ => return Err(wrong("it must be a list of `name: value`".to_owned())),
    };
    let mut values = Values::default();
    let mut flat: Vec<(String, Yaml)> = Vec::new();
    for (key, value) in mapping {
        let Yaml::String(key) = key else { return Err(wrong(format!("{key:?} is not a name"))) };
        match (section(&key), value) {
            (Some(rename), Yaml::Mapping(inner)) => {
                for (inner, value) in inner {
                    let Yaml::String(inner) = inner else {
                        return Err(wrong(format!("{inner:?} is not a name")));
                    };
                    flat.push((rename(&inner), value));
                }
            }
            (Some(_), Yaml::Null) => {}
            (Some(_), _) => return Err(wrong(format!("{key} must hold `name: value` pairs"))),
            (None, value) => flat.push((key, value)),
        }
    }
    for (key, value) in flat {
        let place = known(&mut values, &key, "setting", "").map_err(|error| wrong(error.to_string()))?;
        if FLAGS[place].name == "config-file" {
            return Err(wrong("a file cannot name another one".to_owned()));
        }
        if let Some(text) = scalar(FLAGS[place].kind, &key, value).map_err(wrong)? {
            values.set(place, text, format!("{key} in {path}"));
        }
    }
    Ok(values)
}

/// etcd nests some settings; this says how they are called as flags.
fn section(key: &str) -> Option<fn(&str) -> String> {
    match key {
        "client-transport-security" => Some(|inner| match inner {
            "allowed-hostname" | "allowed-hostnames" => "client-cert-allowed-hostname".to_owned(),
            other => other.to_owned(),
        }),
        "peer-transport-security" => Some(|inner| match inner {
            "allowed-cn" | "allowed-hostname" => format!("peer-cert-{inner}"),
            "allowed-cns" | "allowed-hostnames" => format!("peer-cert-{}", &inner[..inner.len() - 1]),
            other => format!("peer-{other}"),
        }),
        "socket-options" => Some(|inner| format!("socket-{inner}")),
        _ => None,
    }
}

/// A value of the file as one would write it behind a flag; `None` if it sets nothing.
fn scalar(kind: Kind, key: &str, value: Yaml) -> Result<Option<String>, String> {
    let text = match (kind, value) {
        (_, Yaml::Null) => return Ok(None),
        (_, Yaml::String(text)) => text,
        (_, Yaml::Bool(value)) => value.to_string(),
        // etcd's file has durations as numbers of nanoseconds.
        (Kind::Duration(_), Yaml::Number(number)) => format!("{number}ns"),
        (Kind::Text, Yaml::Number(_)) if key != "auto-compaction-retention" => {
            return Err(format!("{key} is a text: put it in quotes"));
        }
        (_, Yaml::Number(number)) => number.to_string(),
        (Kind::List | Kind::Urls, Yaml::Sequence(items)) => {
            let item = |item| match item {
                Yaml::String(text) => Ok(text),
                _ => Err(format!("{key} must be a list of texts")),
            };
            items.into_iter().map(item).collect::<Result<Vec<_>, _>>()?.join(",")
        }
        _ => return Err(format!("{key} must be one value")),
    };
    Ok(Some(text))
}

/// What Go takes for a boolean.
pub(super) fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// Whether two ways to write a value mean the same.
pub(super) fn same(kind: Kind, a: &str, b: &str) -> bool {
    match kind {
        Kind::Bool => parse_bool(a) == parse_bool(b),
        Kind::Int(..) => a.parse::<i64>().ok() == b.parse::<i64>().ok(),
        Kind::Duration(_) => duration::parse(a) == duration::parse(b),
        Kind::Text | Kind::Choice(_) | Kind::List | Kind::Urls => a == b,
    }
}

/// The name that was most likely meant, if any is near enough.
pub(super) fn nearest<'a>(wrong: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let (distance, name) = names.map(|name| (edits(wrong, name), name)).min()?;
    // Two letters that changed places are two edits.
    (distance <= (wrong.len() / 3).max(2)).then_some(name)
}

/// How many letters must be put in, taken out or replaced to make `a` into `b`.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, letter) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, other) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *other);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
