"""How long the threads that make an engine's steps waited for a CPU, as Linux counts it.

`/proc/PID/task/TID/schedstat` has the nanoseconds that a thread ran, and those that it was ready to
run and had no CPU. The engine core and each worker make a step one after the other, so that what
one of them waits for delays all. Of a process the threads that compute count: those that ran half
as long as the busiest one, of which the one that waited longest is what the others wait for at the
end of their common work. Of several workers it is the one that waited longest, since they go in
step.

A reader spins while it waits for a message in shared memory, and gives its CPU away to whoever
wants it. So an engine core that waits is not always missed, while a worker computes; who judges has
both figures.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import NamedTuple

LEAST_GAP_S = 0.4
"""Between two looks at the threads, which take some hundred microseconds."""
_BETWEEN_SEARCHES_S = 60.0
"""Between two looks at all threads of a process: others may have become the busy ones."""
_MOST_THREADS = 1024
"""Of a process, that are searched for the busy ones."""
_MOST_READ = 32
"""Threads of all processes that are read every time, at some ten microseconds each."""
_LEAST_BUSY = 2
"""Of a process."""
_MOST_WORKERS = 64
_SHARE = 0.5
"""Of the busiest thread's time: one that ran less does not compute."""
_PROC = Path("/proc")
_GROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class CpuTimes:
    """Seconds since the first look, which only rise; None is not known."""

    watched: float
    """That passed."""
    core_ran: float | None
    """Of the engine core's process; None where the worker is the same one."""
    core_waited: float | None
    worker_ran: float | None
    """Of the worker that waited longest; None where no worker is on this machine."""
    worker_waited: float | None
    throttled: float | None
    """That a quota of the engine's control group kept its threads from running."""


class _Ran(NamedTuple):
    """What threads did, in seconds."""

    ran: float
    waited: float


@dataclass
class _Process:
    """The threads of one process."""

    pid: int
    proc: Path
    most: int = _LEAST_BUSY
    """Threads that are read every time."""
    busy: list[int] = field(default_factory=list)
    last: dict[int, _Ran] = field(default_factory=dict)
    """Of the busy ones, when they were read last."""
    searched: dict[int, _Ran] = field(default_factory=dict)
    """Of all, when all were."""
    search_at: float = float("-inf")

    def measure(self, now: float) -> _Ran | None:
        """What the threads that compute did since the last time; None where that is not known."""
        if now >= self.search_at:
            self._search()
            self.search_at = now + _BETWEEN_SEARCHES_S
        found = dict(self._read(self.busy))
        spent = {
            thread: _Ran(now.ran - before.ran, now.waited - before.waited)
            for thread, now in found.items()
            if (before := self.last.get(thread)) is not None
        }
        self.last = found
        if not spent or not any(one.ran for one in found.values()):
            return None  # a kernel that does not count says 0 of everything
        most = max(one.ran for one in spent.values())
        return _Ran(most, max(one.waited for one in spent.values() if one.ran >= _SHARE * most))

    def _search(self) -> None:
        """Chooses the threads that ran most since the last search; the main one among them."""
        found = dict(self._read(self._list_threads()))
        none = _Ran(0.0, 0.0)
        ran = {
            thread: now.ran - self.searched.get(thread, none).ran for thread, now in found.items()
        }
        ran[self.pid] = float("inf")
        self.busy = sorted(ran, key=lambda thread: -ran[thread])[: self.most]
        self.searched = found

    def _list_threads(self) -> list[int]:
        try:
            names = os.listdir(self.proc / str(self.pid) / "task")
        except OSError:
            return []
        return sorted(int(name) for name in names if name.isdecimal())[:_MOST_THREADS]

    def _read(self, threads: Sequence[int]) -> Iterator[tuple[int, _Ran]]:
        for thread in threads:
            text = _read_start(f"{self.proc}/{self.pid}/task/{thread}/schedstat")
            words = text.split()
            if len(words) >= 2 and words[0].isdecimal() and words[1].isdecimal():
                yield thread, _Ran(int(words[0]) / 1e9, int(words[1]) / 1e9)


