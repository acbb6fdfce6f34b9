"""The environment variables that may change what an engine computes."""

from __future__ import annotations

import re
from collections.abc import Mapping

from specdeck.engine.fingerprint.secrecy import redacted, secret

_PREFIXES = ("VLLM_", "TORCH", "PYTORCH_", "CUDA_", "CUBLAS", "CUDNN_", "NCCL_", "OMP_", "MKL_",
             "KMP_", "GOMP_", "OPENBLAS_", "DNNL_", "ONEDNN_", "NVIDIA_TF32", "ATEN_", "TRITON_",
             "FLASHINFER_", "FLASH_ATTN", "HIP_", "ROCBLAS_", "HSA_", "AITER_", "PYTHONHASHSEED",
             "GLIBC_TUNABLES")  # fmt: skip

_ELSEWHERE = re.compile(
    r"""(^|_)(PORT|HOST|IPS?|URL|URI|ADDR|ADDRESS|IFNAME|HCA|DIR|PATH|ROOT|HOME|FILE|FILENAME
    |LOG|LOGGING|LOGGER|LEVEL|DEBUG|VERBOSE|TRACE|TRACING|PROFILER?|PROFILING|TIMEOUTS?|INTERVAL
    |RETRIES|PID|USAGE|STATS|(?<!KV_)CACHE|CACHES|PLUGINS|DUMP|WARN|WARNINGS?|HEARTBEAT|SECONDS?
    |MONITOR|DOWNLOAD|SERVER|CLIENT|REGISTRY|SOCKET|VISIBLE_DEVICES|DEVICE_ORDER|RANK|LOCAL_RANK
    |INDICES|BUFFER_NAME|NAME_PREFIX|DO_NOT_TRACK|IMAGE_TAG|BUILD|DOCKER|MAPPING|COPY)(_|$)
    |^TORCH(ELASTIC|_LOGS|_SHOW|_HOME|_NCCL)|^NCCL_(DEBUG|ASYNC|COMM_ID)""",
    re.VERBOSE,
)
"""Where things lie, who is told and how long one waits: none of it enters a computation."""

_NOT_NUMERIC = frozenset(
    {
        "VLLM_CPU_KVCACHE_SPACE",  # how much is kept, not what
        "VLLM_WORKER_MULTIPROC_METHOD",
        "VLLM_ENABLE_V1_MULTIPROCESSING",
        "VLLM_USE_MODELSCOPE",
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING",
        "VLLM_SERVER_DEV_MODE",
        "CUDA_MODULE_LOADING",
        "CUDA_VERSION",
        "NCCL_VERSION",
    }
)
"""Looked over one by one; the versions are read where they are true."""


def numeric_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that may change what is computed, sorted.

    Secrets never, and nothing that differs between two starts of the same engine. A value
    of bytes that are no UTF-8 is spelt so that every reply can hold it.

    >>> numeric_variables({"VLLM_BATCH_INVARIANT": "1", "VLLM_API_KEY": "s", "VLLM_PORT": "1"})
    {'VLLM_BATCH_INVARIANT': '1'}
    >>> numeric_variables({"VLLM_MAX_TOKENS_PER_EXPERT_FP4_MOE": "1", "OMP_NUM_THREADS": "2"})
    {'OMP_NUM_THREADS': '2', 'VLLM_MAX_TOKENS_PER_EXPERT_FP4_MOE': '1'}
    """
    return {
        name: redacted(value.encode("utf-8", "backslashreplace").decode("utf-8"))
        for name, value in sorted(environment.items())
        if name.startswith(_PREFIXES) and name not in _NOT_NUMERIC and not withheld(name)
    }


def withheld(name: str) -> bool:
    """Whether a variable is never shown: a secret, or nothing that computes.

    >>> withheld("VLLM_ADMIN_TOKEN"), withheld("VLLM_CACHE_ROOT"), withheld("VLLM_USE_V2")
    (True, True, False)
    """
    return secret(name) or bool(_ELSEWHERE.search(name))
