"""Which of vLLM's two model runners a config comes to.

By the rule of vLLM 0.32 and 0.33 (`VllmConfig.use_v2_model_runner`), as far as a config and
an environment tell: what a model's own files decide besides is not read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from specdeck.engine.config.config import Config
from specdeck.engine.protocol.methods import drafts_all_or_none

Runner = Literal["V1", "V2"]

_VARIABLE = "VLLM_USE_V2_MODEL_RUNNER"
_WITHOUT_V2 = frozenset({"suffix", "medusa", "mlp_speculator", "custom_class"})
"""Methods that the V2 runner does not have."""


def choose_runner(config: Config, environment: Mapping[str, str], *, cpu: bool) -> Runner:
    """The runner that vLLM's build for a CPU, or for a GPU, takes."""
    args = config.engine_args
    attention = args.get("attention_config")
    if isinstance(attention, Mapping) and attention.get("hisparse_config") is not None:
        return "V2"
    if args.get("watermark_config") is not None:
        return "V2"
    chosen = _environment_choice(environment)
    if chosen is not None:
        return chosen
    # The builds for a CPU come without Triton, which the V2 runner is written in.
    return "V1" if cpu or _lacks_v2(config.method, config.speculative or {}, args) else "V2"


def _environment_choice(environment: Mapping[str, str]) -> Runner | None:
    try:
        return "V2" if int(environment[_VARIABLE]) else "V1"
    except (KeyError, ValueError):  # vLLM does not start with what is no number
        return None


def _lacks_v2(method: str | None, speculative: Mapping[str, Any], args: Mapping[str, Any]) -> bool:
    """Whether something is asked for that only the V1 runner has."""
    batches_in_halves = args.get("enable_dbo") or (args.get("ubatch_size") or 0) > 1
    stages_of_torchrun = (
        args.get("distributed_executor_backend") == "external_launcher"
        and (args.get("pipeline_parallel_size") or 1) > 1
    )
    return bool(
        method in _WITHOUT_V2
        or drafts_all_or_none(method, parallel_drafting=speculative.get("parallel_drafting"))
        or speculative.get("use_heterogeneous_vocab")
        or batches_in_halves
        or stages_of_torchrun
    )
