"""Ports: whether one can be had, a free one, and who listens on it, as the kernel tells."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

from specdeck.engine.launch import process

_PROC = Path("/proc")
_LISTENS = "0A"


def port_refusal(host: str, port: int) -> str | None:
    """Why the port cannot be listened on, or None when it can."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError) as error:
        return f"{host} is no address of this machine: {getattr(error, 'strerror', error)}"
    with closing(socket.socket(family, kind, proto)) as listener:
        # As the server does it: a port in TIME_WAIT is free.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
            listener.listen(1)
        except OSError as error:
            return (error.strerror or str(error)).lower() + _holder(port)
    return None


def _holder(port: int) -> str:
    """` by python (pid 7)` where the system tells who listens."""
    import psutil

    try:
        for connection in psutil.net_connections("tcp"):
            listens = connection.status == psutil.CONN_LISTEN and connection.pid
            if listens and connection.laddr and connection.laddr.port == port:
                return f", by {psutil.Process(connection.pid).name()} (pid {connection.pid})"
    except (psutil.Error, OSError):
        return ""
    return ""


def find_free(host: str, *, is_reserved: Callable[[int], bool] = lambda _: False) -> int:
    """A port of `host` on which nobody listens, and that is not reserved."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    while True:
        with socket.socket(family) as listener:
            listener.bind((host, 0))
            port = int(listener.getsockname()[1])
        if not is_reserved(port):
            return port


def listens(identity: process.Leader, port: int) -> bool | None:
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
    seen: list[set[str] | None] = [socket_inodes(one.pid) for one in process.members(identity)]
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


def socket_inodes(pid: int) -> set[str] | None:
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
