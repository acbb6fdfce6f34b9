"""How far full CUDA graphs reach, held against vLLM's own sizing and lookup."""

from __future__ import annotations

import ast
import os
from collections import defaultdict
from dataclasses import dataclass, replace
from enum import Enum
from itertools import groupby, product
from types import SimpleNamespace
from typing import Any

import pytest
from benchmarks import contract
from benchmarks.vllm_source import Source

from specdeck.engine.launch.command import schedule
from specdeck.engine.plugin.graph_reach import graph_reach
from specdeck.engine.protocol.full_graphs import Reach

GRAPHS = "vllm.v1.worker.gpu.cudagraph_utils"
CACHE = contract.cache_folder(os.environ)
SEATS = [*range(1, 18), 31, 32, 33, 64, 100, 128, 255, 256, 257, 511, 512, 513, 1000, 1024]


class Mode(Enum):
    """vLLM's modes, as far as the sizing asks for them."""

    NONE = 0
    PIECEWISE = 1
    FULL = 2


BOTH = SimpleNamespace(
    decode_mode=lambda: Mode.FULL, mixed_mode=lambda: Mode.PIECEWISE, separate_routine=lambda: True
)


class Sizing:
    """vLLM's functions that size captures and look them up, compiled without its imports."""

    def __init__(self, source: Source) -> None:
        self._names: dict[str, Any] = {
            "dataclass": dataclass, "replace": replace, "defaultdict": defaultdict,
            "groupby": groupby, "product": product, "CUDAGraphMode": Mode,
            "round_up": lambda value, step: -(-value // step) * step,
            "current_platform": SimpleNamespace(is_device_capability_family=lambda _: False),
            "logger": None, "Any": Any, "Callable": Any,
        }  # fmt: skip
        dynamic = "vllm.v1.spec_decode.dynamic.utils"
        for module, name in (
            (dynamic, "DynamicSDSchedule"),
            (dynamic, "validate_and_normalize_dynamic_sd_schedule"),
            (dynamic, "build_dynamic_sd_schedule_lookup"),
            (GRAPHS, "BatchExecutionDescriptor"),
            (GRAPHS, "_is_compatible"),
            (GRAPHS, "CudaGraphManager._init_candidates"),
            (GRAPHS, "CudaGraphManager.dispatch"),
            ("vllm.config.vllm", "VllmConfig._set_cudagraph_sizes"),
        ):
            found = source.find(module, name)
            assert found is not None, name
            tree = ast.Module([Bare().visit(found.node)], [])
            exec(compile(ast.fix_missing_locations(tree), name, "exec"), self._names)

    def capture(self, k_max: int, seats: int, tiers: list[list[int]] | None) -> Any:
        """A manager that has captured everything it would."""
        spec = SimpleNamespace(
            num_speculative_tokens_per_batch_size=tiers,
            uses_dynamic_speculative_decoding=lambda: tiers is not None,
        )
        compilation = SimpleNamespace(
            cudagraph_mode=BOTH, max_cudagraph_capture_size=None, cudagraph_capture_sizes=None,
            post_init_cudagraph_sizes=lambda: None,
        )  # fmt: skip
        config = SimpleNamespace(
            model_config=SimpleNamespace(enforce_eager=False),
            compilation_config=compilation, speculative_config=spec,
            scheduler_config=SimpleNamespace(max_num_seqs=seats, max_num_batched_tokens=8192),
            cache_config=SimpleNamespace(use_kda_recoverssm=False),
            uniform_decode_query_len=1 + k_max, num_speculative_tokens=k_max,
            performance_mode="balanced",
        )  # fmt: skip
        self._names["_set_cudagraph_sizes"](config)
        manager = SimpleNamespace(
            vllm_config=config, compilation_config=compilation, cudagraph_mode=BOTH,
            max_num_reqs=seats, decode_query_len=1 + k_max, lora_capture_cases=[0],
            varlen_decode=False, _candidates={}, _capture_descs={}, _graphs_captured=True,
            _maybe_ubatch_twin=lambda _: None, _resolve_effective_loras=lambda n: n,
        )  # fmt: skip
        self._names["_init_candidates"](manager)
        return manager

    def finds_full(self, manager: Any, requests: int, k: int) -> bool:
        """Whether such a step would run from a full graph."""
        found = self._names["dispatch"](manager, requests, requests * (1 + k), 1 + k, 0)
        return bool(found.cg_mode is Mode.FULL)


class Bare(ast.NodeTransformer):
    """Takes imports, annotations of parameters and the package's own decorators away."""

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.Pass:
        return ast.Pass()

    def visit_arg(self, node: ast.arg) -> ast.arg:
        return ast.arg(node.arg)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        self.generic_visit(node)
        node.returns = None
        return node


def sizing(version: str) -> Sizing:
    """That of a version; skips where it is not there."""
    installed = version == "installed"
    source = contract.find_installed() if installed else contract.open_cached(version, CACHE)
    if source is None:
        pytest.skip(f"unchecked: python -m benchmarks.contract {version} fetches it")
    return Sizing(source)


@pytest.mark.parametrize("version", ["installed", "0.33.0"])
def test_the_tiers_make_graphs_of_whole_requests_and_the_reach_is_vllms(version: str) -> None:
    vllm = sizing(version)
    for k_max, seats in product(range(1, 9), SEATS):
        for tiers in (None, schedule(k_max, seats)):
            manager = vllm.capture(k_max, seats, tiers)
            for graph in manager._capture_descs.get(Mode.FULL, []):
                assert graph.uniform_token_count > 0
                assert graph.num_reqs * graph.uniform_token_count == graph.num_tokens
            depths = {k_max} if tiers is None else {k for *_, k in tiers}
            captured = manager.compilation_config.cudagraph_capture_sizes
            reach = graph_reach(captured, k_max=k_max, seats=seats, depths=depths)
            if seats in (1, 7, 33, 256):
                for k in range(k_max + 1):
                    full = [n for n in range(1, seats + 1) if vllm.finds_full(manager, n, k)]
                    assert reach[k] == Reach(max(full, default=0), len(full))


def test_the_reach_of_five_tokens_and_256_seats() -> None:
    vllm = sizing("installed")
    tiers = schedule(5, 256)
    captured = vllm.capture(5, 256, tiers).compilation_config.cudagraph_capture_sizes
    reach = graph_reach(captured, k_max=5, seats=256, depths=range(6))
    assert [each.requests for each in reach] == [256, 256, 166, 128, 100, 83]
    assert [each.sizes for each in reach] == [164, 192, 76, 107, 55, 54]
    captured = vllm.capture(5, 256, None).compilation_config.cudagraph_capture_sizes
    assert graph_reach(captured, k_max=5, seats=256, depths=[5])[5] == Reach(83, 83)
