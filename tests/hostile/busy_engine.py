"""An honest engine for every command: it works, drafts as it is told to, and has facts."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import httpx

from specdeck.engine.policy.step import Step
from specdeck.engine.protocol.messages import PREFIX, Capability, Lease
from tests.support.completion_engine import CompletionEngine
from tests.support.engine_state import engine_state
from tests.support.facts_engine import FactsEngine
from tests.support.pages import recorded_page

STEPS = 50
"""Between one question and the next."""
FACTS: dict[str, Any] = {"vllm": "0.32.0", "config": {"scheduler": {"max_num_seqs": 32}}}


class BusyEngine(FactsEngine):
    """Has made more steps whenever it is asked; a change takes effect at once."""

    def __init__(self) -> None:
        able = tuple(Capability(name, True) for name in ("live_k", "target_only"))
        self._base = replace(engine_state(), capabilities=able)
        super().__init__(FACTS, self._base)
        self.odd: dict[str, Any] = {}
        """What its steps tell otherwise, from the first change on."""
        self._back: int | None = None
        """The k that comes back when a lease ends."""
        self._completes = CompletionEngine()
        self._page = recorded_page("speculative")
        self._version = 0
        self._drafts = self._drafted = 0
        self.answers |= {
            "/metrics": self._tell_counters,
            f"{PREFIX}/state": self._tell_work,
            f"{PREFIX}/control": self._turn,
            f"{PREFIX}/steps": self._tell_steps,
        }

    async def answer(self, request: httpx.Request) -> httpx.Response:
        """The answer to any request."""
        if request.method == "POST":
            return await self._completes(request)
        return self(request)

    def _work(self) -> None:
        self._drafts += STEPS
        self._drafted += STEPS * self.k

    def _tell_work(self, _: httpx.Request) -> httpx.Response:
        self._work()
        lease = None if self._back is None else Lease(9.0, self._back, "speculate")
        found = replace(
            self.state(), version=self._version, step=100 + self._drafts, drafts=self._drafts,
            lease=lease,
        )  # fmt: skip
        return httpx.Response(200, json=found.as_json())

    def _tell_steps(self, request: httpx.Request) -> httpx.Response:
        """A second of work at every look, so that a sweep need not wait for it."""
        first = max(int(request.url.params["since"]), 100 + self._drafts) + 1
        odd = self.odd if self._version else {}
        steps = [
            Step(number, float(number), 4, 4 + 4 * self.k, self.k, 4 if self.k else 0, 4 * self.k,
                 4 if self.k else 0, 0.2, 8, (1,) * self.k).as_json() | odd
            for number in range(first, first + 5)
        ]  # fmt: skip
        return httpx.Response(200, json={"steps": steps})

    def _tell_counters(self, _: httpx.Request) -> httpx.Response:
        self._work()
        counts = {
            "spec_decode_num_drafts": self._drafts,
            "spec_decode_num_draft_tokens": self._drafted,
            "generation_tokens": 2 * self._drafts,
        }
        page = self._page
        for name, count in counts.items():
            page = re.sub(rf"^(vllm:{name}_total\{{.*\}}) \S+$", rf"\1 {count}.0", page, flags=re.M)
        return httpx.Response(200, text=page)

    def _turn(self, request: httpx.Request) -> httpx.Response:
        change = json.loads(request.content)
        before = self.k
        if change.get("cancel"):
            self.k, self._back = self._back or self.k, None
        elif "k" in change:
            if "lease_s" in change and self._back is None:
                self._back = self.k
            self.k = change["k"]
        self._version += not change.get("renew")
        reply = {
            "before": {"k": before}, "applied": {"k": self.k}, "version": self._version,
            "step": 100 + self._drafts,
        }  # fmt: skip
        return httpx.Response(200, json=reply)
