"""Counts the passes that a drafter really makes, inside the engine: a general plugin of vLLM's.

A pass of the model in Python is seen by a hook on it. A pass that a CUDA graph replays is not:
so the passes made while a graph is captured are remembered with it, and counted at each replay.
The standard library only: vLLM's processes import it, where specdeck may not be installed.
"""

from __future__ import annotations

import functools
import mmap
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Self

COUNTS_VARIABLE = "SPECDECK_PROBE_COUNTS"
"""Names the variable that tells the probe which file it counts in."""

_WATCHED = "_specdeck_probe"
_LAYOUT = struct.Struct("<4q")


class Counts(NamedTuple):
    """What the probe has counted, as it stands in its file."""

    called: int = 0
    """Passes of the drafter's model made in Python, while nothing was being captured."""
    replayed: int = 0
    """Passes within CUDA graphs that were replayed."""
    graphs: int = 0
    """CUDA graphs that hold a pass of the drafter's."""
    proposals: int = 0
    """Calls of the drafter, one in a step."""

    @property
    def passes(self) -> int:
        """All passes."""
        return self.called + self.replayed

    @classmethod
    def read(cls, path: Path) -> Self:
        """The counts now."""
        return cls(*_LAYOUT.unpack(path.read_bytes()[: _LAYOUT.size]))


class Probe:
    """The counts of one worker, in a file that another process reads."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(_LAYOUT.size))
        with path.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), _LAYOUT.size)
        self.counts = Counts()
        self._capturing: list[int] = []
        """Passes seen so far in each capture under way."""
        self._held: dict[int, int] = {}
        """Passes that a graph holds, by its id."""

    def _add(self, **more: int) -> None:
        counts = self.counts
        self.counts = counts._replace(
            **{name: getattr(counts, name) + n for name, n in more.items()}
        )
        _LAYOUT.pack_into(self._shared, 0, *self.counts)

    def count_call(self, *_: Any) -> None:
        """A pass of the model in Python: run, or captured."""
        if self._capturing:
            self._capturing[-1] += 1
        else:
            self._add(called=1)

    def count_proposal(self) -> None:
        """A call of the drafter."""
        self._add(proposals=1)

    def begin_capture(self) -> None:
        """What is called from now on is captured and not run."""
        self._capturing.append(0)

    def end_capture(self, graph: int) -> None:
        """What was called since `begin_capture` is run at each replay of the graph."""
        passes = self._capturing.pop() if self._capturing else 0
        self._held.pop(graph, None)  # of one that is gone: ids come back
        if passes:
            self._held[graph] = passes
        self._add(graphs=len(self._held) - self.counts.graphs)

    def count_replay(self, graph: int) -> None:
        """A graph was replayed."""
        if passes := self._held.get(graph):
            self._add(replayed=passes)


def register() -> None:
    """The entry point: every worker's drafter is watched from when its model is loaded."""
    path = os.environ.get(COUNTS_VARIABLE)
    if path is None:
        return
    from vllm.v1.worker.gpu_worker import Worker

    if hasattr(Worker, _WATCHED):
        return
    load = Worker.load_model

    @functools.wraps(load)
    def load_and_watch(worker: Any, *args: Any, **kwargs: Any) -> Any:
        loaded = load(worker, *args, **kwargs)
        runner = worker.model_runner
        drafter = getattr(runner, "drafter", None) or getattr(runner, "speculator", None)
        if worker.rank == 0 and getattr(drafter, "model", None) is not None:
            watch(drafter, Probe(Path(path)))
        return loaded

    setattr(Worker, _WATCHED, True)
    Worker.load_model = load_and_watch


def watch(drafter: Any, probe: Probe) -> None:
    """Counts the drafter's passes from now on, captures and replays included."""
    import torch

    drafter.model.register_forward_pre_hook(probe.count_call)
    _before(drafter, "propose", lambda _: probe.count_proposal())
    graph = torch.cuda.CUDAGraph
    _before(graph, "capture_begin", lambda _: probe.begin_capture())
    _before(graph, "capture_end", lambda one: probe.end_capture(id(one)))
    _before(graph, "replay", lambda one: probe.count_replay(id(one)))


def _before(owner: Any, name: str, note: Callable[[Any], None]) -> None:
    """Has `note` called with the object before each call of a method of it, or of its class."""
    method = getattr(owner, name)

    @functools.wraps(method)
    def note_and_call(*args: Any, **kwargs: Any) -> Any:
        note(args[0] if args else None)
        return method(*args, **kwargs)

    setattr(owner, name, note_and_call)
