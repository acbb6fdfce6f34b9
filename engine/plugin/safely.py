"""Keeps a failure of specdeck from becoming one of the engine it sits in."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

logger = logging.getLogger("vllm.specdeck")


class Safely:
    """Calls what it is given until one call fails; then logs why and calls nothing more.

    For work inside the engine core's loop, where an exception ends every request.

    >>> safely = Safely("counting")
    >>> logger.disabled = True
    >>> safely(lambda: 1 / 0)
    >>> safely(print, "not called")
    >>> logger.disabled = False
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self.failed = False

    def __call__(self, work: Callable[..., object], *args: Any) -> None:
        if self.failed:
            return
        try:
            work(*args)
        except Exception:
            self.failed = True
            logger.exception("specdeck gives up %s; the engine goes on", self._what)
