CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE domains (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    current INTEGER NOT NULL DEFAULT 0,
    asked INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE corrections (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    domain INTEGER NOT NULL REFERENCES domains (id),
    person TEXT NOT NULL,
    key TEXT,
    source TEXT NOT NULL,
    said TEXT NOT NULL,
    correct TEXT NOT NULL,
    at INTEGER NOT NULL,
    held INTEGER NOT NULL,
    UNIQUE (domain, person, key)
) STRICT;
CREATE INDEX corrections_by_source ON corrections (domain, source);
CREATE INDEX corrections_by_person ON corrections (person);
CREATE TABLE terms (
    domain INTEGER NOT NULL REFERENCES domains (id),
    source TEXT NOT NULL,
    target TEXT NOT NULL,
    PRIMARY KEY (domain, source)
) STRICT;
CREATE TABLE versions (
    domain INTEGER NOT NULL REFERENCES domains (id),
    version INTEGER NOT NULL,
    state TEXT NOT NULL,
    up_to INTEGER NOT NULL,
    seed INTEGER NOT NULL,
    learning TEXT NOT NULL,
    began INTEGER NOT NULL,
    ended INTEGER,
    hash TEXT,
    figures TEXT,
    reason TEXT,
    PRIMARY KEY (domain, version)
) STRICT;
CREATE TABLE version_corrections (
    domain INTEGER NOT NULL,
    version INTEGER NOT NULL,
    correction INTEGER NOT NULL,
    held INTEGER NOT NULL,
    PRIMARY KEY (domain, version, correction),
    FOREIGN KEY (domain, version) REFERENCES versions (domain, version)
) STRICT, WITHOUT ROWID;
CREATE INDEX versions_by_correction ON version_corrections (correction);
CREATE TABLE points (
    domain INTEGER NOT NULL,
    version INTEGER NOT NULL,
    step INTEGER NOT NULL,
    loss REAL NOT NULL,
    held_loss REAL NOT NULL,
    PRIMARY KEY (domain, version, step)
) STRICT, WITHOUT ROWID;
CREATE TABLE switches (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    domain INTEGER NOT NULL REFERENCES domains (id),
    version INTEGER NOT NULL,
    cause TEXT NOT NULL,
    at INTEGER NOT NULL
) STRICT;
