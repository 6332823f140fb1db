//! What is on a disk, read with statements of the tests: every row and file, and whether they fit together.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use power::Disk;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags};
use tempfile::TempDir;

/// Each row as `data/router/feed_keys|prices|eur|…`, with bytes in hexadecimal digits, and all files.
#[derive(Debug)]
pub(super) struct Left {
    pub(super) rows: BTreeSet<String>,
    files: BTreeSet<String>,
    home: TempDir,
}

/// The parts of names that writers give before the real ones.
const TEMPORARY: [&str; 4] = [".kalends-tmp", ".restore-", ".new", "-journal"];

impl Left {
    /// Reads `home` of a disk. Fails with the first thing that is wrong with it.
    pub(super) fn on(disk: &Disk) -> Result<Self, String> {
        let home = TempDir::new().expect("a temporary directory can be made");
        disk.export(home.path()).map_err(|error| error.to_string())?;
        let mut this = Self { rows: BTreeSet::new(), files: BTreeSet::new(), home };
        let root = this.home.path().join("home");
        this.list(&root, "")?;
        for file in this.files.clone() {
            if let Some(name) = file.strip_suffix(".db").filter(|name| !is_temporary(name)) {
                this.read(&root.join(&file), name).map_err(|error| format!("{file}: {error}"))?;
            }
        }
        let listed = this.rows.iter().filter_map(|row| row.split_once("router/months|"));
        // Copies of files before a migration are no store.
        for (dir, month) in listed.filter(|(dir, _)| !dir.contains("before-")) {
            if !this.files.contains(&format!("{dir}messages_{month}.db")) {
                return Err(format!("{month} is listed and has no file"));
            }
        }
        Ok(this)
    }

    /// The contents of a file; nothing if it is missing.
    pub(super) fn file(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap_or_default()
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.home.path().join("home").join(name)
    }

    pub(super) fn has_file(&self, name: &str) -> bool {
        self.files.contains(name)
    }

    pub(super) fn has_row(&self, parts: &[String]) -> bool {
        self.rows.iter().any(|row| parts.iter().all(|part| row.contains(part)))
    }

    pub(super) fn temporary(&self) -> Option<&String> {
        self.files.iter().find(|name| TEMPORARY.iter().any(|part| name.contains(part)))
    }

    /// Files of months that no list names.
    pub(super) fn unlisted(&self) -> Option<&String> {
        self.files.iter().find(|name| {
            let month = name.strip_suffix(".db").and_then(|name| name.split_once("messages_"));
            month.is_some_and(|(dir, month)| {
                !is_temporary(name) && !self.rows.contains(&format!("{dir}router/months|{month}"))
            })
        })
    }

    fn list(&mut self, dir: &Path, within: &str) -> Result<(), String> {
        for entry in fs::read_dir(dir).map_err(|error| error.to_string())? {
            let entry = entry.map_err(|error| error.to_string())?;
            let name = format!("{within}{}", entry.file_name().to_string_lossy());
            let found = entry.metadata().map_err(|error| error.to_string())?;
            let mode = found.permissions().mode();
            let is_secret = [".db", "-wal", "keys.toml", ".tar", ".pem", ".json", "copying"];
            if mode & 0o077 != 0 && is_secret.iter().any(|end| name.ends_with(end)) {
                return Err(format!("{name} has mode {mode:o}"));
            }
            match found.is_dir() {
                true => self.list(&entry.path(), &format!("{name}/"))?,
                false => drop(self.files.insert(name)),
            }
        }
        Ok(())
    }

    fn read(&mut self, file: &Path, name: &str) -> rusqlite::Result<()> {
        let wrong = |what: &str| Err(rusqlite::Error::InvalidColumnName(what.to_owned()));
        if fs::read(file).unwrap_or_default().get(18..20) != Some(&[2, 2]) {
            return wrong("it has no write-ahead log");
        }
        let conn = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        let text = |sql: &str| conn.query_row(sql, [], |row| row.get::<_, String>(0));
        if text("PRAGMA integrity_check")? != "ok" || text("PRAGMA journal_mode")? != "wal" {
            return wrong("it is damaged");
        }
        let tables = conn.prepare("SELECT name FROM sqlite_schema WHERE type = 'table'")?;
        let tables =
            { tables }.query_map([], |row| row.get(0))?.collect::<Result<Vec<String>, _>>();
        for table in tables? {
            let mut rows = conn.prepare(&format!("SELECT * FROM {table}"))?;
            let columns = rows.column_count();
            let mut rows = rows.query([])?;
            while let Some(row) = rows.next()? {
                let mut line = format!("{name}/{table}");
                for column in 0..columns {
                    line += "|";
                    line += &shown(row.get_ref(column)?);
                }
                self.rows.insert(line);
            }
        }
        if name.contains("messages_") {
            let uncounted: u32 = conn.query_row(UNCOUNTED, [], |row| row.get(0))?;
            if uncounted > 0 {
                return wrong("its counts of waiting messages are not those of its rows");
            }
        }
        Ok(())
    }
}

/// Agents and channels whose number of messages is not that of their rows.
const UNCOUNTED: &str = "
    WITH counted AS (
        SELECT uaid, chid, count(*) AS messages FROM messages GROUP BY 1, 2
        UNION ALL SELECT uaid, x'', count(*) FROM messages GROUP BY 1)
    SELECT count(*) FROM (
        SELECT * FROM (SELECT uaid, chid, messages FROM waiting EXCEPT SELECT * FROM counted)
        UNION ALL
        SELECT * FROM (SELECT * FROM counted EXCEPT SELECT uaid, chid, messages FROM waiting))";

fn is_temporary(name: &str) -> bool {
    name.contains("backup.partial") || TEMPORARY.iter().any(|part| name.contains(part))
}

fn shown(value: ValueRef<'_>) -> String {
    match value {
        ValueRef::Null => String::new(),
        ValueRef::Integer(number) => number.to_string(),
        ValueRef::Real(number) => number.to_string(),
        ValueRef::Text(text) => String::from_utf8_lossy(text).into_owned(),
        ValueRef::Blob(bytes) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}
