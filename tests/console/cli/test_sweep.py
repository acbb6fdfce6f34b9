"""What `specdeck sweep` says, and how it refuses."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from tests.support.escapes import PLANTED, assert_harmless

from specdeck.console.cli.common import open_user_store, until_signal
from specdeck.console.cli.engines import Access
from specdeck.console.cli.first_and_last import INTERRUPTED
from specdeck.console.cli.main import outcome
from specdeck.console.cli.sweep import sweep
from specdeck.console.cli.sweep_report import (
    SweepScreen,
    curve_lines,
    hard_lines,
    print_outcome,
    verdict_lines,
)
from specdeck.console.screens.tuning.view import sweep_curve
from specdeck.console.state.tuning import SweepRun, describe_end
from specdeck.engine.errors import LeftTurned
from specdeck.engine.operations.hard_sweep import HardOutcome
from specdeck.engine.operations.sweep import SweepRequest
from specdeck.engine.policy.intervals import Mean
from specdeck.engine.policy.step import Step
from specdeck.engine.protocol.messages import AppliedChange, Capability, Change, LastChange, Lease
from specdeck.engine.protocol.tuning import Interval as Gain
from specdeck.engine.store.audit import AuditLog
from specdeck.engine.sweep.analysis import (
    Analysis,
    KnobValues,
    Optimum,
    SweepOutcome,
    SweepPoint,
    VisitSums,
)
from specdeck.engine.sweep.ending import Ending
from specdeck.engine.sweep.hard import HardComparison
from specdeck.engine.sweep.plan import Plan
from specdeck.engine.sweep.runner import SweepProgress, VisitDone, Visiting

if TYPE_CHECKING:
    from tests.console.conftest import Kit

    from specdeck.engine.client.engine_client import EngineClient
    from specdeck.engine.protocol.messages import EngineState


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
        (["--hard"], 3, "refuses connections"),
        (["--hard", "--reference", "127.0.0.1:8"], 2, "mutually exclusive"),
        (["--hard", "--k", "1-3"], 2, "--hard requires k=0 among --k"),
        (["--hard", "--load", "mixed"], 2, "mixed"),
        (["--load", "hard"], 2, "--load and --streams are of --hard and --reference"),
        (["--streams", "4"], 2, "--load and --streams are of --hard and --reference"),
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


KNOBS: KnobValues = {"k": 5, "mode": "speculate", "policy": "fixed", "fallback": "warm"}


def found() -> SweepOutcome:
    """What a sweep over three k's came to."""
    return SweepOutcome(
        url="http://e:1",
        plan=Plan((0, 3, 4), 1, 1.5),
        model="demo",
        method="draft_model",
        visits=tuple(VisitSums(k, 0) for k in (0, 3, 4)),
        analysis=Analysis(
            curve=tuple(
                SweepPoint(k, Mean(rate, rate - 20, rate + 20, 2), Mean(4 / rate, 0.001, 0.002, 2))
                for k, rate in ((0, 400.0), (3, 820.0), (4, 800.0))
            ),
            optimum=Optimum(3, Gain(0.025, -0.01, 0.06), 4, Gain(1.05, 0.98, 1.12), (4,)),
            best={3: 3},
            batch=4.02,
        ),
        max_num_seqs=32,
        before=KNOBS,
        after=KNOBS,
    )


def test_the_curve_marks_the_best_and_fits_the_width() -> None:
    lines = curve_lines(found(), 80)
    assert [line[0] for line in lines] == [" ", " ", "►", " "]
    assert all(len(line) <= 80 for line in lines)
    assert "800.0–840.0" in lines[2]


def test_a_k_that_was_visited_once_has_no_interval_yet() -> None:
    visit = VisitSums(0, 0)
    visit.add(Step(1, 0.0, 1, 1, 0, 0, 0, 0, seconds=0.1, committed=10))
    once = replace(
        found(), plan=Plan((0,), 3, 1.5), visits=(visit,), analysis=Analysis((), None, {}, 1.0)
    )
    assert curve_lines(once, 60) == [
        "  k  tokens/s  95 % interval  ms/token",
        "  0     100.0              –      10.0  ━━━━━━━━━━━━━━━━",
    ]


