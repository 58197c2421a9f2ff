//! The catalogue, without graders and solutions.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, State},
};
use lab_catalog::{Lab, Step, Texts};
use lab_domain::LabId;
use serde::Serialize;
use utoipa::ToSchema;

use super::User;
use crate::{
    app::App,
    error::{ApiError, Code, Problem},
};

/// A text in every language of the page.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct TextsView {
    en: String,
    zh: String,
}

/// All labs.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct LabsView {
    labs: Vec<LabView>,
}

/// A lab.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct LabView {
    id: String,
    title: TextsView,
    summary: TextsView,
    /// `beginner`, `intermediate` or `advanced`.
    difficulty: &'static str,
    runtime: &'static str,
    /// Whether it can be started here.
    supported: bool,
    /// Why not, in plain words.
    unsupported: Option<String>,
    life_s: u64,
    idle_s: u64,
    extend_step_s: u64,
    extend_max_s: u64,
    machines: Vec<String>,
    steps: Vec<StepView>,
}

/// A step.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct StepView {
    n: u32,
    title: TextsView,
    /// Whether it has a check.
    checkable: bool,
    /// Whether the page checks it by itself.
    auto: bool,
    /// Markdown; only in the answer about one lab.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<TextsView>,
    /// Markdown; only in the answer about one lab, null if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<TextsView>)]
    hint: Option<Option<TextsView>>,
}

fn texts(texts: &Texts) -> TextsView {
    TextsView { en: texts.en.clone(), zh: texts.zh.clone() }
}

fn step(step: &Step, is_whole: bool) -> StepView {
    StepView {
        n: step.n,
        title: texts(&step.title),
        checkable: step.check.is_some(),
        auto: step.check.as_ref().is_some_and(|c| c.auto),
        text: is_whole.then(|| texts(&step.text)),
        hint: is_whole.then(|| step.hint.as_ref().map(texts)),
    }
}

fn lab(lab: &Lab, is_whole: bool) -> LabView {
    LabView {
        id: lab.id.to_string(),
        title: texts(&lab.title),
        summary: texts(&lab.summary),
        difficulty: lab.difficulty.as_str(),
        runtime: lab.runtime.as_str(),
        supported: lab.unsupported.is_none(),
        unsupported: lab.unsupported.clone(),
        life_s: lab.life.as_secs(),
        idle_s: lab.idle.as_secs(),
        extend_step_s: lab.extend.step.as_secs(),
        extend_max_s: lab.extend.max.as_secs(),
        machines: lab.machines.iter().map(|m| m.name.to_string()).collect(),
        steps: lab.steps.iter().map(|s| step(s, is_whole)).collect(),
    }
}

/// The labs.
#[utoipa::path(get, operation_id = "list_labs", path = "/api/labs", tag = "labs",
    responses((status = 200, body = LabsView), (status = 401, body = Problem)))]
pub(super) async fn list(State(app): State<Arc<App>>, _user: User) -> Json<LabsView> {
    Json(LabsView { labs: app.catalog.labs.values().map(|l| lab(l, false)).collect() })
}

/// One lab with the texts of its steps.
#[utoipa::path(get, operation_id = "get_lab", path = "/api/labs/{lab}", tag = "labs", params(("lab" = String, Path)),
    responses((status = 200, body = LabView), (status = "4XX", body = Problem)))]
pub(super) async fn one(
    State(app): State<Arc<App>>,
    _user: User,
    Path(id): Path<String>,
) -> Result<Json<LabView>, ApiError> {
    find(&app, &id).map(|l| Json(lab(l, true)))
}

pub(super) fn find<'a>(app: &'a App, id: &str) -> Result<&'a Lab, ApiError> {
    let known = LabId::new(id).ok().and_then(|id| app.catalog.labs.get(&id));
    known.ok_or_else(|| ApiError::new(Code::UnknownLab, "No lab of this name is offered here."))
}
