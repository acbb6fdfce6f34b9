"""Which packages' code counts, of all that an engine has loaded."""

import sysconfig
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from specdeck.engine.fingerprint.package_code import choose_house, choose_packages, list_code

STDLIB = sysconfig.get_path("stdlib")
LOADED = {
    name: f"/v/{name}" for name in ("vllm", "torch", "house_plugin", "specdeck", "sitecustomize")
} | {
    "made": "/cache/made.so", "_rules": "/v/_rules.abi3.so", "jar": "/v/torch/_vendor/jar",
    "transformers_modules": "/hf/transformers_modules", "_built": f"{STDLIB}/_built.py",
    "debian": "/v/debian.py",
    "house_patch": "/off/house_patch.py", "_house": "/v/_house.so", "six": "/off/six.py",
}  # fmt: skip
RECORD = ["vllm/a.py", "torch/_vendor/jar/a.py", "house_plugin/register.py", "_rules.abi3.so",
          "six.py", "specdeck/a.py"]  # fmt: skip
POINTS = [
    metadata.EntryPoint("house", "house_plugin.register:go", "vllm.general_plugins"),
    metadata.EntryPoint("specdeck", "specdeck.engine.plugin:go", "vllm.general_plugins"),
    metadata.EntryPoint("left_out", "other_plugin:go", "vllm.general_plugins"),
    metadata.EntryPoint("tool", "torch.run:main", "console_scripts"),
]


def _hold(points: list[metadata.EntryPoint], **texts: str) -> Any:
    return SimpleNamespace(
        entry_points=points,
        read_text=lambda name: texts.get(name.partition(".")[0]),
        locate_file=lambda _: "/v",
    )


def test_vllm_its_plugins_and_what_no_distribution_has_brought_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    record = "\n".join(f"{path},sha256=x,5" for path in RECORD)
    installed = [_hold(POINTS, RECORD=record), _hold([], top_level="debian\n")]
    monkeypatch.setattr(metadata, "distributions", lambda: iter(installed))
    named = {"house_rules": "/h/house_rules.py"}
    search = ["/v", "/v/torch/_vendor", "/hf", STDLIB]
    house = {
        "_house": Path("/v/_house.so"),
        "house_patch": Path("/off/house_patch.py"),
        "sitecustomize": Path("/v/sitecustomize"),
        "six": Path("/off/six.py"),
    }
    assert choose_house(LOADED, search=search) == house
    assert choose_packages(LOADED, named, search=search) == house | {
        "house_plugin": Path("/v/house_plugin"),
        "house_rules": Path("/h/house_rules.py"),
        "vllm": Path("/v/vllm"),
    }


@pytest.mark.parametrize("record", ["", "\n\n", "a\0b,,", '"', "x" * 200_000 + ",,"])
def test_a_list_of_files_that_is_none_is_passed_over(record: str) -> None:
    installed = [_hold([], RECORD=record), _hold([], RECORD="torch/a.py,,")]
    loaded = {"torch": "/v/torch", "house": "/v/house.py"}
    found = choose_house(loaded, search=["/v"], installed=installed)
    assert found == {"house": Path("/v/house.py")}


def test_a_linked_folder_of_a_package_is_read_once(tmp_path: Path) -> None:
    shared, package = tmp_path / "shared", tmp_path / "house"
    shared.mkdir()
    package.mkdir()
    (shared / "rules.py").touch()
    (package / "__init__.py").touch()
    (package / "table.json").touch()
    (package / "gone.py").symlink_to(tmp_path / "gone.py")
    (package / "sub").symlink_to(shared)
    (shared / "again").symlink_to(package)
    names = [path.relative_to(package).as_posix() for path in list_code(package)]
    assert names == ["__init__.py", "sub/rules.py"]
