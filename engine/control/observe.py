"""A change with its proof: asked for, acknowledged, and seen in the engine's own counters."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from specdeck.engine.control.protocol import KNOBS, Applied, Change, EngineState
from specdeck.engine.errors import EngineError, SpecdeckError
from specdeck.engine.metrics.page import parse
from specdeck.engine.metrics.sample import Sample
from specdeck.engine.metrics.window import Window, between, has_restarted

if TYPE_CHECKING:
    from specdeck.engine.client.engine_client import EngineClient

POLL_S = 0.1
PATIENCE_S = 20.0
"""How long a busy engine may take to show a change: one that is short of time needs seconds
for a step."""
IDLE_S = 1.0
"""How long an engine without a single request is watched before that is said."""

STEPS_IN_FLIGHT = 3
"""Steps after a change that may still verify drafts made before it: the drafts of one
step are verified in the next, and asynchronous scheduling runs two steps ahead."""

SETTLED_S = 1.0
"""Drafts of varying length (n-gram, the last tokens of a request) are averaged this long."""

NO_DRAFT = "not observed: no draft was verified in time after the change"
NO_TRAFFIC = "not observed: the engine generated nothing after the change"
LATER = "k takes effect when speculation is back on"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a change."""

    url: str
    requested: dict[str, Any]
    applied: dict[str, Any]
    """The engine's word."""
    before: dict[str, Any]
    ack_ms: float
    """From the request to the engine's word, milliseconds."""
    observed_k: float | None
    """Draft tokens per draft in steps after the change; 0 when tokens came without drafts."""
    observed_after_ms: float | None
    """From the request to the counters that show it, milliseconds."""
    notices: tuple[str, ...] = ()
    trial: dict[str, Any] | None = None
    """What became of a judged trial; None where none was asked for."""
    back: dict[str, Any] | None = None
    """What takes it back, where that is not `before`."""

    @property
    def undo(self) -> str:
        """The command that takes the change back."""
        return undo(self.url, self.before if self.back is None else self.back)

    def as_json(self) -> dict[str, Any]:
        """The keys of `set --json`."""
        after = self.observed_after_ms
        found = {
            "requested": self.requested,
            "applied": self.applied,
            "before": self.before,
            "ack_ms": round(self.ack_ms, 1),
            "observed_k": None if self.observed_k is None else round(self.observed_k, 3),
            "observed_after_ms": None if after is None else round(after),
            "undo": self.undo,
        }
        return found if self.trial is None else {**found, "trial": self.trial}


def back(applied: Applied) -> dict[str, Any]:
    """What takes a change back: the engine's own word for it, or the knobs as they were."""
    return applied.before if applied.undo is None else applied.undo


def undo(url: str, before: dict[str, Any]) -> str:
    """The command that brings the knobs in `before` back.

    >>> undo("http://gpu-1:8000", {"k": 5, "mode": "speculate"})
    'specdeck set http://gpu-1:8000 k=5 mode=speculate'
    >>> undo("http://gpu-1:8000", {"goodput.max_draft_length": None, "breaker": "closed"})
    'specdeck set http://gpu-1:8000 breaker=closed goodput.max_draft_length=none'
    """
    names = sorted(before, key=lambda name: (KNOBS.index(name) if name in KNOBS else 9, name))
    return " ".join(["specdeck set", url, *(f"{name}={spelled(before[name])}" for name in names)])


def spelled(value: object) -> str:
    """A value as `specdeck set` takes it.

    >>> spelled(None), spelled(True), spelled(0.5)
    ('none', 'true', '0.5')
    """
    if isinstance(value, bool):
        return str(value).lower()
    return "none" if value is None else str(value)


