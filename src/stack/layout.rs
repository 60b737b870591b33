//! The data folder: what lies where, who owns it, and whose it is just now.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, chown,
};
use std::path::{Path, PathBuf};

use secrecy::SecretString;
use sha2::{Digest as _, Sha256};

use super::account::Account;
use super::server::ServerName;

#[derive(Debug, thiserror::Error)]
pub enum LayoutError {
    #[error("{path}: {source}")]
    Io {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error(
        "{dir} is in use by the supervisor with pid {pid}; `settlenet down --dir {dir}` ends it"
    )]
    InUse { dir: PathBuf, pid: String },
    #[error("{path} belongs to somebody else (uid {uid}); remove it")]
    NotOurs { path: PathBuf, uid: u32 },
}

fn at(path: &Path) -> impl Fn(std::io::Error) -> LayoutError + '_ {
    move |source| LayoutError::Io {
        path: path.into(),
        source,
    }
}

/// The folder of one stack.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    dir: PathBuf,
}

/// Held while a supervisor works on the folder; the kernel lets go of it
/// whichever way the process ends.
pub(super) struct FolderLock {
    _file: File,
}

impl Layout {
    /// Makes the folder if needed and settles its absolute path.
    pub fn open(dir: &Path) -> Result<Self, LayoutError> {
        fs::create_dir_all(dir).map_err(at(dir))?;
        let dir = dir.canonicalize().map_err(at(dir))?;
        Ok(Self { dir })
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn config(&self) -> PathBuf {
        self.dir.join("settlenet.toml")
    }

    /// Makes this process the folder's supervisor, or names the one there is.
    pub fn lock(&self) -> Result<FolderLock, LayoutError> {
        let path = self.dir.join("lock");
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(at(&path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut pid = String::new();
                file.read_to_string(&mut pid).map_err(at(&path))?;
                return Err(LayoutError::InUse {
                    dir: self.dir.clone(),
                    pid: pid.trim().to_owned(),
                });
            }
            Err(TryLockError::Error(source)) => return Err(at(&path)(source)),
        }
        file.rewind()
            .and_then(|()| file.set_len(0))
            .and_then(|()| writeln!(file, "{}", std::process::id()))
            .map_err(at(&path))?;
        Ok(FolderLock { _file: file })
    }

    /// A server's own folder. It lies in the stack's folder unless the server
    /// runs under an account that cannot walk there; then in `/var/tmp`, with a
    /// link in its place.
    pub fn home(
        &self,
        name: ServerName,
        account: Option<&Account>,
    ) -> Result<PathBuf, LayoutError> {
        let inside = self.dir.join(name.as_str());
        let Some(account) = account else {
            make_private(&inside)?;
            return Ok(inside);
        };
        let home = if account.can_reach(&self.dir).map_err(at(&self.dir))? {
            inside
        } else {
            let outside = self.outside();
            make_folder(&outside, 0o711)?;
            let home = outside.join(name.as_str());
            if inside.symlink_metadata().is_err() {
                std::os::unix::fs::symlink(&home, &inside).map_err(at(&inside))?;
            }
            home
        };
        make_private(&home)?;
        chown(&home, Some(account.uid), Some(account.gid)).map_err(at(&home))?;
        Ok(home)
    }

    /// The place for homes that cannot lie inside, named by the folder's path.
    fn outside(&self) -> PathBuf {
        let digest = Sha256::digest(self.dir.as_os_str().as_encoded_bytes());
        Path::new("/var/tmp").join(format!("settlenet-{}", hex::encode(&digest[..8])))
    }

    /// Deletes everything, also what lies outside the folder.
    pub fn delete(&self, _lock: &FolderLock) -> Result<(), LayoutError> {
        let outside = self.outside();
        if outside.exists() {
            fs::remove_dir_all(&outside).map_err(at(&outside))?;
        }
        fs::remove_dir_all(&self.dir).map_err(at(&self.dir))
    }

    /// The password of all servers of this stack, made once.
    pub fn password(&self) -> Result<SecretString, LayoutError> {
        let path = self.dir.join("password");
        match fs::read_to_string(&path) {
            Ok(text) => Ok(text.trim().to_owned().into()),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                let password = hex::encode(rand::random::<[u8; 16]>());
                write_private(&path, password.as_bytes())?;
                Ok(password.into())
            }
            Err(e) => Err(at(&path)(e)),
        }
    }

    /// The ports that the stack had last time; none if that cannot be read.
    pub fn read_ports(&self) -> BTreeMap<String, u16> {
        fs::read(self.dir.join("ports.json"))
            .ok()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .unwrap_or_default()
    }

    pub fn write_ports(&self, ports: &BTreeMap<String, u16>) -> Result<(), LayoutError> {
        let path = self.dir.join("ports.json");
        let bytes = serde_json::to_vec_pretty(ports).map_err(|e| at(&path)(e.into()))?;
        write_private(&path, &bytes)
    }
}

/// Writes a file that only its owner may read, whole or not at all.
pub(super) fn write_private(path: &Path, bytes: &[u8]) -> Result<(), LayoutError> {
    let scratch = path.with_extension("new");
    // One left by an interrupted run may belong to a server's account.
    if scratch.exists() {
        fs::remove_file(&scratch).map_err(at(&scratch))?;
    }
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&scratch)
        .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
        .map_err(at(&scratch))?;
    fs::rename(&scratch, path).map_err(at(path))
}

fn make_private(path: &Path) -> Result<(), LayoutError> {
    if path.is_dir() {
        return Ok(());
    }
    fs::DirBuilder::new()
        .mode(0o700)
        .create(path)
        .map_err(at(path))
}

/// Makes a folder in a place that others may write to, and makes sure that it
/// is ours.
fn make_folder(path: &Path, mode: u32) -> Result<(), LayoutError> {
    match fs::create_dir(path) {
        Ok(()) => {}
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
        Err(e) => return Err(at(path)(e)),
    }
    let meta = path.symlink_metadata().map_err(at(path))?;
    if !meta.is_dir() || meta.uid() != rustix::process::geteuid().as_raw() {
        return Err(LayoutError::NotOurs {
            path: path.into(),
            uid: meta.uid(),
        });
    }
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(at(path))
}
