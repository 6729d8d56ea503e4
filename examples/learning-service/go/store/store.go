// Package store is the database: corrections, terms, versions.
//
// SQLite writes each transaction to disk (synchronous = FULL) before a function returns. The connection holds
// an exclusive lock on the file, so that a second instance in the folder is refused; the system releases the
// lock when the process ends in any way. The service in Rust has the same schema: a file that one program made
// opens in the other.
package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"time"

	"github.com/mattn/go-sqlite3"

	"github.com/trafo-engine/trafo/examples/learning-service/go/fault"
	"github.com/trafo-engine/trafo/examples/learning-service/shared"
)

// Store is an open database.
type Store struct {
	lock sync.Mutex
	pool *sql.DB
	rows *sql.Conn // the one connection, which holds the lock on the file
}

// Room has the largest numbers of rows.
type Room struct {
	Domains   int
	PerPerson int // corrections
	PerDomain int // corrections
}

const (
	mostTerms = 1000 // of a domain
	shown     = 50   // versions at a time
)

// Now is the time in milliseconds since 1970.
func Now() int64 { return max(0, time.Now().UnixMilli()) }

// Open opens or makes the database in a file. Unavailable: another instance has it.
func Open(path string) (*Store, error) {
	address := url.URL{Scheme: "file", OmitHost: true, Path: path}
	pool, err := sql.Open("sqlite3", address.String())
	if err != nil {
		return nil, err
	}
	pool.SetMaxOpenConns(1)
	s := &Store{pool: pool}
	if err := s.open(); err != nil {
		pool.Close()
		var told sqlite3.Error
		if errors.As(err, &told) && (told.Code == sqlite3.ErrBusy || told.Code == sqlite3.ErrLocked) {
			return nil, fault.New(fault.Unavailable, "%s: another instance uses this folder", path)
		}
		return nil, fault.New(fault.KindOf(err), "%s: %v", path, err)
	}
	return s, nil
}

func (s *Store) open() (err error) {
	if s.rows, err = s.pool.Conn(context.Background()); err != nil {
		return err
	}
	if err := s.run(`PRAGMA busy_timeout = 0; PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL;
		PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; PRAGMA secure_delete = ON;
		BEGIN EXCLUSIVE; COMMIT;`); err != nil {
		return err
	}
	return s.migrate(shared.Migrations())
}

func (s *Store) migrate(migrations []string) error {
	var version int
	if _, err := s.get("PRAGMA user_version", nil, &version); err != nil {
		return err
	}
	if version > len(migrations) {
		return fault.New(fault.Conflict, "its version is %d, this program knows versions up to %d", version, len(migrations))
	}
	for ; version < len(migrations); version++ {
		if err := s.transaction(func() error {
			if err := s.run(migrations[version]); err != nil {
				return err
			}
			return s.run(fmt.Sprintf("PRAGMA user_version = %d", version+1))
		}); err != nil {
			return err
		}
	}
	return nil
}

// Close releases the file.
func (s *Store) Close() error {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.rows.Close()
	return s.pool.Close()
}

// told gives an error of the database its kind.
func told(err error) error {
	var failure sqlite3.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &failure) && failure.Code == sqlite3.ErrFull:
		return fault.New(fault.Unavailable, "the database: %v", err)
	case errors.As(err, &failure) && (failure.Code == sqlite3.ErrBusy || failure.Code == sqlite3.ErrLocked):
		return err // Open says what it means
	}
	return fault.New(fault.Internal, "the database: %v", err)
}

// The functions below need the lock.

// run executes statements and drops what they give.
func (s *Store) run(statements string, arguments ...any) error {
	_, err := s.change(statements, arguments...)
	return err
}

// change executes a statement and says how many rows it has changed.
func (s *Store) change(statement string, arguments ...any) (int, error) {
	result, err := s.rows.ExecContext(context.Background(), statement, arguments...)
	if err != nil {
		return 0, told(err)
	}
	changed, err := result.RowsAffected()
	return int(changed), told(err)
}

// get reads the first row of a query. False: there is none.
func (s *Store) get(query string, arguments []any, into ...any) (bool, error) {
	err := s.rows.QueryRowContext(context.Background(), query, arguments...).Scan(into...)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, told(err)
}

// list reads the rows of a query.
func list[T any](s *Store, read func(scan func(...any) error) (T, error), query string, arguments ...any) ([]T, error) {
	found := []T{}
	rows, err := s.rows.QueryContext(context.Background(), query, arguments...)
	if err != nil {
		return nil, told(err)
	}
	defer rows.Close()
	for rows.Next() {
		row, err := read(rows.Scan)
		if err != nil {
			return nil, told(err)
		}
		found = append(found, row)
	}
	return found, told(rows.Err())
}

// transaction runs work in a transaction, which is on disk when this returns without an error.
func (s *Store) transaction(work func() error) error {
	if err := s.run("BEGIN"); err != nil {
		return err
	}
	err := work()
	if err == nil {
		err = s.run("COMMIT")
	}
	if err != nil {
		// A failure of SQLite may have ended the transaction already, so that there is nothing to roll back.
		_, _ = s.rows.ExecContext(context.Background(), "ROLLBACK")
	}
	return err
}

// write is transaction with the lock.
func (s *Store) write(work func() error) error {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.transaction(work)
}

// BindBase checks that the folder belongs to this base, and notes it in a new one.
func (s *Store) BindBase(hash string) error {
	return s.write(func() error {
		var noted string
		there, err := s.get("SELECT value FROM meta WHERE name = 'base'", nil, &noted)
		switch {
		case err != nil:
			return err
		case !there:
			return s.run("INSERT INTO meta VALUES ('base', ?1)", hash)
		case noted != hash:
			return fault.New(fault.Conflict,
				"the adapters of this folder belong to another base: its hash is %s, this one's is %s", noted, hash)
		}
		return nil
	})
}
