"""Load on an engine of the registry: `owned_load FOLDER NAME`, then the words of `demo.load`.

The engine is asked only while it has its port, so that its API key goes nowhere else.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from specdeck.engine.demo import load
from specdeck.engine.launch.ownership import PortOwner
from specdeck.engine.launch.registry import Registry


def main(argv: Sequence[str]) -> int:
    """Run as a process; the exit code, 3 where there is no such record."""
    folder, name, *words = argv
    record = Registry(Path(folder)).find(name)
    return 3 if record is None else load.main(words, check_port=PortOwner(record).check)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
