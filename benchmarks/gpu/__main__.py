"""Everything about an engine on a GPU, unattended, onto one page.

    python -m benchmarks.gpu [--parts 1,2] [--minutes 25] [--small] [--page FILE]

Each part runs in a process of its own, within its time, and the page is rewritten after each:
whatever cuts the program short costs the parts that are still to come. Without a GPU the small
form runs on vLLM's CPU build, and parts that need CUDA say so.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from pathlib import Path

from benchmarks.gpu.machine import NoGpu, find_gpu
from benchmarks.gpu.page import PAGE
from benchmarks.gpu.parts import choose
from benchmarks.gpu.program import Program
from benchmarks.gpu.variants import Setup


def parse_options(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line, read."""
    parser = argparse.ArgumentParser(
        prog="benchmarks.gpu", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--parts", type=choose, default=choose(None), help="such as 1,2,5")
    parser.add_argument("--minutes", type=float, default=25.0, help="after which nothing is begun")
    parser.add_argument("--small", action="store_true", help="a little of everything")
    parser.add_argument("--page", type=Path, help="default: benchmarks/GPU.md, on a GPU")
    parser.add_argument("--keep", type=Path, help="folder to copy configs, logs and reports to")
    parser.add_argument("--layers", type=int, default=32, help="of the target; 0: as it ships")
    parser.add_argument("--runner", choices=("auto", "v1", "v2"), default="auto")
    parser.add_argument(
        "--engine-args", type=json.loads, default={}, metavar="JSON",
        help='over those of every engine, such as {"attention_backend": "TRITON_ATTN"}',
    )  # fmt: skip
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Runs the parts; 0 when nothing failed, 1 otherwise."""
    options = parse_options(argv)
    try:
        gpu = find_gpu()
    except NoGpu as error:
        sys.exit(str(error))
    # A time limit that ends the program must end its engines too.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    with tempfile.TemporaryDirectory(prefix="specdeck-gpu-") as temporary:
        folder = Path(temporary).resolve()
        small = options.small or gpu is None
        setup = Setup(
            folder, gpu, small, 0 if small else options.layers, options.runner, options.engine_args
        )
        page = options.page or (PAGE if gpu else folder / "GPU.md")
        program = Program(setup, page, options.minutes * 60, keep=options.keep)
        good = program.run(options.parts)
        print(page.read_text() if options.page is None and gpu is None else page)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
