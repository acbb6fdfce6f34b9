"""Which single change moves which fingerprint: specdeck's layers beside vLLM's own.

    python -m benchmarks.fingerprint_table > table.md

Every row is one change of one thing, made on vLLM's real configuration and on a copy of the
shipped models, in one process and without starting an engine. Wants vLLM; on a machine
without a GPU, its CPU build. Exits with 1 when a row is not as it should be.
"""

from __future__ import annotations

import os
import sys

from benchmarks.fingerprint_changes import ROWS, Row, setup

from specdeck.engine.fingerprint.compare import Comparison, compare


def try_change(row: Row) -> Comparison:
    """The change made, and what it moved."""
    with setup() as made:
        row.before(made)
        before = made.build_fingerprint()
        row.change(made)
        return compare(before, made.build_fingerprint())


def is_right(row: Row, found: Comparison) -> bool:
    """Whether the row moved the layers it should, and is called what it is."""
    expected = {"same": (False, False), "path": (False, True), "build": (True, True)}
    layers = expected["same" if row.kind == "same" else row.layer]
    return (found.layers["build"], found.layers["path"]) == layers and found.verdicts[0][
        0
    ] == row.kind


def count_names(count: int) -> int:
    """Different names over `count` configurations made anew; 1 is right."""
    with setup() as made:
        return len({made.build_fingerprint().path for _ in range(count)})


def main() -> int:
    """Prints the table."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    with setup() as made:
        made.build_fingerprint()  # importing vLLM sets variables of its own
    wrong = 0
    moved = {"change": 0, "same": 0}
    print("| one change | build | path | specdeck says | vLLM's own |")
    print("|---|---|---|---|---|")
    for row in ROWS:
        found = try_change(row)
        good = is_right(row, found)
        wrong += not good
        moved["same" if row.kind == "same" else "change"] += bool(found.system_fingerprint_moved)
        marks = ["moved" if found.layers[layer] else "–" for layer in ("build", "path")]
        said = found.verdicts[0][1] + ("" if good else " **wrong**")
        own = {True: "moved", False: "–", None: "?"}[found.system_fingerprint_moved]
        print(f"| {row.name} | {marks[0]} | {marks[1]} | {said} | {own} |", flush=True)
    names = count_names(10)
    still = sum(row.kind == "same" for row in ROWS)
    changes = len(ROWS) - still
    print(f"\nspecdeck: {len(ROWS) - wrong} of {len(ROWS)} rows right, each in the right layer.")
    print(f"vLLM's own moved with {moved['change']} of {changes} changes,", end=" ")
    print(f"and with {moved['same']} of {still} that change nothing.")
    print(f"Names over 10 configurations made anew with no change: {names}.")
    return 1 if wrong or names != 1 else 0


if __name__ == "__main__":
    sys.exit(main())
