//! What KubeVirt's webhooks refuse, as pure functions: findings with reason, text and field.

use base64::Engine as _;
use serde_json::Value;

use crate::object;
use crate::status::Cause;

/// Bytes of inline cloud-init data that are accepted.
const INLINE: usize = 2048;
const STRATEGIES: [&str; 7] =
    ["Halted", "Manual", "Always", "RerunOnFailure", "Once", "WaitAsReceiver", "SyncStrategy"];
const BINDINGS: [&str; 7] = ["bridge", "slirp", "masquerade", "sriov", "macvtap", "passt", "passtBinding"];
/// Bindings that are known only to be refused.
const DISCONTINUED: [(&str, &str); 3] = [("slirp", "Slirp"), ("macvtap", "Macvtap"), ("passt", "Passt")];

/// A finding of the schema: a path that must have a type.
struct Typed(&'static str, &'static str);

const VM_TYPES: [Typed; 3] = [
    Typed("spec.runStrategy", "string"),
    Typed("spec.running", "boolean"),
    Typed("spec.dataVolumeTemplates", "array"),
];
const INSTANCE_TYPES: [Typed; 8] = [
    Typed("domain", "object"),
    Typed("domain.devices", "object"),
    Typed("domain.devices.disks", "array"),
    Typed("domain.devices.interfaces", "array"),
    Typed("networks", "array"),
    Typed("terminationGracePeriodSeconds", "integer"),
    Typed("volumes", "array"),
    Typed("hostname", "string"),
];

/// What the schema of a VM refuses.
pub(super) fn vm_schema(vm: &Value) -> Vec<String> {
    let mut faults = wrong_types(vm, "", &VM_TYPES);
    match object::at(vm, "spec.template") {
        None => faults.push("spec.template in body is required".to_owned()),
        Some(template) => faults.extend(instance_schema(template.get("spec"), "spec.template.spec")),
    }
    faults
}

/// What the schema of an instance refuses.
pub(super) fn instance_schema(spec: Option<&Value>, at: &str) -> Vec<String> {
    match spec {
        None | Some(Value::Null) => Vec::new(),
        Some(spec) => wrong_types(spec, &format!("{at}."), &INSTANCE_TYPES),
    }
}

fn wrong_types(value: &Value, prefix: &str, types: &[Typed]) -> Vec<String> {
    let wrong = |typed: &Typed| {
        let found = object::at(value, typed.0)?;
        let kind = kind_of(found);
        let fits = kind == typed.1 || found.is_null() || (typed.1 == "integer" && found.is_i64());
        (!fits).then(|| format!("{prefix}{} in body must be of type {}: \"{kind}\"", typed.0, typed.1))
    };
    types.iter().filter_map(wrong).collect()
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Words of caution about an accepted VM.
pub(super) fn vm_warnings(vm: &Value) -> Vec<String> {
    let deprecated = object::at(vm, "spec.running").is_some_and(|running| !running.is_null());
    let text = "spec.running is deprecated, please use spec.runStrategy instead.";
    if deprecated { vec![text.to_owned()] } else { Vec::new() }
}

/// What the validating webhook finds in a VM.
pub(super) fn vm(vm: &Value) -> Vec<Cause> {
    let mut causes = instance(object::at(vm, "spec.template.spec"), "spec.template.spec");
    causes.extend(run_strategy(vm));
    causes.extend(data_volume_templates(vm));
    causes
}

fn run_strategy(vm: &Value) -> Option<Cause> {
    let running = object::at(vm, "spec.running").filter(|running| !running.is_null());
    let strategy = object::at(vm, "spec.runStrategy").and_then(Value::as_str);
    match (running, strategy) {
        (Some(_), Some(_)) => Some(Cause::invalid(
            "Running and RunStrategy are mutually exclusive. Note that Running is deprecated, please use RunStrategy instead",
            "spec.running",
        )),
        (None, None) => Some(Cause::invalid("RunStrategy must be specified", "spec.running")),
        (None, Some(named)) if !STRATEGIES.contains(&named) => {
            Some(Cause::invalid(format!("Invalid RunStrategy ({named})"), "spec.runStrategy"))
        }
        (None, Some(_)) | (Some(_), None) => None,
    }
}

fn data_volume_templates(vm: &Value) -> Vec<Cause> {
    let templates = list(vm, "spec.dataVolumeTemplates");
    let volumes: Vec<&Value> = list(vm, "spec.template.spec.volumes").collect();
    let used = |name: &str| {
        volumes.iter().any(|volume| {
            let data_volume = object::text_at(volume, "dataVolume.name");
            data_volume == name || object::text_at(volume, "persistentVolumeClaim.claimName") == name
        })
    };
    let mut causes = Vec::new();
    for (index, template) in templates.enumerate() {
        let field = format!("spec.dataVolumeTemplate[{index}]");
        let name = object::text_at(template, "metadata.name");
        if name.is_empty() {
            let text = format!("'name' field must not be empty for DataVolumeTemplate entry {field}.");
            causes.push(Cause::new("FieldValueRequired", text, format!("{field}.name")));
        } else if !used(name) {
            let text = format!(
                "DataVolumeTemplate entry {field} must be referenced in the VMI template's 'volumes' list"
            );
            causes.push(Cause::new("FieldValueRequired", text, field));
        }
    }
    causes
}

fn list<'a>(value: &'a Value, path: &str) -> impl Iterator<Item = &'a Value> {
    object::at(value, path).and_then(Value::as_array).into_iter().flatten()
}

