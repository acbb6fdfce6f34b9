"""Fingerprints to compare."""

from typing import Any

import pytest

from specdeck.engine.fingerprint.fingerprint import Fingerprint, Unread
from specdeck.engine.fingerprint.name import compute_names, is_partial


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


@pytest.fixture
def fingerprints() -> Fingerprints:
    return Fingerprints()
