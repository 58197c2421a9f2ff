//! Identities from manifests: each ServiceAccount may do what its roles say, and is told what it may not.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::harness::{Lab, secret, token};

const MANIFESTS: &str = "
apiVersion: v1
kind: ServiceAccount
metadata: {name: ttlab-reader, namespace: ttlab}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: not-served, namespace: ttlab}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader, namespace: ttlab}
rules:
- apiGroups: ['']
  resources: [configmaps, secrets]
  verbs: [get, list, watch]
- apiGroups: ['']
  resources: [secrets]
  resourceNames: [mine]
  verbs: [delete]
- apiGroups: [subresources.kubevirt.io]
  resources: [virtualmachineinstances/console]
  verbs: [get]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader, namespace: ttlab}
roleRef: {kind: Role, name: reader}
subjects:
- {kind: ServiceAccount, name: ttlab-reader}
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: wall, namespace: ttlab}
spec: {hard: {count/configmaps: '2'}}
";

async fn lab() -> (Lab, String) {
    let dir = tempfile::tempdir().unwrap();
    let deploy = dir.path().join("deploy");
    std::fs::create_dir(&deploy).unwrap();
    std::fs::write(deploy.join("all.yaml"), MANIFESTS).unwrap();
    let lab = Lab::start_in(dir, &["--deploy", deploy.to_str().unwrap()]).await;
    let dir = lab.running.as_ref().unwrap().kubeconfig_dir.clone();
    let reader = token(&dir.join("ttlab-reader.kubeconfig"));
    (lab, reader)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_may_do_what_its_role_says_and_nothing_else() {
    let (lab, reader) = lab().await;
    for name in ["mine", "other"] {
        lab.create("/api/v1/namespaces/ttlab/secrets", secret(name, json!({}))).await;
    }
    let ns = "/api/v1/namespaces/ttlab";
    let console = "/apis/subresources.kubevirt.io/v1/namespaces/ttlab/virtualmachineinstances/x";
    for (method, path, code) in [
        (Method::GET, format!("{ns}/secrets"), 200),
        (Method::GET, format!("{ns}/secrets/mine"), 200),
        (Method::GET, format!("{ns}/secrets/nope"), 404),
        (Method::GET, "/api/v1/secrets".to_owned(), 403),
        (Method::GET, "/api/v1/namespaces/default/secrets".to_owned(), 403),
        (Method::POST, format!("{ns}/secrets"), 403),
        (Method::DELETE, format!("{ns}/secrets/other"), 403),
        (Method::DELETE, format!("{ns}/secrets/mine"), 200),
        (Method::DELETE, format!("{ns}/secrets"), 403),
        (Method::PATCH, format!("{ns}/secrets/other"), 403),
        (Method::GET, format!("{ns}/pods"), 403),
        (Method::GET, format!("{console}/console"), 406),
        (Method::GET, format!("{console}/vnc"), 403),
        (Method::GET, "/version".to_owned(), 200),
        (Method::GET, "/apis".to_owned(), 200),
        (Method::GET, "/metrics".to_owned(), 403),
    ] {
        let body = (method == Method::POST || method == Method::PATCH).then(|| json!({}));
        let answer = lab.call_as(&reader, method.clone(), &path, body).await;
        assert_eq!(answer.code.as_u16(), code, "{method} {path}: {}", answer.json());
    }
    for bad in ["", "x"] {
        let answer = lab.call_as(bad, Method::GET, "/api/v1/namespaces/ttlab/secrets", None).await;
        assert_eq!(answer.code, StatusCode::UNAUTHORIZED);
        assert_eq!(answer.json()["message"], "Unauthorized");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_names_who_what_and_where() {
    let (lab, reader) = lab().await;
    let answer = lab.call_as(&reader, Method::GET, "/api/v1/namespaces/ttlab/pods/x", None).await.json();
    assert_eq!(
        answer["message"],
        "pods \"x\" is forbidden: User \"system:serviceaccount:ttlab:ttlab-reader\" cannot get resource \"pods\" in \
         API group \"\" in the namespace \"ttlab\""
    );
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"namespace": "ttlab", "verb": "list", "resource": "secrets"}},
    });
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let answer = lab.call_as(&reader, Method::POST, path, Some(review)).await.json();
    assert_eq!(answer["status"]["allowed"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn rights_follow_their_roles_at_once_and_end_with_the_account() {
    let (lab, reader) = lab().await;
    let secrets = "/api/v1/namespaces/ttlab/secrets";
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/ttlab";
    assert_eq!(lab.call_as(&reader, Method::GET, secrets, None).await.code, StatusCode::OK);
    lab.call(Method::DELETE, &format!("{rbac}/rolebindings/reader"), None).await;
    assert_eq!(lab.call_as(&reader, Method::GET, secrets, None).await.code, StatusCode::FORBIDDEN);
    lab.call(Method::DELETE, "/api/v1/namespaces/ttlab/serviceaccounts/ttlab-reader", None).await;
    assert_eq!(lab.call_as(&reader, Method::GET, secrets, None).await.code, StatusCode::UNAUTHORIZED);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_writers_never_pass_a_quota() {
    let (lab, _) = lab().await;
    let quota = "/api/v1/namespaces/ttlab/resourcequotas/wall";
    lab.until_that(quota, |a| a.json()["status"]["used"].is_object()).await;
    let maps = "/api/v1/namespaces/ttlab/configmaps";
    // The namespace's own ConfigMap counts as well.
    lab.until(&format!("{maps}/kube-root-ca.crt"), StatusCode::OK).await;
    let create = |i: usize| {
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("c{i}")}});
        lab.call(Method::POST, maps, Some(body))
    };
    let answers = futures::future::join_all((0..200).map(create)).await;
    let made = answers.iter().filter(|a| a.code == StatusCode::CREATED).count();
    assert_eq!(made, 1);
    let refused: Vec<Value> =
        answers.iter().filter(|a| a.code != StatusCode::CREATED).map(crate::harness::Answer::json).collect();
    assert!(
        refused
            .iter()
            .all(|r| r["code"] == 403 && r["message"].as_str().unwrap().contains("exceeded quota: wall"))
    );
}
