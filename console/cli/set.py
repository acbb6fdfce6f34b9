"""`specdeck set`: changes a running engine and shows what came of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import asdict, dataclass, field, replace
from math import ceil
from pathlib import Path
from typing import Any

import click

from specdeck.console.cli.audit import UserAudit, print_history
from specdeck.console.cli.common import Finite, until_signal
from specdeck.console.cli.engines import Access, access, key_option, require_vllm, token_option
from specdeck.console.cli.operator import find_operator
from specdeck.console.cli.output import discard_stdout, emit, log, print_lines
from specdeck.engine.client import event_loop
from specdeck.engine.client.engine_client import EngineClient
from specdeck.engine.errors import LeftTurned, UsageError
from specdeck.engine.operations.assignments import format_argument, parse_assignments
from specdeck.engine.operations.change import (
    IDLE_S,
    ChangeApplied,
    ChangeEvent,
    ChangeNotObserved,
    ChangeObserved,
    WaitsFor,
    describe_wait,
    is_only_k,
    make_change,
    poll,
)
from specdeck.engine.operations.record import NotRecorded
from specdeck.engine.operations.trial import (
    TrialEnded,
    TrialEvent,
    TrialRunner,
    TrialSeen,
    TrialStopped,
    TrialUnseen,
    as_trial,
)
from specdeck.engine.protocol.messages import AppliedChange, Change
from specdeck.engine.protocol.tuning import TrialTuning
from specdeck.engine.text import UNKNOWN


@click.command("set")
@click.argument("engine", metavar="URL")
@click.argument("assignments", metavar="k=N|mode=M|policy=P|breaker=B…", nargs=-1)
@click.option(
    "--trial",
    type=Finite(min=1.0),
    metavar="S",
    help="Try it: S seconds of work with the change, by turns with as much without it; then it is "
    "kept or taken back. Stays until then; the engine takes the change back soon after this "
    "command is gone.",
)
@click.option(
    "--detach", is_flag=True, help="With --trial: leave the verdict to the engine and return."
)
@click.option(
    "--lease",
    type=Finite(min=1.0, max=86_400.0),
    metavar="S",
    help="The engine reverts the change after S seconds, whatever it did.",
)
@click.option("--reason", metavar="T", help="Kept in the audit log.")
@click.option(
    "--history", is_flag=True, help="Show the audit log of this engine: what was changed from here."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object; with --history a list.")
@key_option
@token_option
def command(
    engine: str,
    assignments: tuple[str, ...],
    trial: float | None,
    detach: bool,
    lease: float | None,
    reason: str | None,
    history: bool,
    as_json: bool,
    api_key_env: str | None,
    token_file: Path | None,
) -> int:
    """Change k, mode, policy, breaker or parameters of a running engine, without a restart.

    breaker=open is target-only until breaker=closed, breaker=probe until probes show a gain.
    Parameters have dotted names, such as goodput.margin=0.02. Prints what was requested,
    what the engine says, and what its counters show.
    """
    if history:
        if assignments:
            remedy = f"leave out {assignments[0]}"
            raise UsageError("--history changes nothing", remedy=remedy)
        return print_history(engine, as_json=as_json)
    if not assignments:
        raise click.UsageError("give what to set, such as k=3, or --history")
    change = replace(
        parse_assignments(assignments), lease_s=lease, reason=reason, who=find_operator()
    )
    change = _as_trial(change, trial, detach=detach)
    to = access(engine, api_key_env=api_key_env, token_file=token_file)
    narrator = Narrator(change, to.url, attended=change.judge and not detach)
    work = _make(to, narrator, as_json=as_json)
    return event_loop.run(until_signal(work, on_interrupt=narrator.standing))


async def _make(to: Access, narrator: Narrator, *, as_json: bool) -> int:
    """Makes the change or tries it, prints what became of it; the exit code."""
    change, client = narrator.change, to.client()
    try:
        async with require_vllm(client):
            if change.judge:
                await _try(to, client, narrator)
            else:
                async for event in request_change(to, client, change):
                    narrator.take(event)
    finally:
        await client.close()
    outcome = narrator.outcome()
    try:
        if as_json:
            emit(outcome.as_json())
        else:
            print_lines(*outcome_lines(outcome))
    except OSError as error:  # the change is made all the same, and so is its undo
        for line in outcome_lines(outcome):
            log(f"specdeck: {line}")
        if not isinstance(error, BrokenPipeError):
            raise
        discard_stdout()
    for line in narrator.later:
        log(f"specdeck: {line}")
    if narrator.lease_left_s is not None:
        log(f"specdeck: the engine reverts this in {narrator.lease_left_s:g} s")
    return 1 if narrator.is_contradicted else 0


async def request_change(
    to: Access, client: EngineClient, change: Change
) -> AsyncGenerator[ChangeEvent, None]:
    """Makes `change`, looks for it in the counters and writes the user's audit log."""
    known = await client.state()
    events = make_change(
        client, change, name=to.name, known=known, looks=poll(client), audit=UserAudit(),
        idle_s=IDLE_S,
    )  # fmt: skip
    async with aclosing(events):
        async for event in events:
            yield event


