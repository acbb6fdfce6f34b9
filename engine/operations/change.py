"""A change with its proof, for whoever asks: requested, applied, observed, and in the audit log.

    ChangeRequested ─▶ ChangeApplied ─▶ [NotRecorded] ─▶ ChangeObserved | ChangeNotObserved

The engine's word that a change is applied is no proof: it is observed once the engine's own
counters show it in steps that lie wholly after it.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol

from specdeck.engine.errors import (
    NoReply,
    NotAnEngine,
    SpecdeckError,
    Stalled,
    Unauthorized,
    Unreachable,
    Unsupported,
)
from specdeck.engine.metrics.draft_length import exceeds
from specdeck.engine.metrics.page import read_page
from specdeck.engine.metrics.reading import Reading
from specdeck.engine.metrics.sample import Sample
from specdeck.engine.metrics.window import Window, between, has_restarted
from specdeck.engine.operations.assignments import format_argument
from specdeck.engine.operations.record import Audit, ChangeRecord, NotRecorded, is_refusal
from specdeck.engine.operations.undrafted import Undrafted
from specdeck.engine.protocol.messages import (
    KNOBS,
    STEPS_IN_FLIGHT,
    AppliedChange,
    Change,
    EngineState,
    LastChange,
)
from specdeck.engine.text import format_value

if TYPE_CHECKING:
    from specdeck.engine.client.engine_client import EngineClient

LOST_S = 15.0
"""How long an engine's states are looked at for a change whose reply was lost, seconds: a link
that stalls, and the time for which the engine itself may hold a change."""
ANSWERED_S = 2.0
"""The same where something was answered, be it nonsense: the engine is done with it by then."""
LOST = "the reply was lost; the engine's state shows the change"
"""The notice of such a change."""

TIMEOUT_S = 20.0
"""How long a busy engine may take to show a change: one that is short of time needs seconds
for a step."""
IDLE_S = 1.0
"""How long a command that somebody waits for watches an engine without a single request."""
SILENCE_S = 5.0
"""How long an engine may give no answer before its change is given up."""

SETTLED_S = 1.0
"""Drafts of varying length (n-gram, the last tokens of a request) are averaged this long."""

CONTRADICTED_S = 5.0
"""For how long an engine must be seen to draft more than the change allows before it is said not to
have made it: counters lag where the API server is short of time, or a gateway keeps pages."""

_UNMOVED_STEPS = 10
"""Fewer steps move no breaker by themselves: it opens after windows of steps, and closes after
bursts of them."""

POLL_S = 0.1
"""Between two looks of a command that waits for a change to be seen."""


class ChangeClient(Protocol):
    """Has an engine changed; a control client is one."""

    @property
    def url(self) -> str:
        """Where the engine answers, without credentials."""

    async def put(self, change: Change) -> AppliedChange:
        """The engine's word on `change`; raises SpecdeckError when it is refused."""


WaitsFor = Literal["speculation", "breaker"]
"""Without which nothing comes of a k: the mode, or a breaker that is closed."""


@dataclass(frozen=True, slots=True)
class ChangeRequested:
    """The change is on its way to the engine."""

    change: Change


@dataclass(frozen=True, slots=True)
class ChangeApplied:
    """The engine's word: the change is made, and in the audit log."""

    change: Change
    applied: AppliedChange
    ack_ms: float
    """From the request to the engine's word, milliseconds."""
    undo: str
    """The command that takes it back."""
    waits_for: WaitsFor | None = None
    """What its k is stored for; None where it is in force, or the change has none."""


