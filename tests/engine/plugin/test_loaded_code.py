"""Which packages' code is read: what makes answers, wherever it comes from."""

import sys
from importlib import import_module, metadata
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from specdeck.engine.plugin.loaded_code import find_code


def config(*processors: Any) -> Any:
    return SimpleNamespace(model_config=SimpleNamespace(logits_processors=list(processors)))


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on sys.path with a package, a module and what vLLM calls a plugin."""
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "__init__.py").touch()
    (tmp_path / "house_rules.py").touch()
    (tmp_path / "house_plugin").mkdir()
    (tmp_path / "house_plugin" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    point = metadata.EntryPoint("house", "house_plugin.register:go", "vllm.general_plugins")
    other = metadata.EntryPoint("tool", "house_rules:go", "console_scripts")
    holder = SimpleNamespace(entry_points=[point, other])
    monkeypatch.setattr(metadata, "distributions", lambda: [holder])
    for name in ("vllm", "sitecustomize", "usercustomize", "house_plugin"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def _import(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """For the test alone."""
    monkeypatch.setitem(sys.modules, name, ModuleType(name))
    del sys.modules[name]
    import_module(name)


def test_vllm_and_logits_processors_are_found(packages: Path) -> None:
    assert find_code(config("house_rules:Upper", "specdeck.x:Y", "gone.away:Z")) == {
        "vllm": str(packages / "vllm"),
        "house_rules": str(packages / "house_rules.py"),
    }


def test_a_plugin_counts_once_it_is_loaded(packages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "house_plugin" not in find_code(config())
    _import(monkeypatch, "house_plugin")
    assert find_code(config())["house_plugin"] == str(packages / "house_plugin")


def test_what_python_imports_by_itself_counts(
    packages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (packages / "sitecustomize.py").touch()
    _import(monkeypatch, "sitecustomize")
    assert find_code(config())["sitecustomize"] == str(packages / "sitecustomize.py")


def test_a_module_made_in_memory_is_left_out(
    packages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "house_memory", ModuleType("house_memory"))
    assert set(find_code(config("house_memory:A"))) == {"vllm"}
