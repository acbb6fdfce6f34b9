"""A Ray cluster of this machine alone, on which vLLM's CPU build can be tried.

vLLM's platform for CPUs names no device by which Ray could place workers, and refuses Ray. The
plugin here is that platform with a name: Ray is told of two devices that are not there, places
one worker on each, and each computes on the CPU.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from specdeck.engine.launch.ports import find_free

PLATFORM = """
def name():
    return "ray_on_cpu.platform.RayOnCpu"
"""
CLASS = """
from vllm.platforms.cpu import CpuPlatform

class RayOnCpu(CpuPlatform):
    ray_device_key = "GPU"
"""
_START_S = 120.0
_END_S = 20.0


@contextmanager
def ray_cluster(*, devices: int = 2) -> Iterator[Mapping[str, str]]:
    """Runs one; the variables with which an engine finds it."""
    # Not a test's own folder: the paths of Ray's sockets must be short.
    with tempfile.TemporaryDirectory(prefix="ray-") as folder:
        write_platform(Path(folder))
        with _running(folder, devices) as variables:
            yield variables


@contextmanager
def _running(folder: str, devices: int) -> Iterator[Mapping[str, str]]:
    path = os.pathsep.join([folder, os.environ.get("PYTHONPATH", "")])
    port = find_free("127.0.0.1")
    variables = {
        "PYTHONPATH": path,
        "RAY_ADDRESS": f"127.0.0.1:{port}",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_memory_monitor_refresh_ms": "0",  # it judges by a machine's memory, not by ours
    }
    command = [
        sys.executable, "-c", "from ray.scripts.scripts import main; main()", "start", "--head",
        f"--port={port}", "--num-cpus=2", f"--num-gpus={devices}", "--include-dashboard=false",
        "--object-store-memory=100000000", f"--temp-dir={folder}",
    ]  # fmt: skip
    started = subprocess.Popen(
        command, env={**os.environ, **variables}, start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        assert started.wait(_START_S) == 0  # it leaves its servers behind, in its group
        yield variables
    finally:
        end_group(started.pid)


def write_platform(folder: Path) -> None:
    """Writes the plugin into `folder`, which PYTHONPATH must name."""
    package, about = folder / "ray_on_cpu", folder / "ray_on_cpu-1.0.dist-info"
    package.mkdir()
    (package / "__init__.py").write_text(PLATFORM)
    (package / "platform.py").write_text(CLASS)
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: ray-on-cpu\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        "[vllm.platform_plugins]\nray_on_cpu = ray_on_cpu:name\n"
    )


def end_group(leader: int) -> None:
    """Ends every process of the group."""
    members = [one for one in psutil.process_iter() if _group(one) == leader]
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(leader, number)
        psutil.wait_procs(members, timeout=_END_S)


def _group(one: psutil.Process) -> int | None:
    with suppress(ProcessLookupError, PermissionError):
        return os.getpgid(one.pid)
    return None


def count_workers() -> int:
    """Workers of vLLM's that run as actors on this machine."""
    return sum("RayWorkerProc" in _title(one) for one in psutil.process_iter())


def _title(one: psutil.Process) -> str:
    with suppress(psutil.Error):
        return " ".join(one.cmdline())
    return ""
