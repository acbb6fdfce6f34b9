"""A `/proc` with processes whose threads run and wait as a test says, and control groups."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class SchedstatTree:
    """What Linux would say, in files below `root`."""

    root: Path
    threads: dict[tuple[int, int], tuple[float, float]] = field(default_factory=dict)
    """Seconds run and waited, by process and thread."""

    @property
    def proc(self) -> Path:
        """In place of /proc."""
        return self.root / "proc"

    @property
    def groups(self) -> Path:
        """In place of /sys/fs/cgroup."""
        return self.root / "groups"

    def add(self, pid: int, parent: int, *threads: int) -> None:
        """A process, with its main thread and others."""
        for thread in (pid, *threads):
            (self.proc / f"{pid}/task/{thread}").mkdir(parents=True)
            self.spend(pid, thread)
        (self.proc / f"{pid}/stat").write_text(f"{pid} (VLLM) (x y) S {parent} 1 1\n")

    def spend(self, pid: int, thread: int, ran: float = 0.0, waited: float = 0.0) -> None:
        """A thread goes on for so many seconds."""
        before = self.threads.get((pid, thread), (0.0, 0.0))
        now = self.threads[pid, thread] = (before[0] + ran, before[1] + waited)
        nanoseconds = [round(each * 1e9) for each in now]
        path = self.proc / f"{pid}/task/{thread}/schedstat"
        path.write_text(f"{nanoseconds[0]} {nanoseconds[1]} 7\n")

    def group(self, pid: int, line: str, folder: str, counts: str) -> None:
        """The control group of a process, and its counts."""
        (self.proc / f"{pid}/cgroup").write_text(f"4:memory:/m\n{line}\n")
        (self.groups / folder).mkdir(parents=True, exist_ok=True)
        (self.groups / folder / "cpu.stat").write_text(counts)
