from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.support.engine_state import engine_state
from tests.support.pages import recorded_page

from specdeck.engine.protocol.messages import EngineState


@pytest.fixture(scope="session")
def page() -> Callable[[str], str]:
    """Pages of real engines, by name."""
    return recorded_page


@pytest.fixture(scope="session")
def two_engines() -> Callable[[str], str]:
    """A page as two data-parallel engines would write it: each series once for either."""

    def doubled(text: str) -> str:
        blocks: list[list[str]] = []
        for line in text.splitlines():
            if line.startswith("#") != bool(blocks and blocks[-1][0].startswith("#")) or not blocks:
                blocks.append([])
            blocks[-1].append(line)
        for block in blocks:
            block += [
                line.replace('engine="0"', 'engine="1"') for line in block if 'engine="0"' in line
            ]
        return "\n".join(line for block in blocks for line in block) + "\n"

    return doubled


@pytest.fixture(scope="session")
def state() -> Callable[..., EngineState]:
    """An engine's state, with what a test cares about put in."""
    return engine_state
