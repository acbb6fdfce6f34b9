"""SciPy's special functions, imported by what computes intervals, where the system lets it.

Not before they are needed: they take a second of a busy machine and 40 MB.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from specdeck.engine.errors import NoMemory

_NAME: Final = "scipy.special"
_LIBRARIES_MB, _THREAD_MB = 160, 80
"""Address space of NumPy and SciPy with one thread, and what each further one adds, with its
buffers and its stack in both of them."""
_OWN_MB = 128
"""Of a check or a judgement besides: its own threads, connections and answers."""


def special_functions() -> Any:
    """The module; raises NoMemory where there is too little for it. For a thread, the first time.

    >>> round(float(special_functions().betaincinv(6, 495, 0.025)), 4)
    0.0044
    """
    require_memory(beside_mb=0)
    return import_module(_NAME)


def require_memory(
    environment: Mapping[str, str] = os.environ, *, beside_mb: int = _OWN_MB
) -> None:
    """NoMemory where the limit of this process (`ulimit -v`) leaves too little to import them.

    SciPy's OpenBLAS tries again for ever where it gets no memory, and no signal is heard meanwhile.
    A command asks before it asks an engine for anything, with room for what it does until then.
    """
    if _NAME in sys.modules:
        return
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return
    allowed, taken = limit >> 20, _address_space() >> 20
    wanted = taken + _LIBRARIES_MB + _THREAD_MB * (_blas_threads(environment) - 1) + beside_mb
    if allowed < wanted:
        raise NoMemory(
            f"statistics require {wanted} MB of address space, and the limit is {allowed} MB",
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
