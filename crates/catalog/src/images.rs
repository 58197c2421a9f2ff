//! The operator's image table: what a lab's `image: debian-12` means in this cluster.

use std::{
    collections::BTreeMap,
    fmt, fs, io,
    path::{Path, PathBuf},
};

use lab_domain::Digest;
use serde::Deserialize;

/// The name of an entry of the image table.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct ImageName(String);

impl ImageName {
    /// Checks the form: 1 to 40 of a-z, 0-9, `.` and `-`, beginning with a letter.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let well_formed = (1..=40).contains(&text.len())
            && text.starts_with(|c: char| c.is_ascii_lowercase())
            && text.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'-'));
        well_formed.then(|| Self(text.to_owned()))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ImageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for ImageName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::new(&text).ok_or_else(|| format!("{text:?} is not a valid image name"))
    }
}

/// An image table that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ImagesError {
    /// The file cannot be read.
    #[error("cannot read the image table {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The file says something that is not an image table.
    #[error("{path}: {message}")]
    Parse {
        /// The file.
        path: PathBuf,
        /// What and where.
        message: String,
    },
}

/// The image table.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Images {
    images: BTreeMap<ImageName, Image>,
}

impl Images {
    /// Reads the table.
    ///
    /// # Errors
    /// An unreadable file, an unknown key, a digest that is none.
    pub fn load(path: &Path) -> Result<Self, ImagesError> {
        let text =
            fs::read_to_string(path).map_err(|source| ImagesError::Read { path: path.to_owned(), source })?;
        Self::parse(&text).map_err(|message| ImagesError::Parse { path: path.to_owned(), message })
    }

    fn parse(text: &str) -> Result<Self, String> {
        serde_saphyr::from_str(text).map_err(|error| error.without_snippet().to_string())
    }

    /// What `name` means here.
    #[must_use]
    pub fn get(&self, name: &ImageName) -> Option<&Image> {
        self.images.get(name)
    }

    /// All entries, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&ImageName, &Image)> {
        self.images.iter()
    }
}

/// One image, in the forms in which the cluster can have it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Image {
    /// The container disk's reference, digest included.
    pub container_disk: String,
    /// The image's digest, which names the golden claim.
    #[serde(deserialize_with = "image_digest")]
    pub digest: Digest,
    /// Where a DataVolume of it comes from.
    #[serde(default)]
    pub data_volume: Option<DataVolume>,
}

impl Image {
    /// The name of the golden PersistentVolumeClaim of this image.
    #[must_use]
    pub fn golden_claim(&self) -> String {
        format!("golden-{}", &self.digest.as_str()[..16])
    }

    /// The digest as annotations and references write it: `sha256:…`.
    #[must_use]
    pub fn digest_reference(&self) -> String {
        format!("sha256:{}", self.digest)
    }
}

/// Where a DataVolume of an image comes from.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataVolume {
    /// A Kubernetes quantity: `2Gi`.
    pub size: String,
    /// `docker://…` or `https://…`.
    pub url: String,
}

fn image_digest<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Digest, D::Error> {
    let text = String::deserialize(deserializer)?;
    let hex = text
        .strip_prefix("sha256:")
        .ok_or_else(|| serde::de::Error::custom("an image digest begins with sha256:"))?;
    Digest::new(hex).map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn a_table_names_claim_and_reference() {
        let images = Images::parse(&format!(
            "images: {{debian-12: {{container_disk: \"ttlab.local/debian-12@sha256:{HEX}\", digest: \"sha256:{HEX}\",\n\
             data_volume: {{size: 2Gi, url: \"docker://ttlab.local/debian-12\"}}}}}}\n"
        ))
        .unwrap();
        let image = images.get(&ImageName::new("debian-12").unwrap()).unwrap();
        assert_eq!(image.golden_claim(), "golden-0123456789abcdef");
        assert_eq!(image.digest_reference(), format!("sha256:{HEX}"));
        assert_eq!(image.data_volume.as_ref().unwrap().size, "2Gi");
        assert_eq!(images.iter().count(), 1);
        assert_eq!(images.get(&ImageName::new("ubuntu-24.04").unwrap()), None);
    }

    #[test]
    fn a_bad_table_is_one_message_with_its_line() {
        let bad = [
            (format!("images:\n  debian-12:\n    container_disk: x\n    digest: {HEX}\n"), "sha256:"),
            ("images:\n  debian-12:\n    container_disk: x\n    digest: sha256:abc\n".to_owned(), "64"),
            (format!("images:\n  Debian:\n    container_disk: x\n    digest: sha256:{HEX}\n"), "Debian"),
            (format!("images:\n  d:\n    disk: x\n    digest: sha256:{HEX}\n"), "disk"),
        ];
        for (text, word) in bad {
            let message = Images::parse(&text).unwrap_err();
            assert!(message.contains(word) && message.contains("line"), "{message}");
        }
    }
}