@dataclass(frozen=True, slots=True)
class ChangeObserved:
    """The engine's counters show the change."""

    k: float
    """Draft tokens per draft in steps after the change; 0 when tokens came without drafts, of
    requests that could have had some."""
    after_ms: float
    """From the request to the counters that show it, milliseconds."""
    most: float | None = None
    """The k that no draft should exceed; None where that is not known."""
    lease_left_s: float | None = None
    """Until the engine takes a leased change back, by its state; None where that is not known."""

    @property
    def is_contradicted(self) -> bool:
        """Whether the engine drafts more than it says."""
        return exceeds(self.k, self.most)

    def line(self) -> str:
        """For a person.

        >>> ChangeObserved(3.0, 412.4, 3.0).line()
        'observed k 3.0 · 412 ms after the request'
        >>> ChangeObserved(5.0, 412.4, 3.0).line()
        'NOT made: the counters show k 5.0 412 ms after the request, not 3'
        """
        later = f"{self.after_ms:.0f} ms after the request"
        if self.most is not None and self.is_contradicted:
            return f"NOT made: the counters show k {self.k:.1f} {later}, not {self.most:g}"
        return f"observed k {self.k:.1f} · {later}"


Unobserved = Literal[
    "no_traffic", "no_draft", "no_chance", "no_counter", "superseded", "lease_ended", "restarted",
    "another_engine", "unreachable", "contradicted",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class ChangeNotObserved:
    """The change is applied, and no counter shows it.

    no_traffic: nothing was generated; no_draft: no draft was verified in time; no_chance: none
    should be, and no token was generated that one could have brought; no_counter: the engine's
    metrics do not tell how much it drafts; superseded: a newer change took its place;
    lease_ended: the engine has taken it back, as was asked for; restarted: the engine forgot it;
    another_engine: one of several that answer at the address has it, and another has not;
    unreachable: `error` says why; contradicted: the engine's own state is another, as `state` says.
    """

    reason: Unobserved
    error: SpecdeckError | None = None
    state: str | None = None
    """A knob as the engine's state has it in place of what was set."""
    back: Mapping[str, Any] | None = None
    """The knobs that the change turned, as they are since its lease ended; None where it has not
    ended, or there is none."""
    lease_left_s: float | None = None
    """Until the engine takes a leased change back, by its state; None where it has no lease, or
    that is not known."""

    @property
    def is_undone(self) -> bool:
        """Whether the change is known not to be in force, though no newer one took its place."""
        return self.reason in ("restarted", "contradicted")

    @property
    def is_bad(self) -> bool:
        """Whether the change is not in force, or not wherever the address leads."""
        return self.is_undone or self.reason == "another_engine"

    @property
    def is_lease_over(self) -> bool:
        """Whether nothing is left for the engine to take back by itself."""
        return self.reason == "lease_ended" or (
            self.reason == "superseded" and self.lease_left_s is None
        )

    def line(self) -> str:
        """For a person.

        >>> ChangeNotObserved("superseded").line()
        'not observed: a newer change took its place'
        >>> ChangeNotObserved("no_draft", state="breaker=open").line()
        'not observed: no draft was verified in time after the change; its state has breaker=open'
        >>> ChangeNotObserved("lease_ended", back={"k": 5, "policy": "goodput"}).line()
        'not observed: the lease has ended: the engine is back at k=5 policy=goodput'
        """
        if self.error is not None:
            return f"not observed: {self.error.line()}"
        if self.reason == "contradicted":
            return f"NOT made: the engine acknowledged it, and its state has {self.state}"
        also = "" if self.state is None else f"; its state has {self.state}"
        if self.back:
            found = self.back.items()
            knobs = " ".join(f"{name}={format_argument(value)}" for name, value in found)
            also = f": the engine is back at {knobs}"
        return f"not observed: {_UNOBSERVED[self.reason]}{also}"


FORGOTTEN = "the engine was restarted and has forgotten it"
_UNOBSERVED: dict[Unobserved, str] = {
    "no_traffic": "the engine generated nothing after the change",
    "no_draft": "no draft was verified in time after the change",
    "no_chance": "no request had tokens after the change that a draft could have brought",
    "no_counter": "the engine's metrics do not count its drafts",
    "superseded": "a newer change took its place",
    "restarted": FORGOTTEN,
    "another_engine": "several engines answer at this address, and the change has reached one of"
    " them: ask each at its own",
    "unreachable": "the engine gave no answer",
    "contradicted": "the engine's state is another",
    "lease_ended": "the lease has ended",
}

ChangeEvent = ChangeRequested | ChangeApplied | NotRecorded | ChangeObserved | ChangeNotObserved


@dataclass(frozen=True, slots=True)
class Look:
    """State and counters of one engine, in an order that allows conclusions."""

    state: EngineState
    sample: Sample
    """Asked for after `state` was answered, so that it counts at least the steps of `state`."""
    version: int
    """The newest control version known at the sample."""

    @property
    def is_idle(self) -> bool:
        """Whether the engine has no request at all."""
        return self.state.running == 0 and self.state.waiting == 0 and not self.sample.running


Looks = AsyncGenerator[Look | SpecdeckError, None]
"""One look after the other; an engine that does not answer is an error among them."""


async def poll(
    client: EngineClient,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> Looks:
    """Asks the engine ten times a second, for ever."""
    while True:
        try:
            state = await client.state()
            sample = await read_page(await client.page(), t=0.0, at=clock())
            look = Look(state, sample, state.version)
        except SpecdeckError as error:
            yield error
        else:
            yield look
        await sleep(POLL_S)


class ReadingFeed:
    """Makes looks of the readings of one engine that somebody takes anyway.

    A reading asks for page and state at once, so a look is the state of one reading with the
    page of the next.
    """

    def __init__(self) -> None:
        self._readings: asyncio.Queue[Reading] = asyncio.Queue()

    def push(self, reading: Reading) -> None:
        """Takes the next reading in."""
        self._readings.put_nowait(reading)

    async def looks(self) -> Looks:
        """Looks made of the readings that are pushed, for ever."""
        before: EngineState | None = None
        while True:
            reading = await self._readings.get()
            if reading.sample is None or reading.state is None:
                before, error = None, reading.error or reading.control_error
                if error is not None:
                    yield error
                continue
            if before is not None:
                yield Look(before, reading.sample, reading.state.version)
            before = reading.state


async def make_change(
    client: ChangeClient,
    change: Change,
    *,
    name: str,
    known: EngineState,
    looks: Looks,
    audit: Audit,
    clock: Callable[[], float] = time.monotonic,
    wall: Callable[[], float] = time.time,
    known_t: float | None = None,
    timeout_s: float = TIMEOUT_S,
    idle_s: float = TIMEOUT_S,
) -> AsyncGenerator[ChangeEvent, None]:
    """Asks for `change`, writes it into the audit log, and looks until the counters show it.

    `name` is what people call the engine, and `known` its latest state from before the change,
    which it told at `known_t`, Unix seconds; None is now.
    `looks` are of the same engine and by the same `clock`, and are asked for once it is applied.
    An engine that stays idle for `idle_s` ends the looking, and so do `timeout_s` seconds.
    Where the reply is lost, or the engine core lets the engine wait, the engine's next states tell
    whether the change was applied. Raises
    SpecdeckError when the engine refuses the change or cannot be asked; once it is applied,
    nothing raises. Whoever stops in between leaves the change applied and in the audit
    log, without an observed value.
    """
    record = ChangeRecord(audit, change, client.url, name, wall)
    known_t = wall() if known_t is None else known_t
    yield ChangeRequested(change)
    record.ask({knob: getattr(known, knob) for knob in change.knobs() if knob in KNOBS},
               instance=known.instance)  # fmt: skip
    requested_at = clock()
    try:
        applied = await _ask(client, change, known, looks, clock)
    except SpecdeckError as error:
        record.fail(error)
        raise
    applied_at = clock()
    failure = record.add(applied, instance=known.instance)
    ack_ms = (applied_at - requested_at) * 1e3
    yield ChangeApplied(change, applied, ack_ms, record.undo(applied), find_wait(known, applied))
    if failure is not None:
        yield failure
    proof = Proof(known, applied, requested_at=requested_at, applied_at=applied_at, known_t=known_t,
                  timeout_s=timeout_s, idle_s=idle_s,
                  lease_s=None if change.judge else change.lease_s,
                  is_held=change.breaker == "open" and not change.probe)  # fmt: skip
    end = await _follow(proof, looks, clock)
    if isinstance(end, ChangeObserved):
        record.add_observed(end.k)  # what fails now failed at the change, or will be seen there
    if end.is_contradicted if isinstance(end, ChangeObserved) else end.is_undone:
        record.deny()
    yield end


async def _ask(
    client: ChangeClient,
    change: Change,
    known: EngineState,
    looks: Looks,
    clock: Callable[[], float],
) -> AppliedChange:
    """The engine's word on `change`, also where its reply was lost."""
    try:
        applied = await client.put(change)
        _require_answer(client.url, change, applied)
        return applied
    except SpecdeckError as error:
        if is_refusal(error):
            raise
        patience_s = LOST_S if isinstance(error, NoReply | Stalled) else ANSWERED_S
        until = clock() + patience_s
        found = await _find_outcome(change, known, looks, until=until, clock=clock)
        if found is None:
            raise
        return found


def _require_answer(url: str, change: Change, applied: AppliedChange) -> None:
    """Raises NotAnEngine where the engine's word is of another change than was asked for.

    A judged trial begins without what it tries.
    """
    if change.judge:
        return
    for name, asked in change.knobs().items():
        found = applied.applied.get(name)
        wanted = _IN_FORCE.get(asked, asked)
        if name not in applied.applied or found != wanted:
            said = "does not tell" if found is None else f"has {name}={format_value(found)} as"
            raise NotAnEngine(
                f"{url} was asked for {name}={asked}, and {said} what it made of it",
                remedy="look at its state: the change may have been made",
            )


_IN_FORCE: dict[object, object] = {"probe": "open", "none": None}
"""What is in force after words that are no value of the knob: of the breaker, and a parameter."""


async def _find_outcome(
    change: Change, known: EngineState, looks: Looks, *, until: float, clock: Callable[[], float]
) -> AppliedChange | None:
    """The engine's word on a change whose reply was lost; None where it tells of none in time.

    It was applied if the engine's last change is this one: the same knobs, by the same person,
    in a version of after it was asked for.
    """
    async for look in looks:
        if isinstance(look, Look):
            if look.state.instance != known.instance:
                return None  # the engine forgot it
            if (last := look.state.last_change) and is_made(change, known.version, look.state):
                return replace(as_applied(last, change, look.state), notices=(LOST,))
        elif isinstance(look, Unauthorized | Unsupported):
            return None
        if clock() >= until:
            return None
    return None


def as_applied(last: LastChange, change: Change, state: EngineState) -> AppliedChange:
    """What the engine says of `change`, which it made as its `last` one and did not answer.

    Of all its knobs those that were asked for, or that moved with them.
    """
    asked, was, present = change.knobs(), last.before, last.after
    names = [name for name in present if name in asked or was.get(name) != present[name]]
    before = {name: was[name] for name in names if name in was}
    applied = {name: present[name] for name in names}
    return AppliedChange(
        before, applied, state.version, state.step, undo=last.undo, instance=state.instance
    )


def is_made(change: Change, version: int, state: EngineState) -> bool:
    """Whether the engine's last change is the one that was asked of it at that version.

    By the same person, with the same knobs: a plugin does not tell requests apart.
    """
    asked, last = change.knobs(), state.last_change
    if last is None or state.version <= version or last.who != (change.who or ""):
        return False
    present = last.after
    return bool(asked) and all(
        name in present and present[name] == _IN_FORCE.get(value, value)
        for name, value in asked.items()
    )


async def _follow(
    proof: Proof, looks: Looks, clock: Callable[[], float]
) -> ChangeObserved | ChangeNotObserved:
    async with aclosing(looks):
        async for look in looks:
            end = proof.take(look) if isinstance(look, Look) else proof.miss(look, clock())
            if end is not None:
                return end
    return ChangeNotObserved("unreachable")


def find_wait(known: EngineState, applied: AppliedChange) -> WaitsFor | None:
    """What the k of a change waits for; None where it is in force at once, or there is none."""
    if applied.applied.get("k") is None:
        return None
    return find_hold(
        str(applied.applied.get("mode", known.mode)), applied.applied.get("breaker", known.breaker)
    )


def find_hold(mode: str, breaker: object) -> WaitsFor | None:
    """What holds back whatever k there is; None where it is in force."""
    if mode == "target-only":
        return "speculation"
    return "breaker" if breaker == "open" else None


def read_knobs(state: EngineState, names: Iterable[str]) -> dict[str, Any]:
    """Those of the named knobs that a state holds still, as `state` has them."""
    return {name: getattr(state, _STATED[name]) for name in names if name in _STATED}


def is_only_k(applied: AppliedChange) -> bool:
    """Whether a change is of the k that is set, and of nothing that is in force without it."""
    return set(applied.applied) - {"policy"} == {"k"}


def describe_wait(waits_for: WaitsFor) -> str:
    """When a k that is stored takes effect.

    >>> describe_wait("breaker")
    'it takes effect when the breaker closes'
    """
    when = {"speculation": "speculation is back", "breaker": "the breaker closes"}[waits_for]
    return f"it takes effect when {when}"


def expected_k(state: EngineState) -> float | None:
    """The k that the counters should show in `state`; None where a policy or breaker moves it."""
    if state.breaker == "closed" or state.mode == "target-only":
        return highest_k(state)
    return 0.0 if state.breaker == "open" else None


def highest_k(state: EngineState) -> float | None:
    """The k that no draft exceeds in `state`, whatever the breaker does and whichever requests
    have a k of their own, which cuts drafts and never lengthens them; None where a policy moves it.
    """
    return limit_drafts(read_knobs(state, _STATED))


def limit_drafts(knobs: Mapping[str, Any]) -> float | None:
    """The k that no draft exceeds with `knobs` in force; None where a policy moves it, or too
    little is known of them.

    >>> limit_drafts({"mode": "target-only"}), limit_drafts({"k": 3, "policy": "fixed"})
    (0.0, 3.0)
    >>> limit_drafts({"k": 3, "policy": "goodput"}), limit_drafts({"fallback": "cold"})
    (None, None)
    """
    if knobs.get("mode") == "target-only":
        return 0.0
    k = knobs.get("k")
    return float(k) if isinstance(k, int) and knobs.get("policy") == "fixed" else None


_STATED = {"k": "k_set", "mode": "mode", "fallback": "fallback", "policy": "policy"}
"""The fields of a state that a change sets for as long as its version stands; the breaker, which
may move by itself, is none of them."""


def find_other_knob(state: EngineState, knobs: Mapping[str, Any]) -> str | None:
    """The first of `knobs` that `state` has otherwise, with the value that it has; None without.

    Of the breaker and of parameters, which a state does not hold still or does not tell, nothing.
    """
    for name, field_name in _STATED.items():
        wanted = knobs.get(name)
        if wanted is not None and (found := getattr(state, field_name)) != wanted:
            return f"{name}={found}"
    return None


@dataclass(slots=True)
class Proof:
    """Finds the windows that lie wholly after a change, and what they agree upon.

    Pure: it is fed with looks and keeps no time of its own.
    """

    known: EngineState
    """From before the change."""
    applied: AppliedChange
    requested_at: float
    """By the clock of the looks' samples, seconds; so are all times."""
    applied_at: float
    known_t: float = -math.inf
    """Unix time at which `known` was told, seconds."""
    timeout_s: float = TIMEOUT_S
    idle_s: float = TIMEOUT_S
    lease_s: float | None = None
    """After which the engine is to take the change back by itself; None where it stays."""
    is_held: bool = False
    """Whether the change opens the breaker for good, so that it does not move by itself."""

    _last: Look | None = None
    """Where the next window opens; the first one is of a step that obeys the change."""
    _windows: list[Window] = field(default_factory=list)
    """Those in which the engine worked, none of them overlapping."""
    _undrafted: Undrafted = field(default_factory=Undrafted)
    """What shows that nothing is drafted, where that is to be shown."""
    _idle: bool = False
    _worked_at: float | None = None
    """When the latest of the windows ended."""
    _answered_at: float | None = None
    _observed: float | None = None
    _seen_at: float | None = None
    _stated: EngineState | None = None
    """The latest of the change's own version."""
    _has_turned: bool = False
    """Whether a state of that version had the breaker as the change sets it."""

    def take(self, look: Look) -> ChangeObserved | ChangeNotObserved | None:
        """The end of the proof, where `look` brings it."""
        now = look.sample.at
        self._idle, self._answered_at = look.is_idle, now
        if self._is_of_another(look):
            return ChangeNotObserved("another_engine")
        if look.state.instance != self.known.instance or self._is_restarted(look.sample):
            return ChangeNotObserved("restarted")
        if look.version > self.applied.version:
            return self._find_successor(look.state)
        if look.state.version == self.applied.version:
            self._stated = look.state
            if self._has_run_out_unseen(look):
                return ChangeNotObserved("lease_ended", back=self.applied.applied)
            if (other := self._find_contradiction(look.state)) is not None:
                return ChangeNotObserved("contradicted", state=other)
        if self._is_settled(look):
            return self._conclude()
        since = self.applied_at if self._worked_at is None else self._worked_at
        idle = self._idle and self._observed is None and now - since >= self.idle_s
        return self._average() if idle or now >= self.applied_at + self.timeout_s else None

    def miss(self, error: SpecdeckError, at: float) -> ChangeNotObserved | None:
        """The end of the proof, where `error` is no passing silence, or one that lasts."""
        since = self.applied_at if self._answered_at is None else self._answered_at
        if isinstance(error, Unreachable) and at - since < SILENCE_S:
            return None
        return ChangeNotObserved("unreachable", error)

    def _find_successor(self, state: EngineState) -> ChangeNotObserved | None:
        """The end of the proof by a newer version: somebody's change, or the end of the lease.

        None where `state` is from before it, and the next one tells which it is.
        """
        if self.lease_s is None:
            return ChangeNotObserved("superseded")
        if state.version <= self.applied.version:
            return None
        last, before = state.last_change, self.applied.before
        if last is not None and last.origin == "lease":
            back = {name: last.after.get(name, before.get(name)) for name in self.applied.applied}
            return ChangeNotObserved("lease_ended", back=back)
        return ChangeNotObserved("superseded", lease_left_s=self._find_lease_left(state))

    def _find_lease_left(self, state: EngineState) -> float | None:
        """Seconds until the lease of the change ends; None without one, whoever else has one."""
        return None if self.lease_s is None or state.lease is None else state.lease.seconds_left

    def _has_run_out_unseen(self, look: Look) -> bool:
        """Whether the lease is over of a change to what was in force before: taking it back makes
        no version."""
        if self.lease_s is None or look.state.lease is not None:
            return False
        is_over = look.sample.at >= self.requested_at + self.lease_s
        return is_over and self.applied.before == self.applied.applied

    def _find_contradiction(self, state: EngineState) -> str | None:
        """What the state of the acknowledged version has in place of the change."""
        if self.lease_s is not None and state.lease is None:
            return "no lease"
        if (knob := find_other_knob(state, self.applied.applied)) is not None:
            return knob
        other = self._find_other_breaker(state)
        self._has_turned |= other is None
        is_unmoved = not self._has_turned and state.step < self.applied.step + _UNMOVED_STEPS
        return other if self.is_held or is_unmoved else None

    def _find_other_breaker(self, state: EngineState | None) -> str | None:
        """The breaker of `state` where the change sets it otherwise."""
        wanted = self.applied.applied.get("breaker")
        if wanted is None or state is None or state.breaker == wanted:
            return None
        return f"breaker={state.breaker}"

    @property
    def _in_force(self) -> EngineState:
        """What is known to be in force since the change: its state, else what it left."""
        if self._stated is not None:
            return self._stated
        turned = {
            field_name: value
            for name, field_name in (*_STATED.items(), ("breaker", "breaker"))
            if (value := self.applied.applied.get(name)) is not None
        }
        return replace(self.known, **turned)

    def _is_of_another(self, look: Look) -> bool:
        """Whether the look is of an engine that is another than the one that made the change, or
        than the one that was known before it, and no restart of that one."""
        if look.state.instance != self.known.instance:
            return look.state.is_older_than(self.known_t)
        return self.applied.instance not in (None, self.known.instance)

    def _is_restarted(self, sample: Sample) -> bool:
        return self._last is not None and has_restarted(self._last.sample, sample)

    def _is_settled(self, look: Look) -> bool:
        if self._last is None:
            if look.state.step >= self.applied.step + STEPS_IN_FLIGHT:
                self._last = look
            return False
        before, at = self._last, look.sample.at
        window = between(before.sample, look.sample)
        if window is None or not (window.generated or window.drafts):
            return False
        self._last, self._worked_at = look, at
        self._windows.append(window)
        if self._expected == 0.0 and window.drafts == 0:
            self._undrafted.add(window, before.state, look.state, at)
            return self._is_undrafted(SETTLED_S)
        return self._agrees(window, at)

    def _is_undrafted(self, least_s: float) -> bool:
        """Whether tokens of `least_s` seconds show that nothing is drafted, which is noted then."""
        shown = self._undrafted
        if shown.since is None or not shown.tokens > 0 or shown.seconds < least_s:
            return False
        self._observed, self._seen_at = 0.0, shown.since
        return True

    def _agrees(self, window: Window, at: float) -> bool:
        """Whether the latest window says what k is, alone or with those before it."""
        expected, drafted = self._expected, window.draft_tokens_per_draft
        if drafted is None:
            return self._lacks_counter and self._watched_s >= SETTLED_S
        before, self._observed = self._observed, drafted
        if drafted != before:
            self._seen_at = at
        if self._most == 0.0:  # tokens without drafts before these show nothing
            self._undrafted = Undrafted()
        if expected is not None and abs(drafted - expected) < 0.05:
            return True
        if drafted == before and expected is None:
            return True
        if self._watched_s < SETTLED_S:
            return False
        self._average()
        return self._watched_s >= CONTRADICTED_S or not exceeds(self._observed, self._most)

    @property
    def _expected(self) -> float | None:
        # That a breaker is open is no proof of its reset.
        is_reset = self.applied.applied.get("breaker") == "closed"
        return highest_k(self._in_force) if is_reset else expected_k(self._in_force)

    @property
    def _most(self) -> float | None:
        """The k that no draft exceeds, whatever moves by itself."""
        return 0.0 if self.is_held else highest_k(self._in_force)

    @property
    def _lacks_counter(self) -> bool:
        """Whether no window tells how much was drafted, not even that it was nothing."""
        return bool(self._windows) and not any(window.tells_drafts for window in self._windows)

    @property
    def _watched_s(self) -> float:
        """Seconds in which the engine worked, but for the first window: it may lie across the
        last steps before the change."""
        return sum(window.seconds for window in self._windows[1:])

    def _average(self) -> ChangeObserved | ChangeNotObserved:
        """What the latest windows say together: they did not agree, or time is up.

        The first one may lie across the change.
        """
        seconds, drafts, drafted, is_told = 0.0, 0.0, 0.0, False
        for window in reversed(self._windows[1:]):
            if seconds >= SETTLED_S:
                break
            seconds += window.seconds
            if window.tells_drafts:
                is_told = True
                drafts += window.drafts or 0.0
                drafted += window.drafted or 0.0
        if drafts:
            self._observed = drafted / drafts
        elif is_told and self._expected == 0.0 and not self._is_undrafted(0.0):
            self._observed = None
        return self._conclude()

    def _conclude(self) -> ChangeObserved | ChangeNotObserved:
        stated, most = self._stated, self._most
        left = None if stated is None else self._find_lease_left(stated)
        if self._observed is not None and self._seen_at is not None:
            after_ms = (self._seen_at - self.requested_at) * 1e3
            return ChangeObserved(self._observed, after_ms, most, lease_left_s=left)
        if stated is not None and most is not None and stated.k > most:
            return ChangeNotObserved("contradicted", state=f"k={stated.k}")
        reason: Unobserved = "no_draft"
        if self._lacks_counter:
            reason = "no_counter"
        elif self._idle and not self._windows:
            reason = "no_traffic"
        elif self._undrafted.since is not None:
            reason = "no_chance"
        other = self._find_other_breaker(stated)
        return ChangeNotObserved(reason, state=other, lease_left_s=left)
