"""Which packages' code counts, of all that an engine has loaded."""

from importlib import metadata
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any

from specdeck.engine.fingerprint.package_code import choose_packages

LOADED = {
    name: f"/v/{name}" for name in ("vllm", "torch", "house_plugin", "specdeck", "sitecustomize")
} | {"made": "/cache/made.py", "_rules": "/v/_rules.so", "jar": "/v/torch/_vendor/jar"}


def _hold(points: list[metadata.EntryPoint], files: list[str], named: str = "") -> Any:
    paths = [PurePosixPath(name) for name in files]
    return SimpleNamespace(
        entry_points=points, files=paths, read_text=lambda _: named, locate_file=lambda _: "/v"
    )


def test_vllm_its_plugins_and_what_no_distribution_has_brought_count() -> None:
    points = [
        metadata.EntryPoint("house", "house_plugin.register:go", "vllm.general_plugins"),
        metadata.EntryPoint("specdeck", "specdeck.engine.plugin:go", "vllm.general_plugins"),
        metadata.EntryPoint("left_out", "other_plugin:go", "vllm.general_plugins"),
        metadata.EntryPoint("tool", "torch.run:main", "console_scripts"),
    ]
    brought = ["vllm/a.py", "torch/_vendor/jar/a.py", "house_plugin/register.py", "_rules.abi3.so"]
    installed = [_hold(points, brought), _hold([], [], "specdeck\n")]
    loaded = LOADED | {"house_patch": "/v/house_patch.py"}
    named = {"house_rules": "/h/house_rules.py"}
    assert choose_packages(
        loaded, named, search=["/v", "/v/torch/_vendor"], installed=installed
    ) == {
        "house_patch": Path("/v/house_patch.py"),
        "house_plugin": Path("/v/house_plugin"),
        "house_rules": Path("/h/house_rules.py"),
        "sitecustomize": Path("/v/sitecustomize"),
        "vllm": Path("/v/vllm"),
    }
