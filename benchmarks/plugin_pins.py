"""What pinned requests that wait cost the engine core's thread: to take them, and at every step.

    python -m benchmarks.plugin_pins [--waiting 0 1000 4000 16000]

The plugin's real hooks on a scheduler that does next to nothing else, with 8 requests running
and all of them pinned; the same scheduler without the hooks beside it.
"""

from __future__ import annotations

import argparse
import statistics
import time
from types import SimpleNamespace
from typing import Any

from benchmarks.engines import table

from specdeck.engine.plugin.request_pins import Pins

K_MAX = 8
RUNNING = 8
STEPS = 2000


class Scheduler:
    """Takes requests, of which the first few run and the others wait."""

    def __init__(self) -> None:
        self.requests: dict[str, Any] = {}
        self.running: list[Any] = []
        self.finished_req_ids: set[str] = set()

    def add_request(self, request: Any) -> None:
        self.requests[request.request_id] = request
        if len(self.running) < RUNNING:
            self.running.append(request)

    def schedule(self) -> Any:
        return SimpleNamespace(scheduled_new_reqs=(), finished_req_ids=self.finished_req_ids)

    def update_draft_token_ids(self, drafts: list[int]) -> None:
        for request in self.running:
            request.spec_token_ids = drafts


def requests(count: int) -> list[Any]:
    """So many under an exact name."""
    params = SimpleNamespace(extra_args={"specdeck_k": 0, "specdeck_exact": 1})
    return [
        SimpleNamespace(request_id=str(n), sampling_params=params, spec_token_ids=[])
        for n in range(count)
    ]


def cost(waiting: int, *, pinned: bool) -> tuple[float, float]:
    """Seconds to take so many requests, and the median microseconds of a step with them."""
    scheduler = Scheduler()
    if pinned:
        assert Pins(scheduler, K_MAX).available
    arriving, drafts = requests(RUNNING + waiting), [1] * K_MAX
    began = time.perf_counter()
    for request in arriving:
        scheduler.add_request(request)
    took, steps = time.perf_counter() - began, []
    for _ in range(STEPS):
        began = time.perf_counter()
        scheduler.schedule()
        scheduler.update_draft_token_ids(drafts)
        steps.append(time.perf_counter() - began)
    return took, statistics.median(steps) * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--waiting", type=int, nargs="*", default=[0, 1000, 4000, 16_000])
    rows = []
    for waiting in parser.parse_args().waiting:
        (plain_s, plain_us), (ours_s, ours_us) = (
            cost(waiting, pinned=pinned) for pinned in (False, True)
        )
        figures = plain_s * 1e3, ours_s * 1e3, plain_us, ours_us
        rows.append([str(waiting), *(f"{figure:.1f}" for figure in figures)])
    heads = ["waiting", "taken, ms: plain", "with pins", "step, µs: plain", "with pins"]
    print(table(heads, rows))


if __name__ == "__main__":
    main()
