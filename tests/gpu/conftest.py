"""The live tests again on CUDA: the modules beside this one are links to tests/live.

Deselected by default (`-m gpu` selects them). Each runs on the V1 and on the V2 runner,
with CUDA graphs captured for every k.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

MODELS = Path(__file__).parents[2] / "sample_configs" / "models"
CONFIG = f"""
model: {MODELS / "target"}
served_model_name: demo
dtype: float32                # in bfloat16 near ties flip with the batch, and outputs are compared
max_model_len: 1024
max_num_seqs: 32
gpu_memory_utilization: 0.3
speculative_config:
  method: draft_model
  model: {MODELS / "draft"}
  num_speculative_tokens: 5
environment:
  HF_HUB_OFFLINE: "1"
  VLLM_USE_V2_MODEL_RUNNER: "{{v2}}"
"""


@pytest.fixture(scope="session", params=["0", "1"], ids=["v1", "v2"])
def engine(
    request: pytest.FixtureRequest, deck: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    """An engine on the GPU, on one runner after the other."""
    config = tmp_path_factory.mktemp("gpu") / "demo.yaml"
    config.write_text(CONFIG.format(v2=request.param))
    started = deck.start(config)
    yield started
    started.stop()
