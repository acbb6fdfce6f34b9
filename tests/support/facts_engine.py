"""An engine over HTTP with facts and the names that follow from them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import httpx

from specdeck.engine.fingerprint.name import compute_names
from specdeck.engine.protocol.messages import PREFIX, Capability, EngineState
from tests.support.engine_state import engine_state
from tests.support.http_engine import HttpEngine


class FactsEngine(HttpEngine):
    """Names itself by its facts, with or without the plugin; can be away."""

    def __init__(self, facts: dict[str, Any], state: EngineState | None = None) -> None:
        super().__init__()
        self.answers |= {
            f"{PREFIX}/facts": self._tell_facts,
            f"{PREFIX}/state": self._tell_state,
            "/v1/completions": self._complete,
        }
        self.facts = facts
        self.k = 5
        self.plugin = True
        self.away = False
        self.system_fingerprint: str | None = "vllm-0.32.0-09d54272"
        self.partial: list[dict[str, str]] = []
        self.progress: list[dict[str, Any]] = [{"finished": True}]
        """Of the reading of its weights; the last one for ever."""
        self.logprob = -0.5
        """Of the token that it answers everything with."""
        base = state or engine_state()
        able = (*base.capabilities, Capability("request_k", True))
        self.other_names: tuple[str, str] | None = None
        """Of build and path, which it tells in place of those that follow from its facts."""
        self._state = replace(base, capabilities=able)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if self.away:
            raise httpx.ConnectError("refused")
        if request.url.path.startswith(PREFIX) and not self.plugin:
            return httpx.Response(404)
        return super().__call__(request)

    def names(self, *, reads: bool = False) -> tuple[dict[str, Any], str, str]:
        """All its facts, and the names of its build and of its path; while it `reads` weights."""
        tree = {**self.facts, "live": {"k": self.k, "mode": "speculate", "policy": "fixed"}}
        return tree, *compute_names(tree, partial=reads or bool(self.partial))

    def state(self) -> EngineState:
        """What it says of itself; k is one of its facts."""
        path = self.names()[2]
        return replace(self._state, fingerprint=path, k=self.k, k_set=self.k, version=10 - self.k)

    def _tell_state(self, _: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json=self.state().as_json())

    def _tell_facts(self, _: httpx.Request) -> httpx.Response:
        progress = self.progress.pop(0) if self.progress[1:] else self.progress[0]
        reads = not progress["finished"]
        unread = [{"fact": "model", "reason": "being read"}] if reads else []
        tree, build, path = self.names(reads=reads)
        build, path = self.other_names or (build, path)
        reply = {
            "facts": tree,
            "names": {"build": build, "path": path},
            "fingerprint": path,
            "partial": self.partial or unread,
            "progress": progress,
            "system_fingerprint": self.system_fingerprint,
            "responses": {"stamped": True, "reason": None},
            "instance": "a",
        }
        return httpx.Response(200, json=reply)

    def _complete(self, _: httpx.Request) -> httpx.Response:
        choice = {"token_ids": [1], "logprobs": {"token_logprobs": [self.logprob]}}
        reply = {"system_fingerprint": self.system_fingerprint, "choices": [choice]}
        return httpx.Response(200, json=reply)
