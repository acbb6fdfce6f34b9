"""A change under way: in the audit log from the engine's first word on, whatever stops it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from specdeck.console.cli.engines import Access, told_apart
from specdeck.console.cli.memory import note_applied, note_observed, note_outcome
from specdeck.console.cli.talk import say
from specdeck.engine.control.protocol import Applied, Change

if TYPE_CHECKING:
    from specdeck.engine.control.observe import Outcome
    from specdeck.engine.control.tuning import TrialTuning

_Ask = Callable[[Any], Coroutine[Any, Any, "Outcome"]]


class Record:
    """What one engine has said of one change."""

    def __init__(self, change: Change, to: Access) -> None:
        self.change = change
        self._to = to
        self._applied: Applied | None = None
        self._entry: int | None = None
        self._stopped: str | None = None

    def answered(self, applied: Applied) -> None:
        """The engine's word: the change is made, or the trial begun; what it notes is said."""
        self._applied = applied
        for notice in applied.notices:
            say(f"specdeck: {notice}")
        self._entry = note_applied(self.change, applied, url=self._to.url, engine=self._to.name)

    def stopped(self, words: str) -> None:
        """What becomes of an attended trial that is cut short."""
        self._stopped = words

    def observed(self, outcome: Outcome) -> None:
        """What the counters showed."""
        if self._entry is not None and outcome.observed_k is not None:
            note_observed(self._entry, outcome.observed_k)

    def judged(self, outcome: Outcome) -> None:
        """How the trial has ended."""
        ended = outcome.trial or {}
        reason = f"trial {ended.get('state')}: {ended.get('reason')}"
        note_outcome(replace(self.change, reason=reason), outcome, engine=self._to.name)

    def unsaid(self, outcome: Outcome) -> Outcome:
        """The outcome with those notices alone that came after the engine's word."""
        told = 0 if self._applied is None else len(self._applied.notices)
        return replace(outcome, notices=outcome.notices[told:])

    def interrupted(self, *, attended: bool) -> str:
        """How things stand after a signal, and what to do."""
        from specdeck.engine.control.observe import back, undo

        if self._stopped is not None:
            return self._stopped
        lease = self.change.lease_s
        later = "" if lease is None else f"; the engine takes it back within {lease:g} s"
        if self._applied is None:
            look = f"`specdeck watch {self._to.url} --count 1` shows what is in force"
            return f"no word of the engine yet: {look}{later}"
        if attended:
            return f"the change is asked for{later}"
        taken = "the trial is begun" if self.change.judge else "the change is made"
        return f"{taken}: `{undo(self._to.url, back(self._applied))}` takes it back{later}"


async def applied(to: Access, change: Change, answered: Callable[[Applied], None]) -> Outcome:
    """Asks for the change and watches for it in the counters; `answered` hears at once."""
    from specdeck.engine.control.observe import apply

    return await _with_client(to, lambda client: apply(client, change, answered=answered))


def made(to: Access, change: Change) -> Outcome:
    """Makes the change and watches for it; raises KeyboardInterrupt when it is cut short."""
    record = Record(change, to)
    work = applied(to, change, record.answered)
    outcome = _interruptible(work, record)
    record.observed(outcome)
    return record.unsaid(outcome)


def begun(to: Access, change: Change) -> Outcome:
    """Begins the trial and leaves it to the engine."""
    from specdeck.engine.control import attend

    record = Record(change, to)
    work = _with_client(to, lambda client: attend.begun(client, change, answered=record.answered))
    return record.unsaid(_interruptible(work, record))


def attended(to: Access, change: Change) -> Outcome:
    """Stays with the trial until its verdict; a signal has it taken back first."""
    from specdeck.engine.control import attend

    record = Record(change, to)
    work = _with_client(
        to,
        lambda client: attend.attend(
            client, change, _Progress(), answered=record.answered, stopped=record.stopped
        ),
    )
    outcome = _interruptible(work, record, attended=True)
    record.judged(outcome)
    return record.unsaid(outcome)


async def _with_client(to: Access, ask: _Ask) -> Outcome:
    client = to.client()
    try:
        async with told_apart(client):
            return await ask(client)
    finally:
        await client.close()


def _interruptible(
    work: Coroutine[Any, Any, Outcome], record: Record, *, attended: bool = False
) -> Outcome:
    """Runs `work`; Ctrl-C, a SIGTERM and a closed terminal cancel it, and how things stand is said.

    Raises KeyboardInterrupt then.
    """

    async def run() -> Outcome:
        task = asyncio.ensure_future(work)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, task.cancel)
        return await task

    with suppress(asyncio.CancelledError):
        return asyncio.run(run())
    say(f"specdeck: interrupted: {record.interrupted(attended=attended)}")
    raise KeyboardInterrupt


class _Progress:
    """Says what a trial does, once for each of its phases and every ten seconds of work."""

    def __init__(self) -> None:
        self._said: tuple[str, int] | None = None

    def __call__(self, trial: TrialTuning) -> None:
        left = trial.seconds_left
        mark = (trial.state, -1 if left is None else int(left // 10))
        if mark == self._said:
            return
        self._said = mark
        if trial.over:
            say(f"specdeck: trial {trial.state}: {trial.reason}")
        else:
            say(f"specdeck: trial: {_PHASES[trial.state]}, {left or 0:.0f} s of work left")


_PHASES = {"baseline": "measuring as it was", "changed": "measuring the change"}