def test_the_verdict_names_what_is_tied_and_how_the_engine_was_left() -> None:
    text = "\n".join(verdict_lines(found()))
    assert "best k     3: +105.0 % (+98.0 to +112.0) over target-only" in text
    assert "k=4 cannot be told apart from it" in text
    assert '"num_speculative_tokens_per_batch_size": [[1, 32, 3]]' in text
    assert "as it was found: k=5 mode=speculate policy=fixed" in text


def test_a_best_k_that_none_was_told_apart_from_is_no_advice() -> None:
    tied = Optimum(3, Gain(0.01, -0.3, 0.4), 0, Gain(0.017, -0.466, 0.937), (0, 4), False)
    analysis = replace(found().analysis, optimum=tied, untold=frozenset({3}))
    outcome = replace(found(), analysis=analysis)
    lines = verdict_lines(outcome)
    assert lines[:2] == [
        "best k     not known: no k was told apart from k=3",
        "           k=3: +1.7 % (-46.6 to +93.7) over target-only",
    ]
    schedule = '"num_speculative_tokens_per_batch_size": [[1, 32, 3]]'
    assert f"schedule   not told apart: {schedule}" in lines
    assert f"           no k was told apart from another at {analysis.batch_sizes[0]}" in lines
    run = SweepRun(outcome, None, ended=1.0)
    assert describe_end(run) == (
        "sweep: no k told apart from 3: +1.7 % (-46.6 to +93.7) over target-only"
    )
    told = replace(run, outcome=found())
    assert describe_end(told).endswith(f"; schedule {schedule}")


def test_a_sweep_cut_short_names_no_k_that_it_knows_alone() -> None:
    alone = Optimum(3, None, None, None, (0, 4), told_apart=False, unknown=(0, 4))
    outcome = replace(found(), analysis=replace(found().analysis, optimum=alone), interrupted=True)
    lines = verdict_lines(outcome)
    assert lines[0] == "best k     not known: no k was told apart from k=3"
    assert "           not measured in two rounds: k=0, 4" in lines
    assert all("►" not in line for line in curve_lines(outcome, 80))
    assert describe_end(SweepRun(outcome, None, ended=1.0)).startswith(
        "sweep: no k told apart from 3"
    )
    curve = sweep_curve(SweepRun(outcome, None, ended=1.0), time.gmtime, str)
    assert curve is not None
    assert curve.best is None


def test_an_engine_that_is_not_as_it_was_found_is_named() -> None:
    left = replace(found(), after={"k": 2})
    assert verdict_lines(left)[-1].startswith("engine     k=2; it was found with k=5")


def test_a_sweep_that_is_not_whole_says_so() -> None:
    cut = replace(found(), plan=Plan((0, 3, 4), 3, 1.5), interrupted=True)
    assert "stopped    interrupted: 3 of 9 visits are made" in verdict_lines(cut)


def test_a_log_names_no_best_k_before_one_is_told_apart(
    capsys: pytest.CaptureFixture[str],
) -> None:
    alone = Optimum(3, None, None, None, (0, 4), told_apart=False, unknown=(0, 4))
    so_far = replace(found(), analysis=replace(found().analysis, optimum=alone))
    screen = SweepScreen(lambda: so_far, terminal=False)
    screen.show(VisitDone(SweepProgress(3, 6, None, 1.0), VisitSums(0, 0)))
    assert capsys.readouterr().err == "sweep: 3 of 6 visits, no k told apart from k=3 so far\n"


def beside(cost: Gain | None, told: float | None) -> HardOutcome:
    """The same sweep with an engine without speculation beside it."""
    over = Gain(0.86, 0.8, 0.92)
    hard = HardComparison(440.0, 0.009, 6, cost, 3, over, 4.0, 4.0)
    return HardOutcome(found(), hard, "http://e:2", told)


