//! A folder of built engines that all profiles, target folders and projects of a user share. Its name is a hash of the engine's
//! sources, the features that select kernels, the compiler and its flags.

use std::collections::hash_map::DefaultHasher;
use std::env;
use std::fs::{self, File};
use std::hash::{Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::{DEPENDENCIES, Sources, engine, fail, progress, requirements};

/// `TRAFO_CACHE_DIR`, or a folder in the user's cache for the sources of a package, or none: empty `TRAFO_CACHE_DIR`, a checkout
/// (whose sources change), no home.
pub fn folder(sources: &Sources) -> Option<PathBuf> {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = match env::var_os("TRAFO_CACHE_DIR") {
        Some(folder) if folder.is_empty() => return None,
        Some(folder) => PathBuf::from(folder),
        None if !sources.packaged => return None,
        None => set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")))?.join("trafo"),
    };
    if base.is_relative() {
        fail(&format!("TRAFO_CACHE_DIR is {}; it must be an absolute path", base.display()));
    }
    match key(sources) {
        Ok(key) => Some(base.join(format!("{}-{key:016x}", env!("CARGO_PKG_VERSION")))),
        Err(error) => fail(&format!("{} cannot be read: {error}", sources.root.display())),
    }
}

fn key(sources: &Sources) -> io::Result<u64> {
    let mut hasher = DefaultHasher::new();
    for path in ["CMakeLists.txt", "engine", "capi", "cmake"] {
        hash_tree(&sources.root.join(path), &mut hasher)?;
    }
    match &sources.third_party {
        Some(folder) => fs::read(folder.join("complete"))?.hash(&mut hasher),
        None => {
            for name in DEPENDENCIES {
                let found = pkg_config::Config::new().cargo_metadata(false).probe(name);
                found.map(|library| library.version).ok().hash(&mut hasher);
            }
        }
    }
    engine::enabled(&engine::KERNELS).hash(&mut hasher);
    requirements::compiler_version().hash(&mut hasher);
    for variable in ["TARGET", "CC", "CXX", "CFLAGS", "CXXFLAGS"] {
        env::var_os(variable).hash(&mut hasher);
    }
    Ok(hasher.finish())
}

/// Names and contents, in the order of the names.
fn hash_tree(path: &Path, hasher: &mut DefaultHasher) -> io::Result<()> {
    path.file_name().hash(hasher);
    if path.is_file() {
        fs::read(path)?.hash(hasher);
        return Ok(());
    }
    let mut entries = fs::read_dir(path)?.collect::<io::Result<Vec<_>>>()?;
    entries.sort_by_key(|entry| entry.file_name());
    entries.len().hash(hasher);
    entries.iter().try_for_each(|entry| hash_tree(&entry.path(), hasher))
}

/// Puts the files `kept` of a build into the folder, unless they are there. Builds at the same time wait for the first one; one that
/// was killed is continued.
pub fn fill(folder: &Path, kept: &[&str], build: impl FnOnce(&Path) -> PathBuf) {
    let work = folder.join("work");
    let made = fs::create_dir_all(&work).and_then(|()| Lock::new(&folder.join("lock")));
    let _lock = made.unwrap_or_else(|error| {
        fail(&format!(
            "{} cannot be written ({error}); TRAFO_CACHE_DIR names another folder, empty for none",
            folder.display()
        ))
    });
    if kept.iter().all(|name| folder.join(name).is_file()) {
        drop(fs::remove_dir_all(&work));
        progress::tell(&format!("{} of {}", kept.join(", "), folder.display()));
        return;
    }
    // Older than this build: otherwise cargo, which is told to watch libtrafo.a, would run the build script once more.
    let time = SystemTime::now() - Duration::from_secs(60);
    let built = build(&work);
    for name in kept {
        let dated = File::options()
            .append(true)
            .open(built.join(name))
            .and_then(|file| file.set_modified(time));
        if let Err(error) = dated {
            fail(&format!("{}: {error}", built.join(name).display()));
        }
        if let Err(error) = fs::rename(built.join(name), folder.join(name)) {
            fail(&format!(
                "{} cannot be moved to {}: {error}",
                built.join(name).display(),
                folder.display()
            ));
        }
    }
    drop(fs::remove_dir_all(&work)); // objects, which nothing needs
}

/// Held until it is dropped, or the process ends.
struct Lock(#[allow(dead_code)] File);

impl Lock {
    #[cfg(unix)]
    fn new(path: &Path) -> io::Result<Lock> {
        use std::os::fd::AsRawFd;
        // std has File::lock since Rust 1.89.
        unsafe extern "C" {
            fn flock(descriptor: i32, operation: i32) -> i32;
        }
        const EXCLUSIVE: i32 = 2;
        const NOT_BLOCKING: i32 = 4;
        let file = File::options().create(true).truncate(false).write(true).open(path)?;
        let lock = |operation| {
            // SAFETY: the descriptor is open as long as `file` lives.
            if unsafe { flock(file.as_raw_fd(), operation) } == 0 {
                Ok(())
            } else {
                Err(io::Error::last_os_error())
            }
        };
        if lock(EXCLUSIVE | NOT_BLOCKING).is_err() {
            progress::tell("another build compiles the engine; waiting for it");
            lock(EXCLUSIVE)?;
        }
        Ok(Lock(file))
    }

    #[cfg(not(unix))]
    fn new(path: &Path) -> io::Result<Lock> {
        Ok(Lock(File::create(path)?))
    }
}
