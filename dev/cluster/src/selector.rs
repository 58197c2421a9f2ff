//! Label and field selectors, with the parser's own error texts.

use serde_json::Value;

use crate::object;
use crate::resource::{self, Resource};

/// Both selectors of a request. Empty ones match everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selector {
    labels: Vec<Requirement>,
    fields: Vec<(String, bool, String)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Test {
    Exists,
    Absent,
    In(Vec<String>),
    NotIn(Vec<String>),
    Greater(i64),
    Less(i64),
}

impl Selector {
    /// Parses both; the error is the text of a 400.
    pub fn parse(resource: &Resource, labels: &str, fields: &str) -> Result<Self, String> {
        Ok(Self { labels: parse_labels(labels)?, fields: parse_fields(resource, fields)? })
    }

    /// Only labels, e.g. `app=lab,!x`.
    pub fn labels(text: &str) -> Result<Self, String> {
        Ok(Self { labels: parse_labels(text)?, fields: Vec::new() })
    }

    /// Whether everything matches.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Whether an object matches.
    pub fn matches(&self, object: &Value) -> bool {
        self.labels.iter().all(|r| r.matches(object))
            && self.fields.iter().all(|(path, equal, wanted)| {
                let found = object::at(object, path);
                let text = found.map(|v| v.as_str().map_or_else(|| v.to_string(), ToOwned::to_owned));
                (text.unwrap_or_default() == *wanted) == *equal
            })
    }
}

impl Requirement {
    fn matches(&self, object: &Value) -> bool {
        let value = object::label(object, &self.key);
        let number = || value.and_then(|v| v.parse::<i64>().ok());
        match &self.test {
            Test::Exists => value.is_some(),
            Test::Absent => value.is_none(),
            Test::In(all) => value.is_some_and(|v| all.iter().any(|a| a == v)),
            Test::NotIn(all) => value.is_none_or(|v| !all.iter().any(|a| a == v)),
            Test::Greater(limit) => number().is_some_and(|n| n > *limit),
            Test::Less(limit) => number().is_some_and(|n| n < *limit),
        }
    }
}

fn tokens(text: &str) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c.is_whitespace() {
            continue;
        }
        let mut token = c.to_string();
        let is_symbol = |c: char| "=!(),<>".contains(c);
        if is_symbol(c) {
            if (c == '=' || c == '!') && chars.peek() == Some(&'=') {
                token.push('=');
                chars.next();
            }
        } else {
            while let Some(next) = chars.next_if(|n| !n.is_whitespace() && !is_symbol(*n)) {
                token.push(next);
            }
        }
        out.push(token);
    }
    out
}

const OPERATORS: &str = "in, notin, =, ==, !=, gt, lt";

fn parse_labels(text: &str) -> Result<Vec<Requirement>, String> {
    let tokens = tokens(text);
    let mut at = 0;
    let mut out = Vec::new();
    let bad = |text: String| format!("unable to parse requirement: {text}");
    while at < tokens.len() {
        let token = tokens[at].as_str();
        at += 1;
        if token == "!" {
            let key = tokens
                .get(at)
                .filter(|t| !is_symbol(t))
                .ok_or_else(|| bad(expected(&tokens, at, "identifier")))?;
            at += 1;
            out.push(Requirement { key: key.clone(), test: Test::Absent });
        } else if is_symbol(token) {
            return Err(bad(format!("found '{token}', expected: !, identifier, or 'end of string'")));
        } else {
            let key = token.to_owned();
            let test = match tokens.get(at).map(String::as_str) {
                None | Some(",") => Test::Exists,
                Some(operator) => {
                    at += 1;
                    operation(operator, &tokens, &mut at).map_err(bad)?
                }
            };
            out.push(Requirement { key, test });
        }
        match tokens.get(at).map(String::as_str) {
            None => break,
            Some(",") => {
                at += 1;
                if at == tokens.len() {
                    return Err(bad("found '', expected: identifier after ','".to_owned()));
                }
            }
            Some(other) => return Err(format!("found '{other}', expected: ',' or 'end of string'")),
        }
    }
    Ok(out)
}

fn is_symbol(token: &str) -> bool {
    matches!(token, "=" | "==" | "!=" | "!" | "(" | ")" | "," | "<" | ">")
}

fn expected(tokens: &[String], at: usize, what: &str) -> String {
    format!("found '{}', expected: {what}", tokens.get(at).map(String::as_str).unwrap_or_default())
}

