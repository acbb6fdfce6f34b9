"""What an engine that was started to compare with has to have in common with the other one."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from tests.support.fingerprints import Fingerprints

from specdeck.engine.client.engine_client import EngineClient, open_client
from specdeck.engine.errors import Unsupported
from specdeck.engine.operations.own_reference import refuse_another_target


def serve(url: str, **changed: Any) -> EngineClient:
    """An engine with these facts."""
    seen = Fingerprints().seen(**changed)
    reply: dict[str, Any] = {
        "names": {"build": seen.build, "path": seen.path},
        "facts": seen.facts,
        "partial": [],
        "progress": {"finished": True},
        "system_fingerprint": None,
        "instance": "i",
    }

    def answer(request: httpx.Request) -> httpx.Response:
        assert request.url.path == "/v1/specdeck/facts"
        return httpx.Response(200, json=reply)

    return open_client(url, transport=httpx.MockTransport(answer))


async def refuse(**changed: Any) -> None:
    ours, theirs = serve("http://e:1"), serve("http://e:2", **changed)
    try:
        await refuse_another_target(ours, theirs, on_progress=lambda progress, stalled_s: None)
    finally:
        await ours.close()
        await theirs.close()


async def test_one_without_a_draft_is_compared_with() -> None:
    await refuse(model__draft={}, config__speculative={}, live__k=0)


async def test_one_of_files_that_were_replaced_since_is_refused() -> None:
    weights = {"model.safetensors": "e" * 64}
    with pytest.raises(Unsupported) as caught:
        await refuse(
            model__target__weights=weights, model__tokenizer__vocab="e" * 64, engine__vllm="0.33.0"
        )
    assert caught.value.line() == (
        "what http://e:1 was started from is another target by now (engine.vllm: 0.32.0 → 0.33.0, "
        "model.target.weights.model.safetensors: aaaaaaaaaaaa… → eeeeeeeeeeee… and 1 fact more), "
        "so the difference would not be that of speculation: put it back as it was, restart the "
        "engine, or give --reference URL"
    )
