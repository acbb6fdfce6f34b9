"""The real console on a real engine, in a real terminal."""

import asyncio
import json
import re
from collections.abc import AsyncIterator

import pytest
from tests.conftest import StartTerminal
from tests.support.live_engine import Driver, LiveEngine, Prompts
from tests.support.terminal import Terminal


@pytest.fixture
async def traffic(driver: Driver, prompts: Prompts) -> AsyncIterator[None]:
    """Four requests at a time."""
    async with driver.bursts(prompts[:4]):
        yield


async def on_screen(terminal: Terminal, pattern: str) -> str:
    """The screen once `pattern` is on it, while the test's own requests go on."""
    return await asyncio.to_thread(terminal.until, lambda text: re.search(pattern, text))


async def in_audit_log(engine: LiveEngine, after: dict[str, object], observed: float) -> None:
    """Wait for an entry of the audit log that says what the counters showed."""
    async with asyncio.timeout(60):
        while True:
            ran = await asyncio.to_thread(engine.specdeck, "set", engine.url, "--history", "--json")
            found = [entry for entry in json.loads(ran.stdout) if entry["after"] == after]
            if found and found[0]["observed_k"] == observed:
                return


async def test_an_operator_watches_steers_resizes_and_leaves(
    driver: Driver, engine: LiveEngine, terminal: StartTerminal, traffic: None
) -> None:
    k_max = (await driver.state())["k_max"]
    console = terminal("attach", engine.url, "--control")
    await on_screen(console, rf"observed {k_max}\.0")

    console.press("--")
    await on_screen(console, rf"observed {k_max - 2}\.0")
    await driver.until(lambda state: state["k"] == k_max - 2)
    await in_audit_log(engine, {"k": k_max - 2}, k_max - 2.0)

    console.press("t")
    # The footer has the word as well: the engine's state tells.
    await driver.until(lambda state: state["mode"] == "target-only")
    await on_screen(console, "target-only")
    console.press("t")
    await on_screen(console, rf"observed {k_max - 2}\.0")

    console.press("z")
    console.resize("80x24")
    await on_screen(console, "tok")
    console.resize("40x10")
    await asyncio.to_thread(console.drain, 1.0)
    assert console.process.poll() is None
    console.resize("120x40")
    await on_screen(console, "acceptance by position")

    console.press("?")
    await on_screen(console, "one more token")
    console.press("\x1b")
    # A key that comes with the escape would be read as Alt and that key.
    await asyncio.to_thread(console.until, lambda text: "one more token" not in text)
    console.press("q")
    assert await asyncio.to_thread(console.wait) == 0
    assert console.is_restored()


async def test_attach_is_read_only_until_armed(
    driver: Driver, engine: LiveEngine, terminal: StartTerminal, traffic: None
) -> None:
    before = await driver.state()
    console = terminal("attach", engine.url)
    await on_screen(console, "read-only")
    await on_screen(console, rf"observed {before['k_max']}\.0")
    console.press("-")
    await on_screen(console, "press c to arm")
    assert (await driver.state())["version"] == before["version"]
    console.press("c")
    await on_screen(console, "Arm control of")
    console.press("a")
    await on_screen(console, "control armed")
    console.press("-")
    await on_screen(console, rf"observed {before['k_max'] - 1}\.0")
    console.press("q")
    assert await asyncio.to_thread(console.wait) == 0


async def test_a_console_that_is_terminated_restores_the_terminal(
    engine: LiveEngine, terminal: StartTerminal
) -> None:
    console = terminal("attach", engine.url, size="80x24")
    await on_screen(console, "read-only")
    console.process.terminate()
    await asyncio.to_thread(console.wait)
    assert console.is_restored()
