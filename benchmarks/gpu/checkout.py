"""specdeck as a mere checkout: its entry points, for an engine that nobody installed it beside."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path

ROOT = Path(__file__).parents[2]
GENERAL = "vllm.general_plugins"


def is_installed() -> bool:
    """Whether vLLM would find specdeck's plugin by itself."""
    return any(entry.name == "specdeck" for entry in entry_points(group=GENERAL))


def write_distribution(folder: Path, name: str, groups: Mapping[str, Mapping[str, str]]) -> None:
    """Writes what makes `folder`, named in PYTHONPATH, a place of entry points."""
    about = folder / f"{name.replace('-', '_')}-0.dist-info"
    about.mkdir(parents=True, exist_ok=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0\n")
    lines = [
        line
        for group, entries in groups.items()
        for line in (f"[{group}]", *(f"{key} = {value}" for key, value in entries.items()))
    ]
    (about / "entry_points.txt").write_text("\n".join(lines) + "\n")


def write_own(folder: Path) -> None:
    """Writes specdeck's entry points, as pyproject.toml has them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    write_distribution(folder, "specdeck", project["entry-points"])


def join_path(folders: Sequence[Path], rest: str | None) -> str:
    """PYTHONPATH with `folders` before what it was.

    >>> join_path([Path("/a"), Path("/b")], "/c"), join_path([Path("/a")], None)
    ('/a:/b:/c', '/a')
    """
    return ":".join([*map(str, folders), *([rest] if rest else [])])