/// What the validating webhook finds in the spec of an instance; `at` is where that spec stands.
pub(super) fn instance(spec: Option<&Value>, at: &str) -> Vec<Cause> {
    let Some(spec) = spec else { return Vec::new() };
    let mut causes = Vec::new();
    disks(spec, at, &mut causes);
    volumes(spec, at, &mut causes);
    networks(spec, at, &mut causes);
    interfaces(spec, at, &mut causes);
    if let Some(seconds) = spec.get("terminationGracePeriodSeconds").and_then(Value::as_i64)
        && seconds < 0
    {
        let field = format!("{at}.terminationGracePeriodSeconds");
        causes.push(Cause::invalid(format!("{field} must be greater than or equal to 0."), field.clone()));
    }
    causes
}

fn disks(spec: &Value, at: &str, causes: &mut Vec<Cause>) {
    let mut seen = Vec::new();
    for (index, disk) in list(spec, "domain.devices.disks").enumerate() {
        let name = object::text_at(disk, "name");
        let field = format!("{at}.domain.devices.disks[{index}]");
        if seen.contains(&name) {
            let text = format!("{field} and {at}.domain.devices.disks must not have the same Name.");
            causes.push(Cause::invalid(text, format!("{field}.name")));
        }
        seen.push(name);
        if !list(spec, "volumes").any(|volume| object::text_at(volume, "name") == name) {
            let text = format!("{field}.Name '{name}' not found.");
            causes.push(Cause::invalid(text, format!("{field}.name")));
        }
    }
}

fn volumes(spec: &Value, at: &str, causes: &mut Vec<Cause>) {
    let mut seen = Vec::new();
    for (index, volume) in list(spec, "volumes").enumerate() {
        let field = format!("{at}.volumes[{index}]");
        let name = object::text_at(volume, "name");
        if seen.contains(&name) {
            let text = format!("{field}.name '{name}' must be unique.");
            causes.push(Cause::new("FieldValueDuplicate", text, format!("{field}.name")));
        }
        seen.push(name);
        let sources = volume.as_object().map_or(0, |map| map.keys().filter(|key| *key != "name").count());
        if sources != 1 {
            let text = format!("{field} must have exactly one source type set");
            causes.push(Cause::invalid(text, field.clone()));
        }
        for kind in ["cloudInitNoCloud", "cloudInitConfigDrive"] {
            if let Some(source) = volume.get(kind) {
                cloud_init(source, &format!("{field}.{kind}"), causes);
            }
        }
    }
}

