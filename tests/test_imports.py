"""What an import drags in, seen from a fresh interpreter: the run-time half of the contracts."""

import subprocess
import sys

import grimp
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
        (
            "import specdeck.engine.plugin.control",
            {"httpx", "pydantic", "textual", "torch", "vllm"},
        ),
        ("import specdeck.engine.policy.runner", {"httpx", "pydantic", "textual", "torch", "vllm"}),
        ("import specdeck.engine.protocol.messages", {"httpx", "pydantic", "yaml", "textual"}),
        ("import specdeck.console.cli.main", {"httpx", "textual", "torch", "pydantic", "vllm"}),
        ("import specdeck.console.app", {"torch", "vllm", "transformers"}),
        ("import specdeck.engine.launch.command", {"torch", "vllm", "textual"}),
        ("import specdeck.engine.demo.load", {"torch", "vllm", "textual"}),
    ],
)
def test_an_import_stays_light(statement: str, unwanted: set[str]) -> None:
    assert loaded_by(statement) & unwanted == set()


def test_no_module_imports_itself_by_way_of_others() -> None:
    graph = grimp.build_graph("specdeck", exclude_type_checking_imports=True)
    upstream = {module: graph.find_upstream_modules(module) for module in graph.modules}
    cycles = {
        module: sorted(other for other in others if module in upstream[other])
        for module, others in upstream.items()
        if any(module in upstream[other] for other in others)
    }
    assert cycles == {}
