//! RBAC: may this user do this?
//!
//! Roles and bindings are read from the store. Compiled rules are cached until one of the four kinds changes: a check
//! of every request must not walk all bindings' JSON.

use std::sync::{Arc, PoisonError, RwLock};

use serde_json::{Value, json};

use crate::api::User;
use crate::object;
use crate::resource::{CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES};
use crate::store::{Key, Store};

/// What somebody wants to do.
#[derive(Debug, Clone, Default)]
pub(crate) struct Action {
    pub(crate) verb: String,
    pub(crate) group: String,
    /// `secrets`, or `virtualmachineinstances/console`.
    pub(crate) resource: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// For paths that are no resource.
    pub(crate) path: Option<String>,
}

#[derive(Debug)]
struct Grant {
    /// `None`: the whole cluster.
    namespace: Option<String>,
    subjects: Vec<Subject>,
    rules: Vec<Value>,
}

#[derive(Debug)]
struct Subject {
    is_group: bool,
    name: String,
}

#[derive(Debug, Default)]
struct Compiled {
    versions: [u64; 4],
    grants: Vec<Grant>,
}

/// The authorizer.
#[derive(Debug, Default)]
pub(crate) struct Rbac(RwLock<Arc<Compiled>>);

impl Rbac {
    /// Whether `user` may do `action`.
    pub(crate) fn allows(&self, store: &Store, user: &User, action: &Action) -> bool {
        if user.is_in("system:masters") {
            return true;
        }
        let compiled = self.compiled(store);
        compiled.grants.iter().any(|grant| {
            grant.covers(&action.namespace, action.path.is_some())
                && grant.names(user)
                && grant.rules.iter().any(|rule| matches(rule, action))
        })
    }

    /// The rules that hold for a user in a namespace, as SelfSubjectRulesReview lists them.
    pub(crate) fn rules(&self, store: &Store, user: &User, namespace: &str) -> Value {
        let compiled = self.compiled(store);
        let (mut resources, mut others) = (Vec::new(), Vec::new());
        for grant in compiled.grants.iter().filter(|g| g.covers(namespace, false) && g.names(user)) {
            for rule in &grant.rules {
                if rule.get("nonResourceURLs").is_some() {
                    others.push(rule.clone());
                } else {
                    resources.push(rule.clone());
                }
            }
        }
        json!({"resourceRules": resources, "nonResourceRules": others, "incomplete": false})
    }

    fn compiled(&self, store: &Store) -> Arc<Compiled> {
        let kinds = [&CLUSTER_ROLES, &CLUSTER_ROLE_BINDINGS, &ROLES, &ROLE_BINDINGS];
        let versions = kinds.map(|kind| store.latest(kind));
        {
            let cached = self.0.read().unwrap_or_else(PoisonError::into_inner);
            if cached.versions == versions {
                return cached.clone();
            }
        }
        let fresh = Arc::new(Compiled { versions, grants: compile(store) });
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = fresh.clone();
        fresh
    }
}

fn compile(store: &Store) -> Vec<Grant> {
    let mut grants = Vec::new();
    for binding in store.list(&CLUSTER_ROLE_BINDINGS, None).items {
        grants.extend(grant(store, &binding.value, None));
    }
    for binding in store.list(&ROLE_BINDINGS, None).items {
        grants.extend(grant(store, &binding.value, Some(&binding.key.namespace)));
    }
    grants
}

fn grant(store: &Store, binding: &Value, namespace: Option<&str>) -> Option<Grant> {
    let name = object::text_at(binding, "roleRef.name");
    let key = match (object::text_at(binding, "roleRef.kind"), namespace) {
        ("Role", Some(namespace)) => Key::new(&ROLES, namespace, name),
        _ => Key::new(&CLUSTER_ROLES, "", name),
    };
    let role = store.get(&key)?;
    let rules = role.value.get("rules").and_then(Value::as_array).cloned().unwrap_or_default();
    let subjects = binding.get("subjects").and_then(Value::as_array);
    let subjects = subjects.into_iter().flatten().map(|subject| {
        let text = |key: &str| subject.get(key).and_then(Value::as_str).unwrap_or_default();
        let account = text("kind") == "ServiceAccount";
        let home = match text("namespace") {
            "" => namespace.unwrap_or_default(),
            other => other,
        };
        Subject {
            is_group: text("kind") == "Group",
            name: if account {
                format!("system:serviceaccount:{home}:{}", text("name"))
            } else {
                text("name").to_owned()
            },
        }
    });
    Some(Grant { namespace: namespace.map(ToOwned::to_owned), subjects: subjects.collect(), rules })
}

impl Grant {
    fn covers(&self, namespace: &str, non_resource: bool) -> bool {
        self.namespace.as_deref().is_none_or(|own| own == namespace && !non_resource)
    }
    fn names(&self, user: &User) -> bool {
        self.subjects.iter().any(|s| if s.is_group { user.is_in(&s.name) } else { *s.name == *user.name })
    }
}

fn matches(rule: &Value, action: &Action) -> bool {
    let list = |key: &str| rule.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let has =
        |key: &str, wanted: &str| list(key).iter().filter_map(Value::as_str).any(|v| v == "*" || v == wanted);
    if !has("verbs", &action.verb) {
        return false;
    }
    if let Some(path) = &action.path {
        return list("nonResourceURLs").iter().filter_map(Value::as_str).any(|pattern| {
            pattern == path || pattern.strip_suffix('*').is_some_and(|start| path.starts_with(start))
        });
    }
    let any_of_subresource = action.resource.split_once('/').map(|(_, sub)| format!("*/{sub}"));
    let resource =
        has("resources", &action.resource) || any_of_subresource.is_some_and(|all| has("resources", &all));
    let names = list("resourceNames");
    let named = names.is_empty() || names.iter().any(|n| n.as_str() == Some(&action.name));
    resource && named && has("apiGroups", &action.group)
}
