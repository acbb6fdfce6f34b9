"""What `specdeck sweep` says, and how it refuses."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from specdeck.console.cli import sweep_words as words
from specdeck.console.cli.common import INTERRUPTED, until_signal
from specdeck.console.cli.engines import Access
from specdeck.console.cli.main import outcome
from specdeck.console.cli.sweep import Asked, Screen, swept
from specdeck.engine.control.protocol import Applied, Capability, Change, LastChange, Lease, Step
from specdeck.engine.sweep.runner import Progress

if TYPE_CHECKING:
    from tests.console.conftest import Kit

    from specdeck.engine.client.engine_client import EngineClient
    from specdeck.engine.control.protocol import EngineState


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--k", "0-x"], 2, "names no k's"),
        (["--k", "5-2"], 2, "runs backwards: give 2-5"),
        (["--k", "3"], 2, "one k is nothing to compare"),
        (["--k", "-1"], 2, "names no k's"),
        (["--k", ""], 2, "names no k's"),
        (["--seconds", "nan"], 2, "no finite number"),
        (["--seconds", "0"], 2, "0"),
        (["--rounds", "1"], 2, "1"),
        ([], 3, "refuses connections"),
    ],
)
def test_nonsense_and_silence_are_one_line(
    arguments: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert outcome(["sweep", "127.0.0.1:9", *arguments]) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert said in printed.err
    assert len(printed.err.splitlines()) == 1


def document() -> dict[str, Any]:
    """What a sweep over three k's came to."""
    return {
        "k": [0, 3, 4],
        "rounds": 1,
        "stopped": None,
        "visits": [{"k": k, "seconds": 1.5, "tokens_per_second": 1.0} for k in (0, 3, 4)],
        "curve": [
            {
                "k": k,
                "tokens_per_second": {"value": rate, "ci95": [rate - 20, rate + 20]},
                "ms_per_token": {"value": 4000 / rate, "ci95": [1.0, 2.0]},
            }
            for k, rate in ((0, 400.0), (3, 820.0), (4, 800.0))
        ],
        "optimum": {
            "k": 3, "clear": False, "tied": [4], "next": 4,
            "gain_over_next": {"value": 0.025, "ci95": [-0.01, 0.06]},
            "gain_over_target_only": {"value": 1.05, "ci95": [0.98, 1.12]},
        },
        "batch": 4.02,
        "schedule": {"num_speculative_tokens_per_batch_size": [[1, 32, 3]]},
        "measured_batch_sizes": ["4"],
        "before": {"k": 5, "mode": "speculate", "policy": "fixed", "fallback": "warm"},
        "after": {"k": 5, "mode": "speculate", "policy": "fixed", "fallback": "warm"},
        "restored": True,
    }  # fmt: skip


def test_the_curve_marks_the_best_and_fits_the_width() -> None:
    lines = words.curve(document(), 80)
    assert [line[0] for line in lines] == [" ", " ", "►", " "]
    assert all(len(line) <= 80 for line in lines)
    assert "800.0–840.0" in lines[2]


def test_the_verdict_names_what_is_tied_and_how_the_engine_was_left() -> None:
    text = "\n".join(words.verdict(document()))
    assert "best k     3: +105.0 % (+98.0 to +112.0) over target-only" in text
    assert "k=4 cannot be told from it" in text
    assert '"num_speculative_tokens_per_batch_size": [[1, 32, 3]]' in text
    assert "as it was found: k=5 mode=speculate policy=fixed" in text


def test_an_engine_that_is_not_as_it_was_found_is_named() -> None:
    left = {**document(), "restored": False, "after": {"k": 2}}
    assert words.verdict(left)[-1].startswith("engine     k=2; it was found with k=5")


def test_a_sweep_that_is_not_whole_says_so() -> None:
    cut = {**document(), "rounds": 3, "stopped": "interrupted"}
    assert "stopped    interrupted: 3 of 9 visits are made" in words.verdict(cut)


class InterruptedEngine:
    """Makes 100 steps at every look, and is the end of the sweep at look number `last`."""

    url = "http://e:1"

    def __init__(self, state: EngineState, last: int) -> None:
        able = (Capability("live_k", True), Capability("target_only", True))
        self.now, self.first = replace(state, capabilities=able), state
        self.looks, self.last = 0, last

    async def state(self) -> EngineState:
        return self.now

    async def facts(self) -> dict[str, Any]:
        return {}

    async def steps(self, since: int) -> tuple[Step, ...]:
        self.looks += 1
        if self.looks == self.last:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.Event().wait()
        k = self.now.k
        return tuple(
            Step(n, 0.0, 1, 1 + k, k, 1, k, k, seconds=0.1, committed=1 + k)
            for n in range(since + 1, since + 101)
        )

    async def put(self, change: Change) -> Applied:
        if change.cancel:
            self.now = replace(self.now, lease=None)
        elif change.k is not None:
            last = LastChange(0.0, change.who or "", change.reason or "", {}, {})
            lease = Lease(8.0, self.first.k_set, self.first.mode)
            self.now = replace(self.now, k=change.k, k_set=change.k, lease=lease,
                               version=self.now.version + 1, last_change=last)  # fmt: skip
        return Applied({}, {}, self.now.version, 0)

    async def close(self) -> None:
        return


@pytest.mark.parametrize(("last", "visits"), [(1, 0), (6, 2)])
async def test_an_interrupted_sweep_prints_what_it_found_as_json(
    last: int,
    visits: int,
    kit: type[Kit],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("SPECDECK_HOME", str(tmp_path))
    engine = InterruptedEngine(replace(kit.state, lease=None, trial=None), last)
    monkeypatch.setattr(Access, "client", lambda self: cast("EngineClient", engine))
    asked = Asked((0, 1), 1.0, 3, "sweep", as_json=True)
    assert await until_signal(swept(Access(engine.url), asked)) == INTERRUPTED
    found = json.loads(capsys.readouterr().out)
    assert (found["stopped"], found["complete"]) == ("interrupted", False)
    assert len(found["visits"]) == visits


def test_a_log_has_a_line_for_each_round(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen(document, terminal=False)
    for done in range(7):
        screen(Progress(done, 6, done % 3, 1.0))
    screen.close()
    assert capsys.readouterr().err.splitlines() == [
        "sweep: 3 of 6 visits, best so far k=3",
        "sweep: 6 of 6 visits, best so far k=3",
    ]


def test_a_terminal_shows_the_curve_and_is_left_clean(
    capsys: pytest.CaptureFixture[str],
) -> None:
    screen = Screen(document, terminal=True, columns=lambda: 60)
    screen(Progress(1, 6, 3, 9.0))
    screen(Progress(2, 6, 0, 8.0))
    screen.close()
    drawn = capsys.readouterr().err
    assert drawn.count("\x1b[5A") == 2
    assert drawn.endswith("\r\x1b[J")
    assert "sweep: 2 of 6 visits, at k=0, 8 s left" in drawn
