"""A control over a fake engine core, and the clock that both go by."""

from __future__ import annotations

import pytest
from tests.support.engine_core import Clock, FakeCore, make_control

from specdeck.engine.plugin.control import Control


@pytest.fixture
def engine() -> FakeCore:
    """A core that drafts with a model and runs no policy."""
    return FakeCore()


@pytest.fixture
def clock() -> Clock:
    """A clock that stands at 100 s."""
    return Clock()


@pytest.fixture
def control(engine: FakeCore, clock: Clock) -> Control:
    """The control over `engine`."""
    return make_control(engine, clock)
