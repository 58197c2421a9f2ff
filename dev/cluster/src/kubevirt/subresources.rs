//! `subresources.kubevirt.io`: start, stop, restart, console, vnc, as virt-api answers them.

use std::sync::{Arc, OnceLock, Weak};

use axum::extract::FromRequestParts as _;
use axum::extract::ws::WebSocketUpgrade;
use axum::response::{IntoResponse as _, Response};
use futures::future::BoxFuture;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::console;
use super::status::{is_final, phase, strategy};
use super::work::World;
use crate::admission::{SubresourceCall, Subresources};
use crate::http::{plain, status_response};
use crate::object;
use crate::resource::{Resource, VIRTUAL_MACHINE_INSTANCES, VIRTUAL_MACHINES};
use crate::status::{Cause, Details, Status};
use crate::store::{Key, ObjectRef};

/// The only subprotocol.
const PROTOCOL: &str = "plain.kubevirt.io";

/// The handler; the world is there when the controllers have started, which is before the port is published. It belongs
/// to the controllers' task: the cluster holds this handler, so a strong reference would hold the cluster for ever.
pub(super) struct Handler {
    pub(super) world: Arc<OnceLock<Weak<World>>>,
}

impl Subresources for Handler {
    fn call(&self, call: SubresourceCall) -> BoxFuture<'static, Response> {
        let world = self.world.get().and_then(Weak::upgrade);
        Box::pin(async move {
            match world {
                Some(world) => answer(&world, call).await,
                None => status_response(&Status::internal("the machines are not ready yet")),
            }
        })
    }
}

