//! The database's versions: rounds that are begun, their outcomes, what is served, and the deletion of a person's rows.

use std::collections::{HashMap, HashSet};
use std::time::{SystemTime, UNIX_EPOCH};

use rusqlite::{OptionalExtension, Transaction, params};
use serde::Serialize;
use serde_json::Value;

use crate::fault::{Fault, Result};
use crate::hash;
use crate::settings::Learning;
use crate::store::{Domain, Store};

/// A source and its translation.
pub type Pair = (String, String);

/// The inputs of a round. They are stored when it begins and do not change any more.
#[derive(Clone, Debug)]
pub struct Round {
    pub domain_id: i64,
    pub domain: String,
    pub version: i64,
    pub seed: u64,
    pub learning: Learning,
    pub train: Vec<Pair>,
    pub held: Vec<Pair>,
}

/// The end of a round.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Whether the version is served from now on.
    pub serve: bool,
    /// Of the adapter; none if there is no adapter.
    pub hash: Option<String>,
    pub figures: Value,
    pub reason: String,
}

/// A validation of a round.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    pub update: i64,
    /// Cross-entropy per token of the last update.
    pub loss: f64,
    /// Of the held-out corrections.
    pub held_loss: f64,
}

#[derive(Clone, Debug, Serialize)]
pub struct Version {
    pub domain: String,
    pub version: i64,
    /// `learning`, `good`, `refused`, `failed`, `damaged` or `forgotten`.
    pub state: String,
    pub current: bool,
    pub seed: u64,
    pub learning: Value,
    /// Milliseconds since 1970.
    pub began: i64,
    pub ended: Option<i64>,
    pub hash: Option<String>,
    pub figures: Value,
    pub reason: Option<String>,
    /// Numbers of the corrections that it learned, and that it was measured on.
    pub corrections: Vec<i64>,
    pub held_out: Vec<i64>,
    pub points: Vec<Point>,
}

/// Result of the deletion of a person's rows.
#[derive(Clone, Debug, Default)]
pub struct Forgotten {
    pub corrections: usize,
    /// Domain and version of the adapters that had learned from them.
    pub versions: Vec<(String, i64)>,
}

/// Most versions that are shown at a time.
const SHOWN: i64 = 50;

/// Numbers of the corrections that a version has learned, and of those that it was measured on.
type Numbers = (Vec<i64>, Vec<i64>);

/// A version that is to be served, and the hash of its adapter.
#[derive(Clone, Debug, PartialEq)]
pub struct Chosen {
    pub version: i64,
    pub hash: String,
}

pub fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |time| time.as_millis() as i64)
}

impl Store {
    /// The round that was begun and has not ended, or a new one of a domain that is due: with `batch` corrections
    /// after the last round, or if one was asked for.
    pub fn next_round(&self, batch: usize, learning: &Learning) -> Result<Option<Round>> {
        if let Some(round) = self.unfinished()? {
            return Ok(Some(round));
        }
        let mut domains = self.domains()?;
        // Those whose last round is the longest ago, counted in corrections, go first: no domain keeps others waiting.
        domains.sort_by_key(|domain| domain.up_to);
        for domain in domains {
            if !domain.asked && domain.pending < batch {
                continue;
            }
            if let Some(version) = self.begin(&domain, learning)? {
                return self.round(domain.id, version).map(Some);
            }
        }
        Ok(None)
    }

    /// A round whose settings cannot be read, of another version of the program, ends here as failed.
    fn unfinished(&self) -> Result<Option<Round>> {
        loop {
            let found: Option<(i64, i64, String)> = self
                .lock()
                .query_row(
                    "SELECT domain, version, learning FROM versions WHERE state = 'learning'
                     ORDER BY began, domain LIMIT 1",
                    [],
                    |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
                )
                .optional()?;
            let Some((domain, version, learning)) = found else { return Ok(None) };
            let Err(error) = serde_json::from_str::<Learning>(&learning) else {
                return self.round(domain, version).map(Some);
            };
            self.write(|rows| {
                rows.execute(
                    "UPDATE versions SET state = 'failed', reason = ?3, ended = ?4
                     WHERE domain = ?1 AND version = ?2",
                    params![
                        domain,
                        version,
                        format!("its settings cannot be read: {error}"),
                        now()
                    ],
                )?;
                Ok(())
            })?;
        }
    }

