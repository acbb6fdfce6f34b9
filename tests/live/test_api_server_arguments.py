"""Starting an engine behind several API servers, as far as vLLM takes over."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("vllm")

PROGRAM = """
import json
from vllm.entrypoints.cli import serve

def begin(args):
    print("began", json.dumps([args.model, args.port, args.api_server_count]))

serve.run_multi_api_server = begin
from specdeck.engine.launch.api_servers import main
main()
"""
"""In a process of its own, since vLLM's imports warn of what it imports."""


def start(*words: str) -> subprocess.CompletedProcess[str]:
    """What vLLM's own command is brought to by these arguments."""
    quiet = {"VLLM_PLUGINS": "", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    command = [sys.executable, "-c", PROGRAM, *words]
    return subprocess.run(command, env={**os.environ, **quiet}, capture_output=True, text=True)


def test_vllm_is_had_begin_as_many_as_the_arguments_say() -> None:
    done = start("--model", "a/b", "--port", "8001", "--api-server-count", "2")
    assert done.returncode == 0, done.stderr
    (began,) = (line for line in done.stdout.splitlines() if line.startswith("began"))
    assert json.loads(began.partition(" ")[2]) == ["a/b", 8001, 2]
