//! The model: inodes, names and data, each as programs see it and as it is on disk.
//!
//! Rules of a strict POSIX file system: fsync of a file syncs its contents and no name; fsync of a directory syncs the
//! names in it. A rename is whole or absent after a power loss. Modes are on disk at once.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use nix::errno::Errno;

use crate::faults::{Fault, Op, Operation};

pub type Ino = u64;

pub const ROOT: Ino = 1;

/// What a power loss tears a write into.
const SECTOR_BYTES: usize = 512;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    File,
    Directory,
    Socket,
    Pipe,
}

#[derive(Debug, Clone, Copy)]
pub struct Attributes {
    pub ino: Ino,
    pub kind: Kind,
    /// Without the bits of the kind.
    pub mode: u16,
    pub bytes: u64,
}

/// What a power loss leaves of what was not synced.
#[derive(Debug, Clone)]
pub enum Loss {
    /// Only what was synced is left.
    All,
    /// A random part of the names and of the sectors.
    Part(fastrand::Rng),
}

#[derive(Debug, Clone)]
pub struct Disk {
    nodes: BTreeMap<Ino, Node>,
    /// Changes of names that are not on disk, the oldest first.
    renamings: Vec<Vec<NameChange>>,
    faults: Vec<Fault>,
    log: Vec<Operation>,
    /// The disk before each of its changes.
    recording: Option<Vec<Self>>,
    is_off: bool,
}

#[derive(Debug, Clone)]
struct Node {
    kind: Kind,
    mode: u16,
    /// Directory and name, unless it was removed.
    place: Option<(Ino, OsString)>,
    /// Copies of a disk share it until one changes.
    data: Arc<Vec<u8>>,
    data_on_disk: Arc<Vec<u8>>,
    pending: Vec<DataChange>,
    names: BTreeMap<OsString, Ino>,
    names_on_disk: BTreeMap<OsString, Ino>,
}

#[derive(Debug, Clone)]
enum DataChange {
    Write(usize, Vec<u8>),
    Resize(usize),
}

#[derive(Debug, Clone)]
struct NameChange {
    dir: Ino,
    name: OsString,
    to: Option<Ino>,
}

type Done<T = ()> = Result<T, Errno>;

impl Default for Disk {
    /// An empty disk with a root directory.
    fn default() -> Self {
        let root = Node::new(Kind::Directory, 0o755, None);
        let nodes = [(ROOT, root)].into();
        Self {
            nodes,
            renamings: Vec::new(),
            faults: Vec::new(),
            log: Vec::new(),
            recording: None,
            is_off: false,
        }
    }
}

impl Disk {
    /// Adds a rule; the first one that concerns an operation decides.
    pub fn fail(&mut self, fault: Fault) {
        self.faults.push(fault);
    }

    /// Removes all rules. Returns whether an operation failed by one of them.
    pub fn heal(&mut self) -> bool {
        std::mem::take(&mut self.faults).iter().any(Fault::has_struck)
    }

    /// Keeps a copy of the disk before every change: there, the power may go.
    pub fn record(&mut self) {
        self.recording = Some(Vec::new());
    }

    /// Ends the recording, and returns the copies.
    pub fn recorded(&mut self) -> Vec<Self> {
        self.recording.take().unwrap_or_default()
    }

    /// What programs see of the file with this path, if there is one.
    pub fn contents(&self, path: &str) -> Option<&[u8]> {
        let mut ino = ROOT;
        for name in path.split('/') {
            ino = self.lookup(ino, OsStr::new(name)).ok()?;
        }
        self.node(ino).ok().map(|node| node.data.as_slice())
    }

    /// Writes what programs see of files and directories into a directory of another disk.
    pub fn export(&self, to: &Path) -> io::Result<()> {
        self.export_dir(ROOT, to)
    }

    fn export_dir(&self, dir: Ino, to: &Path) -> io::Result<()> {
        for (name, ino) in self.list(dir)? {
            let (path, node) = (to.join(name), self.node(ino)?);
            match node.kind {
                Kind::File => fs::write(&path, &*node.data)?,
                Kind::Directory => {
                    fs::create_dir(&path)?;
                    self.export_dir(ino, &path)?;
                }
                Kind::Socket | Kind::Pipe => continue,
            }
            fs::set_permissions(&path, Permissions::from_mode(node.mode.into()))?;
        }
        Ok(())
    }

