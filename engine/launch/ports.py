"""Ports: whether one can be had, a free one, and who listens on it, as the kernel tells."""

from __future__ import annotations

import errno
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from specdeck.engine.errors import UsageError
from specdeck.engine.launch import process

_PROC = Path("/proc")
_LISTENS = "0A"
RESOLVE_S = 5.0
"""For the name of a host to listen on."""


def port_refusal(host: str, port: int) -> str | None:
    """Why the port cannot be listened on, or None when it can."""
    try:
        family, kind, proto, address = _resolve(host, port)
    except (OSError, UnicodeError) as error:
        return _no_address(host, error)
    with closing(socket.socket(family, kind, proto)) as listener:
        # As the server does it: a port in TIME_WAIT is free.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            # Without listening: two that try it at the same moment would refuse each other.
            listener.bind(address)
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            return why + _holder(port) if error.errno == errno.EADDRINUSE else why
    return None


def _no_address(host: str, error: OSError | UnicodeError) -> str:
    why = error.strerror or error if isinstance(error, OSError) else "no name of a host"
    return f"{host} is no address of this machine: {why}"


def _resolve(
    host: str, port: int, family: int = socket.AF_UNSPEC
) -> tuple[int, int, int, tuple[Any, ...]]:
    """Family, kind, protocol and address to listen on.

    A thread of its own asks the name server, which may be silent for half a minute: signals are
    heard meanwhile. Raises OSError, after `RESOLVE_S` at the latest, and UnicodeError.
    """
    found: SimpleQueue[list[Any] | OSError | UnicodeError] = SimpleQueue()

    def ask() -> None:
        try:
            found.put(
                socket.getaddrinfo(host, port, family, socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            )
        except (OSError, UnicodeError) as error:
            found.put(error)

    if is_numeric(host):
        ask()
    else:
        threading.Thread(target=ask, name="resolve", daemon=True).start()
    try:
        answer = found.get(timeout=RESOLVE_S)
    except Empty:
        raise TimeoutError(f"no name server has answered within {RESOLVE_S:.0f} s") from None
    if isinstance(answer, Exception):
        raise answer
    family, kind, proto, _, address = answer[0]
    return family, kind, proto, address


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
    """A port of `host` on which nobody listens, and that is not reserved.

    Raises UsageError where `host` is no address of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    while True:
        try:
            with socket.socket(family) as listener:
                listener.bind(_resolve(host, 0, family)[3])
                port = int(listener.getsockname()[1])
        except (OSError, UnicodeError) as error:
            if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
                raise
            raise UsageError(_no_address(host, error), remedy="see to `host`") from error
        if not is_reserved(port):
            return port


def listens(identity: process.Leader, port: int) -> bool | None:
    """Whether a process of the leader's session listens on TCP `port`.

    None where the kernel does not tell who listens: without /proc, in a sandbox that
    numbers no sockets, or with processes that this one may not look into.
    """
    inodes = find_listeners(port)
    if not inodes:
        return None
    held = find_held(identity, inodes)
    return None if held is None else bool(held)


@dataclass(frozen=True, slots=True)
class HeldSocket:
    """A socket in the hands of a process."""

    inode: str
    descriptor: Path
    """The link in /proc that leads to it."""

    def is_held(self) -> bool:
        """Whether the process holds it still."""
        return _inode_at(self.descriptor) == self.inode


def find_listeners(port: int, address: str | None = None) -> set[str] | None:
    """Inodes of the sockets that a connection to `address` and TCP `port` may reach.

    Without an address, or with a name in its place, these are all that listen on the port.
    None where the kernel does not tell: without /proc, or in a sandbox that numbers no sockets.
    """
    found: set[str] = set()
    tables = 0
    for name in ("tcp", "tcp6"):
        with suppress(OSError):
            found |= listeners((_PROC / "net" / name).read_text(), port, address)
            tables += 1
    return None if not tables or "0" in found else found


def find_held(identity: process.Leader, inodes: set[str]) -> tuple[HeldSocket, ...] | None:
    """Those of `inodes` that the leader or another process of its session holds.

    None where some are missing and a process may not be looked into.
    """
    found: dict[str, HeldSocket] = {}
    is_blind = False
    for pid in _session(identity):  # the leader first, which mostly holds them all
        sockets = _sockets(pid)
        is_blind = is_blind or sockets is None
        found |= {one.inode: one for one in sockets or () if one.inode in inodes}
        if len(found) == len(inodes):
            break
    return None if is_blind and len(found) < len(inodes) else tuple(found.values())


def _session(identity: process.Leader) -> Iterator[int]:
    if process.leads(identity):
        yield identity.pid
    yield from (one.pid for one in process.members(identity) if one.pid != identity.pid)


def listeners(table: str, port: int, address: str | None = None) -> set[str]:
    """Inodes of the sockets that listen on `port`, from the text of `/proc/net/tcp`.

    With an IP address, only those that are bound to it or to every address.

    >>> line = "0: 0100007F:1F40 00000000:0000 0A 00000000:00000000 00:0 0 0 0 4711 1 0"
    >>> listeners("sl local_address …\\n" + line, 8000), listeners("sl …\\n" + line, 80)
    ({'4711'}, set())
    >>> listeners("sl …\\n" + line, 8000, "127.0.0.1"), listeners("sl …\\n" + line, 8000, "::1")
    ({'4711'}, set())
    """
    found = set()
    wanted = ip_address(address) if address is not None and is_numeric(address) else None
    for line in table.splitlines()[1:]:
        fields = line.split()
        if len(fields) <= 9 or fields[3] != _LISTENS:
            continue
        bound, _, number = fields[1].rpartition(":")
        if int(number, 16) == port:
            at = _parse_address(bound)
            if wanted is None or at.is_unspecified or at == wanted:
                found.add(fields[9])
    return found


def is_numeric(address: str) -> bool:
    """Whether `address` is an IP address and no name.

    >>> is_numeric("127.0.0.1"), is_numeric("::1"), is_numeric("localhost")
    (True, True, False)
    """
    try:
        ip_address(address)
    except ValueError:
        return False
    return True


def _parse_address(words: str) -> IPv4Address | IPv6Address:
    """An address as the kernel prints it: words of four bytes, each in the machine's own order.

    >>> _parse_address("0100007F"), _parse_address("0000000000000000FFFF00000100007F")
    (IPv4Address('127.0.0.1'), IPv4Address('127.0.0.1'))
    """
    raw = bytes.fromhex(words)
    if sys.byteorder == "little":
        raw = b"".join(raw[at : at + 4][::-1] for at in range(0, len(raw), 4))
    found = ip_address(raw)
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return mapped or found


def _sockets(pid: int) -> tuple[HeldSocket, ...] | None:
    """The sockets that a process holds; None when it cannot be looked into."""
    folder = _PROC / str(pid) / "fd"
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return ()  # it has just ended
    except OSError:
        return None
    links = ((folder / name, _inode_at(folder / name)) for name in names)
    return tuple(HeldSocket(inode, path) for path, inode in links if inode is not None)


def _inode_at(descriptor: Path) -> str | None:
    """The socket that a link of /proc leads to; None for anything else, and for none."""
    try:
        link = os.readlink(descriptor)
    except OSError:
        return None
    return link[len("socket:[") : -1] if link.startswith("socket:[") else None
