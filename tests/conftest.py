"""Real engines for tests/live and tests/gpu.

One on the CPU serves a whole session; a test that asks for none starts none.
"""

import random
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import httpx
import pytest
from hypothesis import HealthCheck, settings

from specdeck.engine.client import secret
from tests.support.command import Command
from tests.support.live_engine import LIMITS, Driver, LiveEngine
from tests.support.terminal import Terminal

StartTerminal = Callable[..., Terminal]

# How fast a shared machine answers is no property of what is tested.
settings.register_profile("shared", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("fuzz", settings.get_profile("shared"), max_examples=5_000)
settings.load_profile("shared")


def pytest_configure() -> None:
    # Under nohup commands rightly go on at a hangup, and the tests of hangups wait for their end.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for name in ("live", "gpu", "hostile"):
            if Path(__file__).parent / name in item.path.parents:
                item.add_marker(name)


@pytest.fixture(autouse=True)
def _secrets_of_this_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process hides its secrets for as long as it lives, and a test's own end with the test."""
    monkeypatch.setattr(secret, "_texts", set(secret._texts))


@pytest.fixture(scope="session")
def specdeck(tmp_path_factory: pytest.TempPathFactory) -> Command:
    """The command, with a home for the session."""
    return Command(tmp_path_factory.mktemp("specdeck-home"))


@pytest.fixture(scope="session")
def engine(specdeck: Command) -> Iterator[LiveEngine]:
    """The engine of the session; a test that ends one takes its own."""
    started = LiveEngine.start(specdeck)
    yield started
    started.stop()


@pytest.fixture
async def driver(engine: LiveEngine) -> AsyncIterator[Driver]:
    """A driver of an engine that drafts k_max tokens, and does so again afterwards."""
    async with httpx.AsyncClient(base_url=engine.url, timeout=120, limits=LIMITS) as client:
        driver = Driver(client, engine.token)
        yield driver
        state = await driver.state()
        await driver.put(k=state["k_max"], mode="speculate", fallback="warm")


@pytest.fixture(scope="session")
def prompts() -> list[list[int]]:
    """Eight prompts of token ids; seeded, so that a failure can be repeated."""
    rng = random.Random(20)
    return [[rng.randrange(300, 1900) for _ in range(rng.randrange(8, 40))] for _ in range(8)]


@pytest.fixture
def terminal(specdeck: Command) -> Iterator[StartTerminal]:
    """Starts `specdeck ARGUMENTS` in a terminal of its own."""
    opened: list[Terminal] = []

    def start(*arguments: str, size: str = "120x40") -> Terminal:
        opened.append(Terminal(specdeck.line(*arguments), specdeck.environment, size))
        return opened[-1]

    yield start
    for one in opened:
        one.close()
