"""What a private check keeps of an answer."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.engine.divergence.conftest import Bench
from tests.support.checks import finish_check

from specdeck.engine.divergence.compare import Change, Divergence, find_json_changes


def parted(*changes: Change) -> Divergence:
    return Divergence(3, 5, 9, ((5, -0.25),), ((9, -0.25),), 3.0, 3.0, False, changes)


@pytest.mark.parametrize(
    ("path", "kept"),
    [
        ("$", "depth 0"),
        ("limit", "depth 1"),
        ("calls[1].secret", "depth 3"),
        ("patients.Ada Lovelace.hiv", "depth 3"),
    ],
)
def test_a_place_is_kept_by_its_depth(path: str, kept: str) -> None:
    (change,) = parted(Change(path, "value", 1, 2)).as_json(private=True)["structure"]
    assert (change["path"], change["kind"]) == (kept, "value")


def test_nothing_that_was_said_is_kept() -> None:
    before: dict[str, Any] = {"patients": {"Ada Lovelace": {"hiv": True}}}
    after: dict[str, Any] = {"patients": {"Ada Lovelace": {"hiv": False}, "Eve": {}}}
    found = parted(*find_json_changes(before, after))
    kept = json.dumps(found.as_json(private=True))
    assert len(found.structure) == 2
    assert not [word for word in ("patients", "Ada", "hiv", "Eve") if word in kept]
    assert Divergence.from_json(json.loads(kept)).kind(0.1) == found.kind(0.1)


def test_a_place_is_named_where_nothing_is_private() -> None:
    found = parted(Change("calls[1].limit", "value", 50, 500))
    (change,) = found.as_json()["structure"]
    assert change["path"] == "calls[1].limit"


async def test_a_private_check_tells_of_a_call_without_its_arguments(bench: Bench) -> None:
    calls = {"find 2": ('{"patient": "Ada"}', '{"patient": "Eve"}')}
    engine = bench.engine(faults={"find 2": bench.fault(4, margin=0.0)}, calls=calls)
    asked = [{"messages": [{"role": "user", "content": f"find {n}"}]} for n in range(1, 4)]
    async with bench.lab(engine, private=True) as lab:
        data = (await finish_check(lab, bench.written(*asked), bench.store)).as_json()
    (case,) = data["cases"]
    assert case["class"] == "structural"
    assert case["structure"] == [
        {"path": "depth 1", "kind": "value", "reference": None, "serving": None}
    ]
    assert all(b"patient" not in file.read_bytes() for file in bench.folder.glob("store*"))
