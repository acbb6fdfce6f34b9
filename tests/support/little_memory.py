"""A process whose limit (`ulimit -v`) leaves no room for SciPy, which is not imported yet."""

from __future__ import annotations

import resource
import sys

import pytest


def limit_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the end of the test."""
    monkeypatch.delitem(sys.modules, "scipy.special", raising=False)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (100 << 20, resource.RLIM_INFINITY))
