"""What an installed specdeck holds: the wheel is built from the sdist, as an installer does."""

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from specdeck.engine.protocol.vllm_versions import BELOW, OLDEST

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist and a wheel built from it."""
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)]
    building = subprocess.run(command, capture_output=True, text=True)
    assert building.returncode == 0, building.stdout[-2000:] + building.stderr[-2000:]
    return out


@pytest.fixture(scope="module")
def wheel(built: Path) -> list[str]:
    """The names in the wheel."""
    (path,) = built.glob("*.whl")
    return zipfile.ZipFile(path).namelist()


def test_the_sdist_holds_the_pages_that_readme_links_to(built: Path) -> None:
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    links = re.findall(r"\]\(([^)\s:]+)\)", (ROOT / "README.md").read_text())
    assert links
    assert {link.partition("#")[0] for link in links} <= names


@pytest.mark.parametrize(
    "name",
    [
        "specdeck/py.typed",
        "specdeck/themes/dark.yaml",
        "specdeck/sample_configs/demo.yaml",
        "specdeck/sample_configs/models/target/model.safetensors",
        "specdeck/sample_configs/models/draft/tokenizer.json",
    ],
)
def test_the_wheel_holds_what_specdeck_reads(wheel: list[str], name: str) -> None:
    assert name in wheel


def test_the_wheel_holds_every_module_and_what_lies_beside_it(wheel: list[str]) -> None:
    files = {
        f"specdeck/{path.relative_to(ROOT)}"
        for folder in ("engine", "console")
        for suffix in ("py", "sql", "json", "tcss")
        for path in (ROOT / folder).rglob(f"*.{suffix}")
    }
    assert files - set(wheel) == set()


def test_the_wheel_holds_nothing_else(wheel: list[str]) -> None:
    assert {name.split("/")[0] for name in wheel if not name.startswith("specdeck/")} <= {
        next(name for name in wheel if ".dist-info/" in name).split("/")[0]
    }


def test_vllm_finds_one_name_in_its_three_groups() -> None:
    for group in ("general", "endpoint", "stat_logger"):
        (found,) = entry_points(group=f"vllm.{group}_plugins", name="specdeck")
        module = found.value.split(":")[0].removeprefix("specdeck.").replace(".", "/")
        assert (ROOT / f"{module}.py").exists()


def test_the_bound_on_vllm_is_the_one_that_the_plugin_goes_by() -> None:
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())
    low, high = (".".join(map(str, bound)) for bound in (OLDEST, BELOW))
    assert wanted["project"]["optional-dependencies"]["gpu"] == [f"vllm>={low},<{high}"]