    /// What was done, except to files without a name and to SQLite's `-shm`, which is memory.
    pub fn log(&self) -> &[Operation] {
        &self.log
    }

    /// All files, except SQLite's `-shm`.
    pub(crate) fn durable_files(&self) -> Vec<Ino> {
        let is_memory = |node: &Node| {
            node.place.as_ref().is_some_and(|(_, name)| name.to_string_lossy().ends_with("-shm"))
        };
        let files =
            self.nodes.iter().filter(|(_, node)| node.kind == Kind::File && !is_memory(node));
        files.map(|(ino, _)| *ino).collect()
    }

    /// The power goes. This disk fails every further operation; the new one has what is left, without rules.
    pub fn lose(&mut self, mut loss: Loss) -> Self {
        let mut nodes = self.nodes.clone();
        settle_names(&mut nodes, &self.renamings, &mut loss);
        for node in nodes.values_mut() {
            node.settle(&mut loss);
        }
        place_all(&mut nodes);
        self.is_off = true;
        Self { nodes, ..Self::default() }
    }

    /// Everything is on disk.
    pub fn sync_all(&mut self) {
        self.renamings.clear();
        for node in self.nodes.values_mut() {
            node.sync();
            node.names_on_disk = node.names.clone();
        }
    }

    /// The names in the root directory are on disk, as those of any directory that was there before a test.
    pub fn sync_root(&mut self) {
        let log = self.log.len();
        self.fsync_dir(ROOT).expect("a disk without faults");
        self.log.truncate(log);
    }

    pub fn lookup(&self, dir: Ino, name: &OsStr) -> Done<Ino> {
        self.node(dir)?.names.get(name).copied().ok_or(Errno::ENOENT)
    }

    pub fn attributes(&self, ino: Ino) -> Done<Attributes> {
        let Node { kind, mode, ref data, .. } = *self.node(ino)?;
        Ok(Attributes { ino, kind, mode, bytes: data.len() as u64 })
    }

    pub fn list(&self, dir: Ino) -> Done<Vec<(OsString, Ino)>> {
        let names = self.node(dir)?.names.iter();
        Ok(names.map(|(name, ino)| (name.clone(), *ino)).collect())
    }

    pub fn open(&mut self, ino: Ino) -> Done {
        self.begin(Op::Open, ino)
    }

    pub fn read(&mut self, ino: Ino, offset: usize, bytes: usize) -> Done<Vec<u8>> {
        self.begin(Op::Read, ino)?;
        let data = &self.node(ino)?.data;
        let start = offset.min(data.len());
        Ok(data[start..(start + bytes).min(data.len())].to_vec())
    }

    pub fn write(&mut self, ino: Ino, offset: usize, bytes: &[u8]) -> Done {
        self.begin(Op::Write, ino)?;
        self.change(ino, DataChange::Write(offset, bytes.to_vec()))
    }

    pub fn resize(&mut self, ino: Ino, bytes: usize) -> Done {
        self.begin(Op::Truncate, ino)?;
        self.change(ino, DataChange::Resize(bytes))
    }

    pub fn set_mode(&mut self, ino: Ino, mode: u16) -> Done {
        self.begin(Op::SetMode, ino)?;
        self.node_mut(ino)?.mode = mode;
        Ok(())
    }

    /// An fsync that fails forgets what it should have written, as Linux does: programs still read it, and a later
    /// fsync succeeds.
    pub fn fsync(&mut self, ino: Ino) -> Done {
        let begun = self.begin(Op::Fsync, ino);
        let node = self.node_mut(ino)?;
        match begun {
            Ok(()) => node.sync(),
            Err(_) => node.pending.clear(),
        }
        begun
    }

    pub fn fsync_dir(&mut self, dir: Ino) -> Done {
        self.begin(Op::FsyncDir, dir)?;
        let (synced, pending) = std::mem::take(&mut self.renamings)
            .into_iter()
            .partition::<Vec<_>, _>(|changes| changes.iter().any(|change| change.dir == dir));
        self.renamings = pending;
        synced.iter().flatten().for_each(|change| change.reach_disk(&mut self.nodes));
        Ok(())
    }

