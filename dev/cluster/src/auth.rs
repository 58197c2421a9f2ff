//! Who asks: bearer tokens and the users behind them.
//!
//! Tokens are opaque random strings in `tokens.json` (0600) of the state directory. The administrator's is made at the
//! first start, a ServiceAccount's when the deploy manifests name it or when a TokenRequest asks for one. A token
//! lives as long as its ServiceAccount (same uid); one from a TokenRequest also has an end.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use serde::{Deserialize, Serialize};

use crate::object;
use crate::resource::SERVICE_ACCOUNTS;
use crate::store::{Key, Store};

/// An authenticated caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// e.g. `system:serviceaccount:ttlab:ttlab-api`.
    pub name: Arc<str>,
    /// uid of the ServiceAccount.
    pub uid: Arc<str>,
    /// Groups, `system:authenticated` included.
    pub groups: Vec<Arc<str>>,
}

impl User {
    /// A component of the cluster itself.
    pub fn internal(name: &str) -> Self {
        Self { name: name.into(), uid: "".into(), groups: vec!["system:masters".into()] }
    }

    /// The administrator.
    pub fn admin() -> Self {
        Self {
            name: "static-admin".into(),
            uid: "static-admin-uid".into(),
            groups: vec!["system:masters".into(), "system:authenticated".into()],
        }
    }

    /// A ServiceAccount.
    pub fn service_account(namespace: &str, name: &str, uid: &str) -> Self {
        Self {
            name: format!("system:serviceaccount:{namespace}:{name}").into(),
            uid: uid.into(),
            groups: vec![
                "system:serviceaccounts".into(),
                format!("system:serviceaccounts:{namespace}").into(),
                "system:authenticated".into(),
            ],
        }
    }

    /// Whether the user is in a group.
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|g| &**g == group)
    }
}

/// The file of tokens cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what} {}", path.display())]
pub(crate) struct Error {
    what: &'static str,
    path: PathBuf,
    #[source]
    source: std::io::Error,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Identity {
    namespace: String,
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires: Option<i64>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    uid: String,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct File {
    admin: String,
    accounts: BTreeMap<String, Identity>,
}

/// All tokens.
#[derive(Debug)]
pub(crate) struct Tokens {
    path: PathBuf,
    file: RwLock<File>,
}

impl Tokens {
    /// Opens (or makes) `dir/tokens.json`.
    pub(crate) fn open(dir: &Path) -> Result<Self, Error> {
        let path = dir.join("tokens.json");
        let failed = |what, source| Error { what, path: path.clone(), source };
        let file = match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|e| failed("understand", e.into()))?,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => File { admin: random(), ..File::default() },
            Err(source) => return Err(failed("read", source)),
        };
        let tokens = Self { path, file: RwLock::new(file) };
        tokens.save()?;
        Ok(tokens)
    }

    /// The administrator's token.
    pub(crate) fn admin(&self) -> String {
        self.file.read().unwrap_or_else(PoisonError::into_inner).admin.clone()
    }

    /// The lasting token of a ServiceAccount, made where there is none.
    pub(crate) fn of_account(&self, namespace: &str, name: &str) -> Result<String, Error> {
        let lasting = |i: &Identity| i.namespace == namespace && i.name == name && i.expires.is_none();
        {
            let file = self.file.read().unwrap_or_else(PoisonError::into_inner);
            if let Some((token, _)) = file.accounts.iter().find(|(_, i)| lasting(i)) {
                return Ok(token.clone());
            }
        }
        self.add(Identity {
            namespace: namespace.into(),
            name: name.into(),
            expires: None,
            uid: String::new(),
        })
    }

    /// A token for `seconds`, bound to the ServiceAccount's uid.
    pub(crate) fn request(
        &self,
        namespace: &str,
        name: &str,
        uid: &str,
        seconds: i64,
    ) -> Result<String, Error> {
        let expires = Some(crate::clock::now().unix_timestamp() + seconds);
        self.add(Identity { namespace: namespace.into(), name: name.into(), expires, uid: uid.into() })
    }

    fn add(&self, identity: Identity) -> Result<String, Error> {
        let token = random();
        let now = crate::clock::now().unix_timestamp();
        {
            let mut file = self.file.write().unwrap_or_else(PoisonError::into_inner);
            file.accounts.retain(|_, i| i.expires.is_none_or(|at| at > now));
            file.accounts.insert(token.clone(), identity);
        }
        self.save()?;
        Ok(token)
    }

    /// The user behind a token.
    pub(crate) fn user(&self, token: &str, store: &Store) -> Option<User> {
        let file = self.file.read().unwrap_or_else(PoisonError::into_inner);
        if token == file.admin {
            return Some(User::admin());
        }
        let identity = file.accounts.get(token)?;
        if identity.expires.is_some_and(|at| at <= crate::clock::now().unix_timestamp()) {
            return None;
        }
        let account = store.get(&Key::new(&SERVICE_ACCOUNTS, &identity.namespace, &identity.name))?;
        if object::deletion_timestamp(&account.value).is_some()
            || !(identity.uid.is_empty() || identity.uid == account.uid())
        {
            return None;
        }
        Some(User::service_account(&identity.namespace, &identity.name, account.uid()))
    }

    fn save(&self) -> Result<(), Error> {
        let path = &self.path;
        let text = {
            let file = self.file.read().unwrap_or_else(PoisonError::into_inner);
            serde_json::to_vec_pretty(&*file).unwrap_or_default()
        };
        let fresh = path.with_extension("new");
        let failed = |what, source| Error { what, path: path.clone(), source };
        let mut options = std::fs::OpenOptions::new();
        let mut out = options
            .create(true)
            .write(true)
            .truncate(true)
            .mode(0o600)
            .open(&fresh)
            .map_err(|e| failed("make", e))?;
        out.write_all(&text).map_err(|e| failed("write", e))?;
        std::fs::rename(&fresh, path).map_err(|e| failed("replace", e))
    }
}

fn random() -> String {
    hex::encode(rand::random::<[u8; 24]>())
}
