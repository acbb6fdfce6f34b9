"""What an installed specdeck holds: the wheel is built from the sdist, as an installer does."""

import subprocess
import sys
import zipfile
from importlib.metadata import entry_points
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The names in a wheel built from the sdist."""
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout[-2000:] + built.stderr[-2000:]
    (path,) = out.glob("*.whl")
    return zipfile.ZipFile(path).namelist()


@pytest.mark.parametrize(
    "name",
    [
        "specdeck/py.typed",
        "specdeck/engine/plugin/hooks.py",
        "specdeck/engine/store/migrations/001.sql",
        "specdeck/engine/store/migrations/002.sql",
        "specdeck/console/screens/live.tcss",
        "specdeck/themes/dark.yaml",
        "specdeck/sample_configs/demo.yaml",
        "specdeck/sample_configs/models/target/model.safetensors",
        "specdeck/sample_configs/models/draft/tokenizer.json",
    ],
)
def test_the_wheel_holds_what_specdeck_reads(wheel: list[str], name: str) -> None:
    assert name in wheel


def test_the_wheel_holds_every_module(wheel: list[str]) -> None:
    modules = {
        f"specdeck/{path.relative_to(ROOT)}"
        for folder in ("engine", "console")
        for path in (ROOT / folder).rglob("*.py")
    }
    assert modules - set(wheel) == set()


def test_the_wheel_holds_nothing_else(wheel: list[str]) -> None:
    assert {name.split("/")[0] for name in wheel if not name.startswith("specdeck/")} <= {
        next(name for name in wheel if ".dist-info/" in name).split("/")[0]
    }


def test_vllm_finds_one_name_in_its_three_groups() -> None:
    for group in ("general", "endpoint", "stat_logger"):
        (found,) = entry_points(group=f"vllm.{group}_plugins", name="specdeck")
        module = found.value.split(":")[0].removeprefix("specdeck.").replace(".", "/")
        assert (ROOT / f"{module}.py").exists()
