//! One run through the recordings: what was learned so far, and how each form of recording is replayed.

use std::collections::HashMap;
use std::time::Duration;

use axum::body::Body;
use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::Recording;
use super::compare::{difference, discovery_difference, headers, recorded_headers, settled, uuids};
use super::extra::{Step, steps};
use crate::harness::{Answer, Lab};

/// How long a stream is listened to, whatever the recording waited.
const STREAM: Duration = Duration::from_millis(1500);

/// How a replay came out.
pub(super) enum Outcome {
    Same,
    Different(String),
}

impl Outcome {
    fn of(differences: Vec<String>) -> Self {
        if differences.is_empty() { Self::Same } else { Self::Different(differences.join("\n")) }
    }
}

/// A cluster and what its objects are called in the recordings.
pub(super) struct Session {
    lab: Lab,
    setup: Vec<(u32, Value)>,
    extra: Vec<Step>,
    /// Recorded uid, resourceVersion or continue token -> the live one.
    live: HashMap<String, String>,
    limited: String,
}

impl Session {
    pub(super) async fn start(setup: Vec<Value>) -> Self {
        let number = |entry: &Value| u32::try_from(entry["before"].as_u64().unwrap()).unwrap();
        let setup = setup.into_iter().map(|e| (number(&e), e["request"].clone())).collect();
        let quick = ["--sim-boot", "20ms", "--sim-agent", "5ms", "--sim-prepare", "5ms"];
        let lab = Lab::start_in(tempfile::tempdir().unwrap(), &quick).await;
        Self { lab, setup, extra: steps(), live: HashMap::new(), limited: String::new() }
    }

    /// Sends what stands before a recording.
    pub(super) async fn prepare(&mut self, number: u32) {
        let mut moments: Vec<u32> = self.setup.iter().map(|(n, _)| *n).collect();
        moments.extend(self.extra.iter().map(|step| step.before));
        moments.push(number);
        moments.retain(|n| *n <= number);
        moments.sort_unstable();
        moments.dedup();
        for moment in moments {
            self.prepare_extra(moment).await;
            for request in self.due(moment) {
                self.send_setup(&request).await;
            }
        }
    }

    fn due(&mut self, number: u32) -> Vec<Value> {
        let (due, later) = std::mem::take(&mut self.setup).into_iter().partition(|(n, _)| *n <= number);
        self.setup = later;
        let due: Vec<(u32, Value)> = due;
        due.into_iter().map(|(_, request)| request).collect()
    }

