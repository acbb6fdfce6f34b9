"""Who listens on a port, told by the kernel."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from specdeck.engine.launch import session

_PROC = Path("/proc")
_LISTENS = "0A"


def listens(identity: session.Leader, port: int) -> bool | None:
    """Whether a process of the leader's session listens on TCP `port`.

    None where the kernel does not tell who listens: without /proc, in a sandbox that
    numbers no sockets, or with processes that this one may not look into.
    """
    inodes: set[str] = set()
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            inodes |= listeners((_PROC / "net" / table).read_text(), port)
    inodes.discard("0")
    if not inodes:
        return None
    seen: list[set[str] | None] = [held(process.pid) for process in session.members(identity)]
    if any(found & inodes for found in seen if found is not None):
        return True
    return None if None in seen else False


def listeners(table: str, port: int) -> set[str]:
    """Inodes of the sockets that listen on `port`, from the text of `/proc/net/tcp`.

    >>> line = "0: 0100007F:1F40 00000000:0000 0A 00000000:00000000 00:0 0 0 0 4711 1 0"
    >>> listeners("sl local_address …\\n" + line, 8000), listeners("sl …\\n" + line, 80)
    ({'4711'}, set())
    """
    found = set()
    for line in table.splitlines()[1:]:
        fields = line.split()
        if len(fields) <= 9 or fields[3] != _LISTENS:
            continue
        if int(fields[1].rpartition(":")[2], 16) == port:
            found.add(fields[9])
    return found


def held(pid: int) -> set[str] | None:
    """Inodes of the sockets that a process holds; None when it cannot be looked into."""
    folder = _PROC / str(pid) / "fd"
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return set()  # it has just ended
    except OSError:
        return None
    found = set()
    for name in names:
        try:
            link = os.readlink(folder / name)
        except OSError:
            continue  # closed meanwhile
        if link.startswith("socket:["):
            found.add(link[len("socket:[") : -1])
    return found
