"""Where the packages lie whose code makes answers."""

import ast
import subprocess
import sys
from importlib import import_module, machinery, util
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

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


def make_module(name: str, place: Path) -> ModuleType:
    """A module that says it was loaded from there."""
    spec = util.spec_from_file_location(name, place)
    assert spec is not None
    return util.module_from_spec(spec)


def test_a_package_counts_once_it_is_loaded(folder: Path) -> None:
    assert "house_plugin" not in find_packages(sys.modules)
    import_module("house_plugin.more")
    found = find_packages(sys.modules)
    assert found["house_plugin"] == str(folder / "house_plugin")
    assert found.keys().isdisjoint({"house_plugin.more", "json", "sys", "builtins", "__main__"})
    assert str(folder) in find_search_path()


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Two folders on sys.path that are one package, `house_shared`, with a module each."""
    places = [tmp_path / name / "house_shared" for name in ("one", "two")]
    for place in reversed(places):
        place.mkdir(parents=True)
        (place / f"{place.parent.name}.py").touch()
        monkeypatch.syspath_prepend(place.parent)
    for name in ("house_shared", "house_shared.one", "house_shared.two"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
        del sys.modules[name]
    return places


def test_of_a_package_in_several_folders_each_module_counts(shared: list[Path]) -> None:
    there = {
        f"house_shared.{one.parent.name}": str(one / f"{one.parent.name}.py") for one in shared
    }
    assert find_named(["house_shared.two:Rules"]).items() <= there.items()
    import_module("house_shared.one")
    import_module("house_shared.two")
    found = find_packages(sys.modules)
    assert there.items() <= found.items()
    assert "house_shared" not in found
    assert find_named(["house_shared.two:Rules", "house_shared.gone:A"]) == {
        "house_shared.two": there["house_shared.two"]
    }


def test_a_module_from_elsewhere_within_a_package_counts(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import_module("house_plugin")
    monkeypatch.setitem(
        sys.modules,
        "house_plugin.more",
        make_module("house_plugin.more", folder / "house_rules.py"),
    )
    assert find_packages(sys.modules)["house_plugin.more"] == str(folder / "house_rules.py")


def test_a_module_that_lies_where_no_import_finds_it_counts(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import_module("house_plugin")
    elsewhere = {"house_plugin.made": folder / "house_plugin" / ".cache" / "made.py",
                 "house_plugin.my-rules": folder / "house_plugin" / "my-rules.py"}  # fmt: skip
    for name, place in elsewhere.items():
        monkeypatch.setitem(sys.modules, name, make_module(name, place))
    found = find_packages(sys.modules)
    assert {name: found.get(name) for name in elsewhere} == {
        k: str(v) for k, v in elsewhere.items()
    }


def test_a_module_in_the_place_of_one_of_pythons_counts(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "json", make_module("json", folder / "house_rules.py"))
    assert find_packages(sys.modules)["json"] == str(folder / "house_rules.py")


LISTS = """import sys
from specdeck.engine.plugin.loaded_code import find_packages
print(find_packages(sys.modules))
"""


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["serve.py"], "serve.py"),
        (["-m", "serve"], "serve.py"),
        (["."], "__main__.py"),
        (["-m", "tools.serve"], "tools/serve.py"),
    ],
)
def test_the_program_of_a_process_counts(tmp_path: Path, words: list[str], name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)  # and is no package of its own
    (tmp_path / name).write_text(LISTS)
    assert list_packages(words, tmp_path)["__main__"] == str(tmp_path / name)


@pytest.mark.parametrize("words", [["-c", LISTS], ["-m", "house.serve"]])
def test_of_a_program_in_a_package_and_of_a_typed_one_there_is_no_more(
    tmp_path: Path, words: list[str]
) -> None:
    (tmp_path / "house").mkdir()
    (tmp_path / "house" / "serve.py").write_text(LISTS)
    (tmp_path / "house" / "__init__.py").touch()
    found = list_packages(words, tmp_path)
    assert "__main__" not in found
    assert ("house" in found) == (words[0] == "-m")


def list_packages(words: list[str], folder: Path) -> dict[str, str]:
    asked = subprocess.run(
        [sys.executable, *words], cwd=folder, capture_output=True, text=True, check=True
    )
    return dict(ast.literal_eval(asked.stdout))


def test_a_module_that_puts_an_object_in_its_own_place_counts(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: Any = SimpleNamespace(bias=3)
    for name in ("house_rules", "house_plugin.more", "house_nowhere"):
        monkeypatch.setitem(sys.modules, name, settings)
    found = find_packages(sys.modules)
    assert found["house_rules"] == str(folder / "house_rules.py")
    assert "house_nowhere" not in found


def test_another_file_under_the_name_of_one_that_is_loaded_counts(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import_module("house_plugin")
    monkeypatch.setitem(
        sys.modules, "house_other", make_module("house_plugin", folder / "house_rules.py")
    )
    assert find_packages(sys.modules)["house_other"] == str(folder / "house_rules.py")


def test_a_module_that_puts_another_in_its_own_place_counts(
    folder: Path, shared: list[Path]
) -> None:
    replace = "import sys, types\nsys.modules[__name__] = {}\n"
    (folder / "house_rules.py").write_text(replace.format("types.ModuleType(__name__)"))
    (shared[0] / "one.py").write_text(replace.format("types.ModuleType(__name__)"))
    (shared[1] / "two.py").write_text(replace.format("types.SimpleNamespace(bias=3)"))
    there = {"house_rules": folder / "house_rules.py", "house_shared.one": shared[0] / "one.py",
             "house_shared.two": shared[1] / "two.py"}  # fmt: skip
    for name in there:
        import_module(name)
    found = find_packages(sys.modules)
    assert {name: found.get(name) for name in there} == {k: str(v) for k, v in there.items()}


def test_what_somebodys_own_loader_makes_of_a_module_harms_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    odd = ModuleType("house_odd")
    odd.__spec__ = machinery.ModuleSpec("house_odd", None, origin=cast("str", Path("/h/odd.py")))
    odd.__spec__.has_location = True
    nameless = ModuleType("house_nameless")
    nameless.__spec__ = machinery.ModuleSpec(cast("str", None), None, origin="/h/x.py")
    nameless.__spec__.has_location = True
    modules: dict[Any, Any] = {None: odd, "house_odd": odd, "house_nameless": nameless}
    monkeypatch.setattr(sys, "modules", sys.modules | modules)
    found = find_packages(sys.modules)
    assert found["house_odd"] == "/h/odd.py"
    assert found["house_nameless"] == "/h/x.py"


def test_what_is_no_folder_is_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    odd: list[Any] = [None, b"/bytes", 3, "/a/../b"]
    monkeypatch.setattr(sys, "path", odd)
    assert find_search_path() == ["/b"]


def test_another_name_of_a_package_is_none(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hp", import_module("house_plugin"))
    assert "hp" not in find_packages(sys.modules)


def test_a_module_whose_spec_is_none_counts_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("house_fake")
    monkeypatch.setattr(module, "__spec__", SimpleNamespace(name="house_fake"))
    monkeypatch.setitem(sys.modules, "house_fake", module)
    assert "house_fake" not in find_packages(sys.modules)


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
    assert find_packages(sys.modules)["house_rules"] == str(folder / "house_rules.py")


def test_a_module_made_in_memory_is_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "house_memory", ModuleType("house_memory"))
    assert "house_memory" not in find_packages(sys.modules)
    assert find_named(["house_memory:A"]) == {}


def test_what_vllm_is_given_is_found_by_name_and_by_class(folder: Path) -> None:
    there = {"house_rules": str(folder / "house_rules.py")}
    assert find_named(["house_rules:Upper", "gone.away:Z", ""]) == there
    kind = type("Upper", (), {"__module__": "house_rules"})
    assert find_named([kind]) == there
    assert find_named(None) == {}
