"""Keeps a failure of specdeck from becoming one of the engine it sits in."""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic
from typing import Any

logger = logging.getLogger("vllm.specdeck")

_PAUSE_S = 1.0
QUIET_S = 60.0
"""Between two failures that are logged."""


class DisableOnError:
    """Calls what it is given until one call fails; then logs why and calls nothing more.

    For work inside the engine core's loop, where an exception ends every request.

    >>> call = DisableOnError("counting")
    >>> logger.disabled = True
    >>> call(lambda: 1 / 0)
    >>> call(print, "not called")
    >>> logger.disabled = False
    """

    def __init__(self, what: str, *, on_failure: Callable[[], object] = lambda: None) -> None:
        """`on_failure` is called after the failure, once."""
        self._what = what
        self._on_failure = on_failure
        self.failed = False

    def __call__(self, work: Callable[..., object], *args: Any) -> None:
        if self.failed:
            return
        try:
            work(*args)
        except Exception:
            self.failed = True
            logger.exception("specdeck stops %s; the engine continues", self._what)
            try:
                self._on_failure()
            except Exception:
                logger.exception("specdeck could not clean up; the engine continues")


class RetryAfterError:
    """Calls what it is given, though not for a second after a call that failed.

    For what must be tried again, and neither hold every step up nor fill the log.

    >>> now = [0.0]
    >>> call = RetryAfterError("counting", clock=lambda: now[0])
    >>> logger.disabled = True
    >>> call(lambda: 1 / 0)
    >>> call(print, "not yet")
    >>> now[0] = 1.0
    >>> call(print, "again")
    again
    >>> logger.disabled = False
    """

    def __init__(self, what: str, *, clock: Callable[[], float] = monotonic) -> None:
        """`clock` gives seconds."""
        self._what = what
        self._clock = clock
        self._again: float | None = None
        """When it calls again; None as long as the last call did not fail."""
        self._logged: float | None = None

    def __call__(self, work: Callable[..., object], *args: Any) -> None:
        if self._again is not None:
            if self._clock() < self._again:
                return
            self._again = None
        try:
            work(*args)
        except Exception:
            if self._pause():
                words = "specdeck failed at %s and will try again; the engine continues"
                logger.exception(words, self._what)

    def _pause(self) -> bool:
        """Begins the pause after a failure; whether the log has not had one of late."""
        now = self._clock()
        self._again = now + _PAUSE_S
        if self._logged is not None and now - self._logged < QUIET_S:
            return False
        self._logged = now
        return True