    pub fn make(&mut self, dir: Ino, name: &OsStr, kind: Kind, mode: u16) -> Done<Ino> {
        let op = if kind == Kind::Directory { Op::MakeDir } else { Op::Create };
        self.begin_at(op, self.path(dir, name))?;
        if self.lookup(dir, name).is_ok() {
            return Err(Errno::EEXIST);
        }
        let ino = self.nodes.last_key_value().map_or(ROOT, |(last, _)| last + 1);
        self.nodes.insert(ino, Node::new(kind, mode, None));
        self.rename_all(vec![NameChange { dir, name: name.into(), to: Some(ino) }]);
        Ok(ino)
    }

    /// Removes a name: of an empty directory if `kind` is one, of anything else otherwise.
    pub fn remove(&mut self, dir: Ino, name: &OsStr, kind: Kind) -> Done {
        let node = self.node(self.lookup(dir, name)?)?;
        match (kind, node.kind) {
            (Kind::Directory, Kind::Directory) if !node.names.is_empty() => {
                return Err(Errno::ENOTEMPTY);
            }
            (Kind::Directory, Kind::Directory) => {}
            (Kind::Directory, _) => return Err(Errno::ENOTDIR),
            (_, Kind::Directory) => return Err(Errno::EISDIR),
            _ => {}
        }
        self.begin_at(Op::Unlink, self.path(dir, name))?;
        self.rename_all(vec![NameChange { dir, name: name.into(), to: None }]);
        Ok(())
    }

    /// Replaces what has the new name, unless `keep` is set.
    pub fn rename(&mut self, from: (Ino, &OsStr), to: (Ino, &OsStr), keep: bool) -> Done {
        let moved = self.lookup(from.0, from.1)?;
        if let Ok(replaced) = self.lookup(to.0, to.1) {
            if replaced == moved {
                return Ok(());
            }
            self.may_replace(moved, replaced, keep)?;
        }
        self.begin_at(Op::Rename, self.path(from.0, from.1))?;
        self.rename_all(vec![
            NameChange { dir: from.0, name: from.1.into(), to: None },
            NameChange { dir: to.0, name: to.1.into(), to: Some(moved) },
        ]);
        Ok(())
    }

    fn may_replace(&self, moved: Ino, replaced: Ino, keep: bool) -> Done {
        let (moved, replaced) = (self.node(moved)?, self.node(replaced)?);
        match (moved.kind == Kind::Directory, replaced.kind == Kind::Directory) {
            _ if keep => Err(Errno::EEXIST),
            (true, false) => Err(Errno::ENOTDIR),
            (false, true) => Err(Errno::EISDIR),
            (true, true) if !replaced.names.is_empty() => Err(Errno::ENOTEMPTY),
            _ => Ok(()),
        }
    }

    fn rename_all(&mut self, changes: Vec<NameChange>) {
        for NameChange { dir, name, to } in &changes {
            let Some(node) = self.nodes.get_mut(dir) else { continue };
            let before = match to {
                Some(ino) => node.names.insert(name.clone(), *ino),
                None => node.names.remove(name),
            };
            for (ino, place) in [(before, None), (*to, Some((*dir, name.clone())))] {
                if let Some(node) = ino.and_then(|ino| self.nodes.get_mut(&ino)) {
                    node.place = place;
                }
            }
        }
        self.renamings.push(changes);
    }

    fn change(&mut self, ino: Ino, change: DataChange) -> Done {
        let node = self.node_mut(ino)?;
        change.apply(&mut node.data);
        node.pending.push(change);
        Ok(())
    }

    /// Counts an operation, which may fail.
    fn begin(&mut self, op: Op, ino: Ino) -> Done {
        let path = match &self.node(ino)?.place {
            Some((dir, name)) => self.path(*dir, name),
            None if ino == ROOT => "/".to_owned(),
            None => return if self.is_off { Err(Errno::EIO) } else { Ok(()) },
        };
        self.begin_at(op, path)
    }

    fn begin_at(&mut self, op: Op, path: String) -> Done {
        if self.is_off {
            return Err(Errno::EIO);
        }
        if path.ends_with("-shm") {
            return Ok(());
        }
        self.note_change(op);
        let error = self.faults.iter_mut().find_map(|fault| fault.strikes(op, &path));
        self.log.push(Operation { op, path, error });
        error.map_or(Ok(()), Err)
    }

