"""A standard output whose reader has gone, as behind `| head -c 0`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def unread_stdout(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Has what is printed within go to a pipe that nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w", encoding="utf-8") as stream, monkeypatch.context() as patch:
        patch.setattr("sys.stdout", stream)
        yield
