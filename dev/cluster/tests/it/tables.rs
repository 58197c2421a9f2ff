//! The answers that the services rely on, row by row. The recordings of the real cluster say the same and much more;
//! these rows hold where the recordings are absent.

use axum::body::Body;
use http::{Method, StatusCode, header};
use serde_json::{Value, json};

use crate::harness::{Lab, secret};

struct Row {
    what: &'static str,
    method: Method,
    path: &'static str,
    media: &'static str,
    body: Value,
    code: u16,
    reason: &'static str,
    message: &'static str,
}

fn row(
    what: &'static str,
    request: (Method, &'static str, &'static str, Value),
    answer: (u16, &'static str, &'static str),
) -> Row {
    let (method, path, media, body) = request;
    let (code, reason, message) = answer;
    Row { what, method, path, media, body, code, reason, message }
}

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const ALL: &str = "/api/v1/namespaces/ttlab/secrets";
const ONE: &str = "/api/v1/namespaces/ttlab/secrets/s1";

fn creates() -> Vec<Row> {
    let post = |body| (Method::POST, ALL, JSON, body);
    let named = |name: &str| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}});
    vec![
        row("a new object", post(secret("s1", json!({"a": "b"}))), (201, "", "")),
        row("the same again", post(named("s1")), (409, "AlreadyExists", "secrets \"s1\" already exists")),
        row(
            "in a namespace that is not there",
            (Method::POST, "/api/v1/namespaces/none/secrets", JSON, named("x")),
            (404, "NotFound", "namespaces \"none\" not found"),
        ),
        row(
            "another namespace in the object",
            post(json!({"metadata": {"name": "x", "namespace": "default"}})),
            (
                400,
                "BadRequest",
                "the namespace of the provided object does not match the namespace sent on the request",
            ),
        ),
        row(
            "another kind",
            post(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}})),
            (
                400,
                "BadRequest",
                "ConfigMap in version \"v1\" cannot be handled as a Secret: converting (v1.ConfigMap) \
                                 to (core.Secret): unknown conversion",
            ),
        ),
        row(
            "no name",
            post(json!({})),
            (
                422,
                "Invalid",
                "Secret \"\" is invalid: metadata.name: Required value: name or generateName is required",
            ),
        ),
        row(
            "no base64",
            post(json!({"metadata": {"name": "x"}, "data": {"a": "%"}})),
            (
                400,
                "BadRequest",
                "Secret in version \"v1\" cannot be handled as a Secret: illegal base64 data at input byte 0",
            ),
        ),
        row(
            "no media type that is known",
            (Method::POST, ALL, "text/plain", json!("x")),
            (
                415,
                "UnsupportedMediaType",
                "the body of the request was in an unknown format - accepted media types \
                                           include: application/json, application/yaml, application/vnd.kubernetes.protobuf",
            ),
        ),
        row(
            "an unknown field, strictly",
            (
                Method::POST,
                "/api/v1/namespaces/ttlab/secrets?fieldValidation=Strict",
                JSON,
                json!({"metadata": {"name": "x"}, "foo": 1}),
            ),
            (
                400,
                "BadRequest",
                "Secret in version \"v1\" cannot be handled as a Secret: strict decoding error: unknown \
                                 field \"foo\"",
            ),
        ),
        row(
            "a method that is not there",
            (Method::POST, ONE, JSON, named("s1")),
            (
                405,
                "MethodNotAllowed",
                "the server \
             does not allow this method on the requested resource",
            ),
        ),
    ]
}

fn changes() -> Vec<Row> {
    let patch = |body| (Method::PATCH, ONE, MERGE, body);
    vec![
        row("a merge patch", patch(json!({"metadata": {"labels": {"x": "y"}}})), (200, "", "")),
        row(
            "a stale version",
            patch(json!({"metadata": {"resourceVersion": "1"}})),
            (
                409,
                "Conflict",
                "Operation cannot be fulfilled on secrets \"s1\": the object has been modified; please \
                               apply your changes to the latest version and try again",
            ),
        ),
        row(
            "another name",
            patch(json!({"metadata": {"name": "other"}})),
            (400, "BadRequest", "the name of the object (other) does not match the name on the URL (s1)"),
        ),
        row(
            "what is not there",
            (Method::PATCH, "/api/v1/namespaces/ttlab/secrets/nope", MERGE, json!({})),
            (404, "NotFound", "secrets \"nope\" not found"),
        ),
        row(
            "a JSON patch that does not fit",
            (
                Method::PATCH,
                ONE,
                "application/json-patch+json",
                json!([{"op": "test", "path": "/type", "value": 1}]),
            ),
            (422, "Invalid", "the server rejected our request due to an error in our request"),
        ),
        row(
            "a patch of no known kind",
            (Method::PATCH, ONE, JSON, json!({})),
            (415, "UnsupportedMediaType", "415: Unsupported Media Type"),
        ),
        row(
            "an apply without a manager",
            (Method::PATCH, ONE, "application/apply-patch+yaml", json!({})),
            (
                422,
                "Invalid",
                "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for \
                              apply patch",
            ),
        ),
    ]
}