async def _try(to: Access, client: EngineClient, narrator: Narrator) -> None:
    """Begins the trial and leaves it to the engine, or stays; cancelled, it is taken back.

    Raises LeftTurned where the engine's state shows that it was not.
    """
    trial = TrialRunner(
        client, narrator.change, name=to.name, audit=UserAudit(),
        on_notice=lambda waiting: log(f"specdeck: {waiting.line()}"),
    )  # fmt: skip
    try:
        async for event in trial.attend() if narrator.attended else trial.detach():
            narrator.take(event)
    except asyncio.CancelledError:
        if narrator.attended:
            narrator.stopped = await asyncio.shield(trial.take_back())
            if narrator.stopped.state is not None:
                raise LeftTurned(narrator.stopped.line(), remedy=narrator.undo_words) from None
        raise


def _as_trial(change: Change, trial: float | None, *, detach: bool) -> Change:
    """The change as a judged trial; raises UsageError on options that do not go together."""
    if change.breaker is not None and change.lease_s is not None:
        raise UsageError("the breaker takes no lease", remedy="set it without --lease")
    if trial is None:
        if detach:
            raise UsageError("--detach requires --trial", remedy="give --trial S, or leave it out")
        return change
    if change.lease_s is not None:
        raise UsageError("--trial and --lease are mutually exclusive", remedy="give one of them")
    if change.breaker is not None:
        raise UsageError("the breaker cannot be put on trial", remedy="set it without --trial")
    return as_trial(change, trial_s=trial, attended=not detach)


@dataclass(frozen=True, slots=True)
class ChangeOutcome:
    """A change that the engine has made, or has tried."""

    change: Change
    applied: AppliedChange
    """The engine's word."""
    ack_ms: float
    """From the request to the engine's word, milliseconds."""
    undo: str
    """The command that takes the change back; empty where none can be given."""
    observed_k: float | None = None
    """Draft tokens per draft in steps after the change; None where none was seen."""
    observed_after_ms: float | None = None
    waits_for: WaitsFor | None = None
    """What its k is stored for; None where it is in force."""
    reverted: Mapping[str, Any] | None = None
    """The knobs that the change turns, as they are since its lease ended; None where it has not,
    or there is none."""
    trial: TrialTuning | None = None
    """Of a judged change, as far as the engine has come with it."""
    end: TrialEnded | None = None
    """How the trial has ended, where that was looked at."""
    is_contradicted: bool = False
    """Whether the engine's counters or its state show that the change, which it acknowledged, is
    not in force."""

    @property
    def in_force(self) -> Mapping[str, Any]:
        """The knobs that the change turns, as they are by now."""
        if self.end is not None:
            return self.end.in_force
        if self.trial is None or not self.trial.over:
            return self.applied.applied
        return self.trial.after if self.trial.state == "kept" else self.trial.before

    def as_json(self) -> dict[str, Any]:
        """The keys of `set --json`."""
        k, after = self.observed_k, self.observed_after_ms
        found = {
            "requested": self.change.knobs(),
            "applied": dict(self.in_force),
            "before": self.applied.before,
            "ack_ms": round(self.ack_ms, 1),
            "observed_k": None if k is None else round(k, 3),
            "observed_after_ms": None if after is None else round(after),
            "waits_for": self.waits_for,
            "reverted": None if self.reverted is None else dict(self.reverted),
            "contradicted": self.is_contradicted,
            "undo": self.undo,
        }
        return found if self.trial is None else {**found, "trial": asdict(self.trial)}


