"""Which port an engine can have."""

from __future__ import annotations

import socket
from typing import Literal

from specdeck.engine.errors import UsageError
from specdeck.engine.launch.machine import port_taken
from specdeck.engine.launch.registry import Registry, taken


def chosen(host: str, wanted: int | Literal["auto"], registry: Registry | None = None) -> int:
    """The port to start on: `wanted`, or any free one for 0 and `auto`.

    Raises UsageError when the port is taken, naming by whom: an engine in the registry,
    which may not listen yet, or whoever the kernel tells of.
    """
    if wanted in (0, "auto"):
        port = _free(host)
        while registry is not None and registry.holder(port) is not None:
            port = _free(host)
        return port
    assert isinstance(wanted, int)
    if registry is not None and (holder := registry.holder(wanted)):
        raise taken(wanted, holder)
    if why := port_taken(host, wanted):
        raise UsageError(f"port {wanted}: {why}", remedy="choose another, or --port auto")
    return wanted


def _free(host: str) -> int:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as listener:
        listener.bind((host, 0))
        return int(listener.getsockname()[1])
