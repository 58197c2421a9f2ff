//! The API's description.

use reqwest::Method;

use crate::world::World;

#[test]
fn the_description_has_not_changed_by_accident() {
    let text = lab_api::openapi().to_pretty_json().unwrap();
    insta::with_settings!({ prepend_module_to_snapshot => false, snapshot_path => "." }, {
        insta::assert_snapshot!("openapi", text);
    });
}

#[tokio::test]
async fn the_description_is_served_and_is_of_version_3_1() {
    let world = World::start().await;
    let served: serde_json::Value =
        world.request(Method::GET, "/openapi.json").send().await.unwrap().json().await.unwrap();
    assert_eq!(served["openapi"], "3.1.0");
    assert_eq!(served, serde_json::to_value(lab_api::openapi()).unwrap());
}

/// OpenAPI asks for it, and generators of clients rely on it.
#[test]
fn every_operation_has_a_name_of_its_own() {
    let description = serde_json::to_value(lab_api::openapi()).unwrap();
    let paths = description["paths"].as_object().unwrap();
    let mut names: Vec<&str> = paths
        .values()
        .flat_map(|path| path.as_object().unwrap().values())
        .map(|operation| operation["operationId"].as_str().expect("an operation has a name"))
        .collect();
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all, "{names:?}");
}