    /// Stores the inputs of a round. None: there is nothing to learn, or nothing to measure it by.
    fn begin(&self, domain: &Domain, learning: &Learning) -> Result<Option<i64>> {
        self.write(|rows| {
            let chosen = active(rows, domain.id, learning)?;
            let held = chosen.iter().filter(|(_, held)| *held).count();
            if held == 0 || held == chosen.len() {
                return Ok(None);
            }
            rows.execute("UPDATE domains SET asked = 0 WHERE id = ?1", [domain.id])?;
            let version: i64 = rows.query_row(
                "SELECT coalesce(max(version), 0) + 1 FROM versions WHERE domain = ?1",
                [domain.id],
                |row| row.get(0),
            )?;
            let seed =
                hash::seed(&[&learning.seed.to_string(), &domain.name, &version.to_string()]);
            rows.execute(
                "INSERT INTO versions (domain, version, state, up_to, seed, learning, began)
                 SELECT ?1, ?2, 'learning', max(id), ?3, ?4, ?5 FROM corrections WHERE domain = ?1",
                params![domain.id, version, seed as i64, serde_json::to_string(learning)?, now()],
            )?;
            let mut insert =
                rows.prepare("INSERT INTO version_corrections VALUES (?1, ?2, ?3, ?4)")?;
            for (id, held) in &chosen {
                insert.execute(params![domain.id, version, id, held])?;
            }
            Ok(Some(version))
        })
    }

    fn round(&self, domain_id: i64, version: i64) -> Result<Round> {
        let connection = self.lock();
        let (domain, seed, learning) = connection.query_row(
            "SELECT d.name, v.seed, v.learning FROM versions v JOIN domains d ON d.id = v.domain
             WHERE v.domain = ?1 AND v.version = ?2",
            [domain_id, version],
            |row| Ok((row.get(0)?, row.get::<_, i64>(1)? as u64, row.get::<_, String>(2)?)),
        )?;
        let mut query = connection.prepare(
            "SELECT c.source, c.correct, v.held FROM version_corrections v
             JOIN corrections c ON c.id = v.correction
             WHERE v.domain = ?1 AND v.version = ?2 ORDER BY c.id",
        )?;
        let (mut train, mut held) = (Vec::new(), Vec::new());
        let rows = query.query_map([domain_id, version], |row| {
            Ok(((row.get(0)?, row.get(1)?), row.get::<_, bool>(2)?))
        })?;
        for row in rows {
            let (pair, is_held) = row?;
            if is_held { held.push(pair) } else { train.push(pair) }
        }
        let learning = serde_json::from_str(&learning)?;
        Ok(Round { domain_id, domain, version, seed, learning, train, held })
    }

    pub fn add_point(&self, round: &Round, point: Point) -> Result<()> {
        self.write(|rows| {
            rows.execute(
                "INSERT OR REPLACE INTO points VALUES (?1, ?2, ?3, ?4, ?5)",
                params![round.domain_id, round.version, point.update, point.loss, point.held_loss],
            )?;
            Ok(())
        })
    }

    /// Ends a round, and with `serve` makes its version the current one. False: its corrections were deleted meanwhile, and
    /// nothing has changed.
    pub fn finish(&self, round: &Round, outcome: &Outcome) -> Result<bool> {
        let state = match (outcome.serve, &outcome.hash) {
            (true, _) => "good",
            (false, Some(_)) => "refused",
            (false, None) => "failed",
        };
        self.write(|rows| {
            let changed = rows.execute(
                "UPDATE versions SET state = ?3, hash = ?4, figures = ?5, reason = ?6, ended = ?7
                 WHERE domain = ?1 AND version = ?2 AND state = 'learning'",
                params![
                    round.domain_id,
                    round.version,
                    state,
                    outcome.hash,
                    outcome.figures.to_string(),
                    outcome.reason,
                    now()
                ],
            )?;
            if changed == 1 && outcome.serve {
                switch(rows, round.domain_id, round.version, "better")?;
            }
            Ok(changed == 1)
        })
    }

    /// The version that a domain serves; none is the base.
    pub fn chosen(&self, domain: i64) -> Result<Option<Chosen>> {
        let found = self
            .lock()
            .query_row(
                "SELECT v.version, v.hash FROM domains d JOIN versions v ON v.domain = d.id AND v.version = d.current
                 WHERE d.id = ?1",
                [domain],
                |row| Ok(Chosen { version: row.get(0)?, hash: row.get(1)? }),
            )
            .optional()?;
        Ok(found)
    }

    /// A version that may be served if its files have the hash. It may have been damaged before. `Conflict` says why it
    /// may not.
    pub fn good(&self, domain: &Domain, version: i64) -> Result<Option<Chosen>> {
        if version == 0 {
            return Ok(None);
        }
        let name = &domain.name;
        let found: Option<(String, Option<String>)> = self
            .lock()
            .query_row(
                "SELECT state, hash FROM versions WHERE domain = ?1 AND version = ?2",
                [domain.id, version],
                |row| Ok((row.get(0)?, row.get(1)?)),
            )
            .optional()?;
        match found {
            Some((state, Some(hash))) if ["good", "damaged"].contains(&state.as_str()) => {
                Ok(Some(Chosen { version, hash }))
            }
            Some((state, _)) => Err(Fault::Conflict(format!(
                "version {version} of {name} is {state} and cannot be served"
            ))),
            None => Err(Fault::NotFound(format!("{name} has no version {version}"))),
        }
    }

