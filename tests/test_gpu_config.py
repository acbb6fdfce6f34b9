"""The config that the tests on a GPU start, read without one."""

from pathlib import Path

from specdeck.engine.config.loader import load
from tests.gpu.conftest import CONFIG


def test_it_is_served_in_a_type_that_production_kernels_take(tmp_path: Path) -> None:
    path = tmp_path / "demo.yaml"
    path.write_text(CONFIG.format(v2="1"))
    config = load(path)
    assert config.engine_args["dtype"] == "bfloat16"
    assert config.environment["VLLM_BATCH_INVARIANT"] == "1"
