from __future__ import annotations

import argparse
import dataclasses
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from specdeck.engine.config.dump_vllm_args import describe_parser
from specdeck.engine.config.vllm_args import (
    dump_installed,
    find_table,
    parse_table,
    shipped_table,
)

OTHER = '{"vllm": "0.30.0", "arguments": {"model": {"kind": "str"}}, "speculative": {}}'


def test_the_shipped_table_serves_its_own_version_and_no_vllm(tmp_path: Path) -> None:
    def read() -> str:
        raise AssertionError("nothing is to be read")

    for version in (None, shipped_table().vllm, f"{shipped_table().vllm}+cpu"):
        assert find_table(version, tmp_path, read=read) is shipped_table()


def test_another_version_is_read_once_and_remembered(tmp_path: Path) -> None:
    asked = []

    def read() -> str:
        asked.append(1)
        return OTHER

    folder = tmp_path / "cache"
    first = find_table("0.30.0", folder, read=read)
    assert set(first.engine) == {"model"}
    assert find_table("0.30.0", folder, read=read) == first
    assert asked == [1]


def test_a_spoilt_memory_is_read_again(tmp_path: Path) -> None:
    (tmp_path / "vllm-arguments-0.30.0.json").write_text("[]")
    assert find_table("0.30.0", tmp_path, read=lambda: OTHER).vllm == "0.30.0"


def test_a_vllm_that_cannot_be_read_leaves_the_shipped_table(tmp_path: Path) -> None:
    def read() -> str:
        said = "Traceback …\nImportError: libcudart.so.13\n"
        raise subprocess.CalledProcessError(1, "python", stderr=said)

    for broken, why in ((read, "ImportError: libcudart.so.13"), (lambda: "not json", "no table")):
        found = find_table("0.34.0", tmp_path, read=broken)
        assert found.engine is shipped_table().engine
        assert found.unread is not None
        assert found.unread.version == "0.34.0"
        assert why in found.unread.reason
    assert shipped_table().unread is None


PACKAGES = {
    "__init__.py": "__version__ = '0.33.0'",
    "config.py": "import dataclasses\n@dataclasses.dataclass\nclass SpeculativeConfig:\n"
    "    method: str = ''\n",
    "utils/__init__.py": "",
    "utils/argparse_utils.py": "from argparse import ArgumentParser as FlexibleArgumentParser",
    "entrypoints/__init__.py": "",
}
MAKES_A_PARSER = """
def make_arg_parser(parser):
    parser.add_argument("--new-here")
    return parser
"""


def installed(folder: Path, files: dict[str, str]) -> str:
    """The folder of a vLLM of these files, as PYTHONPATH names it."""
    for name, text in {**PACKAGES, **files}.items():
        path = folder / "vllm" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(folder)


@pytest.mark.parametrize("package", ["common", "launchers", "openai"])
def test_the_arguments_are_read_wherever_this_vllm_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    place = f"entrypoints/{package}"
    files = {f"{place}/__init__.py": "", f"{place}/cli_args.py": MAKES_A_PARSER}
    monkeypatch.setenv("PYTHONPATH", installed(tmp_path, files))
    table = parse_table(dump_installed())
    assert (table.vllm, set(table.engine)) == ("0.33.0", {"new_here"})


def test_what_keeps_them_from_being_read_is_not_hidden_by_an_older_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {f"entrypoints/{name}/__init__.py": "" for name in ("common", "openai")}
    files["entrypoints/common/cli_args.py"] = "import nowhere_to_be_found"
    files["entrypoints/openai/cli_args.py"] = MAKES_A_PARSER
    monkeypatch.setenv("PYTHONPATH", installed(tmp_path, files))
    unread = find_table("0.33.0", tmp_path / "cache").unread
    assert unread is not None
    assert unread.reason == "ModuleNotFoundError: No module named 'nowhere_to_be_found'"


def test_the_reader_imports_nothing_from_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('imported')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", "")
    read = subprocess.run

    def ask_for_help(argv: list[str], **options: Any) -> Any:
        assert argv[-1] == "specdeck.engine.config.dump_vllm_args"
        return read([*argv[:-1], "json.tool", "--help"], **options)

    monkeypatch.setattr(subprocess, "run", ask_for_help)
    assert "json.tool" in dump_installed()


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert find_table("0.30.0", blocked, read=lambda: OTHER).vllm == "0.30.0"


def test_a_parser_is_described_by_what_each_option_wants() -> None:
    def optional(value: str) -> object:
        return json.loads(value)

    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int)
    parser.add_argument("--eager", action=argparse.BooleanOptionalAction)
    parser.add_argument("--headless", action="store_true")
    parser.add_argument("--names", nargs="+", type=str)
    parser.add_argument("--middleware", action="append", type=str)
    parser.add_argument("--mode", choices=["a", "b"])
    parser.add_argument("--odd", type=optional)

    @dataclasses.dataclass
    class Speculative:
        method: str | None = None
        num_speculative_tokens: int = 0
        target_model_config: str | None = None

    # Annotations are strings here; vLLM's are types.
    hints = {"method": str | None, "num_speculative_tokens": int, "target_model_config": str}
    for field in dataclasses.fields(Speculative):
        field.type = hints[field.name]
    table = describe_parser(parser, Speculative)
    assert table["arguments"] == {
        "seed": {"kind": "int"},
        "eager": {"kind": "bool"},
        "headless": {"kind": "flag"},
        "names": {"kind": "str", "words": "many"},
        "middleware": {"kind": "str", "words": "repeat"},
        "mode": {"kind": "str", "choices": ["a", "b"]},
        "odd": {"kind": "any"},
    }
    assert table["speculative"] == {
        "method": {"kind": "str"},
        "num_speculative_tokens": {"kind": "int"},
    }


def test_the_reader_has_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[str, str] = {}

    def look(argv: list[str], *, env: dict[str, str], **_: Any) -> Any:
        found.update(env)
        return subprocess.CompletedProcess(argv, 0, stdout="{}")

    monkeypatch.setenv("SPECDECK_ADMIN_TOKEN", "secret")
    monkeypatch.setattr(subprocess, "run", look)
    dump_installed()
    assert "PATH" in found
    assert "SPECDECK_ADMIN_TOKEN" not in found
