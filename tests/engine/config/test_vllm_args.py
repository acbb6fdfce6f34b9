from __future__ import annotations

import argparse
import dataclasses
import json
import subprocess
from pathlib import Path

from specdeck.engine.config.dump_vllm_args import describe_parser
from specdeck.engine.config.vllm_args import find_table, shipped_table

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
        raise subprocess.CalledProcessError(1, "python")

    assert find_table("0.30.0", tmp_path, read=read) is shipped_table()
    assert find_table("0.30.0", tmp_path, read=lambda: "not json") is shipped_table()


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