    async fn prepare_extra(&mut self, number: u32) {
        let (due, later): (Vec<Step>, Vec<Step>) =
            std::mem::take(&mut self.extra).into_iter().partition(|step| step.before <= number);
        self.extra = later;
        for step in due {
            let request = json!({
                "method": step.method, "path": step.path, "headers": {"Content-Type": step.content_type},
                "body": step.body,
            });
            self.send_setup(&request).await;
        }
        let quota = match number {
            702 => Some(("t7", "vms")),
            712 => Some(("t7", "vms-zero")),
            1313 => Some(("t13q", "q")),
            _ => None,
        };
        if let Some((namespace, quota)) = quota {
            let path = format!("/api/v1/namespaces/{namespace}/resourcequotas/{quota}");
            self.lab.until_that(&path, |a| a.json()["status"]["used"].is_object()).await;
        } else if number == 231 {
            let now = self.lab.call(Method::GET, "/api/v1/namespaces/t2/secrets/s1", None).await.json();
            let version = now["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
            self.live.insert("340".to_owned(), version);
        } else if number == 401 {
            let version = self.lab.running.as_ref().unwrap().cluster.store().version().to_string();
            self.live.insert("388".to_owned(), version);
        } else if number == 450 {
            let list = self.lab.call(Method::GET, "/api/v1/namespaces/t3/secrets?limit=3", None).await.json();
            let version = list["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
            let token = list["metadata"]["continue"].as_str().unwrap().to_owned();
            self.live.insert("641".to_owned(), version);
            let recorded = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6NjQxLCJzdGFydCI6Ii9zMVx1MDAwMCJ9";
            self.live.insert(recorded.to_owned(), token);
        } else if number == 900 || number == 1060 {
            // The recorded cluster had no node until then.
            let why = json!({"behaviour": {"unschedulable": "no nodes available to schedule pods"}});
            let rules = if number == 900 { vec![why] } else { Vec::new() };
            let answer = self.lab.call(Method::PUT, "/sim/v1/rules", Some(json!({"rules": rules}))).await;
            assert!(answer.code.is_success(), "{}", answer.json());
        } else if number == 452 {
            self.lab.running.as_ref().unwrap().cluster.store().forget_windows();
        }
    }

    /// Owners are named by the uid that they have here; one that the recording invented stays.
    fn with_live_owners(&self, request: &Value) -> Value {
        let mut request = request.clone();
        let namespace = request["path"]
            .as_str()
            .unwrap()
            .split('/')
            .skip_while(|p| *p != "namespaces")
            .nth(1)
            .map(ToOwned::to_owned);
        let Some(owners) = request["body"]["metadata"]["ownerReferences"].as_array_mut() else {
            return request;
        };
        let store = self.lab.running.as_ref().unwrap().cluster.store();
        for owner in owners {
            let invented = owner["uid"].as_str().unwrap().ends_with("dead") || owner["uid"] == "";
            let resource = lab_cluster::resource::find_kind(
                owner["apiVersion"].as_str().unwrap(),
                owner["kind"].as_str().unwrap(),
            );
            let (Some(resource), false) = (resource, invented) else { continue };
            let name = owner["name"].as_str().unwrap();
            let found = [namespace.as_deref().unwrap_or_default(), "t2"]
                .iter()
                .find_map(|ns| store.get(&lab_cluster::store::Key::new(resource, ns, name)));
            if let Some(found) = found {
                owner["uid"] = found.uid().into();
            }
        }
        request
    }

    async fn send_setup(&mut self, request: &Value) {
        let answer = self.send(&self.with_live_owners(request), "admin").await;
        let path = request["path"].as_str().unwrap();
        if path.ends_with("/token") {
            answer.json()["status"]["token"].as_str().unwrap().clone_into(&mut self.limited);
        }
        let expected = [StatusCode::UNPROCESSABLE_ENTITY, StatusCode::CONFLICT];
        let refused = !answer.code.is_success() && !expected.contains(&answer.code);
        if refused {
            println!("setup {} {path}: {} {}", request["method"], answer.code, answer.json());
        }
    }

    /// A launcher pod has a name of its own in each run.
    fn live_pod(&self, path: &str) -> String {
        let Some((namespace, name)) =
            path.strip_prefix("/api/v1/namespaces/").and_then(|rest| rest.split_once("/pods/"))
        else {
            return path.to_owned();
        };
        let start = name.rsplit_once('-').map_or(name, |(start, _)| start);
        let start = if name.len() == 63 { &name[..58] } else { start };
        let store = self.lab.running.as_ref().unwrap().cluster.store();
        let pods = store.list(&lab_cluster::resource::PODS, Some(namespace)).items;
        let live = pods.iter().find(|pod| pod.key.name.starts_with(start));
        let live = live.map_or(name, |pod| &*pod.key.name);
        format!("/api/v1/namespaces/{namespace}/pods/{live}")
    }

    fn translated(&self, text: &str) -> String {
        let (path, query) = text.split_once('?').unwrap_or((text, ""));
        let path = &self.live_pod(path);
        let pairs: Vec<String> = query
            .split('&')
            .filter(|p| !p.is_empty())
            .map(|pair| {
                let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                let known =
                    matches!(key, "continue" | "resourceVersion").then(|| self.live.get(value)).flatten();
                let value = known.map_or(value, String::as_str);
                if pair.contains('=') { format!("{key}={value}") } else { key.to_owned() }
            })
            .collect();
        if pairs.is_empty() { path.clone() } else { format!("{path}?{}", pairs.join("&")) }
    }

    fn translated_body(&self, body: &Value) -> Option<String> {
        if body.is_null() {
            return None;
        }
        if let Some(text) = body.as_str() {
            return Some(text.to_owned());
        }
        let mut body = body.clone();
        for place in ["/metadata/resourceVersion", "/preconditions/resourceVersion"] {
            if let Some(version) = body.pointer_mut(place)
                && let Some(live) = version.as_str().and_then(|v| self.live.get(v))
            {
                *version = live.as_str().into();
            }
        }
        let mut text = body.to_string();
        for (recorded, live) in self.live.iter().filter(|(recorded, _)| recorded.len() == 36) {
            text = text.replace(recorded, live);
        }
        Some(text)
    }

    fn build(&self, request: &Value, who: &str) -> http::Request<Body> {
        let method: Method = request["method"].as_str().unwrap().parse().unwrap();
        let mut builder = self.lab.request(method, &self.translated(request["path"].as_str().unwrap()));
        let sent = request["headers"].as_object().cloned().unwrap_or_default();
        for (name, value) in &sent {
            if name.eq_ignore_ascii_case("authorization") {
                continue;
            }
            let name: HeaderName = name.parse().unwrap();
            builder = builder.header(name, HeaderValue::from_str(value.as_str().unwrap()).unwrap());
        }
        if !sent.contains_key("User-Agent") {
            builder = builder.header(header::USER_AGENT, "curl/8.5.0");
        }
        let token = match who {
            "nobody" => None,
            "bad" => Some("bad"),
            name if name.ends_with(":limited") => Some(self.limited.as_str()),
            _ => Some(self.lab.admin.as_str()),
        };
        if let Some(token) = token {
            builder = builder.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        builder.body(self.translated_body(&request["body"]).map_or_else(Body::empty, Body::from)).unwrap()
    }

    async fn send(&self, request: &Value, who: &str) -> Answer {
        Lab::read(self.lab.send(self.build(request, who)).await).await
    }

    /// Remembers which live names stand for the recorded ones.
    fn learn(&mut self, recorded: &Value, live: &Value) {
        let (Some(a), Some(b)) = (recorded.as_object(), live.as_object()) else {
            if let (Some(a), Some(b)) = (recorded.as_array(), live.as_array()) {
                for (x, y) in a.iter().zip(b) {
                    self.learn(x, y);
                }
            }
            return;
        };
        for (key, value) in a {
            let Some(other) = b.get(key) else { continue };
            if ["uid", "resourceVersion", "continue"].contains(&key.as_str()) {
                if let (Some(x), Some(y)) = (value.as_str(), other.as_str())
                    && !x.is_empty()
                {
                    self.live.insert(x.to_owned(), y.to_owned());
                }
            } else if let (Some(x), Some(y)) = (value.as_str(), other.as_str()) {
                let pairs = uuids(x).into_iter().zip(uuids(y));
                self.live.extend(pairs.filter(|(x, y)| x != y));
            } else {
                self.learn(value, other);
            }
        }
    }

    /// Of a recording that is not compared: what stands before it, and its own write, on which later ones build.
    pub(super) async fn only_send(&mut self, recording: &Recording) {
        self.prepare(recording.place).await;
        let request = &recording.content["request"];
        if request["method"].as_str().is_some_and(|m| m != "GET") && recording.number < 1400 {
            self.settle().await;
            self.send(request, "admin").await;
        }
    }

    /// Replays one recording.
    pub(super) async fn replay(&mut self, recording: &Recording) -> Outcome {
        let content = &recording.content;
        if content["response"]["events"].is_array() {
            return self.replay_watch(recording).await;
        }
        if content.get("refs").is_some() {
            return self.replay_owner(recording).await;
        }
        self.prepare(recording.place).await;
        if content["request"].is_object() {
            let who = match (content["as"].as_str().unwrap_or("admin"), recording.name.contains("bad-token"))
            {
                (_, true) => "bad",
                (who, false) => who,
            };
            if recording.number >= 600 && content["request"]["method"] != "GET" {
                self.settle().await;
            }
            // What controllers do shows a moment later; a read may be repeated.
            let patience =
                if content["request"]["method"] == "GET" { Duration::from_secs(10) } else { Duration::ZERO };
            let deadline = Instant::now() + patience;
            loop {
                let answer = self.send(&content["request"], who).await;
                let outcome = self.compare(recording, &content["response"], &answer);
                if matches!(outcome, Outcome::Same) || Instant::now() >= deadline {
                    return outcome;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        self.replay_other(recording).await
    }

    /// Waits until the controllers have done what there was to do: the recording left them time between requests.
    async fn settle(&self) {
        let store = self.lab.running.as_ref().unwrap().cluster.store();
        let deadline = Instant::now() + Duration::from_secs(2);
        let mut before = 0;
        while store.version() != before && Instant::now() < deadline {
            before = store.version();
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    fn compare(&mut self, recording: &Recording, recorded: &Value, answer: &Answer) -> Outcome {
        let mut differences = Vec::new();
        let (wanted, got) = (&recorded["status"], json!(answer.code.as_u16()));
        if *wanted != got {
            differences.push(format!("  status: recorded {wanted}, live {got}"));
        }
        let (a, b) = (recorded_headers(&recorded["headers"]), headers(&answer.headers));
        differences.extend(difference(&a, &b));
        let live = answer.json();
        self.learn(&recorded["body"], &live);
        let (mut a, b) = (settled(&recorded["body"]), settled(&live));
        match recording.number {
            // A server's own checks are its own.
            112 => {
                let ok = b.as_str().unwrap().ends_with("livez check passed\n");
                if !ok || !a.as_str().unwrap().ends_with("livez check passed\n") {
                    differences.push("  it does not end with the verdict".to_owned());
                }
            }
            101..=117 | 1408 => differences.extend(discovery_difference(&a, &b)),
            _ => {
                if recording.number == 818 {
                    sort_rules(&mut a);
                }
                let mut b = b;
                if recording.number == 818 {
                    sort_rules(&mut b);
                }
                differences.extend(difference(&a, &b));
            }
        }
        Outcome::of(differences)
    }

    async fn replay_watch(&mut self, recording: &Recording) -> Outcome {
        let content = &recording.content;
        let recorded = content["response"]["events"].as_array().unwrap();
        // Writes that the recording saw late went on while the stream was open.
        let mut seen: HashMap<String, usize> = HashMap::new();
        let mut during = Vec::new();
        for request in self.due(recording.place) {
            let name = name_of(&request);
            let at = seen.entry(name.clone()).or_default();
            let mine = recorded.iter().filter(|e| e["event"]["object"]["metadata"]["name"] == name);
            let late = mine.clone().nth(*at).is_some_and(|e| e["t"].as_f64().unwrap() > 0.9);
            *at += 1;
            if late || !during.is_empty() {
                during.push(request);
            } else {
                self.send_setup(&request).await;
            }
        }
        self.prepare_extra(recording.place).await;
        let mut request = content["request"].clone();
        let path = request["path"].as_str().unwrap().to_owned();
        request["path"] = shortened(&path).into();
        let response = self.lab.send(self.build(&request, "admin")).await;
        let (parts, mut body) = response.into_parts();
        let mut differences = Vec::new();
        if content["response"]["status"] != json!(parts.status.as_u16()) {
            differences.push(format!("  status: live {}", parts.status));
        }
        let (a, b) = (recorded_headers(&content["response"]["headers"]), headers(&parts.headers));
        differences.extend(difference(&a, &b));
        let began = Instant::now();
        let mut bytes = Vec::new();
        let mut sent = false;
        loop {
            let wait = if sent { Duration::from_secs(30) } else { Duration::from_millis(150) };
            match tokio::time::timeout(wait, body.frame()).await {
                Ok(Some(frame)) => bytes.extend_from_slice(&frame.unwrap().into_data().unwrap_or_default()),
                Ok(None) => break,
                Err(_) => {
                    for request in std::mem::take(&mut during) {
                        self.send_setup(&request).await;
                    }
                    sent = true;
                }
            }
            if began.elapsed() > Duration::from_secs(20) {
                differences.push("  the stream does not end".to_owned());
                break;
            }
        }
        for request in during {
            self.send_setup(&request).await;
        }
        let live = lines(&bytes);
        if recorded.first().is_some_and(|e| e["event"].is_string()) {
            let text: String = recorded.iter().filter_map(|e| e["event"].as_str()).collect();
            let whole: Value = serde_json::from_str(&text).unwrap();
            let got: Value = serde_json::from_slice(&bytes).unwrap();
            differences.extend(difference(&settled(&whole), &settled(&got)));
            return Outcome::of(differences);
        }
        let recorded: Vec<Value> = recorded.iter().map(|e| e["event"].clone()).collect();
        let early = if recording.number == 417 { 4 } else { usize::MAX };
        let (a, b) = (essential(&recorded, early), essential(&live, early));
        differences.extend(difference(&json!(a), &json!(b)));
        Outcome::of(differences)
    }

    /// A Secret with owners: is it collected or not?
    async fn replay_owner(&mut self, recording: &Recording) -> Outcome {
        let content = &recording.content;
        let mut due = self.due(recording.number);
        let secret = due.pop().unwrap();
        for request in due {
            self.send_setup(&request).await;
        }
        let secret = self.with_live_owners(&secret);
        let answer = self.send(&secret, "admin").await;
        if content["create_response"].is_object() {
            return self.compare(recording, &content["create_response"], &answer);
        }
        let mut differences = Vec::new();
        if content["create_status"] != json!(answer.code.as_u16()) {
            differences.push(format!("  create: live {} {}", answer.code, answer.json()));
        }
        let path = format!("/api/v1/namespaces/t6/secrets/{}", name_of(&secret));
        if content["gone"] == true {
            self.lab.until(&path, StatusCode::NOT_FOUND).await;
        } else {
            tokio::time::sleep(Duration::from_millis(400)).await;
            if self.lab.call(Method::GET, &path, None).await.code != StatusCode::OK {
                differences.push("  it was collected".to_owned());
            }
        }
        let events = self.lab.call(Method::GET, "/api/v1/namespaces/t6/events", None).await.json();
        let items = events["items"].as_array().cloned().unwrap_or_default();
        let mine = items.iter().filter(|e| e["involvedObject"]["name"] == name_of(&secret));
        let live: Vec<Value> = mine
            .map(|e| {
                json!({
                    "type": e["type"], "reason": e["reason"], "message": e["message"],
                    "reportingComponent": e["reportingComponent"],
                })
            })
            .collect();
        differences.extend(difference(&settled(&content["events"]), &settled(&json!(live))));
        Outcome::of(differences)
    }

    async fn replay_other(&mut self, recording: &Recording) -> Outcome {
        let content = &recording.content;
        match recording.number {
            217 => {
                let big = json!({
                    "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "big"},
                    "stringData": {"userdata": "x".repeat(1_048_577)},
                });
                let answer = self.lab.call(Method::POST, "/api/v1/namespaces/t2/secrets", Some(big)).await;
                self.compare(recording, &content["response"], &answer)
            }
            504 | 507 | 510 => {
                let name = content["child"]["body"]["metadata"]["name"].as_str().map(ToOwned::to_owned);
                let gone = content["child"]["body"]["details"]["name"].as_str().map(ToOwned::to_owned);
                let path = format!("/api/v1/namespaces/t5/configmaps/{}", name.clone().or(gone).unwrap());
                if name.is_some() {
                    self.lab.until_that(&path, |a| a.json()["metadata"]["ownerReferences"].is_null()).await;
                    tokio::time::sleep(Duration::from_millis(300)).await;
                } else {
                    self.lab.until(&path, StatusCode::NOT_FOUND).await;
                }
                let answer = self.lab.call(Method::GET, &path, None).await;
                self.compare(recording, &content["child"], &answer)
            }
            532 => {
                self.lab.until("/api/v1/namespaces/t5", StatusCode::NOT_FOUND).await;
                Outcome::Same
            }
            603 => self.until_both_gone("gcvm1", "owned1").await,
            621 => self.until_both_gone("fg", "fgs").await,
            other => Outcome::Different(format!("  nothing replays a recording of this form ({other})")),
        }
    }

    async fn until_both_gone(&self, vm: &str, secret: &str) -> Outcome {
        let vm = format!("/apis/kubevirt.io/v1/namespaces/t6/virtualmachines/{vm}");
        self.lab.until(&vm, StatusCode::NOT_FOUND).await;
        let secret = format!("/api/v1/namespaces/t6/secrets/{secret}");
        self.lab.until(&secret, StatusCode::NOT_FOUND).await;
        Outcome::Same
    }
}

fn name_of(request: &Value) -> String {
    let named = request["body"]["metadata"]["name"].as_str();
    let last = request["path"].as_str().unwrap().rsplit('/').next().unwrap_or_default();
    named.unwrap_or(last).to_owned()
}

/// The same stream, listened to for less time.
fn shortened(path: &str) -> String {
    let seconds = STREAM.as_secs() + 1;
    let (start, query) = path.split_once('?').unwrap_or((path, ""));
    let short = |pair: &str| {
        if pair.starts_with("timeoutSeconds=") {
            format!("timeoutSeconds={seconds}")
        } else {
            pair.to_owned()
        }
    };
    format!("{start}?{}", query.split('&').map(short).collect::<Vec<_>>().join("&"))
}

fn lines(bytes: &[u8]) -> Vec<Value> {
    bytes.split(|b| *b == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
}

/// Events without the bookmarks that only time brings.
fn essential(events: &[Value], most: usize) -> Vec<Value> {
    let matters = |e: &&Value| e["type"] != "BOOKMARK" || e["object"]["metadata"]["annotations"].is_object();
    events.iter().filter(matters).take(most).map(settled).collect()
}

fn sort_rules(review: &mut Value) {
    for list in ["resourceRules", "nonResourceRules"] {
        if let Some(rules) = review["status"][list].as_array_mut() {
            rules.sort_by_key(ToString::to_string);
        }
    }
}
