"""Ranks of tokens on a CPU, counted without a compiler."""

from __future__ import annotations

import functools
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import pytest

from specdeck.engine.plugin import logprob_ranks
from specdeck.engine.plugin.logprob_ranks import install

CPU = SimpleNamespace(device=SimpleNamespace(type="cpu"))
NAMES = "vllm.v1.sample.sampler", "vllm.v1.sample.ops.logprobs"


def count(x: Any, values: Any) -> Any:
    """As vLLM's."""
    return (x >= values).sum(-1)


@functools.wraps(count)
def compiled(x: Any, values: Any) -> Any:
    raise AssertionError("compiles")


def modules(function: Any = compiled) -> dict[str, Any]:
    return {name: SimpleNamespace(batched_count_greater_than=function) for name in NAMES}


def test_nothing_is_compiled_on_a_cpu_and_the_ranks_are_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(logprob_ranks, "MOST", 50)  # several parts
    found = modules()
    install(CPU, modules=found)
    install(CPU, modules=found)
    for rows in (1, 2, 5, 7, 16):
        x = torch.randn(rows, 20)
        values = x[:, 3:4]
        for module in found.values():
            ranks = module.batched_count_greater_than(x, values)
            assert ranks.dtype == torch.int64
            assert ranks.tolist() == count(x, values).tolist()


def test_another_device_is_left_alone() -> None:
    found = modules()
    worker = SimpleNamespace(device=SimpleNamespace(type="cuda"))
    install(worker, modules=found)
    install(SimpleNamespace(), modules=found)
    assert all(one.batched_count_greater_than is compiled for one in found.values())


def test_a_vllm_that_does_not_compile_the_count_is_left_alone() -> None:
    for found in ({}, modules(count), {NAMES[0]: SimpleNamespace()}):
        install(CPU, modules=found)
    assert modules(count)[NAMES[0]].batched_count_greater_than is count


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.skipif(find_spec("vllm") is None, reason="the function is vLLM's own")
def test_vllms_own_count_is_what_it_compiles() -> None:
    from vllm.v1.sample.ops import logprobs

    torch = pytest.importorskip("torch")
    found = {name: SimpleNamespace(**vars(logprobs)) for name in NAMES}
    install(CPU, modules=found)
    x = torch.tensor([[0.1, 0.5, 0.3], [2.0, 1.0, 2.0]])
    ranks = found[NAMES[0]].batched_count_greater_than(x, torch.tensor([[0.3], [2.0]]))
    assert ranks.tolist() == [2, 2]
