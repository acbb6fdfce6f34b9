"""`python -m benchmarks.gpu` in its small form: every part runs, or says why it cannot here."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.gpu.parts import PARTS
from benchmarks.gpu.variants import VARIANTS, Setup, write_config

from specdeck.engine.config.loader import load
from specdeck.engine.launch.command import build_argv
from specdeck.engine.launch.machine import Build

ROOT = Path(__file__).parents[2]
LIMIT_S = 1600.0
"""It takes two minutes on two idle cores, and begins nothing after 25."""

NOT_HERE = {5}
ONE_ENGINE = tuple(part for part in PARTS if not {"target", "stock"} & set(part.engines))
"""The parts that share the speculating engine; those with one of their own take as long again, and
are run in full by `python -m benchmarks.gpu --small`."""

PARSE = """
import json, sys
from specdeck.engine.config.dump_vllm_args import PARSER_MODULES, find_in_first
from vllm.utils.argparse_utils import FlexibleArgumentParser

parser = find_in_first(PARSER_MODULES, "make_arg_parser")(FlexibleArgumentParser())
for line in json.load(sys.stdin):
    parser.parse_args(line)
"""
"""No engine is made: vLLM's build for the CPU takes the arguments of the one for CUDA as well."""


@pytest.mark.long
def test_every_part_runs_or_says_why_it_cannot(tmp_path: Path) -> None:
    page, parts = tmp_path / "GPU.md", ",".join(str(part.number) for part in ONE_ENGINE)
    command = [sys.executable, "-m", "benchmarks.gpu", "--small", "--page", str(page)]
    ran = subprocess.run(
        [*command, "--parts", parts, "--keep", str(tmp_path)],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S,
    )  # fmt: skip
    text = page.read_text()
    assert ran.returncode == 0, ran.stdout + text
    said = dict(re.findall(r"^## (\d+)\. .*\n\n\*\*(.*?)\*\*", text, re.MULTILINE))
    assert [int(number) for number in said] == [part.number for part in PARTS]
    for number in (str(part.number) for part in ONE_ENGINE):
        status = said[number]
        expected = "not on this machine: " if int(number) in NOT_HERE else "ran in its small form"
        assert status.startswith(expected), text
    assert "does not hold" not in text
    assert "Never run on a GPU yet." in text


def test_vllm_takes_the_arguments_of_every_engine(tmp_path: Path) -> None:
    setup = Setup(tmp_path, gpu="A card (80 GiB, driver 580)")
    build = Build("gpu", "vllm", "0.32.0")
    lines = [
        build_argv(
            load(write_config(variant, setup)),
            python=sys.executable,
            host="127.0.0.1",
            port=1,
            build=build,
        )[3:]
        for variant in VARIANTS.values()
    ]
    ran = subprocess.run(
        [sys.executable, "-c", PARSE], input=json.dumps(lines), capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
