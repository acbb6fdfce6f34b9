"""A metrics page to a Window: specdeck's way beside the stock parser, in one run.

    python -m benchmarks.parse_page [PAGE]

Without PAGE, the recorded page of an engine with speculation, brought to 70 KB with
series of the kind that grow with the number of routes served.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from specdeck.engine.metrics.page import parse
from specdeck.engine.metrics.window import between

RECORDED = Path(__file__).parents[1] / "tests/engine/metrics/pages/speculative-busy.txt"
SIZE = 70_000
ROUNDS = 100


def main() -> None:
    """Prints the median of each and their ratio."""
    text = Path(sys.argv[1]).read_text() if len(sys.argv) > 1 else grow_page(RECORDED.read_text())
    older = parse(text, t=0.0, at=0.0)
    ours = median_ms(lambda: between(older, parse(text, t=1.0, at=1.0)))
    stock = median_ms(lambda: list(text_string_to_metric_families(text)))
    print(f"page               {len(text) / 1000:7.1f} KB")
    print(f"page to Window     {ours:7.2f} ms   (budget 3 ms for 70 KB)")
    print(f"stock parser alone {stock:7.2f} ms")
    print(f"ratio              {stock / ours:7.1f}")


def grow_page(text: str) -> str:
    """`text` with as many more rows of its last family as make it a page of `SIZE`."""
    row = 'http_request_duration_seconds_count{{handler="/v1/route{0}",method="POST"}} 7.0\n'
    missing = max(0, SIZE - len(text)) // len(row)
    return text + "".join(row.format(number) for number in range(missing))


def median_ms(work: Callable[[], object]) -> float:
    """The median duration of `work`, in milliseconds."""
    durations = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        work()
        durations.append(time.perf_counter() - start)
    return statistics.median(durations) * 1e3


if __name__ == "__main__":
    main()
