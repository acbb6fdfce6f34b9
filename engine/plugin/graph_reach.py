"""How many requests a step can have and still run from a full CUDA graph, at each k.

vLLM captures full graphs for steps in which every request has 1 + k rows. It makes their sizes
of one list of token counts, rounded up to whole requests, and looks a step up by its tokens: it
is given the graphs of the next larger size, and none of them where these are for another k
(`CudaGraphManager`, read in 0.32 and 0.33). So with graphs for several k's there are numbers of
requests below the reach that have no full graph.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable

from specdeck.engine.protocol.full_graphs import Reach


def graph_reach(
    captured: Collection[int], *, k_max: int, seats: int, depths: Iterable[int]
) -> tuple[Reach, ...]:
    """The reach at each k from 0 to k_max on the V2 runner.

    `captured` are vLLM's `cudagraph_capture_sizes`, `seats` its `max_num_seqs`; `depths` are
    the k's that graphs were captured for.

    >>> graph_reach([1, 2, 4, 8, 16], k_max=1, seats=8, depths=[1])
    (Reach(requests=0, sizes=0), Reach(requests=8, sizes=8))
    >>> graph_reach([3, 4], k_max=2, seats=3, depths=[1, 2])[1:]
    (Reach(requests=2, sizes=1), Reach(requests=1, sizes=1))
    """
    graphs = _find_graphs(captured, k_max=k_max, seats=seats, depths=depths)
    sizes = sorted(graphs)
    found = []
    for k in range(k_max + 1):
        served = [
            requests
            for requests in range(1, seats + 1)
            if k in graphs.get(_next(sizes, requests * (1 + k)), ())
        ]
        found.append(Reach(max(served, default=0), len(served)))
    return tuple(found)


def _find_graphs(
    captured: Collection[int], *, k_max: int, seats: int, depths: Iterable[int]
) -> dict[int, set[int]]:
    """The k's that have a full graph, by its number of tokens."""
    largest, most = max(captured, default=0), seats * (1 + k_max)
    graphs: dict[int, set[int]] = {}
    for k in set(depths):
        for tokens in captured:
            requests = -(-tokens // (1 + k))
            rounded = requests * (1 + k)
            if rounded <= min(most, largest) and requests <= seats:
                graphs.setdefault(rounded, set()).add(k)
    return graphs


def _next(sizes: list[int], tokens: int) -> int:
    """The next larger of `sizes`; 0, which is none of them, beyond the largest."""
    place = bisect_left(sizes, tokens)
    return sizes[place] if place < len(sizes) else 0
