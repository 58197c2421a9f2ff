//! ResourceQuota: what a create may still take, and the usage that `status` shows.
//!
//! Usage for admission is counted from what is stored, under the cluster's quota lock: a refused create leaves no
//! charge behind, and two creates never take the last place. `status.used` follows a moment later, as on a real
//! cluster.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::object;
use crate::resource::{PERSISTENT_VOLUME_CLAIMS, PODS, RESOURCE_QUOTAS, Resource, TABLE};
use crate::status::Status;
use crate::store::{Key, Store};

/// Plain names that count objects.
const PLAIN: [&str; 6] =
    ["pods", "services", "secrets", "configmaps", "persistentvolumeclaims", "resourcequotas"];

/// A limit that a create would pass.
struct Excess<'a> {
    request: Amount,
    used: Amount,
    limit: &'a str,
}

/// Refuses a create that exceeds a quota of its namespace.
pub(crate) fn admit(store: &Store, key: &Key, object: &Value) -> Result<(), Status> {
    if key.namespace.is_empty() || store.count(&RESOURCE_QUOTAS, &key.namespace) == 0 {
        return Ok(());
    }
    for quota in store.list(&RESOURCE_QUOTAS, Some(&key.namespace)).items {
        let Some(hard) = object::at(&quota.value, "spec.hard").and_then(Value::as_object) else { continue };
        // A quota whose status was not computed yet limits nothing, as on a real cluster.
        if object::at(&quota.value, "status.hard").is_none() {
            continue;
        }
        let mut over: BTreeMap<&str, Excess<'_>> = BTreeMap::new();
        for (item, limit) in hard {
            let request = charge(item, key.resource, object);
            if request.0 == 0 {
                continue;
            }
            let limit = limit.as_str().unwrap_or_default();
            let used = usage(store, item, &key.namespace);
            if used.0 + request.0 > Amount::parse(limit).0 {
                over.insert(item, Excess { request, used, limit });
            }
        }
        if over.is_empty() {
            continue;
        }
        let join = |of: fn(&Excess<'_>, &str) -> String| {
            over.iter().map(|(item, v)| format!("{item}={}", of(v, item))).collect::<Vec<_>>().join(",")
        };
        let text = format!(
            "exceeded quota: {}, requested: {}, used: {}, limited: {}",
            quota.key.name,
            join(|v, item| v.request.show(item)),
            join(|v, item| v.used.show(item)),
            join(|v, _| v.limit.to_owned()),
        );
        return Err(Status::forbidden(key.resource, object::name(object), &text));
    }
    Ok(())
}

/// `status` of a quota as it should be now.
pub(crate) fn status(store: &Store, quota: &Value) -> Value {
    let Some(hard) = object::at(quota, "spec.hard").and_then(Value::as_object) else { return json!({}) };
    let namespace = object::namespace(quota);
    let used: serde_json::Map<String, Value> =
        hard.keys().map(|item| (item.clone(), usage(store, item, namespace).show(item).into())).collect();
    json!({"hard": hard, "used": used})
}

/// Thousandths of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Amount(i128);

impl Amount {
    /// Reads a Kubernetes quantity; nonsense is zero.
    fn parse(text: &str) -> Self {
        const UNITS: [(&str, i128); 12] = [
            ("Ki", 1 << 10),
            ("Mi", 1 << 20),
            ("Gi", 1 << 30),
            ("Ti", 1 << 40),
            ("Pi", 1 << 50),
            ("k", 1_000),
            ("M", 1_000_000),
            ("G", 1_000_000_000),
            ("T", 1_000_000_000_000),
            ("P", 1_000_000_000_000_000),
            ("m", 0),
            ("", 1),
        ];
        let text = text.trim();
        let found = UNITS.iter().find(|(unit, _)| text.ends_with(unit));
        let (unit, factor) = found.copied().unwrap_or(("", 1));
        let digits = text.strip_suffix(unit).unwrap_or(text);
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let mut thousandths = whole.parse::<i128>().unwrap_or_default() * 1000;
        let padded: String = fraction.chars().chain("000".chars()).take(3).collect();
        thousandths += padded.parse::<i128>().unwrap_or_default();
        Self(if unit == "m" { thousandths / 1000 } else { thousandths * factor })
    }

    fn show(self, item: &str) -> String {
        let bytes = item.ends_with("memory") || item.ends_with("storage");
        if self.0 % 1000 != 0 {
            return format!("{}m", self.0);
        }
        let whole = self.0 / 1000;
        if bytes && whole != 0 {
            for (unit, size) in [("Gi", 1_i128 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)] {
                if whole % size == 0 {
                    return format!("{}{unit}", whole / size);
                }
            }
        }
        whole.to_string()
    }
}

fn counted(item: &str) -> Option<&'static Resource> {
    let name = item.strip_prefix("count/").or_else(|| PLAIN.contains(&item).then_some(item))?;
    TABLE.iter().copied().find(|r| r.qualified() == name)
}

/// What one new object takes of a quota's item.
fn charge(item: &str, resource: &'static Resource, object: &Value) -> Amount {
    if let Some(counted) = counted(item) {
        return Amount(if counted == resource { 1000 } else { 0 });
    }
    if *resource == PERSISTENT_VOLUME_CLAIMS && item == "requests.storage" {
        return Amount::parse(object::text_at(object, "spec.resources.requests.storage"));
    }
    if *resource == PODS { of_containers(item, object) } else { Amount(0) }
}

fn usage(store: &Store, item: &str, namespace: &str) -> Amount {
    let is_over = |o: &Value| matches!(object::text_at(o, "status.phase"), "Succeeded" | "Failed");
    if item == "pods" {
        let pods = store.list(&PODS, Some(namespace)).items;
        return Amount(1000 * pods.iter().filter(|p| !is_over(&p.value)).count() as i128);
    }
    if let Some(resource) = counted(item) {
        return Amount(1000 * store.count(resource, namespace) as i128);
    }
    let sum = |resource| {
        let items = store.list(resource, Some(namespace)).items;
        Amount(items.iter().filter(|o| !is_over(&o.value)).map(|o| charge(item, resource, &o.value).0).sum())
    };
    if item == "requests.storage" { sum(&PERSISTENT_VOLUME_CLAIMS) } else { sum(&PODS) }
}

fn of_containers(item: &str, pod: &Value) -> Amount {
    let (part, name) = match item.split_once('.') {
        Some((part @ ("requests" | "limits"), name)) => (part, name),
        Some(_) => return Amount(0),
        None => ("requests", item),
    };
    let containers = object::at(pod, "spec.containers").and_then(Value::as_array);
    let of = |c: &Value| {
        let value = c.get("resources").and_then(|r| r.get(part)).and_then(|r| r.get(name));
        let text = value.map(|v| v.as_str().map_or_else(|| v.to_string(), ToOwned::to_owned));
        Amount::parse(&text.unwrap_or_default()).0
    };
    Amount(containers.into_iter().flatten().map(of).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_and_shown_as_kubernetes_does() {
        for (text, item, shown) in [
            ("1", "count/secrets", "1"),
            ("2Gi", "requests.storage", "2Gi"),
            ("450M", "requests.memory", "450M"),
            ("1015m", "limits.cpu", "1015m"),
            ("1.5", "requests.cpu", "1500m"),
            ("0", "requests.storage", "0"),
        ] {
            let amount = Amount::parse(text);
            let again = Amount::parse(&amount.show(item));
            assert_eq!(amount, again, "{text}");
            if text != "450M" {
                assert_eq!(amount.show(item), shown);
            }
        }
    }
}
