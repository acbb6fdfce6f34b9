"""What an import drags in, seen from a fresh interpreter: the run-time half of the contracts."""

import subprocess
import sys

import pytest


def loaded_by(statement: str) -> set[str]:
    program = f"import sys; {statement}; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return {name.split(".")[0] for name in ran.stdout.split()}


@pytest.mark.parametrize(
    ("statement", "unwanted"),
    [
        ("import specdeck.engine.plugin.register", {"httpx", "pydantic", "textual", "torch"}),
        ("import specdeck.engine.plugin.core", {"httpx", "pydantic", "textual", "torch", "vllm"}),
        ("import specdeck.engine.policy.pilot", {"httpx", "pydantic", "textual", "torch", "vllm"}),
        ("import specdeck.engine.control.protocol", {"httpx", "pydantic", "yaml", "textual"}),
        ("import specdeck.console.cli.main", {"httpx", "textual", "torch", "pydantic", "vllm"}),
        ("import specdeck.console.app", {"torch", "vllm", "transformers"}),
        ("import specdeck.engine.launch.command", {"torch", "vllm", "textual"}),
        ("import specdeck.engine.demo.load", {"torch", "vllm", "textual"}),
    ],
)
def test_an_import_stays_light(statement: str, unwanted: set[str]) -> None:
    assert loaded_by(statement) & unwanted == set()
