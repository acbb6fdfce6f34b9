"""What both arms are asked."""

from __future__ import annotations

from typing import Any

import pytest

from specdeck.engine.divergence import request
from specdeck.engine.divergence.prompts import Prompt
from specdeck.engine.divergence.request import Settings

PROMPTS: list[dict[str, Any]] = [
    {"prompt": "a"},
    {"messages": [{"role": "user", "content": "a"}]},
]
NEUTRAL = {"repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}


@pytest.mark.parametrize("body", PROMPTS)
@pytest.mark.parametrize("pin", [None, 0])
@pytest.mark.parametrize("stream", [False, True])
def test_no_penalty_of_the_server_stands_between_a_token_and_its_logprob(
    body: dict[str, Any], pin: int | None, stream: bool
) -> None:
    asked = request.body(Prompt(1, 1, body), Settings(), model="m", pin=pin, stream=stream)
    assert {name: asked.get(name) for name in NEUTRAL} == NEUTRAL


def test_draws_are_made_as_the_server_would_make_them() -> None:
    asked = request.sampled(
        Prompt(1, 1, PROMPTS[0]), model="m", pin=None, n=8, tokens=4, temperature=1.0
    )
    assert not set(NEUTRAL) & set(asked)