async fn answer(world: &Arc<World>, call: SubresourceCall) -> Response {
    let on_vm = call.resource == VIRTUAL_MACHINES.plural;
    let method = call.request.method().clone();
    let answer = match (on_vm, call.subresource.as_str()) {
        (true, "start") if method == Method::PUT => start(world, &call),
        (true, "stop") if method == Method::PUT => stop(world, &call),
        (true, "restart") if method == Method::PUT => restart(world, &call),
        (false, "console") if method == Method::GET => return serial(world, call).await,
        (false, "vnc") if method == Method::GET => graphics(world, &call),
        _ => return plain(StatusCode::NOT_FOUND, "404: Page Not Found"),
    };
    match answer {
        Ok(()) => {
            let headers = [
                (http::header::CACHE_CONTROL, "no-cache, private"),
                (http::header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
            ];
            (StatusCode::ACCEPTED, headers).into_response()
        }
        Err(status) => status_response(&status),
    }
}

fn key(resource: &'static Resource, call: &SubresourceCall) -> Key {
    Key::new(resource, &call.namespace, &call.name)
}

/// virt-api names the singular where the API server names the plural.
fn details(resource: &Resource, name: &str) -> Details {
    Details {
        name: name.to_owned(),
        group: resource.group.to_owned(),
        kind: resource.singular.to_owned(),
        ..Details::default()
    }
}

fn find(world: &World, key: &Key) -> Result<ObjectRef, Status> {
    world.client.find(key).ok_or_else(|| {
        let (resource, name) = (key.resource, &key.name);
        let message = format!("{}.{} \"{name}\" not found", resource.singular, resource.group);
        Status::new(404, "NotFound", message, Some(details(resource, name)))
    })
}

fn conflict(vm: &ObjectRef, text: &str) -> Status {
    let (resource, name) = (vm.key.resource, &vm.key.name);
    let message = format!(
        "Operation cannot be fulfilled on {}.{} \"{name}\": {text}",
        resource.singular, resource.group
    );
    Status::new(409, "Conflict", message, Some(details(resource, name)))
}

fn set_strategy(world: &World, vm: &ObjectRef, to: &str) -> Result<(), Status> {
    world.client.update(&vm.key, |vm| {
        let spec = object::child_mut(vm, "spec");
        spec.remove("running");
        spec.insert("runStrategy".into(), to.into());
        Ok(())
    })?;
    Ok(())
}

fn live(vmi: Option<&ObjectRef>) -> Option<&ObjectRef> {
    vmi.filter(|vmi| !is_final(&vmi.value))
}

fn start(world: &Arc<World>, call: &SubresourceCall) -> Result<(), Status> {
    let vm = find(world, &key(&VIRTUAL_MACHINES, call))?;
    let vmi = world.instance_of(&vm);
    if live(vmi.as_ref()).is_some() {
        return Err(conflict(&vm, "VM is already running"));
    }
    match strategy(&vm.value) {
        "Halted" => set_strategy(world, &vm, "Always"),
        named @ "Always" => Err(conflict(&vm, &format!("{named} does not support manual start requests"))),
        _ => world.request(&vm.key, vec![json!({"action": "Start"})]),
    }
}

fn stop(world: &Arc<World>, call: &SubresourceCall) -> Result<(), Status> {
    let vm = find(world, &key(&VIRTUAL_MACHINES, call))?;
    let vmi = world.instance_of(&vm);
    match strategy(&vm.value) {
        "Always" => set_strategy(world, &vm, "Halted"),
        "Halted" if live(vmi.as_ref()).is_none() => Err(conflict(&vm, "VM is not running")),
        "Halted" => Ok(()),
        _ => match live(vmi.as_ref()) {
            None => Err(conflict(&vm, "VM is not running")),
            Some(vmi) => world.request(&vm.key, vec![json!({"action": "Stop", "uid": vmi.uid()})]),
        },
    }
}

fn restart(world: &Arc<World>, call: &SubresourceCall) -> Result<(), Status> {
    let vm = find(world, &key(&VIRTUAL_MACHINES, call))?;
    let strategy = strategy(&vm.value);
    if matches!(strategy, "Halted" | "Once") {
        // The misspelling is the original's.
        return Err(conflict(
            &vm,
            &format!("RunStategy {strategy} does not support manual restart requests"),
        ));
    }
    let vmi = world.instance_of(&vm);
    let Some(vmi) = live(vmi.as_ref()) else { return Err(conflict(&vm, "VM is not running")) };
    world.request(&vm.key, vec![json!({"action": "Stop", "uid": vmi.uid()}), json!({"action": "Start"})])
}

fn graphics(world: &Arc<World>, call: &SubresourceCall) -> Result<(), Status> {
    let vmi = find(world, &key(&VIRTUAL_MACHINE_INSTANCES, call))?;
    runs(&vmi)?;
    Err(Status::bad_request("No graphics devices are present."))
}

fn runs(vmi: &ObjectRef) -> Result<(), Status> {
    match phase(&vmi.value) {
        "Running" => Ok(()),
        "Failed" => {
            let (resource, name) = (vmi.key.resource, &vmi.key.name);
            let message = format!(
                "Operation cannot be fulfilled on {}.{} \"{name}\": VMI is in failed status",
                resource.singular, resource.group
            );
            Err(Status::new(409, "Conflict", message, Some(details(resource, name))))
        }
        _ => Err(Status::bad_request("VMI is not running")),
    }
}

async fn serial(world: &Arc<World>, call: SubresourceCall) -> Response {
    let vmi = match find(world, &key(&VIRTUAL_MACHINE_INSTANCES, &call)) {
        Ok(vmi) => vmi,
        Err(status) => return status_response(&status),
    };
    let attached = object::at(&vmi.value, "spec.domain.devices.autoattachSerialConsole");
    if attached.and_then(Value::as_bool) == Some(false) {
        return status_response(&Status::bad_request("No serial consoles are present."));
    }
    if let Err(status) = runs(&vmi) {
        return status_response(&status);
    }
    let Some(machine) = world.driver.get(vmi.uid()) else {
        return status_response(&internal("dial unix virt-serial0: connect: no such file or directory"));
    };
    let (mut parts, _body) = call.request.into_parts();
    // The line is taken before the upgrade is looked at: whoever held it is out, upgrade or not.
    let Ok(line) = machine.console().attach() else {
        return status_response(&internal("dial unix virt-serial0: connect: connection refused"));
    };
    match WebSocketUpgrade::from_request_parts(&mut parts, &()).await {
        Ok(upgrade) => {
            let (world, tracker) = (Arc::clone(world), world.tracker.clone());
            upgrade.protocols([PROTOCOL]).on_upgrade(move |socket| async move {
                // Owned by the cluster's tracker, so that an orderly end waits for it.
                let held = tracker.token();
                console::carry(socket, line, &world.shutdown).await;
                drop(held);
            })
        }
        Err(_rejection) => {
            drop(line);
            machine.console().throw_out();
            let status = Status::bad_request(
                "websocket: the client is not using the websocket protocol: 'upgrade' token not found in 'Connection' header",
            );
            let text = serde_json::to_string_pretty(&go_order(&status)).unwrap_or_default();
            plain(StatusCode::BAD_REQUEST, format!("Bad Request\n{}", text.replace("  ", " ")))
        }
    }
}

fn internal(text: &str) -> Status {
    let details = Details { causes: vec![Cause::new("", text, "")], ..Details::default() };
    Status::new(500, "InternalError", format!("Internal error occurred: {text}"), Some(details))
}

/// A Status with its fields in the order in which Go writes them.
fn go_order(status: &Status) -> impl serde::Serialize {
    #[derive(serde::Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Body {
        kind: &'static str,
        api_version: &'static str,
        metadata: serde_json::Map<String, Value>,
        status: &'static str,
        message: String,
        reason: String,
        code: u16,
    }
    Body {
        kind: "Status",
        api_version: "v1",
        metadata: serde_json::Map::new(),
        status: "Failure",
        message: status.message().to_owned(),
        reason: status.reason().to_owned(),
        code: status.code(),
    }
}
