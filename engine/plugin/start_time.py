"""When an engine began to start: what changes on its disk from then on may not be what it loads.

Its first process has vLLM's plugins loaded before it looks at a model's files; those that it
starts have the time from it.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import MutableMapping

_VARIABLE = "_SPECDECK_BEGAN"
"""`PID SECONDS`: the process that wrote it, and seconds since the epoch."""


def note_start(
    environment: MutableMapping[str, str] = os.environ, *, wall: float | None = None
) -> None:
    """Remembers that this process begins to start an engine, or is a part of one that does.

    Safe to call again; what another program left in the environment is replaced.
    """
    if find_start(environment) is None:
        environment[_VARIABLE] = f"{os.getpid()} {time.time() if wall is None else wall}"


def find_start(environment: MutableMapping[str, str] = os.environ) -> float | None:
    """Seconds since the epoch at which the engine of this process began to start.

    None where nobody has noted it: a process that was started otherwise than by multiprocessing,
    as Ray does, has no way to know.
    """
    writer, _, seconds = environment.get(_VARIABLE, "").partition(" ")
    parent = multiprocessing.parent_process()
    if writer not in (str(os.getpid()), str(parent.pid) if parent else None):
        return None
    try:
        return float(seconds)
    except ValueError:
        return None
