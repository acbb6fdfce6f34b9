"""Whether the system lets a command have the memory that it requires."""

from __future__ import annotations

import os
import resource
from collections.abc import Mapping
from pathlib import Path

from specdeck.engine.errors import NoMemory

_LIBRARIES_MB, _THREAD_MB = 160, 80
"""Address space of NumPy and SciPy with one thread, and what each further one adds, with its
buffers and its stack in both of them."""
_OWN_MB = 128
"""Of a check besides: its own threads, connections and answers."""


def require_memory(environment: Mapping[str, str] = os.environ) -> None:
    """NoMemory where the limit of this process (`ulimit -v`) leaves too little for a check.

    To be asked before SciPy is imported: its OpenBLAS tries again for ever where it gets no memory,
    and no signal is heard meanwhile.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return
    allowed, taken = limit >> 20, _address_space() >> 20
    wanted = taken + _LIBRARIES_MB + _THREAD_MB * (_blas_threads(environment) - 1) + _OWN_MB
    if allowed < wanted:
        raise NoMemory(
            f"a check requires {wanted} MB of address space, and the limit is {allowed} MB",
            remedy="raise `ulimit -v`, or set OPENBLAS_NUM_THREADS=1",
        )


def _address_space() -> int:
    """Bytes that this process has taken."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _blas_threads(environment: Mapping[str, str]) -> int:
    """Threads that OpenBLAS starts.

    >>> _blas_threads({"OPENBLAS_NUM_THREADS": "3"})
    3
    """
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        if (given := environment.get(name, "")).isdecimal() and int(given) > 0:
            return int(given)
    return _cores()


def _cores() -> int:
    return len(os.sched_getaffinity(0))