def test_an_engine_without_speculation_is_a_line_of_the_curve() -> None:
    hard = beside(Gain(0.1, 0.08, 0.12), 0.1).comparison
    lines = curve_lines(found(), 80, hard)
    assert lines[-1].startswith(" no     440.0              –       9.0  ━")
    assert all(len(line) <= 80 for line in lines)


def test_what_soft_zero_costs_is_said_with_its_interval_and_who_was_told() -> None:
    text = "\n".join(hard_lines(beside(Gain(0.1, 0.08, 0.12), 0.1)))
    assert "soft k=0 takes 10.0 % longer (8.0 to 12.0) than no speculation" in text
    assert "best k=3: +86.0 % (+80.0 to +92.0) over it" in text
    assert "baseline.soft_cost=0.1" in text


def test_a_cost_that_is_in_doubt_is_not_told_to_the_engine() -> None:
    doubtful = beside(Gain(0.1, -0.05, 0.27), None)
    assert doubtful.comparison.known_cost is None
    assert "too uncertain" in hard_lines(doubtful)[-1]
    (line,) = hard_lines(beside(None, None))
    assert "not known" in line


def test_the_json_has_the_engine_without_speculation_beside_the_sweep() -> None:
    data = beside(Gain(0.1, 0.08, 0.12), 0.1).as_json()
    assert data["optimum"]["k"] == 3
    assert data["hard"]["soft_cost"] == {"value": 0.1, "ci95": [0.08, 0.12]}
    assert data["hard"]["engine"] == "http://e:2"
    assert data["hard"]["told"] == 0.1


class InterruptedEngine:
    """Makes 100 steps at every look, and is the end of the sweep at look number `last`."""

    url = "http://e:1"

    def __init__(self, state: EngineState, last: int) -> None:
        able = (Capability("live_k", True), Capability("target_only", True))
        self.now, self.first = replace(state, capabilities=able), state
        self.looks, self.last = 0, last
        self.gives_back = True
        """Whether the end of the lease takes k back."""

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

    async def put(self, change: Change) -> AppliedChange:
        if change.cancel:
            back = self.first if self.gives_back else self.now
            self.now = replace(self.now, k=back.k, k_set=back.k_set, lease=None,
                               version=self.now.version + 1, last_change=None)  # fmt: skip
        elif change.k is not None:
            last = LastChange(0.0, change.who or "", change.reason or "", {}, {})
            lease = Lease(8.0, self.first.k_set, self.first.mode)
            self.now = replace(self.now, k=change.k, k_set=change.k, lease=lease,
                               version=self.now.version + 1, last_change=last)  # fmt: skip
        return AppliedChange({}, {}, self.now.version, 0)

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
    wanted = SweepRequest("ann", (0, 1), 1.0, 3)
    assert await until_signal(sweep(Access(engine.url), wanted, as_json=True)) == INTERRUPTED
    document = json.loads(capsys.readouterr().out)
    assert (document["stopped"], document["complete"]) == ("interrupted", False)
    assert len(document["visits"]) == visits