    fn note_change(&mut self, op: Op) {
        let Some(mut recording) = self.recording.take() else { return };
        if Op::CHANGES.contains(&op) {
            recording.push(self.clone());
        }
        self.recording = Some(recording);
    }

    fn path(&self, dir: Ino, name: &OsStr) -> String {
        let place = self.nodes.get(&dir).and_then(|node| node.place.as_ref());
        let parent = place.map_or_else(String::new, |(above, own)| self.path(*above, own));
        format!("{parent}/{}", name.to_string_lossy())
    }

    fn node(&self, ino: Ino) -> Done<&Node> {
        self.nodes.get(&ino).ok_or(Errno::ENOENT)
    }

    fn node_mut(&mut self, ino: Ino) -> Done<&mut Node> {
        self.nodes.get_mut(&ino).ok_or(Errno::ENOENT)
    }
}

impl Node {
    fn new(kind: Kind, mode: u16, place: Option<(Ino, OsString)>) -> Self {
        let (names, names_on_disk) = <_>::default();
        let (data, data_on_disk, pending) = <_>::default();
        Self { kind, mode, place, data, data_on_disk, pending, names, names_on_disk }
    }

    fn sync(&mut self) {
        for change in self.pending.drain(..) {
            change.apply(&mut self.data_on_disk);
        }
    }

    /// Only what is on disk is left, and what `loss` keeps.
    fn settle(&mut self, loss: &mut Loss) {
        for part in self.pending.drain(..).flat_map(DataChange::sectors) {
            if loss.keeps() {
                part.apply(&mut self.data_on_disk);
            }
        }
        self.data = self.data_on_disk.clone();
        self.names = self.names_on_disk.clone();
        self.place = None;
    }
}

impl DataChange {
    fn apply(&self, data: &mut Arc<Vec<u8>>) {
        let data = Arc::make_mut(data);
        match self {
            Self::Resize(bytes) => data.resize(*bytes, 0),
            Self::Write(offset, bytes) => {
                let end = offset + bytes.len();
                data.resize(data.len().max(end), 0);
                data[*offset..end].copy_from_slice(bytes);
            }
        }
    }

    /// Parts that do not cross the border of a sector.
    fn sectors(self) -> Vec<Self> {
        let Self::Write(mut offset, bytes) = self else { return vec![self] };
        let mut parts = Vec::new();
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let (part, after) = rest.split_at(rest.len().min(SECTOR_BYTES - offset % SECTOR_BYTES));
            parts.push(Self::Write(offset, part.to_vec()));
            (offset, rest) = (offset + part.len(), after);
        }
        parts
    }
}

impl NameChange {
    fn reach_disk(&self, nodes: &mut BTreeMap<Ino, Node>) {
        let Some(dir) = nodes.get_mut(&self.dir) else { return };
        match self.to {
            Some(ino) => dir.names_on_disk.insert(self.name.clone(), ino),
            None => dir.names_on_disk.remove(&self.name),
        };
    }
}

impl Loss {
    fn keeps(&mut self) -> bool {
        match self {
            Self::All => false,
            Self::Part(random) => random.bool(),
        }
    }
}

/// Keeps some changes of names. One that is lost takes all later ones of its names along.
fn settle_names(nodes: &mut BTreeMap<Ino, Node>, pending: &[Vec<NameChange>], loss: &mut Loss) {
    let mut lost = BTreeSet::new();
    for changes in pending {
        let names = || changes.iter().map(|change| (change.dir, &change.name));
        if names().any(|name| lost.contains(&name)) || !loss.keeps() {
            lost.extend(names());
        } else {
            changes.iter().for_each(|change| change.reach_disk(nodes));
        }
    }
}

fn place_all(nodes: &mut BTreeMap<Ino, Node>) {
    let names = nodes
        .iter()
        .flat_map(|(dir, node)| node.names.iter().map(|(name, ino)| (*ino, (*dir, name.clone()))));
    for (ino, place) in names.collect::<Vec<_>>() {
        if let Some(node) = nodes.get_mut(&ino) {
            node.place = Some(place);
        }
    }
}
