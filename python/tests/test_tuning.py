"""Autotuning: what is tried, what is kept, what is told."""

from __future__ import annotations

import json

import numpy as np
import pytest
from conftest import attention

import einloom
from einloom import tuning

Q = np.random.default_rng(1).standard_normal((1, 2, 64, 16)).astype(np.float32)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("EINLOOM_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("EINLOOM_TUNE", raising=False)
    return tmp_path


def program():
    return einloom.compile(einloom.library.text("attention"))


def test_the_search_walks_downhill():
    measured = []

    def time(tiles):
        measured.append(tiles)
        if tiles.get("m") == 1:
            return None
        m, n = tiles.get("m", 64), tiles.get("n", 64)
        return 1.0 + abs(np.log2(m / 16)) + abs(np.log2(n / 256))

    best, seconds, planned = tuning.search(time, {"m": 64, "n": 64}, {"m": 512, "n": 512}, "full")
    assert (best, seconds, planned) == ({"m": 16, "n": 256}, 1.0, 5.0)
    assert len({tuple(sorted(t.items())) for t in measured}) == len(measured), "nothing is measured twice"


def test_what_is_no_better_than_noise_is_left():
    best, seconds, planned = tuning.search(lambda t: 1.0 if not t else 0.98, {"m": 8}, {"m": 64}, "quick")
    assert (best, seconds, planned) == ({}, 1.0, 1.0)


def test_tiles_never_exceed_what_there_is():
    tried = []
    tuning.search(lambda t: tried.append(t) or 1.0, {"m": 4}, {"m": 5}, "full")
    assert {t["m"] for t in tried if t} == {1, 2, 8}


def test_nothing_is_measured_unless_asked(folder, capfd):
    program()(Q, Q, Q)
    assert tuning.results() == {} and "tuned" not in capfd.readouterr().err


def test_results_are_remembered_and_told(folder, monkeypatch, capfd):
    monkeypatch.setenv("EINLOOM_TUNE", "quick")
    tuned = program()
    np.testing.assert_allclose(tuned(Q, Q, Q), attention(Q, Q, Q), atol=2e-6)
    line = capfd.readouterr().err
    assert line.startswith("einloom: tuned attention (B=1, H=2, M=64, D=16, N=64, E=16) on ") and "tiles={" in line
    (entry,) = tuning.results().values()
    assert entry["program"] == "attention" and entry["sizes"]["M"] == 64
    assert 0 < entry["seconds"] <= entry["planned_seconds"]
    # Neither the same call nor another process measures again.
    tuned(Q, Q, Q)
    again = program()
    np.testing.assert_allclose(again(Q, Q, Q), attention(Q, Q, Q), atol=2e-6)
    assert capfd.readouterr().err == ""
    # Another size is another question.
    again(Q[:, :, :48], Q, Q)
    assert len(tuning.results()) == 2


def test_remembered_tiles_are_used(folder, monkeypatch):
    monkeypatch.setenv("EINLOOM_TUNE", "quick")
    program()(Q, Q, Q)
    (key,) = tuning.results()
    path = tuning.results_file()
    data = json.loads(path.read_text())
    data["results"][key]["tiles"] = {"m": 8, "n": 16}
    path.write_text(json.dumps(data))
    monkeypatch.setenv("EINLOOM_TUNE", "off")
    other = program()
    np.testing.assert_allclose(other(Q, Q, Q), attention(Q, Q, Q), atol=2e-6)
    (kernel,) = other.last_plan().kernels
    assert (kernel.group["m"], kernel.stream["n"]) == (8, 16)


def test_results_are_shared_as_files(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("EINLOOM_TUNE", "quick")
    program()(Q, Q, Q)
    shared = tmp_path / "shared.json"
    assert tuning.export(shared) == 1
    monkeypatch.setenv("EINLOOM_CACHE_DIR", str(tmp_path / "elsewhere"))
    assert tuning.results() == {}
    assert tuning.load(shared) == 1
    assert tuning.results() == json.loads(shared.read_text())["results"]
    (tmp_path / "bad.json").write_text("[1]")
    with pytest.raises(ValueError, match="bad.json holds no tuning results"):
        tuning.load(tmp_path / "bad.json")


def test_a_damaged_file_of_results_is_no_obstacle(folder):
    (folder / "tuning.json").write_text("{ half")
    np.testing.assert_allclose(program()(Q, Q, Q), attention(Q, Q, Q), atol=2e-6)


def test_tiles_may_be_given():
    given = einloom.compile(einloom.library.text("attention"), tiles={"m": 4, "n": 32})
    np.testing.assert_allclose(given(Q, Q, Q), attention(Q, Q, Q), atol=2e-6)
    (kernel,) = given.last_plan().kernels
    assert (kernel.group["m"], kernel.stream["n"]) == (4, 32)
    with pytest.raises(einloom.UsageError, match="no index z to tile"):
        einloom.compile(einloom.library.text("attention"), tiles={"z": 4})


def test_an_effort_that_does_not_exist(monkeypatch):
    monkeypatch.setenv("EINLOOM_TUNE", "much")
    with pytest.raises(einloom.UsageError, match="EINLOOM_TUNE is much"):
        program()(Q, Q, Q)


def test_a_folder_that_cannot_be_written_does_not_stop_the_call(monkeypatch, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("EINLOOM_TUNE", "quick")
    monkeypatch.setenv("EINLOOM_CACHE_DIR", str(tmp_path / "file" / "folder"))
    x = np.ones((4, 8), np.float32)
    np.testing.assert_allclose(einloom.compile(einloom.library.softmax.text)(x), x / 8, rtol=1e-6)
    assert "the result cannot be kept" in capsys.readouterr().err
