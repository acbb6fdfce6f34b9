"""A store, prompts, and labs on engines of functions."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.completion_engine import STEP, CompletionEngine, Fault

from specdeck.engine.divergence.prompts import PromptSet, load_prompts
from specdeck.engine.operations.check import ArmPair, CheckOptions
from specdeck.engine.store.checks import Checks
from specdeck.engine.store.database import Store


class Bench:
    """What a test of a check holds in its hands."""

    def __init__(self, store: Checks, folder: Path) -> None:
        self.store = store
        self.folder = folder

    engine = CompletionEngine
    fault = Fault
    step = STEP

    def written(self, *bodies: dict[str, Any], name: str = "prompts.jsonl") -> PromptSet:
        path = self.folder / name
        path.write_text("".join(json.dumps(body) + "\n" for body in bodies))
        return load_prompts(path)

    def many(self, count: int) -> PromptSet:
        return self.written(*({"prompt": f"prompt {n}"} for n in range(1, count + 1)))

    def lab(
        self, serving: CompletionEngine, reference: CompletionEngine | None = None, **changed: Any
    ) -> ArmPair:
        options = CheckOptions(**{"max_tokens": 40, "streams": 4, "retry_s": 5.0, **changed})
        ours, theirs = serving.connect(), None if reference is None else reference.connect()
        return ArmPair(ours, theirs, options, wall=lambda: 1000.0)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    """A store in a folder of its own, and the fakes."""
    with Store(tmp_path / "store.sqlite") as store:
        yield Bench(Checks(store), tmp_path)
