//! The production manifests, as far as they can be held to something without a cluster.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

/// Every object of `deploy/`.
fn objects() -> Vec<Value> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy");
    let list: Value =
        serde_saphyr::from_str(&fs::read_to_string(dir.join("kustomization.yaml")).unwrap()).unwrap();
    let mut objects = Vec::new();
    for name in list["resources"].as_array().unwrap() {
        let name = name.as_str().unwrap();
        let text = fs::read_to_string(dir.join(name)).unwrap();
        for document in text.split("\n---\n") {
            objects.push(serde_saphyr::from_str(document).unwrap_or_else(|error| panic!("{name}: {error}")));
        }
    }
    objects
}

fn of_kind<'a>(objects: &'a [Value], kind: &'a str) -> impl Iterator<Item = &'a Value> {
    objects.iter().filter(move |object| object["kind"] == kind)
}

fn names(objects: &[Value], kind: &str) -> BTreeSet<String> {
    of_kind(objects, kind).map(|object| object["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn bindings_join_roles_and_accounts_that_exist() {
    let objects = objects();
    let (roles, accounts) = (names(&objects, "Role"), names(&objects, "ServiceAccount"));
    assert_eq!(accounts.len(), 6);
    for binding in of_kind(&objects, "RoleBinding") {
        assert!(roles.contains(binding["roleRef"]["name"].as_str().unwrap()), "{binding}");
        for subject in binding["subjects"].as_array().unwrap() {
            assert!(accounts.contains(subject["name"].as_str().unwrap()), "{binding}");
        }
    }
    for workload in of_kind(&objects, "Deployment").chain(of_kind(&objects, "Job")) {
        let account = workload["spec"]["template"]["spec"]["serviceAccountName"].as_str().unwrap();
        assert!(accounts.contains(account), "{account}");
    }
}

/// The verbs that a role grants on a resource.
fn verbs(objects: &[Value], role: &str, resource: &str) -> BTreeSet<String> {
    let role = of_kind(objects, "Role").find(|object| object["metadata"]["name"] == role).unwrap();
    let rules = role["rules"].as_array().unwrap().iter();
    rules
        .filter(|rule| rule["resources"].as_array().unwrap().iter().any(|named| named == resource))
        .flat_map(|rule| rule["verbs"].as_array().unwrap())
        .map(|verb| verb.as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn only_the_provisioner_creates_only_the_reaper_deletes_and_nobody_has_a_wildcard() {
    let objects = objects();
    for role in names(&objects, "Role") {
        for resource in ["virtualmachines", "virtualmachineinstances", "secrets", "pods", "datavolumes"] {
            let verbs = verbs(&objects, &role, resource);
            assert!(!verbs.contains("*"), "{role} {resource}");
            assert!(!verbs.contains("create") || role == "ttlab-provisioner", "{role} {resource}");
            assert!(!verbs.contains("delete") || role == "ttlab-reaper", "{role} {resource}");
            assert!(!verbs.contains("deletecollection"), "{role} {resource}");
        }
        let console = verbs(&objects, &role, "virtualmachineinstances/console");
        assert_eq!(!console.is_empty(), role == "ttlab-console-gw", "{role}");
    }
    assert!(verbs(&objects, "ttlab-readiness", "secrets").is_empty());
    assert!(verbs(&objects, "ttlab-api", "secrets").is_empty());
}

#[test]
fn machines_reach_no_private_address() {
    let objects = objects();
    let policy =
        of_kind(&objects, "NetworkPolicy").find(|p| p["metadata"]["name"] == "ttlab-machines").unwrap();
    let block = &policy["spec"]["egress"][0]["to"][0]["ipBlock"];
    let except: Vec<&str> =
        block["except"].as_array().unwrap().iter().map(|cidr| cidr.as_str().unwrap()).collect();
    for cidr in
        ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16", "100.64.0.0/10", "127.0.0.0/8"]
    {
        assert!(except.contains(&cidr), "{cidr}");
    }
    assert_eq!(policy["spec"]["ingress"][0]["ports"][0]["port"], 8899);
}
