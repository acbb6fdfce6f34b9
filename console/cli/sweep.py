"""`specdeck sweep`: which k is the fastest on the traffic of this moment?"""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from specdeck.console.cli import sweep_words as words
from specdeck.console.cli.common import until_signal
from specdeck.console.cli.engines import Access, access, key_option, token_option, told_apart
from specdeck.console.cli.memory import note_change
from specdeck.console.cli.numbers import Finite
from specdeck.console.cli.operator import operator
from specdeck.console.cli.talk import duration, emit, say
from specdeck.engine.errors import SpecdeckError, Unsupported, UsageError

if TYPE_CHECKING:
    from specdeck.engine.client.engine_client import EngineClient
    from specdeck.engine.control.protocol import EngineState
    from specdeck.engine.sweep.runner import Progress, Sweep

USUAL_S = 60.0
_INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class Asked:
    """What the options ask for."""

    ks: tuple[int, ...] | None
    """None is every k of the engine."""
    seconds: float
    rounds: int | None
    reason: str
    as_json: bool


@click.command("sweep")
@click.argument("engine", metavar="URL")
@click.option("--k", "ks", metavar="0-5", help="The k's, such as 0-5 or 0,2,4; default: every k.")
@click.option(
    "--seconds",
    type=Finite(min=1.0, max=86_400.0),
    default=USUAL_S,
    metavar="S",
    show_default=True,
    help="How long the whole sweep takes, with traffic all the time.",
)
@click.option(
    "--rounds",
    type=click.IntRange(2, 100),
    metavar="N",
    help="Visits of each k; default: 3 to 12, as many as the time allows.",
)
@click.option("--reason", metavar="T", help="Kept in the audit log.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object; progress on stderr.")
@key_option
@token_option
def command(
    engine: str,
    ks: str | None,
    seconds: float,
    rounds: int | None,
    reason: str | None,
    as_json: bool,
    api_key_env: str | None,
    token_file: Path | None,
) -> int:
    """Visit k after k on live traffic, and tell which is the fastest, and how sure that is.

    Rounds are interleaved in random order, so that a drift of the load hits every k alike.
    The engine is left as it was found, also on Ctrl-C; if the sweep is killed, the engine
    takes k back by itself within 10 s. Without traffic, and when somebody else turns a knob
    meanwhile, the sweep stops and exits with 3.
    """
    because = "sweep" if reason is None else f"sweep: {reason}"
    asked = Asked(None if ks is None else numbers(ks), seconds, rounds, because, as_json)
    to = access(engine, api_key_env=api_key_env, token_file=token_file)
    return asyncio.run(until_signal(swept(to, asked)))


def numbers(text: str) -> tuple[int, ...]:
    """The k's that `--k` names; raises UsageError on nonsense.

    >>> numbers("0-3"), numbers("0,2,4-5")
    ((0, 1, 2, 3), (0, 2, 4, 5))
    """
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = (end.strip() for end in part.partition("-"))
        ends = (first, last) if dash else (first, first)
        if not all(end.isascii() and end.isdecimal() and len(end) < 5 for end in ends):
            raise UsageError(f"--k {text} names no k's", remedy="give them as 0-5 or 0,2,4")
        low, high = int(ends[0]), int(ends[1])
        if low > high:
            raise UsageError(f"--k {part.strip()} runs backwards", remedy=f"give {high}-{low}")
        found.update(range(low, high + 1))
    if len(found) < 2:
        raise UsageError("one k is nothing to compare", remedy="give two or more, such as 0-5")
    return tuple(sorted(found))


async def swept(to: Access, asked: Asked) -> int:
    """Runs the sweep and prints what came of it, whole or not; the exit code."""
    from specdeck.engine.sweep.plan import every_k, plan
    from specdeck.engine.sweep.report import as_json
    from specdeck.engine.sweep.runner import Sweep

    client = to.client()
    try:
        state = await _speculating(client)
        planned = plan(asked.ks or every_k(state), seconds=asked.seconds, rounds=asked.rounds)
        sweep = Sweep(client, planned, who=operator(), reason=asked.reason)
        screen, log = Screen(lambda: as_json(sweep, to.url)), Log(to)

        def heard(progress: Progress) -> None:
            if progress.first:
                say(_announcement(planned.visits, planned.seconds, asked))
            log.begun(sweep)
            screen(progress)

        sweep.heard = heard
        stopped: str | None = _INTERRUPTED
        try:
            await sweep.run()
            stopped = None
        except SpecdeckError as error:
            stopped = error.line()
            raise
        finally:
            screen.close()
            document = as_json(sweep, to.url, stopped=stopped)
            log.ended(sweep, document)
            _printed(document, asked)
    finally:
        await client.close()
    return 0


