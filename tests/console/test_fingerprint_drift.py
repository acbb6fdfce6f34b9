"""Drift beside samples and round after round: lines, gauges, exit codes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from specdeck.console.cli.fingerprint_drift import Teller
from specdeck.console.cli.fingerprint_every import Exports, Round, again
from specdeck.engine.errors import Unreachable
from specdeck.engine.fingerprint.drift import Follower, Judge
from specdeck.engine.fingerprint.fingerprint import Fingerprint
from specdeck.engine.fingerprint.name import compute_names
from specdeck.engine.fingerprint.pins import PinFile, write_pin

if TYPE_CHECKING:
    from tests.console.conftest import Kit

Captured = pytest.CaptureFixture[str]
PIN = Path("prod.json")


def seen(k: int) -> Fingerprint:
    """An engine that drafts k tokens."""
    facts: dict[str, Any] = {"engine": {"vllm": "0.32.0"}, "live": {"k": k}}
    return Fingerprint(1.0, "http://e:1", *compute_names(facts, partial=False), facts)


async def test_a_drift_beside_samples_is_one_line(kit: type[Kit]) -> None:
    now, said = [seen(6)], list[str]()

    async def look() -> Fingerprint:
        return now[0]

    teller = Teller(Follower(look, Judge(seen(6), PIN)), None, say=said.append)
    for t, k in ((0, 6), (10, 5), (20, 5)):
        now[0] = seen(k)
        teller.heard(kit.reading(t, replace(kit.state, fingerprint=now[0].path)))
        await teller.close()
    assert said == ["specdeck: drift from prod.json: knob changed: k 6 → 5"]


def looks(*found: Fingerprint | Unreachable) -> Callable[[], Any]:
    """Brings these, one after the other."""
    left = list(found)

    async def look() -> Fingerprint:
        one = left.pop(0)
        if isinstance(one, Unreachable):
            raise one
        return one

    return look


async def test_rounds_go_on_while_the_engine_is_away(capsys: Captured, tmp_path: Path) -> None:
    file = tmp_path / "drift.prom"
    slept = list[float]()

    class Over(Exception):
        """Enough rounds."""

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            raise Over

    rounds = Round(
        looks(seen(6), Unreachable("no answer"), seen(5)),
        Judge(seen(6), PIN), Exports(file=file), "http://e:1",
    )  # fmt: skip
    with pytest.raises(Over):
        await again(rounds, 60.0, as_json=False, sleep=sleep)
    assert slept == [60.0] * 3
    captured = capsys.readouterr()
    lines = [line.partition("  ")[2] for line in captured.out.splitlines()]
    assert lines[0] == "nothing changed"
    assert lines[1].startswith("knob changed: k 6 → 5")
    assert captured.err == "specdeck: no answer\n"
    assert 'specdeck_fingerprint_drifts_total{engine="http://e:1"} 1.0' in file.read_text()


@pytest.mark.parametrize(
    ("found", "code"), [(seen(6), 0), (seen(5), 1), (Unreachable("no answer"), 3)]
)
async def test_one_round_has_the_exit_code_of_verify(
    found: Fingerprint | Unreachable, code: int, capsys: Captured
) -> None:
    rounds = Round(looks(found), Judge(seen(6), PIN), Exports(), "http://e:1")
    assert await again(rounds, None, as_json=True) == code


async def test_samples_without_a_pin_ask_nothing_until_there_is_one(
    kit: type[Kit], tmp_path: Path
) -> None:
    now, said, looked = [seen(6)], list[str](), list[int]()
    place = tmp_path / "demo.json"

    async def look() -> Fingerprint:
        looked.append(1)
        return now[0]

    teller = Teller(Follower(look), None, PinFile(lambda: place), said.append)

    async def hear(t: int, k: int) -> None:
        now[0] = seen(k)
        teller.heard(kit.reading(t, replace(kit.state, fingerprint=now[0].path)))
        await teller.close()

    await hear(0, 6)
    assert (said, looked) == ([], [])
    write_pin(seen(6), place)
    await hear(10, 6)
    await hear(20, 5)
    write_pin(seen(5), place)
    await hear(30, 5)
    await hear(40, 6)
    assert said == [
        "specdeck: a pin is in demo.json: compared with it from now",
        "specdeck: drift from demo.json: knob changed: k 6 → 5",
        "specdeck: another pin is in demo.json: compared with it from now",
        "specdeck: drift from demo.json: knob changed: k 5 → 6",
    ]


async def test_rounds_go_by_the_pin_as_it_is_by_then(capsys: Captured, tmp_path: Path) -> None:
    place = tmp_path / "demo.json"
    write_pin(seen(6), place)
    pins = PinFile(lambda: place, required=True)
    rounds = Round(looks(*[seen(4)] * 4), Judge(seen(6), place), Exports(), "http://e:1", pins)
    assert await again(rounds, None, as_json=False) == 1
    write_pin(seen(4), place)
    assert await again(rounds, None, as_json=False) == 0
    place.unlink()
    assert await again(rounds, None, as_json=False) == 0
    assert "there is no pin" in capsys.readouterr().err