@dataclass(slots=True)
class Narrator:
    """Says on stderr what happens to one change, and knows how things stand at any moment."""

    change: Change
    url: str
    attended: bool = False
    """Whether a trial is stayed with until its verdict."""
    on_line: Callable[[str], None] = log
    later: list[str] = field(default_factory=list)
    """What is said once the outcome is printed."""
    stopped: TrialStopped | None = None
    """What became of an attended trial that was cut short."""
    is_contradicted: bool = False
    """Whether the engine's counters or its state show that the change, which it acknowledged, is
    not in force."""
    lease_left_s: float | None = None
    """Until the engine takes the change back by itself, in whole seconds where its state tells;
    None where it does not, or not any more."""
    _begun: ChangeApplied | None = None
    _observed: tuple[float | None, float | None] = (None, None)
    _trial: TrialTuning | None = None
    _end: TrialEnded | None = None
    _reverted: Mapping[str, Any] | None = None
    _tens: int | None = None

    def take(self, event: ChangeEvent | TrialEvent) -> None:
        """Says what is worth a line at once, and keeps what the outcome is made of."""
        if isinstance(event, ChangeApplied):
            self._begun = event
            self.lease_left_s = None if self.change.judge else self.change.lease_s
            for notice in event.applied.notices:
                self._say(notice)
            if event.waits_for is not None and not is_only_k(event.applied):
                self.later.append(f"k is stored: {describe_wait(event.waits_for)}")
        elif isinstance(event, NotRecorded):
            self._say(f"{self._made}, but it is not in the audit log: {event.error.line()}")
        elif isinstance(event, ChangeObserved):
            self._observed = (event.k, event.after_ms)
            if event.is_contradicted:
                self.is_contradicted = True
                self.later.append(event.line())
            self._take_lease(event)
        elif isinstance(event, ChangeNotObserved):
            self.is_contradicted |= event.is_bad
            self._reverted = event.back
            if event.back is not None:
                self.later.clear()  # what a k is stored for is over as well
            self.later.append(event.line())
            self._take_lease(event)
        elif isinstance(event, TrialSeen):
            self._see(event.trial)
        elif isinstance(event, TrialUnseen) and event.error is not None:
            self.later.append(f"the trial has started and is not visible yet: {event.error.line()}")
        elif isinstance(event, TrialUnseen):
            self.is_contradicted = True
            self.later.append("NOT on trial: the engine tells of no trial of this change")
        elif isinstance(event, TrialEnded):
            self._trial, self._end = event.trial, event
            self._observed = (event.observed_k, event.observed_after_ms)
            self._say(f"trial {event.trial.state}: {event.trial.reason}")
            if event.is_contradicted:
                self.is_contradicted = True
                self.later.append(event.line())
            if event.error is not None:
                self.later.append(f"not observed: the engine's state: {event.error.line()}")

    def outcome(self) -> ChangeOutcome:
        """What became of it; there is none before the engine's word."""
        assert self._begun is not None
        begun, (k, after) = self._begun, self._observed
        waits_for = begun.waits_for if self._end is None else self._end.waits_for
        return ChangeOutcome(
            self.change, begun.applied, begun.ack_ms, begun.undo, k, after,
            waits_for if self._reverted is None else None,
            self._reverted, self._trial, self._end, self.is_contradicted,
        )  # fmt: skip

    def standing(self) -> str:
        """How things stand after a signal, and what to do."""
        lease = self.change.lease_s
        later = "" if lease is None else f"; the engine reverts it within {lease:g} s"
        if self._begun is None:
            look = f"`specdeck watch {self.url} --count 1` shows what is in force"
            return f"no reply from the engine yet: {look}{later}"
        if self.stopped is not None:
            return self.stopped.line()
        if self.attended:
            return f"the change is asked for{later}"
        undo = self.undo_words
        return f"{self._made}: {undo}{later}" if undo else f"{self._made}{later}"

    @property
    def undo_words(self) -> str | None:
        """What reverts the change; None where no command does, or there is no change yet."""
        undo = None if self._begun is None else self._begun.undo
        return f"`{undo}` reverts it" if undo else None

    @property
    def _made(self) -> str:
        return "the trial has started" if self.change.judge else "the change is made"

    def _take_lease(self, event: ChangeObserved | ChangeNotObserved) -> None:
        """Keeps how long the lease goes on, where there is one and the engine's state tells it."""
        is_over = isinstance(event, ChangeNotObserved) and event.is_lease_over
        if self.is_contradicted or is_over:
            self.lease_left_s = None
        elif event.lease_left_s is not None:
            self.lease_left_s = max(1.0, ceil(event.lease_left_s))

    def _see(self, trial: TrialTuning) -> None:
        """Says what a trial does, every ten seconds of work."""
        self._trial = trial
        left = trial.seconds_left
        tens = -1 if left is None else int(left // 10)
        if tens != self._tens:
            self._tens = tens
            self._say(f"trial: {trial.describe_work()}")

    def _say(self, line: str) -> None:
        self.on_line(f"specdeck: {line}")


def outcome_lines(outcome: ChangeOutcome) -> list[str]:
    """The outcome for a person, one thing a line.

    >>> applied = AppliedChange({"k": 5}, {"k": 3}, version=1, step=9)
    >>> lines = outcome_lines(ChangeOutcome(
    ...     Change(k=3), applied, 12.14, "specdeck set URL k=5", 3.0, 340.2))
    >>> print(*lines, sep="\\n")
    requested  k=3
    applied    k=3 (was k=5), after 12 ms
    observed   3.00 draft tokens per draft, after 340 ms
    undo       specdeck set URL k=5
    """
    trial, k, after = outcome.trial, outcome.observed_k, outcome.observed_after_ms
    state = None if trial is None else trial.state
    lines = [f"requested  {_format_knobs(outcome.change.knobs())}", _format_applied(outcome)]
    if k is None:
        lines.append("observed   –")
    else:
        when = "" if after is None else f", after {after:.0f} ms"
        on_trial = " while on trial" if state == "reverted" else ""
        lines.append(f"observed   {k:.2f} draft tokens per draft{on_trial}{when}")
    if trial is not None:
        reason = f": {trial.reason}" if trial.reason else ""
        is_doubted = outcome.end is not None and outcome.end.is_contradicted
        lines.append(f"trial      {'NOT ' if is_doubted else ''}{trial.state}{reason}")
    if state not in ("reverted", "abandoned") and outcome.reverted is None:
        lines.append(f"undo       {outcome.undo or UNKNOWN}")
    return lines


def _format_applied(outcome: ChangeOutcome) -> str:
    """What the engine did: made the change, or tried it."""
    trial = outcome.trial
    end, wait = outcome.end, outcome.waits_for
    is_as_left = end is None or (not end.is_contradicted and end.in_force == end.left)
    if trial is None or (trial.state in ("kept", "changed") and is_as_left):
        was = f"was {_format_before(outcome.applied.before)}"
        now = f"{_format_knobs(outcome.in_force)} ({was}), after {outcome.ack_ms:.0f} ms"
        if wait is not None and (end is not None or is_only_k(outcome.applied)):
            return f"stored     {now}: {describe_wait(wait)}"
        return f"applied    {now}"
    before, now = _format_knobs(trial.before), _format_knobs(outcome.in_force)
    ended = {"kept": "said to be kept", "reverted": "reverted", "abandoned": "not made"}
    if wait is not None:
        stands = f"{ended[trial.state]}: {now} is stored: {describe_wait(wait)}"
    elif end is not None and end.in_force != end.left:
        stands = f"{ended[trial.state]}: {now} is in force"
    elif not is_as_left:
        stands = f"{ended[trial.state]}: not shown to be in force"
    else:
        stands = {
            "reverted": f"reverted: {before} applies again",
            "abandoned": f"not made: {before} still applies",
            "baseline": f"not made yet: {before} is being measured",
        }[trial.state]
    return f"on trial   {_format_knobs(trial.after)}, {stands}"


def _format_before(knobs: Mapping[str, Any]) -> str:
    """What was in force: under a policy that is not the k that was set.

    >>> _format_before({"k": 6, "policy": "goodput"}), _format_before({"k": 6, "policy": "fixed"})
    ('policy=goodput, with k=6 stored', 'k=6 policy=fixed')
    """
    if knobs.get("policy", "fixed") == "fixed" or "k" not in knobs:
        return _format_knobs(knobs)
    rest = {name: value for name, value in knobs.items() if name != "k"}
    return f"{_format_knobs(rest)}, with k={format_argument(knobs['k'])} stored"


def _format_knobs(knobs: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={format_argument(value)}" for name, value in knobs.items())