fn operation(operator: &str, tokens: &[String], at: &mut usize) -> Result<Test, String> {
    let value = |at: &mut usize| match tokens.get(*at) {
        Some(token) if !is_symbol(token) => {
            *at += 1;
            token.clone()
        }
        Some(_) | None => String::new(),
    };
    match operator {
        "=" | "==" => Ok(Test::In(vec![value(at)])),
        "!=" => Ok(Test::NotIn(vec![value(at)])),
        "in" => set(tokens, at).map(Test::In),
        "notin" => set(tokens, at).map(Test::NotIn),
        ">" | "gt" => number(&value(at)).map(Test::Greater),
        "<" | "lt" => number(&value(at)).map(Test::Less),
        other => Err(format!("found '{other}', expected: {OPERATORS}")),
    }
}

fn number(text: &str) -> Result<i64, String> {
    text.parse()
        .map_err(|_| format!("for 'Gt', 'Lt' operators, the value must be an integer, found '{text}'"))
}

fn set(tokens: &[String], at: &mut usize) -> Result<Vec<String>, String> {
    let found = tokens.get(*at).map(String::as_str).unwrap_or_default();
    if found != "(" {
        return Err(format!("found '{found}' expected: '('"));
    }
    *at += 1;
    let mut values = Vec::new();
    loop {
        match tokens.get(*at).map(String::as_str) {
            Some(")") => break,
            Some(",") => {}
            Some(token) if !is_symbol(token) => values.push(token.to_owned()),
            other => {
                return Err(format!(
                    "found '{}', expected: ',', ')' or identifier",
                    other.unwrap_or_default()
                ));
            }
        }
        *at += 1;
    }
    *at += 1;
    Ok(values)
}

/// The fields that a kind can be selected by, beside `metadata.name` and `metadata.namespace`.
fn selectable(resource: &Resource) -> &'static [&'static str] {
    if *resource == resource::PODS {
        &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
            "spec.hostNetwork",
        ]
    } else if *resource == resource::SECRETS {
        &["type"]
    } else if *resource == resource::NAMESPACES {
        &["status.phase"]
    } else if *resource == resource::NODES {
        &["spec.unschedulable"]
    } else if *resource == resource::EVENTS {
        &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ]
    } else {
        &[]
    }
}

fn parse_fields(resource: &Resource, text: &str) -> Result<Vec<(String, bool, String)>, String> {
    let mut out = Vec::new();
    for term in text.split(',').filter(|t| !t.is_empty()) {
        let (path, equal, value) = if let Some((path, value)) = term.split_once("!=") {
            (path, false, value)
        } else if let Some((path, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
            (path, true, value)
        } else {
            return Err(format!("invalid selector: '{text}'; can't understand '{term}'"));
        };
        let known =
            ["metadata.name", "metadata.namespace"].contains(&path) || selectable(resource).contains(&path);
        if !known {
            return Err(format!("field label not supported: {path}"));
        }
        out.push((path.to_owned(), equal, value.to_owned()));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::resource::{SECRETS, VIRTUAL_MACHINES};

    #[test]
    fn label_selectors_match_as_in_kubernetes() {
        let object = json!({"metadata": {"labels": {"app": "lab", "idx": "2", "empty": ""}}});
        for (text, wanted) in [
            ("", true),
            ("app=lab", true),
            ("app==lab,idx=2", true),
            ("idx!=2", false),
            ("none!=x", true),
            ("idx in (1,2)", true),
            ("idx notin (1, 2)", false),
            ("none notin (a)", true),
            ("app", true),
            ("!app", false),
            ("!none,app", true),
            ("empty=", true),
            ("idx>1", true),
            ("idx<2", false),
        ] {
            assert_eq!(Selector::labels(text).unwrap().matches(&object), wanted, "{text}");
        }
    }

    #[test]
    fn bad_selectors_are_refused_in_the_real_words() {
        for (text, message) in [
            ("idx in 1", "unable to parse requirement: found '1' expected: '('"),
            ("a b=c", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ] {
            assert_eq!(Selector::labels(text).unwrap_err(), message);
        }
        let refused = Selector::parse(&VIRTUAL_MACHINES, "", "status.printableStatus=Stopped").unwrap_err();
        assert_eq!(refused, "field label not supported: status.printableStatus");
        assert!(Selector::parse(&SECRETS, "", "metadata.name!=x,type=Opaque").is_ok());
    }
}
