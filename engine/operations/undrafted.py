"""Evidence that an engine drafts nothing: tokens that a draft could have brought, and did not."""

from __future__ import annotations

from dataclasses import dataclass

from specdeck.engine.metrics.window import Window
from specdeck.engine.protocol.messages import STEPS_IN_FLIGHT, EngineState

_UNSEEN_STEPS = 2 * STEPS_IN_FLIGHT
"""Steps between a state and the page that was asked for after it, on either end."""


@dataclass(slots=True)
class Undrafted:
    """Adds up windows without a single draft.

    No window shows by itself that nothing is drafted. A request's first token is of its prompt on
    every engine; at the model's length its last one leaves a draft no room (`schedule` in
    vllm:v1/core/sched/scheduler.py); one with a k of its own of 0 gets a token a step without a
    draft; and n-gram drafters find nothing for some steps.
    """

    since: float | None = None
    """When the first of the windows ended, by the clock of the looks, seconds."""
    seconds: float = 0.0
    """Of all windows together."""
    _tokens: float = 0.0
    """Those that were neither the first nor the last of a request."""
    _running: float = 0.0
    """The most requests at once: those of them that have ended since began before."""
    _pinned: float = 0.0
    """The same of those with a k of their own."""
    _steps: tuple[int, int] | None = None
    """The engine's first and last."""

    def add(self, window: Window, before: EngineState, after: EngineState, at: float) -> None:
        """Takes in a window that ended at `at`; the states were told before its two samples."""
        if self.since is None:
            self.since = at
        self.seconds += window.seconds
        starts = 0.0 if window.ttft is None else window.ttft.total
        self._tokens += (window.generated or 0.0) - 2 * starts
        self._running = max(self._running, before.running, after.running)
        self._pinned = max(self._pinned, before.pinned, after.pinned)
        first = before.step if self._steps is None else self._steps[0]
        self._steps = first, after.step

    @property
    def tokens(self) -> float:
        """Those that requests without a k of their own have had beyond their first and last, at
        the least; not above 0 where there may be none."""
        if self._steps is None:
            return 0.0
        steps = self._steps[1] - self._steps[0] + _UNSEEN_STEPS
        return self._tokens - self._running - self._pinned * steps
