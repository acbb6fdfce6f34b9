"""What a worker's drafter does at each k, with stand-ins for vLLM's classes."""

from types import SimpleNamespace
from typing import Any

import pytest

from specdeck.engine.plugin import drafters


class Tensor(list[int]):
    """As much of a tensor as the wrapping touches."""

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self),)

    def new_empty(self, shape: tuple[int, int]) -> "Empty":
        return Empty(shape)


class Empty:
    def __init__(self, shape: tuple[int, int]) -> None:
        self.shape = shape

    def long(self) -> "Empty":
        return self


class SpecDecodeBaseProposer:
    """V1: forwards once at k = 0, k times otherwise."""

    def __init__(self) -> None:
        self.forwards = 0
        self.num_speculative_tokens = 5
        self._last_draft_probs = None

    def propose(self, *, num_speculative_tokens: int, next_token_ids: Tensor) -> Any:
        self.forwards += max(num_speculative_tokens, 1)
        return Empty((len(next_token_ids), num_speculative_tokens))


class Step3p5MTPProposer(SpecDecodeBaseProposer):
    pass


class StandaloneARSpeculator:
    """V2: forwards num_speculative_steps times, whatever k."""

    def __init__(self) -> None:
        self.num_speculative_steps = 5
        self.forwards = 0
        self.draft_tokens = [[0] * 5 for _ in range(8)]

    def propose(
        self, batch: Any, *, num_speculative_tokens: int | None = None, dummy_run: bool = False
    ) -> Any:
        self.forwards += self.num_speculative_steps
        rows = self.draft_tokens[: batch.num_reqs]
        return [row[:1] for row in rows] if self.num_speculative_steps == 1 else rows


def worker(**runner: Any) -> Any:
    return SimpleNamespace(model_runner=SimpleNamespace(**runner))


def test_a_warm_v1_drafter_keeps_its_forward_at_zero() -> None:
    drafter = SpecDecodeBaseProposer()
    drafters.install(worker(drafter=drafter))
    drafter.propose(num_speculative_tokens=0, next_token_ids=Tensor([1, 2]))
    assert drafter.forwards == 1


def test_a_cold_v1_drafter_is_left_out_at_zero_only() -> None:
    drafter = SpecDecodeBaseProposer()
    at = worker(drafter=drafter)
    drafters.install(at)
    drafters.skip(at, True)
    empty = drafter.propose(num_speculative_tokens=0, next_token_ids=Tensor([1, 2]))
    assert (empty.shape, drafter.forwards) == ((2, 0), 0)
    drafter.propose(num_speculative_tokens=2, next_token_ids=Tensor([1, 2]))
    assert drafter.forwards == 2
    drafters.skip(at, False)
    drafter.propose(num_speculative_tokens=0, next_token_ids=Tensor([1, 2]))
    assert drafter.forwards == 3


def test_installing_twice_wraps_once() -> None:
    drafter = SpecDecodeBaseProposer()
    at = worker(drafter=drafter)
    drafters.install(at)
    wrapped = drafter.propose
    drafters.install(at)
    assert drafter.propose is wrapped


@pytest.mark.parametrize(("k", "forwards"), [(0, 1), (1, 1), (2, 2), (3, 3), (5, 5)])
def test_less_k_is_less_work_for_the_v2_draft_model(k: int, forwards: int) -> None:
    speculator = StandaloneARSpeculator()
    assert drafters.install(worker(speculator=speculator))["obeys"]
    rows = speculator.propose(SimpleNamespace(num_reqs=3), num_speculative_tokens=k)
    assert speculator.forwards == forwards
    assert [len(row) for row in rows] == [5, 5, 5]
    assert speculator.num_speculative_steps == 5


def test_a_cold_v2_drafter_makes_no_forward() -> None:
    speculator = StandaloneARSpeculator()
    at = worker(speculator=speculator)
    drafters.install(at)
    drafters.skip(at, True)
    rows = speculator.propose(SimpleNamespace(num_reqs=3), num_speculative_tokens=0)
    assert (len(rows), speculator.forwards) == (3, 0)


def test_a_dummy_run_of_the_v2_drafter_is_left_alone() -> None:
    speculator = StandaloneARSpeculator()
    at = worker(speculator=speculator)
    drafters.install(at)
    drafters.skip(at, True)
    speculator.propose(SimpleNamespace(num_reqs=3), num_speculative_tokens=0, dummy_run=True)
    speculator.propose(SimpleNamespace(num_reqs=3))
    assert speculator.forwards == 10


def test_drafters_say_what_they_can() -> None:
    assert drafters.install(worker())["drafter"] is None
    assert not drafters.install(worker(drafter=Step3p5MTPProposer()))["skippable"]
    unknown = drafters.install(worker(speculator=SimpleNamespace()))
    assert (unknown["obeys"], unknown["skippable"]) == (False, False)


class TargetDependentARSpeculator(StandaloneARSpeculator):
    """V2: all passes but the first in one CUDA graph for each number of requests and, with a
    schedule, each k from 2 on."""

    def __init__(self, *, k_max: int = 5, captured: tuple[int, ...] | None, fused: bool) -> None:
        super().__init__()
        self.num_speculative_steps = k_max
        self.supports_decode_metadata_update = fused
        self.speculative_config = SimpleNamespace(
            uses_dynamic_speculative_decoding=lambda: captured is not None
        )
        sizes = (1, 2, 4)
        # vLLM's descriptions of a batch; that of a graph for one k names it.
        graphs = (
            [SimpleNamespace(num_tokens=size) for size in sizes]
            if captured is None
            else [
                SimpleNamespace(num_tokens=size, num_speculative_tokens=k)
                for size in sizes
                for k in captured
            ]
        )
        self.decode_cudagraph_manager = SimpleNamespace(graphs=graphs)


@pytest.mark.parametrize(
    ("captured", "fused", "depths"),
    [(None, True, [5]), ((2, 3, 4, 5), True, [2, 3, 4, 5]), (None, False, None)],
    ids=["no schedule", "every k", "one pass a graph"],
)
def test_a_v2_drafter_says_what_its_graphs_hold(
    captured: tuple[int, ...] | None, fused: bool, depths: list[int] | None
) -> None:
    drafter = TargetDependentARSpeculator(captured=captured, fused=fused)
    assert drafters.install(worker(speculator=drafter))["captured"] == depths


def test_drafters_without_graphs_have_none_to_tell_of() -> None:
    for drafter in (SpecDecodeBaseProposer(), StandaloneARSpeculator()):
        assert drafters.install(worker(drafter=drafter))["captured"] is None
    assert drafters.install(worker())["captured"] is None
