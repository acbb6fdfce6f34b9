from __future__ import annotations

import json
import subprocess
import sys
from configparser import ConfigParser
from importlib.util import find_spec
from pathlib import Path

import pytest

from specdeck.engine.config.loader import load
from specdeck.engine.launch.command import build_argv
from specdeck.engine.launch.machine import Build

FOLDER = Path(__file__).parents[1] / "sample_configs"
FILES = sorted(FOLDER.glob("*.yaml"))

# Parses each command line that it is given, as the server would, without starting anything.
_PARSER = """
import json, sys
for package in ("torchvision", "torchaudio", "torchcodec"):
    sys.modules.setdefault(package, None)
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = make_arg_parser(FlexibleArgumentParser())
answers = []
for words in json.load(sys.stdin):
    args = parser.parse_args(words)
    plain = (str, int, float, dict, list)
    answers.append({k: v for k, v in vars(args).items() if isinstance(v, plain)})
print(json.dumps(answers, default=str))
"""


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_loads_and_explains_itself(path: Path) -> None:
    config = load(path)
    assert config.model is not None or config.attach is not None
    assert path.read_text().startswith("# ")
    assert f"`{path.name}`" in (FOLDER / "README.md").read_text()


def test_only_the_published_configs_need_translating() -> None:
    assert {path.stem for path in FILES if load(path).notices} == {
        "nexus-toolcall",
        "orchestration-template",
    }


def test_the_published_tool_call_config_keeps_its_speculation() -> None:
    config = load(FOLDER / "nexus-toolcall.yaml")
    assert config.speculative == {"model": "/models/nexus-1b-draft", "num_speculative_tokens": 5}
    (notice,) = config.notices
    assert notice.place.line == 7
    assert "`speculative_disable_logprobs` is left out" in notice.text


def test_the_published_template_is_read_in_full() -> None:
    config = load(FOLDER / "orchestration-template.yaml")
    assert config.speculative == {
        "model": "meta-llama/Llama-3-8B-Instruct",
        "num_speculative_tokens": 8,
    }
    assert config.sampling.values() == {"temperature": 0.7, "top_p": 0.9, "top_k": 50}
    assert config.orchestration.draft_acceptance_threshold == 0.65
    assert config.orchestration.fallback_after_low_acceptance == 3
    assert config.orchestration.max_draft_length == 16
    assert len(config.notices) == 5


@pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM's own parser is the judge")
def test_vllm_parses_the_command_line_of_every_sample() -> None:
    configs = [config for path in FILES if (config := load(path)).model is not None]
    build = Build("gpu", "vllm", "0.33.0")
    lines = [
        build_argv(c, python="python", host="::1", port=8123, build=build)[3:] for c in configs
    ]
    answer = subprocess.run(
        [sys.executable, "-c", _PARSER],
        input=json.dumps(lines),
        capture_output=True,
        text=True,
        timeout=600,  # of a machine with much else to do
        env={"VLLM_PLUGINS": "", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "PATH": ""},
    )
    assert answer.returncode == 0, answer.stderr[-2000:]
    parsed = json.loads(answer.stdout.splitlines()[-1])
    assert len(parsed) == len(configs)
    for config, args in zip(configs, parsed, strict=True):
        assert (args["host"], args["port"]) == ("::1", 8123)
        for name, value in config.engine_args.items():
            if name != "speculative_config":
                assert args[name] in (value, [value])
        for name, value in (config.speculative or {}).items():
            assert args["speculative_config"][name] == value


def test_the_nightly_check_makes_the_folders_of_its_files() -> None:
    unit = ConfigParser(interpolation=None, strict=False)
    unit.read(FOLDER / "systemd" / "specdeck-check.service")
    made = unit["Service"]["ExecStartPre"].split()[2:]
    words = unit["Service"]["ExecStart"].split()
    files = [words[words.index(option) + 1] for option in ("--report", "--metrics-file")]
    assert {str(Path(file).parent) for file in files} == set(made)
