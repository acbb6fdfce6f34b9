"""The live tests again on CUDA: the modules beside this one are links to tests/live.

Deselected by default (`-m gpu` selects them). Each runs on the V1 and on the V2 runner,
with CUDA graphs captured for every k, in bfloat16: FlashAttention, which serves, refuses
float32. Outputs are compared token by token, and in bfloat16 near ties flip with the batch, so
vLLM's kernels are told to be indifferent to it; VLLM_BATCH_INVARIANT=0 in the caller's
environment runs the ordinary ones.
"""

from collections.abc import Iterator

import pytest
from tests.support.command import Command
from tests.support.live_engine import MODELS, LiveEngine

CONFIG = f"""
model: {MODELS / "target"}
served_model_name: demo
dtype: bfloat16
max_model_len: 1024
max_num_seqs: 32
gpu_memory_utilization: 0.3
speculative_config:
  method: draft_model
  model: {MODELS / "draft"}
  num_speculative_tokens: 5
environment:
  HF_HUB_OFFLINE: "1"
  VLLM_BATCH_INVARIANT: "1"
  VLLM_USE_V2_MODEL_RUNNER: "{{v2}}"
"""


@pytest.fixture(scope="session", params=["0", "1"], ids=["v1", "v2"])
def engine(
    request: pytest.FixtureRequest, specdeck: Command, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiveEngine]:
    """An engine on the GPU, on one runner after the other."""
    config = tmp_path_factory.mktemp("gpu") / "demo.yaml"
    config.write_text(CONFIG.format(v2=request.param))
    started = LiveEngine.start(specdeck, config)
    yield started
    started.stop()
