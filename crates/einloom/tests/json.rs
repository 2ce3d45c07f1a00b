//! The JSON of every command has exactly the keys that `docs/command-line.md` documents.

#![allow(clippy::disallowed_methods)] // tests make and read files

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// The documented examples by command.
fn documented() -> BTreeMap<String, Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/command-line.md");
    let text = std::fs::read_to_string(path).expect("the documentation");
    let sections = text.split("\n### ").skip(1);
    sections
        .map(|section| {
            let name = section.lines().next().expect("a title");
            let json = section.split("```json\n").nth(1).and_then(|s| s.split("```").next()).expect("an example");
            (name.to_owned(), serde_json::from_str(json).unwrap_or_else(|e| panic!("{name}: {e}")))
        })
        .collect()
}

/// Where the two differ in their keys. A key in angle brackets stands for any number of keys; an empty list or a null
/// says nothing about what it could hold.
fn differences(expected: &Value, found: &Value, at: &str, out: &mut Vec<String>) {
    match (expected, found) {
        (Value::Object(e), Value::Object(f)) => {
            if let Some((_, inner)) = e.iter().find(|(k, _)| k.starts_with('<')) {
                f.iter().for_each(|(k, v)| differences(inner, v, &format!("{at}.{k}"), out));
                return;
            }
            for key in e.keys().filter(|k| !f.contains_key(*k)) {
                out.push(format!("{at}.{key} is documented and not there"));
            }
            for (key, value) in f {
                match e.get(key) {
                    Some(inner) => differences(inner, value, &format!("{at}.{key}"), out),
                    None => out.push(format!("{at}.{key} is there and not documented")),
                }
            }
        }
        (Value::Array(e), Value::Array(f)) => {
            if let Some(inner) = e.first() {
                f.iter().for_each(|v| differences(inner, v, &format!("{at}[]"), out));
            }
        }
        (Value::Null, _) | (_, Value::Null) => {}
        _ if std::mem::discriminant(expected) == std::mem::discriminant(found) => {}
        _ => out.push(format!("{at} is {found}, documented as {expected}")),
    }
}

/// A specification without architecture.
const TEAAL: &str = "einsum:\n  declaration:\n    A: [K, M]\n    Z: [M]\n  expressions:\n    - Z[m] = A[k, m]\n";

#[test]
fn json_is_as_documented() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("bad.ein"), "input A[m]: f32\noutput B: f32\nB[m] = A[m] + C[m]\n")
        .expect("write");
    let program = |name: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cascades").join(name);
        path.to_str().expect("UTF-8").to_owned()
    };
    std::fs::write(folder.path().join("spec.yaml"), TEAAL).expect("write");
    let one_pass = program("published/c5.ein");
    let (softmax, refusing) = (program("softmax.ein"), program("absmax_quantised_matmul.ein"));
    let sizes = "M=20,N=30";
    let commands: BTreeMap<&str, Vec<&str>> = BTreeMap::from([
        ("check", vec!["bad.ein"]),
        ("passes", vec![&refusing]),
        ("derive", vec![&softmax, "--prove"]),
        ("plan", vec![&softmax, "--size", sizes, "--explain"]),
        ("compare", vec![&softmax, "--size", sizes, "--machine", "cpu-generic,two-level"]),
        ("sweep", vec![&softmax, "--size", sizes, "--over", "M=1KiB..4KiB"]),
        ("run", vec![&softmax, "--size", sizes, "--verify"]),
        ("verify", vec![&softmax, "--small"]),
        ("bench", vec![&softmax, "--size", sizes]),
        ("emit", vec![&softmax, "--size", sizes, "--target", "pseudo"]),
        ("machines", vec![]),
        ("formula", vec![&softmax, "--group", "m", "--stream", "n"]),
        ("study", vec!["fusemax", "--size", "B=1,H=2,M=4096,P=4096,E=64,F=64", "--linear", "D=128,S=512"]),
        ("study of all workloads", vec!["fusemax"]),
        ("simulate", vec!["fusemax", "--size", "M=512,P=512,E=8,F=8", "--array", "64", "--verify", "--depths", "2"]),
        ("bind", vec![&one_pass, "--chip", "fusemax", "--size", "M=1024,P=1024,E=64,F=64", "--split"]),
        ("teaal", vec!["spec.yaml"]),
        ("doctor", vec![]),
        ("formula", vec![&softmax, "--group", "m", "--stream", "n", "--capacity", "65536", "--size", sizes]),
    ]);
    let documented = documented();
    let names = |m: Vec<&str>| m.into_iter().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(names(documented.keys().map(String::as_str).collect()), names(commands.keys().copied().collect()));
    let mut all = vec![];
    for (name, args) in commands {
        let output = Command::new(env!("CARGO_BIN_EXE_einloom"))
            .args(name.split(' ').take(1))
            .args(args)
            .arg("--json")
            .current_dir(folder.path())
            .output()
            .expect("it starts");
        let found = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{name}: {e}"));
        differences(&documented[name], &found, name, &mut all);
    }
    assert!(all.is_empty(), "{all:#?}");
}

#[test]
fn what_is_wrong_with_arguments_is_json_too() {
    for (args, said) in [
        (&["plan", "--json", "x.ein", "--capacity", "many"][..], "`many` is not a size"),
        (&["sweep", "x.ein", "--json", "--over", "M=abc..4MiB"], "does not start with a number"),
        (&["check", "x.ein", "--json", "--frob"], "--frob"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_einloom")).args(args).output().expect("a run");
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let data: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{args:?}: {e}"));
        let message = data["errors"][0]["message"].as_str().expect("a message");
        assert!(message.contains(said), "{args:?}: {message}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(said), "{args:?}");
    }
}
