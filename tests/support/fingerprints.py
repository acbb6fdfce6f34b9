"""Fingerprints to compare, and an engine that has one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from specdeck.engine.errors import Unreachable
from specdeck.engine.fingerprint.fingerprint import Fingerprint, Unread
from specdeck.engine.fingerprint.name import compute_names, is_partial
from specdeck.engine.metrics.reading import Reading
from specdeck.engine.metrics.sample import Sample
from specdeck.engine.protocol.messages import EngineState
from tests.support.engine_state import engine_state


class Fingerprints:
    """Makes what a look at an engine would bring."""

    def facts(self, **changed: Any) -> dict[str, Any]:
        """A small tree; `a__b=1` sets the fact a.b."""
        tree: dict[str, Any] = {
            "engine": {"vllm": "0.32.0", "specdeck": "0.1.0"},
            "config": {"model": {"dtype": "bfloat16"}, "speculative": {"method": "draft_model"}},
            "environment": {},
            "model": {
                "target": {"weights": {"model.safetensors": "a" * 64}},
                "draft": {"weights": {"model.safetensors": "b" * 64}},
                "tokenizer": {"vocab": "c" * 64},
            },
            "runtime": {"driver": "570.86.15", "libraries": {"torch/lib/libtorch.so": "d" * 64}},
            "live": {"k": 6, "mode": "speculate"},
        }
        for place, value in changed.items():
            *branches, leaf = place.split("__")
            at = tree
            for branch in branches:
                at = at[branch]
            at[leaf] = value
        return tree

    def seen(
        self, *, unread: tuple[Unread, ...] = (), own: str | None = "vllm-0.32.0-0", **changed: Any
    ) -> Fingerprint:
        facts = self.facts(**changed)
        build, path = compute_names(facts, partial=bool(unread))
        assert is_partial(path) == bool(unread)
        return Fingerprint(100.0, "http://e:1", build, path, facts, unread, own, instance="i")


class NamedEngine:
    """Has the fingerprint that a test puts there, or does not answer."""

    def __init__(self, found: Fingerprint, state: EngineState | None = None) -> None:
        self.found, self.state = found, state or engine_state()
        self.fetches, self.is_away = 0, False

    async def fetch(self, pinned: Fingerprint | None) -> Fingerprint:
        """What a watcher fetches."""
        self.fetches += 1
        if self.is_away:
            raise Unreachable("no answer")
        return self.found

    def reading(self, t: float, **changes: Any) -> Reading:
        """What a scrape of it brings."""
        state = replace(self.state, fingerprint=self.found.path)
        usual = Reading(t, self.found.url, Sample(t, t), state=state)
        return replace(usual, **changes)
