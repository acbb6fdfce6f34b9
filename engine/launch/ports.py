"""Which port an engine can have, and who has it otherwise."""

from __future__ import annotations

import socket
from typing import Literal

from specdeck.engine.errors import UsageError


def chosen(host: str, wanted: int | Literal["auto"]) -> int:
    """The port to start on: `wanted`, or any free one for 0 and `auto`.

    Raises UsageError when the port is taken, naming by whom where the kernel tells.
    """
    if wanted in (0, "auto"):
        with socket.socket(_family(host)) as listener:
            listener.bind((host, 0))
            return int(listener.getsockname()[1])
    assert isinstance(wanted, int)
    if not free(host, wanted):
        holder = owner(wanted)
        by = f" by {holder}" if holder else ""
        raise UsageError(f"port {wanted} is taken{by}", remedy="choose another, or --port auto")
    return wanted


def free(host: str, port: int) -> bool:
    """Whether a server could listen on `port` at this moment."""
    with socket.socket(_family(host)) as listener:
        # As servers do: connections that linger after a server's end do not count.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
            listener.listen()
        except OSError:
            return False
    return True


def owner(port: int) -> str | None:
    """Name and pid of the process that listens on `port`; None when that is not told."""
    import psutil

    try:
        connections = psutil.net_connections("tcp")
    except (psutil.Error, OSError, RuntimeError):
        return None
    for connection in connections:
        # An address is an empty tuple where there is none.
        if connection.status != psutil.CONN_LISTEN or port not in connection.laddr:
            continue
        if connection.pid is None:
            return None
        try:
            return f"{psutil.Process(connection.pid).name()} (pid {connection.pid})"
        except psutil.Error:
            return f"pid {connection.pid}"
    return None


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
