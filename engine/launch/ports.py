"""Which port an engine can have."""

from __future__ import annotations

import socket
from typing import Literal

from specdeck.engine.errors import UsageError
from specdeck.engine.launch.machine import port_taken


def chosen(host: str, wanted: int | Literal["auto"]) -> int:
    """The port to start on: `wanted`, or any free one for 0 and `auto`.

    Raises UsageError when the port is taken, naming by whom where the kernel tells.
    """
    if wanted in (0, "auto"):
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family) as listener:
            listener.bind((host, 0))
            return int(listener.getsockname()[1])
    assert isinstance(wanted, int)
    if why := port_taken(host, wanted):
        raise UsageError(f"port {wanted}: {why}", remedy="choose another, or --port auto")
    return wanted