fn reads() -> Vec<Row> {
    let get = |path| (Method::GET, path, JSON, Value::Null);
    vec![
        row("an object", get(ONE), (200, "", "")),
        row(
            "what is not there",
            get("/api/v1/namespaces/ttlab/secrets/nope"),
            (404, "NotFound", "secrets \"nope\" not found"),
        ),
        row("a list in no namespace", get("/api/v1/namespaces/none/secrets"), (200, "", "")),
        row(
            "a bad selector",
            get("/api/v1/namespaces/ttlab/secrets?labelSelector=a%20in%201"),
            (400, "BadRequest", "unable to parse requirement: found '1' expected: '('"),
        ),
        row(
            "a field that selects nothing",
            get("/api/v1/namespaces/ttlab/secrets?fieldSelector=data.x%3D1"),
            (400, "BadRequest", "field label not supported: data.x"),
        ),
        row(
            "a version that is none",
            get("/api/v1/namespaces/ttlab/secrets?resourceVersion=abc"),
            (
                400,
                "BadRequest",
                "invalid resource version: resourceVersion: Invalid value: \"abc\": strconv.ParseUint: \
                                 parsing \"abc\": invalid syntax",
            ),
        ),
        row(
            "a streaming list without its match",
            get("/api/v1/namespaces/ttlab/secrets?watch=1&sendInitialEvents=true"),
            (
                422,
                "Invalid",
                "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: \
                              sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            ),
        ),
    ]
}

fn deletes() -> Vec<Row> {
    let delete = |path, body| (Method::DELETE, path, JSON, body);
    vec![
        row(
            "a policy that is none",
            delete(ONE, json!({"propagationPolicy": "Nope"})),
            (
                422,
                "Invalid",
                "DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: Unsupported value: \"Nope\": \
                              supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\"",
            ),
        ),
        row(
            "nothing, dry",
            delete("/api/v1/namespaces/ttlab/secrets/s1?dryRun=All", Value::Null),
            (200, "", ""),
        ),
        row("the object", delete(ONE, Value::Null), (200, "", "")),
        row("it again", delete(ONE, Value::Null), (404, "NotFound", "secrets \"s1\" not found")),
        row("a collection", delete(ALL, Value::Null), (200, "", "")),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn every_row_is_answered_as_the_real_server_answers() {
    let lab = Lab::start().await;
    for row in creates().into_iter().chain(changes()).chain(reads()).chain(deletes()) {
        let request = lab
            .request(row.method.clone(), row.path)
            .header(header::AUTHORIZATION, format!("Bearer {}", lab.admin))
            .header(header::CONTENT_TYPE, row.media)
            .body(if row.body.is_null() { Body::empty() } else { Body::from(row.body.to_string()) })
            .unwrap();
        let answer = Lab::read(lab.send(request).await).await;
        let body = answer.json();
        assert_eq!(answer.code.as_u16(), row.code, "{}: {body}", row.what);
        if row.code >= 400 {
            assert_eq!(body["reason"], row.reason, "{}", row.what);
            assert_eq!(body["message"], row.message, "{}", row.what);
            assert_eq!(body["kind"], "Status");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_finalizer_holds_an_object_and_its_removal_lets_it_go() {
    let lab = Lab::start().await;
    let mut held = secret("held", json!({}));
    held["metadata"]["finalizers"] = json!(["ttlab.io/hold"]);
    lab.create(ALL, held).await;
    let path = format!("{ALL}/held");
    let marked = lab.call(Method::DELETE, &path, None).await.json();
    assert!(marked["metadata"]["deletionTimestamp"].is_string());
    let more = json!({"metadata": {"finalizers": ["ttlab.io/hold", "ttlab.io/more"]}});
    assert_eq!(lab.call(Method::PATCH, &path, Some(more)).await.code, StatusCode::UNPROCESSABLE_ENTITY);
    let taken = lab.call(Method::POST, ALL, Some(secret("held", json!({})))).await.json();
    assert_eq!(taken["message"], "object is being deleted: secrets \"held\" already exists");
    let none = json!({"metadata": {"finalizers": null}});
    assert_eq!(lab.call(Method::PATCH, &path, Some(none)).await.code, StatusCode::OK);
    assert_eq!(lab.call(Method::GET, &path, None).await.code, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread")]
async fn dependents_go_with_their_owner_and_not_before() {
    let lab = Lab::start().await;
    let owner = lab.create(ALL, secret("owner", json!({}))).await;
    let owned = |name: &str, uid: &Value| {
        let mut object = secret(name, json!({}));
        object["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "v1", "kind": "Secret", "name": "owner", "uid": uid}]);
        object
    };
    lab.create(ALL, owned("kept", &owner["metadata"]["uid"])).await;
    lab.create(ALL, owned("early", &json!("00000000-0000-0000-0000-00000000dead"))).await;
    lab.until(&format!("{ALL}/early"), StatusCode::NOT_FOUND).await;
    assert_eq!(lab.call(Method::GET, &format!("{ALL}/kept"), None).await.code, StatusCode::OK);
    lab.call(Method::DELETE, &format!("{ALL}/owner"), None).await;
    lab.until(&format!("{ALL}/kept"), StatusCode::NOT_FOUND).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_in_use_stays_until_its_pod_is_gone() {
    let lab = Lab::start().await;
    let ns = "/api/v1/namespaces/default";
    let claim = json!({
        "metadata": {"name": "disk"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    });
    lab.create(&format!("{ns}/persistentvolumeclaims"), claim).await;
    let pod = json!({
        "metadata": {"name": "user"},
        "spec": {"containers": [{"name": "c", "image": "i"}],
                 "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "disk"}}]},
    });
    lab.create(&format!("{ns}/pods"), pod).await;
    let path = format!("{ns}/persistentvolumeclaims/disk");
    let marked = lab.call(Method::DELETE, &path, None).await.json();
    assert_eq!(marked["metadata"]["finalizers"], json!(["kubernetes.io/pvc-protection"]));
    assert_eq!(lab.call(Method::GET, &path, None).await.code, StatusCode::OK);
    lab.call(Method::DELETE, &format!("{ns}/pods/user?gracePeriodSeconds=0"), None).await;
    lab.until(&path, StatusCode::NOT_FOUND).await;
}
