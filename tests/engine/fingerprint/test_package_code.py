"""Which packages' code counts, of all that an engine has loaded."""

from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

from specdeck.engine.fingerprint.package_code import choose_packages

LOADED = {
    name: f"/v/{name}" for name in ("vllm", "torch", "house_plugin", "specdeck", "sitecustomize")
}


def test_vllm_its_plugins_and_what_python_imports_by_itself_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    points = [
        metadata.EntryPoint("house", "house_plugin.register:go", "vllm.general_plugins"),
        metadata.EntryPoint("specdeck", "specdeck.engine.plugin:go", "vllm.general_plugins"),
        metadata.EntryPoint("left_out", "other_plugin:go", "vllm.general_plugins"),
        metadata.EntryPoint("tool", "torch.run:main", "console_scripts"),
    ]
    holder = SimpleNamespace(entry_points=points)
    monkeypatch.setattr(metadata, "distributions", lambda: [holder])
    assert choose_packages(LOADED, {"house_rules": "/h/house_rules.py"}) == {
        "house_plugin": Path("/v/house_plugin"),
        "house_rules": Path("/h/house_rules.py"),
        "sitecustomize": Path("/v/sitecustomize"),
        "vllm": Path("/v/vllm"),
    }
