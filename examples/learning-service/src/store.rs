//! The database: corrections, terms, versions.
//!
//! SQLite writes each transaction to disk (`synchronous = FULL`) before a function returns. The connection holds an
//! exclusive lock on the file, so that a second instance in the folder is refused; the system releases the lock when the
//! process ends in any way.

use std::path::Path;
use std::sync::{Mutex, MutexGuard};

use rusqlite::{Connection, OptionalExtension, Transaction, params};
use serde::Serialize;

use crate::fault::{Fault, Result};

/// Each brings the database from the version of its index to the next one.
const MIGRATIONS: &[&str] = &[include_str!("../shared/migrations/1.sql")];

pub struct Store(Mutex<Connection>);

/// A correction as a client sends it, checked.
#[derive(Clone, Debug)]
pub struct NewCorrection {
    pub domain: String,
    pub who: String,
    pub key: Option<String>,
    pub source: String,
    pub said: String,
    pub right: String,
    /// Milliseconds since 1970. It orders nothing: the number of a correction does.
    pub when: i64,
}

/// Largest numbers of rows.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    pub domains: usize,
    pub per_person: usize,
    /// Corrections of a domain.
    pub per_domain: usize,
}

/// Terms of a domain.
const MOST_TERMS: usize = 1000;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Correction {
    pub id: i64,
    pub domain: String,
    pub who: String,
    pub source: String,
    pub said: String,
    pub right: String,
    pub when: i64,
    /// Whether it measures and is not learned.
    pub held_out: bool,
}

#[derive(Clone, Debug)]
pub struct Domain {
    pub id: i64,
    pub name: String,
    /// Version that is served; 0 is the base.
    pub current: i64,
    /// Whether a round was asked for, or must be because corrections were deleted.
    pub asked: bool,
    pub corrections: usize,
    /// Corrections after the last round.
    pub pending: usize,
    /// The last correction before the last round.
    pub up_to: i64,
}

/// Accepted correction: its number, and whether it is new.
pub type Accepted = (i64, bool);

/// A term and its translation.
pub type Term = (String, String);