class CpuWatch:
    """Adds up what the engine core's and the workers' threads did, whenever it is asked."""

    def __init__(
        self,
        workers: Sequence[int],
        *,
        pid: int | None = None,
        proc: Path = _PROC,
        groups: Path = _GROUPS,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """`workers` are process numbers as the workers tell them: one of another machine, or of a
        container with numbers of its own, is left out. `clock` gives seconds."""
        own = os.getpid() if pid is None else pid
        known = [one for one in dict.fromkeys(workers) if _is_child(one, own, proc) or one == own]
        alone = own in known
        known = known[:_MOST_WORKERS]
        most = max(_LEAST_BUSY, _MOST_READ // (len(known) or 1))
        self._core_process = None if alone else _Process(own, proc)
        self._workers = [_Process(one, proc, most) for one in known]
        self._group = _find_group(proc, groups, own)
        self._clock = clock
        self._at: float | None = None
        self._found: CpuTimes | None = None
        self._throttled_before: float | None = None

    def read(self) -> CpuTimes | None:
        """Up to this moment, or to one some tenths of a second ago; None where Linux does not say.

        The first look is the beginning: it has nothing but zeros.
        """
        now = self._clock()
        if self._at is not None and now - self._at < LEAST_GAP_S:
            return self._found
        passed = 0.0 if self._at is None else now - self._at
        of_core = None if self._core_process is None else self._core_process.measure(now)
        spent = [found for one in self._workers if (found := one.measure(now)) is not None]
        of_worker = max(spent, key=lambda one: one.waited, default=None)
        throttled = _read_throttled(self._group)
        before, self._throttled_before = self._throttled_before, throttled
        more = None if throttled is None or before is None else throttled - before
        first, self._at = self._at is None, now
        if first:
            # What was read is what the next look is compared with.
            self._found = self._begin(throttled is not None)
        elif self._found is not None and (of_core is not None or of_worker is not None):
            self._found = _add(self._found, passed, of_core, of_worker, more)
        return self._found

    def _begin(self, has_quota: bool) -> CpuTimes | None:
        has_core = self._core_process is not None and bool(self._core_process.last)
        has_worker = any(one.last for one in self._workers)
        if not has_core and not has_worker:
            return None
        of_core, of_worker = (0.0 if known else None for known in (has_core, has_worker))
        return CpuTimes(0.0, of_core, of_core, of_worker, of_worker, 0.0 if has_quota else None)


def _add(
    so_far: CpuTimes,
    passed: float,
    of_core: _Ran | None,
    of_worker: _Ran | None,
    more: float | None,
) -> CpuTimes:
    def rise(count: float | None, by: float | None) -> float | None:
        return count if count is None or by is None else count + max(0.0, by)

    return CpuTimes(
        so_far.watched + passed,
        rise(so_far.core_ran, of_core and of_core.ran),
        rise(so_far.core_waited, of_core and of_core.waited),
        rise(so_far.worker_ran, of_worker and of_worker.ran),
        rise(so_far.worker_waited, of_worker and of_worker.waited),
        rise(so_far.throttled, more),
    )


def _read_start(path: str) -> str:
    """The first bytes of a file of the kernel's; nothing where it cannot be read.

    Without Python's files, which take three times as long.
    """
    try:
        number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(number, 4096).decode("ascii", "replace")
    except OSError:
        return ""
    finally:
        os.close(number)


def _is_child(pid: int, parent: int, proc: Path) -> bool:
    # The name, in brackets, may have brackets and spaces in it.
    words = _read_start(f"{proc}/{pid}/stat").rpartition(")")[2].split()
    return len(words) > 1 and words[1] == str(parent)


def _find_group(proc: Path, groups: Path, pid: int) -> Path | None:
    """The file that says how long a quota held this process; None where there is none."""
    names: dict[str, str] = {}
    for line in _read_start(f"{proc}/{pid}/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        for controller in controllers.split(","):
            names[controller] = path.lstrip("/")
    # A container sees its own group as the root, whatever path it is told.
    places = [groups / "cpu" / names["cpu"], groups / "cpu"] if "cpu" in names else []
    places += [groups / names[""], groups] if "" in names else []
    return next((at for one in places if (at := one / "cpu.stat").is_file()), None)


def _read_throttled(group: Path | None) -> float | None:
    found = _read_counts(group)
    if "throttled_usec" in found:
        return found["throttled_usec"] / 1e6
    return found["throttled_time"] / 1e9 if "throttled_time" in found else None


def _read_counts(path: Path | None) -> Mapping[str, int]:
    rows = (line.split() for line in ("" if path is None else _read_start(str(path))).splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdecimal()}
