"""What this machine has to run an engine on, gathered once for a pre-flight."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from importlib import util
from pathlib import Path

from specdeck.engine.launch.build import Build, broken_torchvision, detected

_CGROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU's memory at one moment, in bytes."""

    name: str
    total: int
    free: int


@dataclass(frozen=True, slots=True)
class Machine:
    """What was found; a list that is empty means none, None means unknown."""

    build: Build
    gpus: tuple[Gpu, ...] = ()
    """Those that the engine would see."""
    memory_free: int | None = None
    """Bytes that processes can still get, within the container's limit."""
    torchvision: str | None = None
    """The version of a torchvision that keeps vLLM from starting; None when all is well."""
    ray: bool = False
    """Whether Ray can be imported."""


def gathered(environment: Mapping[str, str]) -> Machine:
    """The machine as an engine with this environment would find it."""
    return Machine(
        build=detected(),
        gpus=visible(gpus(), environment),
        memory_free=memory_free(),
        torchvision=broken_torchvision(),
        ray=util.find_spec("ray") is not None,
    )


def gpus() -> tuple[Gpu, ...]:
    """Every NVIDIA GPU that the driver answers for; none without a driver."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    try:
        found = []
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
            name = pynvml.nvmlDeviceGetName(handle)
            found.append(Gpu(str(name), int(memory.total), int(memory.free)))
        return tuple(found)
    except pynvml.NVMLError:
        return ()
    finally:
        pynvml.nvmlShutdown()


def visible(gpus: tuple[Gpu, ...], environment: Mapping[str, str]) -> tuple[Gpu, ...]:
    """The GPUs that CUDA_VISIBLE_DEVICES leaves; all when it names them by UUID.

    >>> visible((Gpu("a", 1, 1), Gpu("b", 1, 1)), {"CUDA_VISIBLE_DEVICES": "1"})
    (Gpu(name='b', total=1, free=1),)
    """
    listed = environment.get("CUDA_VISIBLE_DEVICES")
    if listed is None:
        return gpus
    words = [word.strip() for word in listed.split(",") if word.strip()]
    if not all(word.isdecimal() for word in words):
        return gpus if words and words[0] != "-1" else ()
    return tuple(gpus[int(word)] for word in words if int(word) < len(gpus))


def memory_free(folder: Path = _CGROUP) -> int | None:
    """Bytes free for new processes: the machine's, or the container's where that is less."""
    import psutil

    free = int(psutil.virtual_memory().available)
    try:
        limit = (folder / "memory.max").read_text().strip()
        used = int((folder / "memory.current").read_text())
        return free if limit == "max" else max(0, min(free, int(limit) - used))
    except (OSError, ValueError):
        return free


def port_taken(host: str, port: int) -> str | None:
    """Why the port cannot be listened on, or None when it can."""
    import socket

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
