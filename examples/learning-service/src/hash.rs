//! SHA-256 of files and texts.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::fault::{Fault, Result, io};

pub fn hex(digest: impl AsRef<[u8]>) -> String {
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Of texts in an order. Each is preceded by its length, so that no two lists have the same input.
pub fn of_texts(texts: &[&str]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for text in texts {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text);
    }
    hash.finalize().into()
}

/// The first 63 bits of [`of_texts`], which the database can store as an integer.
pub fn seed(texts: &[&str]) -> u64 {
    let digest = of_texts(texts);
    u64::from_le_bytes(digest[..8].try_into().expect("a digest has 32 bytes")) >> 1
}

/// Of the names and contents of files, in hexadecimal digits. `NotFound`: one of them is missing.
pub fn of_files(paths: &[PathBuf]) -> Result<String> {
    let mut hash = Sha256::new();
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let content = std::fs::read(path).map_err(|error| match error.kind() {
            ErrorKind::NotFound => Fault::NotFound(format!("there is no {}", path.display())),
            _ => io(path)(error),
        })?;
        for part in [name.as_bytes(), &content] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
    }
    Ok(hex(hash.finalize()))
}

/// Of the two files of an adapter. Temporary files that a killed process has left beside them do not count.
pub fn of_adapter(directory: &Path) -> Result<String> {
    let names = ["adapter_config.json", "adapter_model.safetensors"];
    of_files(&names.map(|name| directory.join(name)))
}

#[cfg(test)]
mod tests {
    #[test]
    fn lists_of_texts_differ_where_their_concatenations_do_not() {
        assert_ne!(super::seed(&["ab", "c"]), super::seed(&["a", "bc"]));
        assert_eq!(super::seed(&["ab", "c"]), super::seed(&["ab", "c"]));
    }

    #[test]
    fn digests_are_those_of_sha_256() {
        let path = std::env::temp_dir().join(format!("hash-{}", std::process::id()));
        std::fs::write(&path, "x").unwrap();
        let before = super::of_files(std::slice::from_ref(&path)).unwrap();
        std::fs::write(&path, "y").unwrap();
        assert_ne!(before, super::of_files(std::slice::from_ref(&path)).unwrap());
        std::fs::remove_file(&path).unwrap();
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(super::of_files(&[]).unwrap(), empty);
    }
}
