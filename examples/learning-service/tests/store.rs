//! The database without a model: which corrections a round gets, keys, limits, versions of the file.

use std::path::PathBuf;

use learning_service::fault::Fault;
use learning_service::settings::Learning;
use learning_service::store::{NewCorrection, Room, Store};
use learning_service::versions::Outcome;
use serde_json::Value;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("learning-store-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
    fn file(&self) -> PathBuf {
        self.0.join("service.db")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const ROOM: Room = Room { domains: 2, per_person: 2000, per_domain: 3000 };

fn new(who: &str, source: &str, right: &str) -> NewCorrection {
    NewCorrection {
        domain: "d".into(),
        who: who.into(),
        key: None,
        source: source.into(),
        said: "?".into(),
        right: right.into(),
        when: 0,
    }
}

#[test]
fn a_thousand_contradictions_of_a_person_are_bounded() {
    let folder = Folder::new("poison");
    let store = Store::open(&folder.file()).unwrap();
    for n in 0..10 {
        store.add_correction(&new("Anna", &format!("s{n}"), &format!("right {n}")), ROOM).unwrap();
    }
    // Of 100 sentences, ten of which are Anna's.
    for n in 0..1000 {
        let sentence = format!("s{}", n % 100);
        store.add_correction(&new("Otto", &sentence, &format!("wrong {n}")), ROOM).unwrap();
    }
    let learning = Learning { per_person: 50, ..Learning::default() };
    let round = store.next_round(1, &learning).unwrap().unwrap();
    let all: Vec<_> = round.train.iter().chain(&round.held).collect();
    let of_otto = all.iter().filter(|(_, right)| right.starts_with("wrong")).count();
    assert_eq!((all.len(), of_otto), (60, 50));
    // Of Otto the newest, one of a sentence, and of Anna those that his limit has left.
    assert!(all.iter().all(|(_, right)| !right.starts_with("wrong") || right.len() == 9));
    assert!(all.iter().any(|pair| **pair == ("s0".to_string(), "right 0".to_string())));
    let full = Room { per_person: 1000, ..ROOM };
    let error = store.add_correction(&new("Otto", "s0", "more"), full).unwrap_err();
    assert!(matches!(error, Fault::Limit(_)), "{error:?}");
}

#[test]
fn the_newest_correction_of_a_sentence_is_learned_whatever_the_clock_says() {
    let folder = Folder::new("newest");
    let store = Store::open(&folder.file()).unwrap();
    for n in 0..5 {
        store.add_correction(&new("Anna", &format!("s{n}"), "old"), ROOM).unwrap();
    }
    let later = NewCorrection { when: -1, ..new("Otto", "s0", "new") };
    store.add_correction(&later, ROOM).unwrap();
    let round = store.next_round(1, &Learning::default()).unwrap().unwrap();
    assert!(round.train.contains(&("s0".into(), "new".into())));
    assert_eq!((round.train.len(), round.held.len()), (4, 1));
    // The inputs of a round that has begun stay as they are.
    store.add_correction(&new("Otto", "s1", "newer"), ROOM).unwrap();
    let again = store.next_round(1, &Learning::default()).unwrap().unwrap();
    assert_eq!((again.version, again.seed, &again.train), (1, round.seed, &round.train));
}

#[test]
fn repeated_corrections_are_stored_once() {
    let folder = Folder::new("keys");
    let store = Store::open(&folder.file()).unwrap();
    let keyed = NewCorrection { key: Some("k".into()), ..new("Anna", "s", "right") };
    let (id, fresh) = store.add_correction(&keyed, ROOM).unwrap();
    assert!(fresh);
    assert_eq!(store.add_correction(&keyed, ROOM).unwrap(), (id, false));
    let other = NewCorrection { right: "other".into(), ..keyed };
    assert!(matches!(store.add_correction(&other, ROOM), Err(Fault::Conflict(_))));
    // Without a key: A, B, A by one person are three corrections, and A, A are one.
    let mut ids = ["A", "A", "B", "A"]
        .map(|right| store.add_correction(&new("Otto", "t", right), ROOM).unwrap());
    assert_eq!(ids.map(|(_, fresh)| fresh), [true, false, true, true]);
    ids.sort_unstable();
    assert_eq!(ids[0].0, ids[1].0);
    let in_third = |name: &str| NewCorrection { domain: name.into(), ..new("Anna", "s", "right") };
    store.add_correction(&in_third("e"), ROOM).unwrap();
    assert!(matches!(store.add_correction(&in_third("f"), ROOM), Err(Fault::Limit(_))));
}

#[test]
fn corrections_and_terms_of_a_domain_are_bounded() {
    let folder = Folder::new("bounds");
    let store = Store::open(&folder.file()).unwrap();
    let room = Room { per_domain: 3, ..ROOM };
    for n in 0..3 {
        store.add_correction(&new(&format!("person {n}"), "s", "x"), room).unwrap();
    }
    let error = store.add_correction(&new("Otto", "s", "x"), room).unwrap_err();
    assert_eq!(error, Fault::Limit("a domain can have 3 corrections".into()));
    for n in 0..1000 {
        store.set_term("d", &format!("term {n}"), "x", ROOM).unwrap();
    }
    assert!(matches!(store.set_term("d", "more", "x", ROOM), Err(Fault::Limit(_))));
    store.set_term("d", "term 5", "y", ROOM).unwrap();
    assert_eq!(store.delete_term("d", "term 7").unwrap(), 1);
    assert_eq!(store.delete_term("d", "term 7").unwrap(), 0);
    store.set_term("d", "more", "x", ROOM).unwrap();
    assert_eq!(store.terms(store.domain("d").unwrap().id).unwrap().len(), 1000);
}

#[test]
fn domains_take_turns_and_a_request_waits_until_its_round_begins() {
    let folder = Folder::new("turns");
    let store = Store::open(&folder.file()).unwrap();
    let learning = Learning::default();
    let add = |domain: &str, from: usize, who: &str| {
        for n in from..from + 3 {
            let row = NewCorrection { domain: domain.into(), ..new(who, &format!("s{n}"), "x") };
            store.add_correction(&row, ROOM).unwrap();
        }
    };
    let end = |domain: &str| {
        let round = store.next_round(3, &learning).unwrap().unwrap();
        assert_eq!(round.domain, domain);
        let outcome =
            Outcome { serve: false, hash: None, figures: Value::Null, reason: String::new() };
        assert!(store.finish(&round, &outcome).unwrap());
    };
    add("d", 0, "Anna");
    add("e", 0, "Otto");
    add("d", 3, "Anna");
    end("d");
    add("d", 6, "Anna");
    end("e");
    end("d");
    // Nothing is left to learn in e; when there is again, its round begins without a full batch.
    store.forget("Otto").unwrap();
    assert!(store.next_round(100, &learning).unwrap().is_none());
    add("e", 0, "Zoe");
    assert_eq!(store.next_round(100, &learning).unwrap().unwrap().domain, "e");
}

#[test]
fn a_round_needs_new_corrections_and_can_be_asked_for() {
    let folder = Folder::new("rounds");
    let store = Store::open(&folder.file()).unwrap();
    let learning = Learning::default();
    for n in 0..2 {
        store.add_correction(&new("Anna", &format!("s{n}"), "x"), ROOM).unwrap();
    }
    assert!(store.next_round(3, &learning).unwrap().is_none());
    assert!(matches!(store.ask("d"), Err(Fault::Conflict(_))), "nothing is held out yet");
    store.add_correction(&new("Anna", "s2", "x"), ROOM).unwrap();
    assert!(store.next_round(4, &learning).unwrap().is_none());
    store.ask("d").unwrap();
    let round = store.next_round(4, &learning).unwrap().unwrap();
    assert_eq!((round.train.len(), round.held.len()), (2, 1));
    assert!(matches!(store.ask("d"), Err(Fault::Conflict(_))));
    assert!(matches!(store.ask("e"), Err(Fault::NotFound(_))));
}

#[test]
fn a_file_of_a_newer_version_and_another_base_are_refused() {
    let folder = Folder::new("newer");
    let store = Store::open(&folder.file()).unwrap();
    store.bind_base("one").unwrap();
    store.bind_base("one").unwrap();
    assert!(matches!(store.bind_base("two"), Err(Fault::Conflict(_))));
    assert!(matches!(Store::open(&folder.file()).map(drop), Err(Fault::Unavailable(_))));
    drop(store);
    let connection = rusqlite::Connection::open(folder.file()).unwrap();
    connection.pragma_update(None, "user_version", 99).unwrap();
    drop(connection);
    assert!(matches!(Store::open(&folder.file()).map(drop), Err(Fault::Conflict(_))));
}

#[test]
fn no_text_of_a_deleted_person_is_left_in_the_files() {
    let folder = Folder::new("deleted");
    let store = Store::open(&folder.file()).unwrap();
    let people = ["Annegret", "Ottokar", "Zacharias"];
    // Lengths differ, so that rows move within their pages.
    let text = |side: &str, n: usize| format!("{side} <{n:03}> {}", "x".repeat(n * 7 % 90));
    for n in 0..500 {
        let row = NewCorrection {
            key: Some(text("key", n)),
            said: text("said", n),
            ..new(people[n % 3], &text("source", n), &text("right", n))
        };
        store.add_correction(&row, ROOM).unwrap();
    }
    let content = || {
        let files = ["service.db", "service.db-wal"].map(|name| folder.0.join(name));
        let bytes = files.map(|path| std::fs::read(path).unwrap()).concat();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    assert!(content().contains(people[1]));
    assert_eq!(store.forget(people[1]).unwrap().corrections, 167);
    store.remove_deleted_text().unwrap();
    let left = content();
    assert!(!left.contains(people[1]));
    for n in 0..500 {
        for side in ["key", "said", "source", "right"] {
            let text = format!("{side} <{n:03}>");
            assert_eq!(left.contains(&text), n % 3 != 1, "{text}");
        }
    }
    assert_eq!(store.export(people[0]).unwrap().len(), 167);
}
