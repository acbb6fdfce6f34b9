"""The console in a pseudo-terminal, on engines that lie, while somebody presses keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hostile.busy_engine import BusyEngine
from tests.hostile.judge import KEY, KEY_VARIABLE, SECRETS, TOKEN, files_under
from tests.hostile.lies import (
    COMPLETIONS,
    CONTROL,
    DEEP,
    ESCAPES,
    FACTS,
    METRICS,
    MODELS,
    STATE,
    TUNING,
    VERSION,
)
from tests.support.command import Command
from tests.support.engine_state import engine_state
from tests.support.lying_engine import Lie, LyingEngine, drip, hang, reply
from tests.support.pages import recorded_page
from tests.support.terminal import Terminal
from tests.support.tuned_engine import tuning

STEERING = ("\x1b]52", "\x1b]0;", "\x1b[31m", "\x9b", "\x9d", "\x85", "\u202e")
"""What begins the planted sequences; the console itself writes none of them."""
HELP = "Draft one more token per round."
PATIENCE_S = 60.0
"""On a busy machine; a quiet one needs a second."""
KEYS = ("u", "f", "d", "-", "t", "p", "\x1b", "l")
"""Every screen, two changes, and a list."""


def plant(value: Any) -> Any:
    """The same with the escapes in place of every text."""
    if isinstance(value, str):
        return ESCAPES
    if isinstance(value, dict):
        return {name: plant(one) for name, one in value.items()}
    return [plant(one) for one in value] if isinstance(value, list) else value


def escapes() -> dict[str, Lie]:
    """Texts that a terminal would obey, wherever there is a text."""
    state = engine_state().as_json()
    able = [{"name": name, "available": True} for name in ("live_k", "target_only")]
    held = {"name": "breaker", "available": False, "reason": ESCAPES, "remedy": ESCAPES}
    changed = {"t": 1.0, "who": ESCAPES, "reason": ESCAPES, "before": {"k": 5}, "after": {"k": 3}}
    page = recorded_page("speculative").replace("demo", ESCAPES.replace("\n", ""))
    facts = {
        "facts": {"engine": {ESCAPES: ESCAPES}}, "names": {"build": ESCAPES, "path": ESCAPES},
        "partial": [{"fact": ESCAPES, "reason": ESCAPES}], "progress": {"finished": True},
    }  # fmt: skip
    return {
        STATE: reply(
            {
                **state, "model": ESCAPES, "method": ESCAPES, "vllm": ESCAPES, "alarm": ESCAPES,
                "policy": ESCAPES, "policy_reason": ESCAPES, "fingerprint": ESCAPES,
                "capabilities": [*able, held], "last_change": changed,
            }
        ),
        METRICS: reply(page.encode()),
        FACTS: reply(facts),
        TUNING: reply(plant(tuning().as_json())),
        VERSION: reply({"version": ESCAPES}),
        MODELS: reply({"data": [{"id": ESCAPES}]}),
        CONTROL: reply(
            {"before": {"k": 5, ESCAPES: ESCAPES}, "applied": {"k": 3, "policy": ESCAPES},
             "version": 2, "step": 9, "notices": [ESCAPES]}
        ),
        COMPLETIONS: reply(
            {"choices": [{"text": ESCAPES, "token_ids": [1], "finish_reason": "stop"}]}
        ),
    }  # fmt: skip


def refusals() -> dict[str, Lie]:
    """Errors in words that a terminal would obey."""
    body = {"error": {"code": ESCAPES, "message": ESCAPES, "remedy": ESCAPES}}
    return everywhere(reply(body, status=501))


def strange_types() -> dict[str, Lie]:
    """Every value is something else."""
    state = engine_state().as_json()
    other = {name: [name] if isinstance(state[name], str | int) else 3 for name in state}
    return {
        STATE: reply(other), TUNING: reply({"policy": 3, "k": "x"}), FACTS: reply({"names": 3}),
        CONTROL: reply({"before": 3, "applied": [1], "version": "one"}), MODELS: reply({"data": 3}),
    }  # fmt: skip


def everywhere(lie: Lie) -> dict[str, Lie]:
    """The lie in place of every answer but two, without which no console stays."""
    return dict.fromkeys((STATE, TUNING, CONTROL, FACTS, MODELS, COMPLETIONS), lie)


LIARS: dict[str, Callable[[], dict[str, Lie]]] = {
    "escapes": escapes,
    "refusals": refusals,
    "other types": strange_types,
    "deep answers": lambda: everywhere(reply(DEEP)),
    "silence": lambda: everywhere(hang()),
    "a drip": lambda: everywhere(drip(reply(b" " * 9999), every_s=0.2)),
}


@pytest.fixture(params=list(LIARS.values()), ids=list(LIARS))
def liar(request: pytest.FixtureRequest) -> Iterator[LyingEngine]:
    """An engine that lies in one way."""
    with LyingEngine(request.param(), honest=BusyEngine().answer) as engine:
        yield engine


def test_a_console_survives_a_liar(liar: LyingEngine, tmp_path: Path) -> None:
    command = Command(tmp_path, SECRETS)
    words = command.line("attach", liar.url, "--control", "--api-key-env", KEY_VARIABLE)
    terminal = Terminal(words, command.environment)
    try:
        terminal.until(lambda text: "● up" in text, PATIENCE_S)
        for key in KEYS:
            terminal.press(key)
            terminal.drain(0.2)
        terminal.press("\x1b")
        terminal.drain(0.2)
        terminal.press("?")
        terminal.until(lambda text: HELP in text, PATIENCE_S)
        terminal.press("q")
        terminal.until(lambda text: HELP not in text, PATIENCE_S)
        terminal.press("q")
        assert terminal.wait(PATIENCE_S) == 0
        assert terminal.is_restored()
    finally:
        terminal.close()
    drawn = terminal.raw.decode("utf-8", "replace")
    for steering in STEERING:
        assert steering not in drawn, ascii(drawn[drawn.index(steering) :][:80])
    for secret in (TOKEN.encode(), KEY.encode()):
        assert secret not in terminal.raw
        for path in files_under(tmp_path):
            assert secret not in path.read_bytes(), path