    /// Makes a version whose files are whole, or 0 for the base, the current one.
    pub fn roll_back(&self, domain: i64, version: i64) -> Result<()> {
        self.write(|rows| {
            rows.execute(
                "UPDATE versions SET state = 'good', reason = 'its files are whole again'
                 WHERE domain = ?1 AND version = ?2 AND state = 'damaged'",
                [domain, version],
            )?;
            switch(rows, domain, version, "rollback")
        })
    }

    /// Notes that an adapter is damaged; another good version becomes the current one if it was. Returns the current version.
    pub fn mark_damaged(&self, domain: i64, version: i64, reason: &str) -> Result<i64> {
        self.write(|rows| {
            rows.execute(
                "UPDATE versions SET state = 'damaged', reason = ?3 WHERE domain = ?1 AND version = ?2",
                params![domain, version, reason],
            )?;
            fall_back(rows, domain, version, "damaged")
        })
    }

    /// Deletes a person's corrections. The versions that learned or were measured with them cannot be served any more, and
    /// their domains learn anew. Their text is in the files until [`remove_deleted_text`](Self::remove_deleted_text).
    pub fn forget(&self, who: &str) -> Result<Forgotten> {
        self.write(|rows| {
            let mut query = rows.prepare(
                "SELECT DISTINCT v.domain, d.name, v.version FROM corrections c
                 JOIN version_corrections v ON v.correction = c.id JOIN domains d ON d.id = v.domain
                 WHERE c.person = ?1 ORDER BY v.domain, v.version DESC",
            )?;
            let affected: Vec<(i64, String, i64)> = query
                .query_map([who], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
                .collect::<rusqlite::Result<_>>()?;
            for (domain, _, version) in &affected {
                rows.execute(
                    "UPDATE versions SET state = 'forgotten', figures = NULL,
                         reason = 'corrections that it learned from were deleted'
                     WHERE domain = ?1 AND version = ?2",
                    [domain, version],
                )?;
                rows.execute("UPDATE domains SET asked = 1 WHERE id = ?1", [domain])?;
            }
            for (domain, _, version) in &affected {
                fall_back(rows, *domain, *version, "deletion")?;
            }
            let corrections = rows.execute("DELETE FROM corrections WHERE person = ?1", [who])?;
            // Noted in the same transaction: a process that is killed before it removes the text does so later.
            rows.execute("INSERT OR REPLACE INTO meta VALUES ('deleted', '1')", [])?;
            let versions = affected.into_iter().map(|(_, name, version)| (name, version)).collect();
            Ok(Forgotten { corrections, versions })
        })
    }

    /// Removes the text of deleted rows from the files of the database, if there is some. The log has it until it is
    /// truncated, and so have the gaps between rows, also with `secure_delete`: pages are written anew, whole.
    pub fn remove_deleted_text(&self) -> Result<()> {
        let connection = self.lock();
        let deleted: bool = connection.query_row(
            "SELECT EXISTS (SELECT * FROM meta WHERE name = 'deleted')",
            [],
            |row| row.get(0),
        )?;
        if !deleted {
            return Ok(());
        }
        connection.execute_batch("VACUUM")?;
        let waits: bool =
            connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))?;
        if waits {
            return Err(Fault::Unavailable("the log of the database is in use".into()));
        }
        connection.execute("DELETE FROM meta WHERE name = 'deleted'", [])?;
        Ok(())
    }

    /// State of each version of a domain.
    pub fn states(&self, domain: &Domain) -> Result<Vec<(i64, String)>> {
        let connection = self.lock();
        let mut query =
            connection.prepare("SELECT version, state FROM versions WHERE domain = ?1")?;
        let rows = query.query_map([domain.id], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// The newest versions of a domain up to `last`, the newest first, at most `SHOWN`.
    pub fn versions(&self, domain: &Domain, last: i64) -> Result<Vec<Version>> {
        let mut corrections = self.corrections_of_versions(domain.id, last)?;
        let mut points = self.points(domain.id, last)?;
        let connection = self.lock();
        let mut query = connection.prepare(
            "SELECT version, state, seed, learning, began, ended, hash, figures, reason
             FROM versions WHERE domain = ?1 AND version <= ?2 ORDER BY version DESC LIMIT ?3",
        )?;
        let rows = query.query_map([domain.id, last, SHOWN], |row| {
            let version: i64 = row.get(0)?;
            let json = |text: Option<String>| {
                text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or(Value::Null)
            };
            let (learned, held_out) = corrections.remove(&version).unwrap_or_default();
            Ok(Version {
                domain: domain.name.clone(),
                version,
                state: row.get(1)?,
                current: version == domain.current,
                seed: row.get::<_, i64>(2)? as u64,
                learning: json(row.get(3)?),
                began: row.get(4)?,
                ended: row.get(5)?,
                hash: row.get(6)?,
                figures: json(row.get(7)?),
                reason: row.get(8)?,
                corrections: learned,
                held_out,
                points: points.remove(&version).unwrap_or_default(),
            })
        })?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    fn corrections_of_versions(&self, domain: i64, last: i64) -> Result<HashMap<i64, Numbers>> {
        let connection = self.lock();
        let mut query = connection.prepare(
            "SELECT version, correction, held FROM version_corrections
             WHERE domain = ?1 AND version IN (SELECT version FROM versions WHERE domain = ?1
                 AND version <= ?2 ORDER BY version DESC LIMIT ?3) ORDER BY 1, 2",
        )?;
        let mut found: HashMap<i64, Numbers> = HashMap::new();
        let mut rows = query.query([domain, last, SHOWN])?;
        while let Some(row) = rows.next()? {
            let (learned, held) = found.entry(row.get(0)?).or_default();
            if row.get::<_, bool>(2)? { held.push(row.get(1)?) } else { learned.push(row.get(1)?) }
        }
        Ok(found)
    }

    fn points(&self, domain: i64, last: i64) -> Result<HashMap<i64, Vec<Point>>> {
        let connection = self.lock();
        let mut query = connection.prepare(
            "SELECT version, step, loss, held_loss FROM points
             WHERE domain = ?1 AND version IN (SELECT version FROM versions WHERE domain = ?1
                 AND version <= ?2 ORDER BY version DESC LIMIT ?3) ORDER BY 1, 2",
        )?;
        let mut found: HashMap<i64, Vec<Point>> = HashMap::new();
        let mut rows = query.query([domain, last, SHOWN])?;
        while let Some(row) = rows.next()? {
            let point = Point { update: row.get(1)?, loss: row.get(2)?, held_loss: row.get(3)? };
            found.entry(row.get(0)?).or_default().push(point);
        }
        Ok(found)
    }
}

/// The corrections that a round learns from and whether each is held out, in the order of their numbers: of each sentence
/// the newest, of each person the newest `per_person`, in all the newest `most`. A sentence whose newest correction is
/// beyond a person's limit keeps the one before.
fn active(rows: &Transaction<'_>, domain: i64, learning: &Learning) -> Result<Vec<(i64, bool)>> {
    let mut query = rows.prepare(
        "SELECT id, person, source, held FROM corrections WHERE domain = ?1 ORDER BY id DESC",
    )?;
    let mut seen: HashSet<String> = HashSet::new();
    let mut of_person: HashMap<String, usize> = HashMap::new();
    let mut chosen = Vec::new();
    let mut found = query.query([domain])?;
    while let Some(row) = found.next()? {
        let (id, person, source): (i64, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
        if chosen.len() >= learning.most {
            break;
        }
        let count = of_person.entry(person).or_default();
        if *count >= learning.per_person || !seen.insert(source) {
            continue;
        }
        *count += 1;
        chosen.push((id, row.get(3)?));
    }
    chosen.reverse();
    Ok(chosen)
}

fn switch(rows: &Transaction<'_>, domain: i64, version: i64, cause: &str) -> Result<()> {
    rows.execute("UPDATE domains SET current = ?2 WHERE id = ?1", [domain, version])?;
    rows.execute(
        "INSERT INTO switches (domain, version, cause, at) VALUES (?1, ?2, ?3, ?4)",
        params![domain, version, cause, now()],
    )?;
    Ok(())
}

/// Takes a version that cannot be served away from its domain, which gets the newest good version below it, else the newest
/// good one, else the base. Returns the domain's current version.
fn fall_back(rows: &Transaction<'_>, domain: i64, version: i64, cause: &str) -> Result<i64> {
    let current: i64 =
        rows.query_row("SELECT current FROM domains WHERE id = ?1", [domain], |row| row.get(0))?;
    if current != version {
        return Ok(current);
    }
    let other: Option<i64> = rows
        .query_row(
            "SELECT version FROM versions WHERE domain = ?1 AND version <> ?2 AND state = 'good'
             ORDER BY version < ?2 DESC, version DESC LIMIT 1",
            [domain, version],
            |row| row.get(0),
        )
        .optional()?;
    let other = other.unwrap_or(0);
    switch(rows, domain, other, cause)?;
    Ok(other)
}