impl Store {
    /// Opens or makes the database of a folder. `Unavailable`: another instance has it.
    pub fn open(path: &Path) -> Result<Self> {
        let busy = |error: rusqlite::Error| match error.sqlite_error_code() {
            Some(rusqlite::ErrorCode::DatabaseBusy | rusqlite::ErrorCode::DatabaseLocked) => {
                Fault::Unavailable(format!("{}: another instance uses this folder", path.display()))
            }
            _ => Fault::Internal(format!("{}: {error}", path.display())),
        };
        let mut connection = Connection::open(path).map_err(busy)?;
        connection
            .execute_batch(
                "PRAGMA busy_timeout = 0; PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL;
                 PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; PRAGMA secure_delete = ON;
                 BEGIN EXCLUSIVE; COMMIT;",
            )
            .map_err(busy)?;
        migrate(&mut connection, path)?;
        Ok(Store(Mutex::new(connection)))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Connection> {
        self.0.lock().expect("no thread panics with the lock")
    }

    /// Runs `work` in a transaction, which is on disk when this returns.
    pub(crate) fn write<T>(&self, work: impl FnOnce(&Transaction<'_>) -> Result<T>) -> Result<T> {
        let mut connection = self.lock();
        let transaction = connection.transaction()?;
        let result = work(&transaction)?;
        transaction.commit()?;
        Ok(result)
    }

    /// Checks that the folder belongs to this base, and notes it in a new one.
    pub fn bind_base(&self, hash: &str) -> Result<()> {
        self.write(|rows| {
            let noted: Option<String> = rows
                .query_row("SELECT value FROM meta WHERE name = 'base'", [], |row| row.get(0))
                .optional()?;
            match noted {
                None => {
                    rows.execute("INSERT INTO meta VALUES ('base', ?1)", [hash])?;
                    Ok(())
                }
                Some(noted) if noted == hash => Ok(()),
                Some(noted) => Err(Fault::Conflict(format!(
                    "the adapters of this folder belong to another base: its hash is {noted}, this one's is {hash}"
                ))),
            }
        })
    }

    /// Stores a correction, once for each key. Without a key, a repetition of the newest correction of a sentence by the
    /// same person is not stored again.
    pub fn add_correction(&self, new: &NewCorrection, room: Room) -> Result<Accepted> {
        self.write(|rows| {
            let domain = make_domain(rows, &new.domain, room.domains)?;
            if let Some(there) = repeated(rows, domain, new)? {
                return Ok((there, false));
            }
            let in_domain =
                count(rows, "SELECT count(*) FROM corrections WHERE domain = ?1", domain)?;
            if in_domain >= room.per_domain {
                let most = room.per_domain;
                return Err(Fault::Limit(format!("a domain can have {most} corrections")));
            }
            let stored: i64 = rows.query_row(
                "SELECT count(*) FROM corrections WHERE person = ?1",
                [&new.who],
                |row| row.get(0),
            )?;
            if stored as usize >= room.per_person {
                let most = room.per_person;
                return Err(Fault::Limit(format!("a person can have {most} corrections")));
            }
            rows.execute(
                "INSERT INTO corrections (domain, person, key, source, said, correct, at, held)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
                params![
                    domain,
                    new.who,
                    new.key,
                    new.source,
                    new.said,
                    new.right,
                    new.when,
                    is_held_out(rows, domain, &new.source)?
                ],
            )?;
            Ok((rows.last_insert_rowid(), true))
        })
    }

    /// Sets the translation of a term, in place of an earlier one.
    pub fn set_term(&self, domain: &str, source: &str, target: &str, room: Room) -> Result<()> {
        self.write(|rows| {
            let domain = make_domain(rows, domain, room.domains)?;
            rows.execute(
                "INSERT INTO terms VALUES (?1, ?2, ?3)
                 ON CONFLICT (domain, source) DO UPDATE SET target = excluded.target",
                params![domain, source, target],
            )?;
            if count(rows, "SELECT count(*) FROM terms WHERE domain = ?1", domain)? > MOST_TERMS {
                // The transaction is not committed.
                return Err(Fault::Limit(format!("a domain can have {MOST_TERMS} terms")));
            }
            Ok(())
        })
    }

    /// Deletes a term. Returns how many were there: 1 or 0.
    pub fn delete_term(&self, domain: &str, source: &str) -> Result<usize> {
        let domain = self.domain(domain)?;
        self.write(|rows| {
            let deleted = rows.execute(
                "DELETE FROM terms WHERE domain = ?1 AND source = ?2",
                params![domain.id, source],
            )?;
            Ok(deleted)
        })
    }

    pub fn terms(&self, domain: i64) -> Result<Vec<Term>> {
        let connection = self.lock();
        let mut query = connection
            .prepare("SELECT source, target FROM terms WHERE domain = ?1 ORDER BY source")?;
        let rows = query.query_map([domain], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    pub fn domains(&self) -> Result<Vec<Domain>> {
        let connection = self.lock();
        let mut query = connection.prepare(
            "SELECT id, name, current, asked,
                (SELECT count(*) FROM corrections c WHERE c.domain = d.id),
                (SELECT count(*) FROM corrections c WHERE c.domain = d.id AND c.id >
                    (SELECT coalesce(max(up_to), 0) FROM versions v WHERE v.domain = d.id)),
                (SELECT coalesce(max(up_to), 0) FROM versions v WHERE v.domain = d.id)
             FROM domains d ORDER BY id",
        )?;
        let rows = query.query_map([], |row| {
            Ok(Domain {
                id: row.get(0)?,
                name: row.get(1)?,
                current: row.get(2)?,
                asked: row.get(3)?,
                corrections: row.get::<_, i64>(4)? as usize,
                pending: row.get::<_, i64>(5)? as usize,
                up_to: row.get(6)?,
            })
        })?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    pub fn domain(&self, name: &str) -> Result<Domain> {
        let mut domains = self.domains()?;
        let found = domains.iter().position(|domain| domain.name == name);
        found
            .map(|index| domains.swap_remove(index))
            .ok_or_else(|| Fault::NotFound(format!("there is no domain {name:?}")))
    }

    /// Notes that a round was asked for. `Conflict`: no correction came after the last round, or there are too few.
    pub fn ask(&self, name: &str) -> Result<()> {
        let domain = self.domain(name)?;
        self.write(|rows| {
            let (pending, kinds): (i64, i64) = rows.query_row(
                "SELECT count(*) FILTER (WHERE id >
                    (SELECT coalesce(max(up_to), 0) FROM versions WHERE domain = ?1)), count(DISTINCT held)
                 FROM corrections WHERE domain = ?1",
                [domain.id],
                |row| Ok((row.get(0)?, row.get(1)?)),
            )?;
            if pending == 0 {
                return Err(Fault::Conflict(format!("{name} has no new corrections")));
            }
            if kinds < 2 {
                let text = "a round needs corrections of three sentences: the third is held out";
                return Err(Fault::Conflict(text.into()));
            }
            rows.execute("UPDATE domains SET asked = 1 WHERE id = ?1", [domain.id])?;
            Ok(())
        })
    }

    /// All corrections of a person, the oldest first.
    pub fn export(&self, who: &str) -> Result<Vec<Correction>> {
        let connection = self.lock();
        let mut query = connection.prepare(
            "SELECT c.id, d.name, c.person, c.source, c.said, c.correct, c.at, c.held
             FROM corrections c JOIN domains d ON d.id = c.domain WHERE c.person = ?1 ORDER BY c.id",
        )?;
        let rows = query.query_map([who], |row| {
            Ok(Correction {
                id: row.get(0)?,
                domain: row.get(1)?,
                who: row.get(2)?,
                source: row.get(3)?,
                said: row.get(4)?,
                right: row.get(5)?,
                when: row.get(6)?,
                held_out: row.get(7)?,
            })
        })?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }
}

fn migrate(connection: &mut Connection, path: &Path) -> Result<()> {
    let version: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    let version = version as usize;
    if version > MIGRATIONS.len() {
        return Err(Fault::Conflict(format!(
            "{}: its version is {version}, this program knows versions up to {}",
            path.display(),
            MIGRATIONS.len()
        )));
    }
    for (index, migration) in MIGRATIONS.iter().enumerate().skip(version) {
        let transaction = connection.transaction()?;
        transaction.execute_batch(migration)?;
        transaction.pragma_update(None, "user_version", index as i64 + 1)?;
        transaction.commit()?;
    }
    Ok(())
}

fn count(rows: &Transaction<'_>, query: &str, domain: i64) -> Result<usize> {
    Ok(rows.query_row(query, [domain], |row| row.get::<_, i64>(0))? as usize)
}

fn make_domain(rows: &Transaction<'_>, name: &str, most: usize) -> Result<i64> {
    let found = rows
        .query_row("SELECT id FROM domains WHERE name = ?1", [name], |row| row.get(0))
        .optional()?;
    if let Some(id) = found {
        return Ok(id);
    }
    let count: i64 = rows.query_row("SELECT count(*) FROM domains", [], |row| row.get(0))?;
    if count as usize >= most {
        return Err(Fault::Limit(format!("there can be {most} domains")));
    }
    rows.execute("INSERT INTO domains (name) VALUES (?1)", [name])?;
    Ok(rows.last_insert_rowid())
}

/// The number of the correction that `new` repeats. `Conflict`: its key is that of a correction with other content.
fn repeated(rows: &Transaction<'_>, domain: i64, new: &NewCorrection) -> Result<Option<i64>> {
    if let Some(key) = &new.key {
        let there: Option<(i64, String, String)> = rows
            .query_row(
                "SELECT id, source, correct FROM corrections WHERE domain = ?1 AND person = ?2 AND key = ?3",
                params![domain, new.who, key],
                |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
            )
            .optional()?;
        return match there {
            Some((id, source, right)) if source == new.source && right == new.right => Ok(Some(id)),
            Some((id, ..)) => Err(Fault::Conflict(format!(
                "correction {id} has the same id {key:?} and other content"
            ))),
            None => Ok(None),
        };
    }
    let newest: Option<(i64, String, String)> = rows
        .query_row(
            "SELECT id, person, correct FROM corrections WHERE domain = ?1 AND source = ?2 ORDER BY id DESC LIMIT 1",
            params![domain, new.source],
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
        )
        .optional()?;
    Ok(newest.filter(|(_, who, right)| *who == new.who && *right == new.right).map(|(id, ..)| id))
}

/// Every fifth sentence of a domain is held out, the third first, for good: a version is never measured on a sentence that
/// an earlier one has learned.
fn is_held_out(rows: &Transaction<'_>, domain: i64, source: &str) -> Result<bool> {
    let before = rows
        .query_row(
            "SELECT held FROM corrections WHERE domain = ?1 AND source = ?2 LIMIT 1",
            params![domain, source],
            |row| row.get(0),
        )
        .optional()?;
    if let Some(held) = before {
        return Ok(held);
    }
    let sentences: i64 = rows.query_row(
        "SELECT count(DISTINCT source) FROM corrections WHERE domain = ?1",
        [domain],
        |row| row.get(0),
    )?;
    Ok(sentences % 5 == 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_loses_nothing_and_acknowledges_nothing() {
        let folder = std::env::temp_dir().join(format!("learning-full-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let store = Store::open(&folder.join("service.db")).unwrap();
        let room = Room { domains: 1, per_person: 1000, per_domain: 1000 };
        let new = |n: usize| NewCorrection {
            domain: "d".into(),
            who: "Anna".into(),
            key: None,
            source: format!("{n} {}", "x".repeat(1000)),
            said: String::new(),
            right: "y".into(),
            when: 0,
        };
        store.lock().pragma_update(None, "max_page_count", 40).unwrap();
        let first = (0..100).find_map(|n| Some((n, store.add_correction(&new(n), room).err()?)));
        let (stored, fault) = first.expect("40 pages are soon full");
        assert!(stored > 0 && matches!(fault, Fault::Unavailable(_)), "{stored}: {fault:?}");
        assert_eq!(store.export("Anna").unwrap().len(), stored);
        store.lock().pragma_update(None, "max_page_count", 4000).unwrap();
        assert!(store.add_correction(&new(stored), room).unwrap().1);
        assert_eq!(store.export("Anna").unwrap().len(), stored + 1);
        drop(store);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
