"""The fingerprint that an incident file has: read as far as it is one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.fingerprints import Fingerprints

from specdeck.engine.incident.archive import write_archive
from specdeck.engine.incident.recorded_facts import LARGEST, read_fingerprint


def write(path: Path, names: object, facts: object) -> Path:
    members: dict[str, bytes | Path] = {
        "recording.db": b"db",
        "fingerprint.json": json.dumps(names).encode(),
        "facts.json": json.dumps(facts).encode(),
    }
    write_archive(path, members)
    return path


def test_names_and_facts_come_back(tmp_path: Path) -> None:
    one = Fingerprints().seen()
    names = {name: value for name, value in one.as_json().items() if name != "facts"}
    path = write(tmp_path / "a.zip", {"last": names, "seen": []}, dict(one.facts))
    found = read_fingerprint(path)
    assert found is not None
    assert (found.names, found.facts) == (one.names, one.facts)


def test_the_engines_own_reply_comes_back(tmp_path: Path) -> None:
    one = Fingerprints().seen()
    reply: dict[str, Any] = {
        "names": {"build": one.build, "path": one.path}, "partial": [], "instance": "i",
        "system_fingerprint": None, "progress": {"finished": True}, "t": 100.0,
    }  # fmt: skip
    found = read_fingerprint(write(tmp_path / "a.zip", {"last": reply}, dict(one.facts)))
    assert found is not None
    assert (found.names, found.facts, found.t) == (one.names, one.facts, 100.0)
    strange = {**reply, "t": 1e300}
    assert read_fingerprint(write(tmp_path / "b.zip", {"last": strange}, {})) is None


@pytest.mark.parametrize(("names", "facts"), [
    ({"last": None, "seen": []}, {}), ({"last": {}}, {}), ({"last": {"t": "x"}}, {"a": 1}),
    ([], {}), ({"last": {"t": 1.0}}, []), ({"last": {"t": 1.0}}, "x" * (LARGEST + 1)),
])  # fmt: skip
def test_nonsense_is_none(tmp_path: Path, names: object, facts: object) -> None:
    assert read_fingerprint(write(tmp_path / "a.zip", names, facts)) is None


def test_a_file_without_them_or_that_is_none_has_none(tmp_path: Path) -> None:
    write_archive(tmp_path / "a.zip", {"recording.db": b"db"})
    assert read_fingerprint(tmp_path / "a.zip") is None
    (tmp_path / "b.zip").write_bytes(b"PK\x03\x04 nothing")
    assert read_fingerprint(tmp_path / "b.zip") is None
    assert read_fingerprint(tmp_path / "gone.zip") is None