@pytest.mark.parametrize("as_json", [True, False])
async def test_an_interrupted_sweep_that_cannot_give_k_back_exits_with_1(
    as_json: bool,
    kit: type[Kit],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("SPECDECK_HOME", str(tmp_path))
    engine = InterruptedEngine(replace(kit.state, lease=None, trial=None), 6)
    engine.gives_back = False
    monkeypatch.setattr(Access, "client", lambda self: cast("EngineClient", engine))
    work = sweep(Access(engine.url), SweepRequest("ann", (0, 1), 1.0, 3), as_json=as_json)
    with pytest.raises(LeftTurned) as left:
        await until_signal(work)
    assert left.value.exit_code == 1
    back = "specdeck set http://e:1 k=5 mode=speculate fallback=warm policy=fixed"
    now = f"k={engine.now.k_set} mode=speculate policy=fixed"
    assert left.value.line() == (
        f"NOT given back: the engine has {now}: `{back}` makes it as it was found"
    )
    said = capsys.readouterr().out
    if as_json:
        found = json.loads(said)
        assert (found["left"], found["restored"], found["undo"]) == ("not_restored", False, back)
    else:
        assert f"engine     {now}; it was found with k=5" in said
    with open_user_store() as store:
        (entry, _) = AuditLog(store).actions(engine.url)
    assert entry.after["k"] == engine.now.k_set
    assert f"NOT given back: the engine has {now}" in (entry.reason or "")


def test_what_a_sweep_leaves_is_one_line_and_exit_code_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    left = replace(
        found(), after={**KNOBS, "k": 2}, ending=Ending("not_restored"), undo="specdeck set e k=5"
    )

    async def end(*_: object, **__: object) -> int:
        print_outcome(left, lambda: None)
        return 0

    monkeypatch.setattr("specdeck.console.cli.sweep.sweep", end)
    assert outcome(["sweep", "127.0.0.1:9"]) == 1
    assert capsys.readouterr().err == (
        "specdeck: NOT given back: the engine has k=2 mode=speculate policy=fixed: "
        "`specdeck set e k=5` makes it as it was found\n"
    )


def test_a_reader_who_has_had_enough_hides_nothing_that_is_left(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def print_it() -> None:
        raise BrokenPipeError(32, "Broken pipe")

    left = replace(found(), after={**KNOBS, "k": 2}, ending=Ending("not_restored"))
    with pytest.raises(LeftTurned):
        print_outcome(left, print_it)
    with pytest.raises(BrokenPipeError):
        print_outcome(found(), print_it)


@pytest.mark.parametrize(
    ("ending", "words"),
    [
        (Ending("changed"), "somebody else has set k=2 mode=speculate policy=fixed, which stays"),
        (Ending("restarted"), "it came up with k=2 mode=speculate policy=fixed"),
        (Ending("restored", "open", True), "the breaker has opened meanwhile: `specdeck set e"),
    ],
)
def test_what_is_otherwise_without_the_sweep_s_doing_is_said(ending: Ending, words: str) -> None:
    left = replace(found(), after={**KNOBS, "k": 2}, ending=ending, undo="specdeck set e k=5")
    assert left.failure is None
    (line,) = left.others
    assert words in line


async def test_a_sweep_shows_harmlessly_what_an_engine_says_of_itself(
    kit: type[Kit],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("SPECDECK_HOME", str(tmp_path))
    planted: Any = PLANTED
    state = replace(kit.state, lease=None, trial=None, policy=planted, fallback=planted)
    engine = InterruptedEngine(state, 6)
    monkeypatch.setattr(Access, "client", lambda self: cast("EngineClient", engine))
    work = sweep(Access(engine.url), SweepRequest("ann", (0, 1), 1.0, 3), as_json=False)
    assert await until_signal(work) == INTERRUPTED
    said = capsys.readouterr()
    assert "forged" in said.out
    assert_harmless(said.out)
    assert_harmless(said.err)


def test_a_log_has_a_line_for_each_round(capsys: pytest.CaptureFixture[str]) -> None:
    screen = SweepScreen(found, terminal=False)
    for done in range(6):
        screen.show(Visiting(SweepProgress(done, 6, done % 3, 1.0)))
        screen.show(
            VisitDone(SweepProgress(done + 1, 6, None, 1.0), VisitSums(done % 3, done // 3))
        )
    screen.close()
    assert capsys.readouterr().err.splitlines() == [
        "sweep: 3 of 6 visits, best so far k=3",
        "sweep: 6 of 6 visits, best so far k=3",
    ]


def test_a_terminal_shows_the_curve_and_is_left_clean(
    capsys: pytest.CaptureFixture[str],
) -> None:
    screen = SweepScreen(found, terminal=True, columns=lambda: 60)
    screen.show(Visiting(SweepProgress(1, 6, 3, 9.0)))
    screen.show(Visiting(SweepProgress(2, 6, 0, 8.0)))
    screen.close()
    drawn = capsys.readouterr().err
    assert drawn.count("\x1b[5A") == 2
    assert drawn.endswith("\r\x1b[J")
    assert "sweep: 2 of 6 visits, at k=0, 8 s left" in drawn
