"""Where the packages lie whose code makes answers."""

import sys
from importlib import import_module, util
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from specdeck.engine.plugin.loaded_code import find_named, find_packages, find_search_path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """On sys.path, with a package and a module that are loaded for the test alone."""
    (tmp_path / "house_plugin").mkdir()
    (tmp_path / "house_plugin" / "__init__.py").touch()
    (tmp_path / "house_plugin" / "more.py").touch()
    (tmp_path / "house_rules.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("house_plugin", "house_plugin.more", "house_rules"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
        del sys.modules[name]
    return tmp_path


def test_a_package_counts_once_it_is_loaded(folder: Path) -> None:
    assert "house_plugin" not in find_packages()
    import_module("house_plugin.more")
    found = find_packages()
    assert found["house_plugin"] == str(folder / "house_plugin")
    assert found.keys().isdisjoint({"house_plugin.more", "json", "sys", "builtins", "__main__"})
    assert str(folder) in find_search_path()


def test_another_name_of_a_package_is_none(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hp", import_module("house_plugin"))
    assert "hp" not in find_packages()


def test_a_module_whose_spec_is_none_counts_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("house_fake")
    monkeypatch.setattr(module, "__spec__", SimpleNamespace(name="house_fake"))
    monkeypatch.setitem(sys.modules, "house_fake", module)
    assert "house_fake" not in find_packages()


def test_a_module_that_is_loaded_when_it_is_used_is_not_loaded_for_this(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "house_rules.py").write_text("raise OSError('loaded')")
    spec = util.find_spec("house_rules")
    assert spec is not None
    assert spec.loader is not None
    lazy = util.LazyLoader(spec.loader)
    module = util.module_from_spec(spec)
    lazy.exec_module(module)
    monkeypatch.setitem(sys.modules, "house_rules", module)
    monkeypatch.setitem(sys.modules, "house_none", None)
    assert find_packages()["house_rules"] == str(folder / "house_rules.py")


def test_a_module_made_in_memory_is_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "house_memory", ModuleType("house_memory"))
    assert "house_memory" not in find_packages()
    assert find_named(["house_memory:A"]) == {}


def test_what_vllm_is_given_is_found_by_name_and_by_class(folder: Path) -> None:
    there = {"house_rules": str(folder / "house_rules.py")}
    assert find_named(["house_rules:Upper", "gone.away:Z", ""]) == there
    kind = type("Upper", (), {"__module__": "house_rules"})
    assert find_named([kind]) == there
    assert find_named(None) == {}
