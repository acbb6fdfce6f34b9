"""What fingerprints cost: hashing beside plain SHA-256, and a response's attribute.

    python -m benchmarks.fingerprint_cost [MEGABYTES]

Ratios of one run on one machine; the rounds alternate, so that other work on it hits both.
"""

from __future__ import annotations

import hashlib
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from specdeck.engine.fingerprint.digest import CHUNK, sha256
from specdeck.engine.plugin.fingerprint import Board, Reader
from specdeck.engine.plugin.responses import Stamp, carry

ROUNDS = 5
CALLS = 200_000


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def hash_memory(size: int) -> None:
    """SHA-256 of bytes that are in memory: the machine's own rate."""
    digest, chunk = hashlib.sha256(), bytes(CHUNK)
    for _ in range(size // CHUNK):
        digest.update(chunk)


def measure_hashing(megabytes: int) -> None:
    size = megabytes << 20
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        with path.open("wb") as file:
            for _ in range(megabytes):
                file.write(bytes(1 << 20))
        pairs = [
            (seconds(lambda: hash_memory(size)), seconds(lambda: sha256(path)))
            for _ in range(ROUNDS)
        ]
    own, ours = (statistics.median(column) for column in zip(*pairs, strict=True))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"hashing a file: {size / ours / 1e9:.2f} GB/s, SHA-256 of memory {size / own / 1e9:.2f},"
    )
    print(f"  ratio {own / ours:.2f} (median of {ROUNDS} pairs); {peak:.0f} MB resident at most")


class Serving:
    """As vLLM's: an attribute that is read once per response."""

    system_fingerprint: str | None

    def __init__(self) -> None:
        self.system_fingerprint = "vllm-0.32.0-09d54272"


def turn(board: Board) -> None:
    for number in range(CALLS):
        board.write(f"sd1:p{number:016x}")


def measure_attribute() -> None:
    plain_object = Serving()
    bare = seconds(lambda: [plain_object.system_fingerprint for _ in range(CALLS)]) / CALLS
    board = Board("0123456789abcdef")
    board.write("sd1:p0123456789abcdef")
    reader = Reader.of(board.path, "0123456789abcdef")
    assert reader is not None
    stamp = Stamp()
    stamp.name = reader.name
    carry(Serving, stamp)
    live = Serving()
    assert live.system_fingerprint == "vllm-0.32.0-09d54272-sd1:p0123456789abcdef"
    stamped = seconds(lambda: [live.system_fingerprint for _ in range(CALLS)]) / CALLS
    print(f"the attribute of a response: {stamped * 1e9:.0f} ns live, {bare * 1e9:.0f} ns plain")
    turned = seconds(lambda: turn(board)) / CALLS
    print(f"a change of the name, seen by all processes: {turned * 1e6:.1f} µs")


if __name__ == "__main__":
    measure_hashing(int(sys.argv[1]) if len(sys.argv) > 1 else 512)
    measure_attribute()
