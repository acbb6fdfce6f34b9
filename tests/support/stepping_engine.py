"""An engine over HTTP that takes a step for each token or draft, and counts as vLLM does."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import httpx

from specdeck.engine.policy.step import Step
from specdeck.engine.protocol.messages import PREFIX, Capability
from tests.support.engine_state import engine_state
from tests.support.http_engine import answer

TICK_S = 0.001
K_MAX = 3
ANSWER = {"kind": "class", "public": True, "names": ["beta", "beta", "alpha"], "level": 8}


@dataclass
class SteppingEngine:
    """Greedy answers that depend on the prompt alone, unless a fault is planted.

    With `method` None it does not speculate; every second draft token is accepted.
    """

    method: str | None = "draft_model"
    capabilities: tuple[Capability, ...] = (Capability("live_k", True), Capability("cold", True))
    on_pass: Callable[[], None] | None = None
    """Called at each pass of the drafter; `on_proposal` at each call of it."""
    on_proposal: Callable[[], None] | None = None
    passes: Callable[[int], int] = lambda k: max(k, 1)
    """Passes that the drafter makes at a k."""
    spoil: Callable[[list[int], int], list[int]] = lambda tokens, k: tokens
    """What becomes of the tokens of an answer that ended at a k."""
    text: str = json.dumps(ANSWER)
    refuse: bool = False
    accepts: Callable[[int], bool] = lambda resyncs: True
    """Whether drafts are accepted after so many changes back from cold."""
    k: int = K_MAX
    mode: str = "speculate"
    fallback: str = "warm"
    version: int = 0
    step: int = 0
    running: int = 0
    resyncs: int = 0
    counts: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(
            ("drafts", "draft_tokens", "accepted_tokens", "generation"), 0
        )
    )
    steps: deque[Step] = field(default_factory=lambda: deque(maxlen=4096))
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        if path == "/v1/completions":
            return self._complete(json.loads(request.content))
        if path == "/metrics":
            return answer(200, self._page())
        if path == f"{PREFIX}/control":
            return self._control(json.loads(request.content))
        if path == f"{PREFIX}/steps":
            since = int(request.url.params["since"])
            with self.lock:
                return answer(200, {"steps": [s.as_json() for s in self.steps if s.step > since]})
        if path == f"{PREFIX}/facts":
            return answer(200, {"facts": {}})
        return answer(200, self._state()) if path == f"{PREFIX}/state" else answer(404, "")

    @property
    def k_now(self) -> int:
        """Tokens that a draft has now."""
        return self.k if self.method is not None and self.mode == "speculate" else 0

    def _state(self) -> dict[str, Any]:
        found = engine_state(
            k=self.k_now, k_max=K_MAX if self.method else 0, method=self.method, step=self.step,
            running=self.running, version=self.version, capabilities=self.capabilities,
        )  # fmt: skip
        return asdict(found)

    def _control(self, change: dict[str, Any]) -> httpx.Response:
        with self.lock:
            left_cold = self.mode == "target-only" and self.fallback == "cold"
            self.k = change.get("k", self.k)
            self.mode = change.get("mode", self.mode)
            self.fallback = change.get("fallback", self.fallback)
            self.resyncs += left_cold and self.mode == "speculate"
            self.version += 1
            return answer(
                200, {"before": {}, "applied": {}, "version": self.version, "step": self.step}
            )

    def _page(self) -> str:
        with self.lock:
            names = {f"spec_decode_num_{n}": c for n, c in self.counts.items() if n != "generation"}
            names |= {"generation_tokens": self.counts["generation"], "num_preemptions": 0}
            lines = [f'vllm:{name}_total{{engine="0"}} {count}' for name, count in names.items()]
            return "\n".join([*lines, f'vllm:num_requests_running{{engine="0"}} {self.running}\n'])

    def _complete(self, body: dict[str, Any]) -> httpx.Response:
        if self.refuse:
            return answer(503, "planted: no")
        wanted, made = body["max_tokens"], 0
        with self.lock:
            self.running += 1
        while made < wanted:
            time.sleep(TICK_S)
            made += self._take_step(wanted - made)
        with self.lock:
            self.running -= 1
        if body.get("stream"):
            return answer(200, "data: {}\n\n" * 4 + "data: [DONE]\n\n")
        rng = random.Random(str(body["prompt"]))
        tokens = self.spoil([rng.randrange(2000) for _ in range(wanted)], self.k_now)
        choice: dict[str, Any] = {"token_ids": tokens, "text": self.text, "logprobs": None}
        if "logprobs" in body:
            top = {"token_id:1": -0.1, "token_id:2": -0.6}
            choice["logprobs"] = {"top_logprobs": [top] * wanted}
        return answer(200, {"choices": [choice]})

    def _take_step(self, most: int) -> int:
        """One step of one request; the tokens it brought."""
        with self.lock:
            k, now = self.k_now, time.monotonic()
            accepted = min((k + 1) // 2 if self.accepts(self.resyncs) else 0, most - 1)
            cold = self.mode == "target-only" and self.fallback == "cold"
            if self.method is not None and not cold and self.on_pass and self.on_proposal:
                self.on_proposal()
                for _ in range(self.passes(k)):
                    self.on_pass()
            self.step += 1
            before = self.steps[-1].t if self.steps else now
            counts = (self.running, 1 + k, k, int(k > 0), k, accepted)
            self.steps.append(Step(self.step, now, *counts, now - before, 1 + accepted))
            self.counts["drafts"] += k > 0
            self.counts["draft_tokens"] += k
            self.counts["accepted_tokens"] += accepted
            self.counts["generation"] += 1 + accepted
            return 1 + accepted