fn cloud_init(source: &Value, field: &str, causes: &mut Vec<Cause>) {
    let named =
        |key: &str| source.get(key).is_some_and(|value| !value.is_null() && value.as_str() != Some(""));
    let data = [
        ("userdata", "UserDataSecretRef", "userData", "userDataBase64", "secretRef"),
        ("networkdata", "NetworkDataSecretRef", "networkData", "networkDataBase64", "networkDataSecretRef"),
    ];
    let sources = data.map(|(_, _, plain, encoded, secret)| {
        [plain, encoded, secret].into_iter().filter(|key| named(key)).count()
    });
    if sources[0] > 1 {
        causes.push(Cause::invalid(format!("{field} must have only one userdatasource set."), field));
    } else if sources[0] == 0 && sources[1] == 0 {
        causes.push(Cause::invalid(
            format!("{field} must have at least one userdatasource or one networkdatasource set."),
            field,
        ));
    }
    if sources[1] > 1 {
        causes.push(Cause::invalid(format!("{field} must have only one networkdata source set."), field));
    }
    for (what, reference, plain, encoded, _) in data {
        let text = source.get(plain).and_then(Value::as_str).map(str::len);
        let decoded = source
            .get(encoded)
            .and_then(Value::as_str)
            .map(|text| base64::engine::general_purpose::STANDARD.decode(text).map(|bytes| bytes.len()));
        let length = match decoded {
            Some(Err(_)) => {
                let text = format!("{field}.{encoded} is not a valid base64 value.");
                causes.push(Cause::invalid(text, format!("{field}.{encoded}")));
                continue;
            }
            Some(Ok(length)) => Some(length),
            None => text,
        };
        if length.is_some_and(|length| length > INLINE) {
            let text = format!(
                "{field} {what} exceeds {INLINE} byte limit. Should use {reference} for larger data."
            );
            causes.push(Cause::invalid(text, field));
        }
    }
}

fn networks(spec: &Value, at: &str, causes: &mut Vec<Cause>) {
    for (index, network) in list(spec, "networks").enumerate() {
        let name = object::text_at(network, "name");
        let used = list(spec, "domain.devices.interfaces").any(|i| object::text_at(i, "name") == name);
        if !used {
            let field = format!("{at}.networks[{index}].name");
            causes.push(Cause::new("FieldValueRequired", format!("{field} '{name}' not found."), field));
        }
    }
}

fn interfaces(spec: &Value, at: &str, causes: &mut Vec<Cause>) {
    for (index, interface) in list(spec, "domain.devices.interfaces").enumerate() {
        let name = object::text_at(interface, "name");
        let field = format!("{at}.domain.devices.interfaces[{index}]");
        let network = list(spec, "networks").find(|network| object::text_at(network, "name") == name);
        if network.is_none() {
            let text = format!("{field}.name '{name}' not found.");
            causes.push(Cause::invalid(text, format!("{field}.name")));
        }
        if let Some((key, shown)) = DISCONTINUED.iter().find(|(key, _)| interface.get(key).is_some()) {
            let text = format!("{shown} interface support has been discontinued since v1.3");
            causes.push(Cause::invalid(text, format!("spec.domain.devices.interfaces[{index}].{key}")));
            continue;
        }
        let bindings = BINDINGS.iter().filter(|key| interface.get(key).is_some()).count();
        let plugins = usize::from(interface.get("binding").is_some());
        if bindings + plugins != 1 {
            let text =
                format!("logical {name} interface must have exactly one binding method or binding plugin");
            causes.push(Cause::invalid(text, field.clone()));
            continue;
        }
        let on_pod = network.is_some_and(|network| network.get("pod").is_some());
        if interface.get("masquerade").is_some() && network.is_some() && !on_pod {
            let text = "Masquerade interface only implemented with pod network";
            causes.push(Cause::invalid(text, format!("{field}.name")));
        }
    }
}