async def _speculating(client: EngineClient) -> EngineState:
    """What the engine says; raises Unsupported where it has no k to sweep over."""
    async with told_apart(client):
        state = await client.state()
    if state.k_max < 1:
        raise Unsupported(
            "the engine does not speculate", remedy="start it with a speculative_config"
        )
    return state


def _announcement(visits: int, seconds: float, asked: Asked) -> str:
    text = f"specdeck: {visits} visits, about {duration(seconds)}; Ctrl-C gives k back"
    if seconds > asked.seconds * 1.05:
        text += f" ({asked.seconds:g} s are too few to tell anything)"
    return text


def _printed(document: dict[str, Any], asked: Asked) -> None:
    # A script that interrupts a sweep is told what it came to, also when that is nothing yet.
    if not document["visits"] and not (asked.as_json and document["stopped"] == _INTERRUPTED):
        return
    if asked.as_json:
        emit(document)
        return
    width = min(100, shutil.get_terminal_size().columns)
    click.echo("\n".join([*words.curve(document, width), "", *words.verdict(document)]))
    for notice in document["notices"]:
        say(f"specdeck: {notice}")


class Screen:
    """A sweep's progress on stderr: the curve drawn over and over, or a line each round."""

    def __init__(
        self,
        document: Callable[[], dict[str, Any]],
        *,
        terminal: bool | None = None,
        columns: Callable[[], int] = lambda: shutil.get_terminal_size().columns,
    ) -> None:
        self._document = document
        self._terminal = sys.stderr.isatty() if terminal is None else terminal
        self._columns = columns
        self._drawn = 0
        self._round = -1
        self._waiting = False

    def __call__(self, progress: Progress) -> None:
        """Tells how far it is."""
        if self._terminal:
            self._draw([*self._curve(), status(progress)])
            return
        if progress.k is None and not progress.done:
            if not self._waiting:
                say("specdeck: waiting for traffic")
            self._waiting = True
            return
        document = self._document()
        number = progress.done // len(document["k"])
        if progress.done and number > self._round:
            best = (document["optimum"] or {}).get("k")
            so_far = "" if best is None else f", best so far k={best}"
            say(f"sweep: {progress.done} of {progress.of} visits{so_far}")
        self._round = max(self._round, number)

    def close(self) -> None:
        """Takes the drawing away; the result stands on stdout."""
        if self._drawn:
            self._draw([])

    def _curve(self) -> list[str]:
        return words.curve(self._document(), min(100, self._columns()))

    def _draw(self, lines: Sequence[str]) -> None:
        up = f"\x1b[{self._drawn}A" if self._drawn else ""
        width = self._columns()
        text = "".join(f"{line[: width - 1]}\x1b[K\n" for line in lines)
        sys.stderr.write(f"{up}\r{text}\x1b[J")
        sys.stderr.flush()
        self._drawn = len(lines)


def status(progress: Progress) -> str:
    """How far a sweep is, on one line.

    >>> from specdeck.engine.sweep.runner import Progress
    >>> status(Progress(12, 54, 3, 42.0))
    'sweep: 12 of 54 visits, at k=3, 42 s left'
    """
    if progress.k is None and not progress.done:
        return "sweep: waiting for traffic"
    where = "" if progress.k is None else f", at k={progress.k}"
    left = duration(progress.seconds_left)
    return f"sweep: {progress.done} of {progress.of} visits{where}, {left} left"


class Log:
    """Writes the sweep into the audit log: when it begins to steer, and when it has ended."""

    def __init__(self, to: Access) -> None:
        self._to = to
        self._begun = False

    def begun(self, sweep: Sweep) -> None:
        """Before the first change, so that a sweep that is killed is in the log as well."""
        if self._begun or sweep.before is None or not sweep.steering:
            return
        self._begun = True
        ks = ",".join(map(str, sweep.plan.ks))
        self._note(sweep, sweep.before, {"k": ks}, sweep.reason)

    def ended(self, sweep: Sweep, document: dict[str, Any]) -> None:
        """What the engine was left with, and the optimum."""
        if not self._begun or sweep.before is None:
            return
        best = document["optimum"]
        found = document["stopped"] or (f"best k={best['k']}" if best else "no optimum")
        ks = ",".join(map(str, sweep.plan.ks))
        self._note(sweep, {"k": ks}, dict(sweep.after or {}), f"end of {sweep.reason}: {found}")

    def _note(
        self, sweep: Sweep, before: dict[str, Any], after: dict[str, Any], reason: str
    ) -> None:
        from specdeck.engine.control.observe import undo
        from specdeck.engine.store.audit import Action

        assert sweep.found is not None
        back = undo(self._to.url, dict(sweep.before or {}))
        action = Action(
            time.time(), sweep.who, self._to.url, self._to.name, dict(before), after, back,
            sweep.found.instance, reason,
        )  # fmt: skip
        try:
            note_change(action)
        except SpecdeckError as error:
            say(f"specdeck: the audit log is not written: {error.line()}")
