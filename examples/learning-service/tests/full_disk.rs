//! A full disk: nothing that was acknowledged is lost, and the service continues when there is room again.

mod common;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{Instance, TOOLS, TestFolder, base, command, correction, sentences};
use learning_service::versions::Pair;
use serde_json::json;

/// Room of the disk in KiB.
const SIZE: usize = 6144;

/// The shell of a namespace in which a small disk can be mounted; none if the system allows no such namespace.
fn namespace() -> Option<Vec<&'static str>> {
    let ways = [vec!["unshare", "-m"], vec!["unshare", "-r", "-m"]];
    ways.into_iter().find(|way| {
        let mut test = Command::new(way[0]);
        test.args(&way[1..]).args(["mount", "-t", "tmpfs", "none", "/mnt"]);
        test.stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    })
}

/// A service whose folder is a small disk, and the path by which others see that.
fn on_small_disk(way: &[&str], folder: &Path) -> (Instance, PathBuf) {
    base();
    let data = folder.join("disk");
    fs::create_dir(&data).unwrap();
    let options =
        ["--batch", "1000", "--updates", "60", "--every", "10", "--regression-loss", "100"];
    let service = command(&data, &options);
    let mut shell = Command::new(way[0]);
    shell.args(&way[1..]).args([
        "sh",
        "-c",
        "mount -t tmpfs -o size=\"$0\"k none \"$1\" && shift && exec \"$@\"",
    ]);
    shell.arg(SIZE.to_string()).arg(&data).arg(service.get_program()).args(service.get_args());
    shell.env_remove("LEARNING_SERVICE_TOKEN");
    let service = Instance::spawn(shell);
    let seen = format!("/proc/{}/root", service.process.id());
    let disk = Path::new(&seen).join(data.strip_prefix("/").unwrap());
    (service, disk)
}

/// Takes all the room that is left.
fn fill(disk: &Path) -> PathBuf {
    let path = disk.join("filler");
    let mut file = fs::File::create(&path).unwrap();
    while file.write_all(&[0; 4096]).is_ok() {}
    path
}

#[test]
fn a_full_disk_loses_nothing() {
    let Some(way) = namespace() else {
        println!("SKIPPED: this system lets no test mount a disk");
        return;
    };
    let folder = TestFolder::new();
    let (service, disk) = on_small_disk(&way, folder.path());
    let pairs = sentences(&TOOLS);
    let send = |n: usize, (source, right): &Pair| {
        let body = correction("tools", &format!("person {n}"), source, right);
        service.call("POST", "/corrections", &body)
    };
    let mut acknowledged = 0;
    for pair in &pairs[..20] {
        assert_eq!(send(0, pair).0, 201);
        acknowledged += 1;
    }
    // The log of the database may have room inside of it, which is used up first.
    let filler = fill(&disk);
    let refused = (1..200).find_map(|n| {
        let (status, answer) = send(n, &pairs[0]);
        acknowledged += usize::from(status == 201);
        (status != 201).then_some((status, answer))
    });
    let (status, answer) = refused.expect("the disk is full at some time");
    assert_eq!(status, 503, "{answer}");
    assert!(answer["error"].as_str().unwrap().contains("full"), "{answer}");
    // Requests are answered meanwhile.
    service.translate("tools", &["heute kauft Anna den Hut in rot"]);
    assert_eq!(service.get("/domains")["domains"][0]["corrections"], acknowledged);
    fs::remove_file(&filler).unwrap();
    assert_eq!(send(900, &pairs[1]).0, 201);
    acknowledged += 1;

    // The disk is full while a round is in progress: it says so, and continues later.
    service.post("/learn", json!({ "domain": "tools" }));
    let mut filler = fill(&disk);
    let end = Instant::now() + Duration::from_secs(120);
    while service.get("/domains")["fault"].is_null() {
        assert!(Instant::now() < end, "the round has found room");
        let versions = service.get("/versions?domain=tools");
        assert_ne!(versions["versions"][0]["state"], "good", "the disk was not full");
        if !filler.exists() {
            filler = fill(&disk);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    fs::remove_file(&filler).unwrap();
    let version = &service.wait_for_versions("tools", 1)[0];
    assert_eq!(version["state"], "good", "{version}");
    assert_eq!(service.get("/domains")["domains"][0]["corrections"], acknowledged);
    assert!(service.get("/domains")["fault"].is_null());
}