async def apply(
    client: EngineClient,
    change: Change,
    *,
    answered: Callable[[Applied], None] = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    timeout: float = PATIENCE_S,
) -> Outcome:
    """Asks for `change` and watches the counters until they show it, `timeout` s at most.

    `answered` hears the engine's word at once: the watching may be cut short. Raises
    SpecdeckError when the engine refuses the change or cannot be asked. Once it is applied
    nothing raises: what keeps it from being observed is a notice.
    """
    state = await client.state()
    asked_at = clock()
    applied = await client.put(change)
    acknowledged_at = clock()
    answered(applied)
    watch = _Watch(client, applied, expected=_expected(state, applied), clock=clock)
    notices = applied.notices
    if applied.applied.get("k") is not None and _mode(state, applied) == "target-only":
        notices += (LATER,)
    try:
        await watch.until_settled(sleep, acknowledged_at + timeout)
    except SpecdeckError as error:
        notices += (f"not observed: {error.line()}",)
    else:
        notices += (watch.reason,) if watch.reason else ()
    seen_at = watch.seen_at
    return Outcome(
        url=client.url,
        requested=change.asked(),
        applied=applied.applied,
        before=applied.before,
        ack_ms=(acknowledged_at - asked_at) * 1e3,
        observed_k=watch.observed,
        observed_after_ms=None if seen_at is None else (seen_at - asked_at) * 1e3,
        notices=notices,
        back=back(applied),
    )


def _mode(state: EngineState, applied: Applied) -> str:
    return str(applied.applied.get("mode", state.mode))


def _expected(state: EngineState, applied: Applied) -> float | None:
    """The k that the counters should show; None where a policy or the breaker moves it."""
    if _mode(state, applied) == "target-only":
        return 0.0
    breaker = applied.applied.get("breaker", state.breaker)
    if breaker != "closed":
        return 0.0 if breaker == "open" else None
    if applied.applied.get("policy", state.policy) != "fixed":
        return None
    return float(applied.applied.get("k", state.k_set))


class _Watch:
    """Looks at state and page until windows that lie wholly after the change agree."""

    def __init__(
        self,
        client: EngineClient,
        applied: Applied,
        *,
        expected: float | None,
        clock: Callable[[], float],
    ) -> None:
        self._client = client
        self._after = applied.step + STEPS_IN_FLIGHT
        self._expected = expected
        self._clock = clock
        self._last: Sample | None = None
        """Where the next window opens; the first one is of a step that obeys the change."""
        self._windows: list[Window] = []
        """Those in which the engine worked, none of them overlapping."""
        self._quiet = False
        self.observed: float | None = None
        self.seen_at: float | None = None
        self.reason: str | None = None
        """Why there is no observed figure; None where there is one."""

    async def until_settled(self, sleep: Callable[[float], Awaitable[None]], ends: float) -> None:
        started = self._clock()
        while not await self._settled():
            now = self._clock()
            idle = self._quiet and not self._windows and now - started >= IDLE_S
            if idle or now >= ends:
                self._conclude()
                return
            await sleep(POLL_S)

    async def _settled(self) -> bool:
        # The state first: a page asked for after it holds at least the steps it counts.
        state = await self._client.state()
        sample = parse(await self._client.page(), t=0.0, at=self._clock())
        self._quiet = state.running == 0 and state.waiting == 0 and not sample.running
        if self._last is None:
            self._last = sample if state.step >= self._after else None
            return False
        window = between(self._last, sample)
        if window is None and has_restarted(self._last, sample):
            raise EngineError("the engine was started anew")
        if window is None or not (window.generated or window.drafts):
            return False
        self._last = sample
        self._windows.append(window)
        return self._agreed(sample.at)

    def _agreed(self, at: float) -> bool:
        """Whether the latest window says what k is."""
        drafted = self._drafted(self._windows[-1])
        if drafted is None:
            return False
        before, self.observed = self.observed, drafted
        if drafted == before:
            return True
        self.seen_at = at
        if self._expected is not None and abs(drafted - self._expected) < 0.05:
            return True
        if sum(window.seconds for window in self._windows[1:]) < SETTLED_S:
            return False
        self._conclude()
        return True

    def _drafted(self, window: Window) -> float | None:
        """Draft tokens per draft; 0 where none is expected and tokens came without any."""
        if self._expected == 0.0 and window.generated and not window.drafts:
            return 0.0
        return window.draft_tokens_per_draft

    def _conclude(self) -> None:
        """Takes the average: windows did not agree, or time is up."""
        drafts = sum(window.drafts or 0.0 for window in self._windows[1:])
        drafted = sum(window.drafted or 0.0 for window in self._windows[1:])
        if drafts:
            self.observed = drafted / drafts
        if self.observed is None:
            idle = self._quiet and not self._windows
            self.reason = NO_TRAFFIC if idle else NO_DRAFT
