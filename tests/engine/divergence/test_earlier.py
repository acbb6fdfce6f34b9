"""Checks side by side."""

from __future__ import annotations

from typing import Any

from specdeck.engine.divergence import earlier
from specdeck.engine.divergence.lab import run


async def test_a_draft_is_known_by_its_content(bench: Any) -> None:
    def engine(weights: str) -> Any:
        draft = {"weights": {"model.safetensors": weights}, "shape": "c7"}
        return bench.engine(facts={"model": {"target": {"shape": "a1"}, "draft": draft}})

    for weights in ("6be2", "6be2", "77aa"):
        async with bench.lab(engine(weights)) as lab:
            await run(lab, bench.many(2), bench.store, lambda _: None)
    other, same, first = earlier.lines(bench.store.history("http://engine"))
    assert first.draft is not None
    assert len(first.draft) == 8
    assert (first.draft == same.draft, first.draft == other.draft) == (True, False)
    assert earlier.cells(first)[2] == first.draft


async def test_an_engine_without_a_draft_model_has_none(bench: Any) -> None:
    async with bench.lab(bench.engine(facts={"model": {"target": {"shape": "a1"}}})) as lab:
        await run(lab, bench.many(2), bench.store, lambda _: None)
    (line,) = earlier.lines(bench.store.history("http://engine"))
    assert line.draft is None
