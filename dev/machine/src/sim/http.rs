//! The operator's handle on the played machines: their rules, and a look at them.
//!
//! The cluster mounts this under its own authorization (its admin only); here nobody is asked who he is.

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};

use super::{Rules, Sim};
use crate::machine::{End, Run};

/// `GET`, `PUT /sim/v1/rules` · `GET /sim/v1/machines` · `POST /sim/v1/machines/{uid}/kill`.
pub fn router(sim: Sim) -> Router {
    Router::new()
        .route("/sim/v1/rules", get(rules).put(set_rules))
        .route("/sim/v1/machines", get(machines))
        .route("/sim/v1/machines/{uid}/kill", post(kill))
        .with_state(sim)
}

async fn rules(State(sim): State<Sim>) -> Json<Rules> {
    Json(sim.rules())
}

async fn set_rules(State(sim): State<Sim>, body: axum::body::Bytes) -> Response {
    // Not axum's `Json`: the operator shall read what is wrong with the rules, whatever the content type.
    let rules: Rules = match serde_json::from_slice(&body) {
        Ok(rules) => rules,
        Err(error) => return (StatusCode::BAD_REQUEST, format!("bad rules: {error}\n")).into_response(),
    };
    match sim.set_rules(rules).await {
        Ok(()) => Json(sim.rules()).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

async fn machines(State(sim): State<Sim>) -> Json<serde_json::Value> {
    let list: Vec<_> = sim
        .machines()
        .into_iter()
        .map(|machine| {
            let status = machine.status();
            serde_json::json!({
                "uid": machine.uid(),
                "address": machine.address(),
                "run": word(status.run),
                "resets": status.resets,
            })
        })
        .collect();
    Json(serde_json::json!({ "machines": list }))
}

fn word(run: Run) -> &'static str {
    match run {
        Run::Starting => "starting",
        Run::Running => "running",
        Run::Ended(End::Shutdown) => "shutdown",
        Run::Ended(End::Crashed) => "crashed",
        Run::Ended(End::Panicked) => "panicked",
        Run::Ended(End::Killed) => "killed",
    }
}

async fn kill(State(sim): State<Sim>, Path(uid): Path<String>) -> StatusCode {
    match sim.get(&uid) {
        Some(machine) => {
            machine.kill().await;
            StatusCode::NO_CONTENT
        }
        None => StatusCode::NOT_FOUND,
    }
}
