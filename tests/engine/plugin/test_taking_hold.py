"""How the plugin takes hold of an engine core."""

import json
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from specdeck.engine.plugin import control as plugin_control


def test_a_core_that_could_not_be_taken_hold_of_is_not_wrapped_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tried = []

    def over(core: Any) -> Any:
        tried.append(core)
        raise RuntimeError("a worker is gone")

    monkeypatch.setattr(plugin_control.Control, "over", over)
    monkeypatch.setattr(logging.getLogger("vllm"), "propagate", True)
    engine = SimpleNamespace()
    answers = [json.loads(plugin_control.answer_call(engine, "state", "null")) for _ in range(3)]
    assert len(tried) == 1
    assert all(answer["status"] == 500 for answer in answers)
    assert "a worker is gone" in answers[0]["error"]["message"]
    assert "could not start" in answers[2]["error"]["message"]
    # Anybody may look 20 times a second, and each traceback has a kilobyte.
    assert caplog.text.count("Traceback") == 1
