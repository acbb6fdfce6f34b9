"""The table of what is used of vLLM: complete, and true of the versions that are claimed."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks import contract
from benchmarks.vllm_source import Source

import specdeck.engine
from specdeck.engine.plugin.contract import ROWS, Row
from specdeck.engine.protocol.vllm_versions import BELOW, OLDEST

ENGINE = Path(specdeck.engine.__file__).resolve().parent
PLUGIN = sorted((ENGINE / "plugin").glob("*.py"))
USERS = [*PLUGIN, *(ENGINE / "config").glob("*.py"), *(ENGINE / "launch").glob("*.py")]

CACHE = contract.cache_folder(os.environ)
"""As it is outside of tests, which are given a home of their own."""

VOCABULARY = {
    word
    for row in ROWS
    for word in (*row.members, *row.parameters, *row.reads, *row.name.split("."))
}
OTHERS = re.compile(r"_?specdeck(_\w+)?|get|headers|stream")
"""Names of ours on objects of vLLM's, of dicts and of a web framework's requests."""

VLLM_OBJECTS = frozenset(
    {
        "core", "_core", "scheduler", "_scheduler", "output", "request", "held", "drafter",
        "worker", "config", "vllm_config", "spec", "parallel", "target", "draft",
        "model_config", "parallel_config", "scheduler_config", "speculative_config",
        "load_config", "compilation_config", "engine_client", "_client", "engine_core",
        "processor", "input_processor", "model_executor", "input_batch", "params",
    }
)  # fmt: skip
"""What the plugin calls objects of vLLM's."""


def strings(tree: ast.Module) -> Iterator[str]:
    """Texts in code, of which docstrings are none."""
    documented = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in documented:
            yield from (node.value,) if isinstance(node.value, str) else ()


def last_name(node: ast.expr) -> str:
    """`scheduler` of `self.core.scheduler`."""
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


@pytest.mark.parametrize("path", USERS, ids=lambda path: f"{path.parent.name}.{path.stem}")
def test_every_import_of_vllm_has_a_row(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    known = {(module, row.name.split(".")[0]) for row in ROWS for module in row.modules}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "vllm":
            asked = {(node.module, alias.name) for alias in node.names}
            assert asked <= known


@pytest.mark.parametrize("path", PLUGIN, ids=lambda path: path.stem)
def test_every_name_of_vllms_in_the_plugin_has_a_row(path: Path) -> None:
    if path.stem == "contract":
        return
    tree = ast.parse(path.read_text(encoding="utf-8"))
    modules = {module for row in ROWS for module in row.modules} | {"vllm.specdeck"}
    named = {text for text in strings(tree) if re.fullmatch(r"vllm(\.\w+)+", text)}
    assert named <= modules
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and last_name(node.func) in {"getattr", "hasattr"}:
            name = getattr(node.args[1], "value", None)
            if isinstance(name, str) and last_name(node.args[0]) in VLLM_OBJECTS:
                assert name in VOCABULARY or OTHERS.fullmatch(name), ast.unparse(node)
        elif isinstance(node, ast.Attribute) and last_name(node.value) in VLLM_OBJECTS:
            assert node.attr in VOCABULARY or OTHERS.fullmatch(node.attr), ast.unparse(node)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.key)
def test_every_row_is_used_where_it_says(row: Row) -> None:
    files = [ENGINE / f"{user.replace('.', '/')}.py" for user in row.users]
    text = "".join(file.read_text(encoding="utf-8") for file in files)
    assert [member for member in row.members if member not in text] == []


def test_rows_are_told_apart_by_their_keys() -> None:
    assert len({row.key for row in ROWS}) == len(ROWS)


def test_the_installed_vllm_is_as_it_was_read() -> None:
    source = contract.find_installed()
    assert source is not None
    version = contract.installed_version(source)
    findings = contract.examine(source)
    assert [finding.lacks for finding in findings if finding.is_red] == []
    assert contract.compare(findings, version) == []


@pytest.mark.parametrize("version", contract.known_versions())
def test_a_version_is_as_it_was_read(version: str) -> None:
    try:
        findings = contract.examine(kept(version))
    except contract.NotKept as lacking:
        pytest.skip(f"unchecked: {lacking} is not kept; python -m benchmarks.contract {version}")
    assert contract.compare(findings, version) == []


@pytest.mark.parametrize("version", contract.known_versions())
def test_versions_in_range_have_every_row_and_older_ones_have_not(version: str) -> None:
    read = contract.read_expected(version)
    red = [row for row in ROWS if is_red(read[row.key]) and not row.optional]
    major, minor = map(int, version.split(".")[:2])
    if OLDEST <= (major, minor) < BELOW:
        assert red == []
    else:
        assert "AsyncMPClient.call_utility_all_async" in {row.name for row in red}
        assert all(row.since == "0.32" for row in red)


def is_red(read: dict[str, object]) -> bool:
    """Whether an expected result says that the row is not there."""
    return read["place"] is None or "lacks" in read


def kept(version: str) -> Source:
    """The source of a version in the user's cache; skips where it is not there."""
    source = contract.open_cached(version, CACHE)
    if source is None:
        pytest.skip(f"unchecked: python -m benchmarks.contract {version} fetches it")
    return source
