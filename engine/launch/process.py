"""The processes of one engine: everything in the session that its leader opened.

An engine is started in a session of its own. Children inherit the session and stay
in it when their parent dies, so the session finds an EngineCore or a worker whose
server is gone, which a walk down the tree of processes would not.
"""

from __future__ import annotations

import errno
import os
import pwd
import signal
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path

_PROC = Path("/proc")
_MACHINE_ID = Path("/etc/machine-id")


@dataclass(frozen=True, slots=True)
class Process:
    """One process at one moment."""

    pid: int
    born: int
    """Clock ticks from boot to its start: with the pid, it names a process for ever.

    Taken raw, because a start in Unix time moves whenever the clock is set.
    """
    session: int
    zombie: bool
    name: str


@dataclass(frozen=True, slots=True)
class Leader:
    """The process that opened a session, beyond doubt."""

    pid: int
    born: int
    boot: str | None
    """The boot of the machine in which `pid` and `born` mean something."""


def parse_stat(stat: str) -> Process:
    """A process from its line in `/proc/<pid>/stat`.

    The name may hold blanks and brackets, hence the search from the right.

    >>> parse_stat("17 (VLLM::Engine (0)) S 9 9 9 0 -1 4194304 1 0 0 0 1 1 0 0 20 0 1 0 4242 1 1")
    Process(pid=17, born=4242, session=9, zombie=False, name='VLLM::Engine (0)')
    """
    pid, _, rest = stat.partition(" (")
    name, _, rest = rest.rpartition(") ")
    fields = rest.split()
    return Process(int(pid), int(fields[19]), int(fields[3]), fields[0] in "ZXx", name)


def find_process(pid: int) -> Process | None:
    """The process that has `pid`; None when there is none."""
    try:
        return parse_stat((_PROC / str(pid) / "stat").read_text(errors="replace"))
    except (OSError, ValueError, IndexError):
        return None


def boot() -> str | None:
    """Names the boot of this machine; None where the kernel does not tell."""
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None


@dataclass(frozen=True, slots=True)
class Host:
    """Where a pid means something; several of them may share one home folder."""

    name: str
    machine: str | None
    """A digest of the machine's own id, as hosts may share a name; None where it has none."""
    namespace: str | None
    """What numbers the processes: a container counts its own."""


def find_host() -> Host:
    """The host that this process runs on; raises OSError where too many files are open."""
    try:
        found = _MACHINE_ID.read_text(errors="replace").strip()
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):  # or it would be another host for now
            raise
        found = ""
    machine = sha256(f"specdeck {found}".encode()).hexdigest()[:16] if found else None
    try:
        namespace = os.readlink(_PROC / "self/ns/pid")
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise
        namespace = None
    return Host(_find_name(), machine, namespace)


@cache
def _find_name() -> str:
    """The machine's name as this process first asked for it: what supervises an engine is still
    on its machine when that gets another name."""
    return socket.gethostname()


def find_boot_time() -> float | None:
    """Unix time at which this machine was started; None where the kernel does not tell."""
    try:
        lines = (_PROC / "stat").read_text().splitlines()
        return next((float(line[6:]) for line in lines if line.startswith("btime ")), None)
    except (OSError, ValueError):
        return None


def find_leader(pid: int) -> Leader | None:
    """The identity of a living process; None when there is none with this pid."""
    found = find_process(pid)
    return None if found is None else Leader(pid, found.born, boot())


def leads(identity: Leader) -> bool:
    """Whether the very process that opened the session still runs."""
    found = find_process(identity.pid)
    return (
        found is not None
        and not found.zombie
        and found.born == identity.born
        and boot() == identity.boot
    )


def members(identity: Leader) -> tuple[Process, ...]:
    """Every running process of the session, its leader first; zombies hold nothing.

    The kernel gives a pid away again only when no process and no session bears its
    number. So a *different* process under the leader's pid proves that the session
    is over, and none under it that whatever bears the number belongs to it.
    """
    if boot() != identity.boot:
        return ()
    holder = find_process(identity.pid)
    if holder is not None and holder.born != identity.born:
        return ()
    mine = [p for p in _everything() if p.session == identity.pid and not p.zombie]
    return tuple(sorted(mine, key=lambda p: (p.pid != identity.pid, p.born)))


def tidies_up(one: Process) -> bool:
    """Whether it is a tracker of Python's multiprocessing, which deletes what the others leave."""
    try:
        words = (_PROC / str(one.pid) / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return any(b"multiprocessing.resource_tracker" in word for word in words)


def send(to: Process, number: signal.Signals) -> bool:
    """Signals this very process, and nobody who has got its pid since.

    False where the system does not let this user signal it.
    """
    found = find_process(to.pid)
    if found is not None and found.born == to.born:
        try:
            os.kill(to.pid, number)
        except ProcessLookupError:
            pass
        except PermissionError:
            return False
    return True


def find_owner(one: Process) -> str | None:
    """The name of the user that a process runs as, or the number of one without a name; None for
    a process that is gone."""
    try:
        uid = (_PROC / str(one.pid)).stat().st_uid
    except OSError:
        return None
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _everything() -> Iterator[Process]:
    for entry in os.listdir(_PROC):
        if entry.isdecimal() and (found := find_process(int(entry))) is not None:
            yield found
