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

    def __init__(self, what: str, *, otherwise: Callable[[], object] = lambda: None) -> None:
        """`otherwise` is called after the failure, once."""
        self._what = what
        self._otherwise = otherwise
        self.failed = False

    def __call__(self, work: Callable[..., object], *args: Any) -> None:
        if self.failed:
            return
        try:
            work(*args)
        except Exception:
            self.failed = True
            logger.exception("specdeck gives up %s; the engine goes on", self._what)
            try:
                self._otherwise()
            except Exception:
                logger.exception("specdeck could not clean up; the engine goes on")
