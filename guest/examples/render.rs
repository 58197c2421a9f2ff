//! Writes the NoCloud seed of a machine, for trying an image by hand.
//!
//! usage: `cargo run -p lab-guest --example render -- OUT_DIR TOKEN PREPARE_SCRIPT [TIMEOUT_S [FILES_DIR]]`

use std::{env, error::Error, fs, os::unix::fs::PermissionsExt as _, path::Path, time::Duration};

use lab_domain::{LabId, MachineName, SessionId};
use lab_guest::{Content, File, Machine, render};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = env::args().skip(1).collect();
    let [out, token, prepare, rest @ ..] = args.as_slice() else {
        return Err("usage: render OUT_DIR TOKEN PREPARE_SCRIPT [TIMEOUT_S [FILES_DIR]]".into());
    };
    let timeout: u64 = rest.first().map_or(Ok(300), |s| s.parse())?;
    let mut files = Vec::new();
    if let Some(dir) = rest.get(1) {
        collect(Path::new(dir), Path::new(dir), &mut files)?;
    }
    let (name, lab) = (MachineName::new("main")?, LabId::new("by-hand")?);
    let prepare = fs::read(prepare)?;
    let session = SessionId::generate();
    let machine = Machine {
        session,
        machine: &name,
        lab: &lab,
        token,
        prepare_timeout: Duration::from_secs(timeout),
        files: &files,
        prepare: Some(&prepare),
    };
    fs::create_dir_all(out)?;
    let out = Path::new(out);
    fs::write(out.join("user-data"), render(&machine)?.user_data)?;
    let id = format!("lab-{session}-{name}");
    fs::write(out.join("meta-data"), format!("{{\"instance-id\":\"{id}\",\"local-hostname\":\"{id}\"}}\n"))?;
    Ok(())
}

fn collect(root: &Path, dir: &Path, files: &mut Vec<File>) -> Result<(), Box<dyn Error>> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let about = path.symlink_metadata()?;
        let content = if about.is_dir() {
            collect(root, &path, files)?;
            Content::Directory
        } else if about.is_symlink() {
            Content::Symlink(fs::read_link(&path)?.to_string_lossy().into_owned())
        } else {
            Content::Regular(fs::read(&path)?)
        };
        let name = path.strip_prefix(root)?.to_str().ok_or("a name that is not UTF-8")?.to_owned();
        files.push(File { path: name, mode: about.permissions().mode() & 0o7777, content });
    }
    Ok(())
}
