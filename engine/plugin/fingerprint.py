"""The fingerprint of a running engine: its facts, their names, and who may read them.

vLLM's own fingerprint hashes the computation graph, so that draft length, n-gram
settings, the rejection method and most environment variables leave it unmoved. Here the
whole resolved configuration counts, less what names things, says where they lie or is
measured anew with every start. What takes long, such as digests of weights, is read in a
process beside the engine, which holds up neither its start nor its steps.

The engine core writes the name into a piece of shared memory; an API server compares one
slice of it when it finishes a response. No request asks the engine for it, and the memory
goes with the last process that holds it.
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
import mmap
import os
import platform
import secrets
import struct
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any

from specdeck import __version__
from specdeck.engine.files import open_file
from specdeck.engine.fingerprint.digest import cache_file
from specdeck.engine.fingerprint.name import FACTS_OF_FILES, compute_name
from specdeck.engine.fingerprint.secrecy import MASK, find_secrets, name_items, name_values, redact
from specdeck.engine.fingerprint.secret_names import drop_secrets, is_secret
from specdeck.engine.fingerprint.sources import numeric_variables, parse_mapped_libraries, text
from specdeck.engine.plugin.contract import Loss, by_loss, describe_gaps
from specdeck.engine.plugin.engine import Build
from specdeck.engine.plugin.loaded_code import find_named, find_packages, find_search_path
from specdeck.engine.plugin.request_pins import exact_models
from specdeck.engine.plugin.secret_values import list_values, make_mask, mask_within
from specdeck.engine.plugin.start_time import find_start

_SECTIONS = ("model", "cache", "parallel", "scheduler", "load", "offload", "attention", "mamba",
             "kernel", "lora", "speculative", "structured_outputs", "compilation", "quant",
             "reasoning", "diffusion", "watermark", "kv_transfer", "ec_transfer")  # fmt: skip
_TOP = ("additional_config", "optimization_level", "performance_mode")

_ELSEWHERE = frozenset(
    {
        # names and places: the content behind them is digested
        "model", "model_weights", "tokenizer", "served_model_name", "hf_config", "hf_text_config",
        "hf_config_path", "hf_token", "allowed_local_media_path", "allowed_media_domains",
        "download_dir", "revision", "code_revision", "tokenizer_revision",
        "reasoning_parser_plugin",
        # measured or counted anew with every start
        "gpu_memory_utilization", "num_gpu_blocks", "num_cpu_blocks", "kv_cache_size_tokens",
        "kv_cache_max_concurrency", "kv_cache_memory_bytes", "hash_block_size",
        "effective_attention_block_size", "cache_hit_alignment_tokens", "compilation_time",
        "encoder_compilation_time", "enabled_custom_ops", "disabled_custom_ops", "traced_files",
        "static_forward_context", "static_all_moe_layers", "debug_dump_path", "cache_dir",
        "local_cache_dir", "compile_cache_save_format", "instance_id", "engine_id",
        # where the parts run and how they find each other
        "data_parallel_size_local", "data_parallel_rank", "data_parallel_rank_local",
        "data_parallel_master_ip", "data_parallel_rpc_port", "data_parallel_master_port",
        "data_parallel_index", "data_parallel_external_lb", "data_parallel_hybrid_lb",
        "master_addr", "master_port", "node_rank", "rank", "placement_group", "ray_runtime_env",
        "ray_workers_use_nsight", "assigned_physical_gpu_ids", "numa_bind", "numa_bind_nodes",
        "numa_bind_cpus", "distributed_timeout_seconds", "cpu_distributed_timeout_seconds",
        "max_parallel_loading_workers", "kv_ip", "kv_port", "kv_rank", "ec_ip", "ec_port",
        "fault_tolerance_config", "enable_fault_tolerance",
        # how work is handed over, not what is computed
        "renderer_num_workers", "use_tqdm_on_load", "safetensors_prefetch_num_threads",
        "safetensors_prefetch_block_size", "safetensors_load_strategy", "stream_interval",
        "max_num_queued_reqs", "max_num_queued_tokens", "target_model_config",
        "target_parallel_config", "draft_parallel_config",
    }
)  # fmt: skip
_DEFAULTS = ("auto", "vllm")
"""Whose defaults of requests are taken, unless a folder is given that has them."""
_OWN = ("vllm.entrypoints.serve.utils.fingerprint", "vllm.entrypoints.openai.fingerprint")
"""Where vLLM keeps its own fingerprint, the newer place first."""

_DEEPEST = 30
"""Lists and objects within each other: a model's settings have some eight."""
_DEEPEST_SECTION = 6
"""Config objects, which may hold one another."""


def config_facts(config: Any, build: Build) -> dict[str, Any]:
    """What is known at once of an engine with the VllmConfig `config`; JSON values only."""
    found = {name: _section(getattr(config, f"{name}_config", None)) for name in _SECTIONS}
    top = {name: plain(getattr(config, name, None)) for name in _TOP}
    top["exact_models"] = sorted(exact_models(os.environ)) or None  # served without drafts
    model = found["model"] or {}
    if model.get("generation_config", _DEFAULTS[0]) not in _DEFAULTS:
        model["generation_config"] = "folder"  # a place as well
    # A credential may stand under a second name, as YAML's aliases have it.
    mask = make_mask((*_list_secrets(config), *list_values()))
    return {
        "config": {
            name: mask_within(value, mask)
            for name, value in {**found, **top}.items()
            if value not in (None, {})
        },
        "environment": mask_within(numeric_variables(os.environ), mask),
        "engine": {
            "specdeck": __version__,
            "vllm": build.vllm,
            "commit": _commit(),
            "runner": build.runner,
            "python": platform.python_version(),
            "architecture": platform.machine(),
        },
    }


def _list_secrets(config: Any) -> Iterator[str]:
    """The credentials in a VllmConfig, also of sections that are no facts."""
    for name, section in ({} if config is None else vars(config)).items():
        if dataclasses.is_dataclass(section):
            for field in dataclasses.fields(section):
                yield from find_secrets(field.name, getattr(section, field.name, None))
        else:
            yield from find_secrets(name, section)


def sources(config: Any) -> dict[str, Any]:
    """The models and tokenizers whose content belongs to the facts, by role."""
    target, spec = config.model_config, config.speculative_config
    models = {"target": _source(target, config.load_config)}
    if target.generation_config not in _DEFAULTS:
        models["target"]["generation"] = str(target.generation_config)
    tokenizers = {"tokenizer": _tokenizer_source(target)}
    draft = getattr(spec, "draft_model_config", None)
    # A draft within the target is no second model; one of another revision beside it is.
    if draft is not None and _name_files(draft) != _name_files(target):
        own = getattr(spec, "draft_load_config", None)
        models["draft"] = _source(draft, own or config.load_config)
        if draft.tokenizer != target.tokenizer:  # vLLM gives a draft its target's otherwise
            tokenizers["draft_tokenizer"] = _tokenizer_source(draft)
    return {"models": models, "tokenizers": tokenizers}


def _name_files(model: Any) -> tuple[str, str | None]:
    return model.model, model.revision


def _source(model: Any, load: Any) -> dict[str, Any]:
    # An object store's URL stands in model_weights, and the files beside it in model.
    name = getattr(model, "model_weights", "") or model.model
    config = getattr(model, "hf_config_path", None)
    downloads = getattr(load, "download_dir", None)
    return {
        "name": str(name),
        "revision": model.revision,
        "load_format": str(getattr(load, "load_format", None) or "auto"),
        **({"config": str(config)} if config else {}),
        **({"downloads": str(downloads)} if downloads else {}),
        **_remote_code(model),
    }


def _tokenizer_source(model: Any) -> dict[str, Any]:
    return {
        "name": model.tokenizer,
        "revision": model.tokenizer_revision,
        **_remote_code(model),
    }


def _remote_code(model: Any) -> dict[str, Any]:
    if not getattr(model, "trust_remote_code", False):
        return {}
    return {"trusted": True, "code_revision": getattr(model, "code_revision", None)}


def system_fingerprint(config: Any) -> str | None:
    """vLLM's own fingerprint, as the API server with this VllmConfig puts it in responses.

    The engine core resolves its configuration further and would get another value. None
    where it is switched off or this version has none to give.
    """
    for module in _OWN:
        try:
            value = import_module(module).get_system_fingerprint(config)
        except (ImportError, AttributeError):
            continue
        return None if value is None else str(value)
    return None


def plain(value: Any, depth: int = 0) -> Any:
    """`value` as JSON has it, without secrets; what lies too deep comes to None.

    >>> plain({"a": (1, None), "api_key": "s", "url": "redis://user:pw@cache"})
    {'a': [1, None], 'url': 'redis://***@cache'}
    """
    if isinstance(value, Enum):  # some of vLLM's are numbers as well
        return value.name
    if isinstance(value, str):
        return redact(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    if depth >= _DEEPEST:
        return None
    if isinstance(value, Mapping):
        return {
            redact(key): plain(held, depth + 1)
            for key, borne, held in name_values(value)
            if not is_secret(borne)
        }
    if isinstance(value, set | frozenset):
        return sorted(str(plain(item, depth + 1)) for item in value)
    if isinstance(value, list | tuple):
        return [
            MASK if is_secret(borne) else plain(item, depth + 1)
            for borne, item in name_items("", value)
        ]
    if dataclasses.is_dataclass(value):
        return _section(value, depth + 1) if depth < _DEEPEST_SECTION else None
    if isinstance(value, type) or callable(value):
        return f"{value.__module__}.{getattr(value, '__qualname__', type(value).__name__)}"
    words = str(value).removeprefix("torch.")  # a dtype, a device
    return redact(words) if " at 0x" not in words and len(words) < 200 else type(value).__name__


def _section(config: Any, depth: int = 0) -> dict[str, Any] | None:
    """The settings of one of vLLM's config objects that are set and count."""
    if config is None or not dataclasses.is_dataclass(config):
        return plain(config) if isinstance(config, Mapping) else None
    found = {}
    for field in dataclasses.fields(config):
        name = field.name
        if name.startswith("_") or name in _ELSEWHERE or is_secret(name):
            continue
        value = plain(getattr(config, name, None), depth)
        if value is not None:
            found[name] = value
    return found


def _commit() -> str | None:
    try:
        from vllm._version import __commit_id__ as commit
    except ImportError:
        return None
    return None if commit is None else str(commit)


OnName = Callable[[str], None]
"""Called with the path's name whenever it moved."""

PENDING = {"fact": FACTS_OF_FILES, "reason": "being read"}


class Identity:
    """Facts of the build, and the path: the build's name with what is live.

    The main thread says what is live, another one what it has read of weights and
    libraries; until then, and where something could not be read, the names are partial.
    """

    def __init__(
        self, facts: Mapping[str, Any], *, complete: bool = True, on_name: OnName = lambda _: None
    ) -> None:
        self._lock = threading.Lock()
        self._facts = dict(facts)
        self._unread: list[dict[str, str]] = [] if complete else [PENDING]
        self._unread_of: dict[str, list[dict[str, str]]] = {}
        """The same of sections that others read."""
        self._on_name = on_name
        self._progress: dict[str, Any] = {"finished": complete}
        self._live: dict[str, Any] = {}
        self._build = self._name_build()
        self._path = ""

    def now(self, live: Mapping[str, Any]) -> str:
        """The path's name with `live` in force; readers of the board see it from now on."""
        with self._lock:
            if live != self._live or not self._path:
                self._live = dict(live)
                self._name_path()
            return self._path

    def complete(self, more: Mapping[str, Any], unread: list[dict[str, str]]) -> None:
        """Adds what was read in the background, and what could not be."""
        with self._lock:
            for section, facts in more.items():
                self._facts[section] = {**self._facts.get(section, {}), **facts}
            self._unread = list(unread)
            self._build = self._name_build()
            self._name_path()

    def add(self, section: str, facts: Mapping[str, Any], unread: list[dict[str, str]]) -> None:
        """Puts in a section that another process has read, and what of it could not be."""
        with self._lock:
            if (self._facts.get(section), self._unread_of.get(section)) == (facts, unread):
                return  # each API server says the same
            self._facts[section] = dict(facts)
            self._unread_of[section] = list(unread)
            self._build = self._name_build()
            self._name_path()

    def note(self, progress: Mapping[str, Any]) -> None:
        """How far the reading is."""
        self._progress = dict(progress)

    def as_json(self) -> dict[str, Any]:
        """The reply to `GET facts`."""
        with self._lock:
            return {
                "facts": {**self._facts, "live": self._live},
                "fingerprint": self._path,
                "names": {"build": self._build, "path": self._path},
                "partial": self._list_unread(),
                "progress": self._progress,
            }

    def _name_build(self) -> str:
        return compute_name("build", self._facts, partial=bool(self._list_unread()))

    def _name_path(self) -> None:
        facts = {"build": self._build, "live": self._live}
        self._path = compute_name("path", facts, partial=bool(self._list_unread()))
        self._on_name(self._path)

    def _list_unread(self) -> list[dict[str, str]]:
        return [*self._unread, *(one for more in self._unread_of.values() for one in more)]


_FORM = struct.Struct("<8s16s32sI")
_SIZE = _FORM.size
_MAGIC = b"specdck1"
_PATIENCE = 64
"""Looks at a record that is being written before the last good one is kept."""


class Board:
    """The engine core's side: one name, seen by all readers from the next moment on."""

    def __init__(self, instance: str) -> None:
        self._instance = instance.encode()
        self._file = os.memfd_create("specdeck-fingerprint", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self._file, mmap.PAGESIZE)
        fcntl.fcntl(self._file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        self._memory = mmap.mmap(self._file, mmap.PAGESIZE)
        self.path = f"/proc/{os.getpid()}/fd/{self._file}"
        """Opens for every process of the same user on the same machine."""

    def write(self, name: str) -> None:
        """Shows `name`; one slice is written, and its checksum tells a torn one."""
        body = _FORM.pack(_MAGIC, self._instance, name.encode(), 0)[:-4]
        self._memory[:_SIZE] = body + struct.pack("<I", zlib.crc32(body))


class Reader:
    """An API server's side."""

    def __init__(self, memory: mmap.mmap, instance: bytes) -> None:
        self._memory = memory
        self._instance = instance
        self._seen = b""
        self._name: str | None = None

    @classmethod
    def of(cls, path: str, instance: str) -> Reader | None:
        """The board at `path` if it is that instance's; None when it cannot be read here."""
        try:
            with open_file(Path(path)) as file:
                # Whatever else lies there may be cut short, which would end this process (SIGBUS).
                if not fcntl.fcntl(file, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK:
                    return None
                memory = mmap.mmap(file.fileno(), mmap.PAGESIZE, access=mmap.ACCESS_READ)
        except (OSError, ValueError):
            return None
        reader = cls(memory, instance.encode())
        return reader if reader.name() is not None else None

    def name(self) -> str | None:
        """The name on the board at this moment; None before the first."""
        record = self._memory[:_SIZE]
        if record == self._seen:
            return self._name
        for _ in range(_PATIENCE):
            magic, instance, name, checksum = _FORM.unpack(record)
            if checksum == zlib.crc32(record[:-4]):
                if magic == _MAGIC and instance == self._instance:
                    self._seen, self._name = record, name.rstrip(b"\0").decode()
                break
            record = self._memory[:_SIZE]
        return self._name


_READ_BY: tuple[Loss, ...] = ("live_k", "fingerprint")
"""What reading the facts takes: the workers can be asked, and the configuration says what runs."""
_READER = "specdeck.engine.fingerprint.gather"
_SCHEDULED = "/proc/thread-self/schedstat"
"""Nanoseconds that this thread ran, nanoseconds that it was ready to, and how often it ran."""

OnProgress = Callable[[dict[str, Any]], None]


def identify(core: Any, build: Build, instance: str) -> tuple[Identity, Board | None]:
    """The identity of `core`; what takes long is read from now on, in a process beside it."""
    began = read_own_clock()
    board = _board(instance)
    known = config_facts(getattr(core, "vllm_config", None), build)
    lost = [gap for loss in _READ_BY for gap in by_loss(build.gaps).get(loss, ())]
    if lost:
        unread = [{"fact": FACTS_OF_FILES, "reason": describe_gaps(lost, build.vllm)}]
        found = Identity(known, complete=False, on_name=board.write if board else lambda _: None)
        found.complete({}, unread)
        found.note({"finished": True})
        return found, board
    worker = _first_worker(core)
    known["runtime"] = {name: worker[name] for name in ("device", "attention") if name in worker}
    found = Identity(known, complete=False, on_name=board.write if board else lambda _: None)
    request = {
        **sources(core.vllm_config),
        "libraries": worker.get("libraries", []),
        "loaded": worker.get("loaded", {}),
        "search": [*worker.get("search", ()), *find_search_path()],
        "named": find_named(_name_given_code(core.vllm_config)),
        "cache": _digest_cache(),
        "began": find_start(),
    }
    held_ms = (read_own_clock() - began) * 1e3
    if getattr(core.vllm_config.parallel_config, "data_parallel_index", 0):
        return found, board  # the first engine speaks for all: one reading is enough
    # As they are now: what the first requests import may come sooner or later.
    modules = sys.modules.copy()
    thread = threading.Thread(
        target=learn, args=(found, request, modules, held_ms), name="specdeck-facts", daemon=True
    )
    thread.start()
    return found, board


def _name_given_code(vllm_config: Any) -> list[Any]:
    """The classes, or names of them, that vLLM was given for its own use.

    The workers' may be loaded in processes of their own alone.
    """
    parallel = vllm_config.parallel_config
    workers = parallel.worker_cls, parallel.worker_extension_cls
    return [*(vllm_config.model_config.logits_processors or ()), *workers]


def read_own_clock() -> float:
    """Seconds that pass for this thread: not those for which it was ready and others had the CPU.

    What the machine gives to others is no cost of what the thread does. Waits of the thread's own,
    for a disk or for a worker, count. Where Linux does not tell, it is the monotonic clock.
    """
    figures = (text(_SCHEDULED) or "").split()
    ready_s = int(figures[1]) / 1e9 if len(figures) == 3 and figures[1].isdigit() else 0.0
    return time.perf_counter() - ready_s


def learn(
    identity: Identity, request: Mapping[str, Any], modules: Mapping[Any, object], held_ms: float
) -> None:
    """Has the facts of `request` and the code of `modules` read, and hands them over; a failure
    leaves a reason."""
    began = time.monotonic()

    def note(progress: Mapping[str, Any]) -> None:
        seconds = round(time.monotonic() - began, 3)
        held = {"seconds": seconds, "held_engine_ms": round(held_ms, 2)}
        identity.note({"finished": False, **progress, **held})

    try:
        loaded = {**request["loaded"], **find_packages(modules)}
        result = read_beside({**request, "loaded": loaded}, note)
        facts = {"model": result["model"], "runtime": result["runtime"]}
        unread, size = list(result["unread"]), int(result["bytes"])
    except Exception as error:  # noqa: BLE001  # names would be awaited for ever
        why = " ".join(str(error).split())
        if not isinstance(error, OSError | ValueError | EOFError):
            why = f"{type(error).__name__}: {why}"
        reason = f"the reading process failed: {why[:120]}"
        identity.complete({}, [{"fact": FACTS_OF_FILES, "reason": reason}])
        note({"finished": True})
        return
    identity.complete(facts, unread)
    # Last: whoever is told that it is finished takes the names for what they stay.
    note({"finished": True, "bytes": size, "total_bytes": size})


def read_beside(request: Mapping[str, Any], on_progress: OnProgress) -> dict[str, Any]:
    """The result of the reading process; raises EOFError when it ends without one.

    It answers through a pipe of its own: what Python imports at its start may print.
    """
    answers, answering = os.pipe()
    with open(answers, encoding="utf-8") as lines:
        try:
            reader = subprocess.Popen(
                [sys.executable, "-P", "-m", _READER, str(answering)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                text=True,
                pass_fds=[answering],
                env=drop_secrets(os.environ),
            )
        finally:
            os.close(answering)
        return _follow(reader, request, lines, on_progress)


def _follow(
    reader: subprocess.Popen[str],
    request: Mapping[str, Any],
    lines: Iterable[str],
    on_progress: OnProgress,
) -> dict[str, Any]:
    """Asks the reading process, and hears its `lines` up to the result."""
    with reader:
        assert reader.stdin is not None
        reader.stdin.write(json.dumps(request) + "\n")
        reader.stdin.close()
        for line in lines:
            message = json.loads(line)
            if "result" in message:
                found: dict[str, Any] = message["result"]
                return found
            on_progress(message)
    raise EOFError(f"it ended with {reader.returncode} and without a result")


def _first_worker(core: Any) -> dict[str, Any]:
    """Rank 0 speaks for all: its libraries lie on this machine."""
    answers = core.model_executor.collective_rpc("specdeck_worker", args=("facts", _name_process()))
    return dict(answers[0]) if answers else {}


def _digest_cache() -> str | None:
    """None where this user has no home: digests are then read anew at every start."""
    try:
        return str(cache_file(os.environ))
    except RuntimeError:
        return None


def _board(instance: str) -> Board | None:
    """None where the system has no such memory: responses then stay vLLM's own."""
    try:
        return Board(instance)
    except (OSError, AttributeError):
        return None


_STARTED = secrets.token_hex(8)


def _name_process() -> str:
    """Of this one alone, also among those of other machines and those that are its forks."""
    return f"{_STARTED}-{os.getpid()}"


def worker_facts(worker: Any, core: str) -> dict[str, Any]:
    """Facts, the paths of mapped libraries and of loaded packages; called once, after the engine
    warmed up. The engine `core` has loaded the same where it is this process, and lists it."""
    return {
        "device": {**_torch(), **_device()},
        "attention": attention_backends(worker),
        "libraries": parse_mapped_libraries(text("/proc/self/maps") or ""),
        "loaded": {} if core == _name_process() else find_packages(sys.modules.copy()),
        "search": find_search_path(),
    }


def attention_backends(worker: Any) -> list[str]:
    """The backends that the layers came to use, each once.

    The runners keep them in different places; an empty list says nothing was found.
    """
    groups = getattr(getattr(worker, "model_runner", None), "attn_groups", None) or ()
    found = set()
    for group in _flat(groups):
        backend = getattr(group, "backend", None)
        if backend is not None:
            found.add(str(plain(backend)).rpartition(".")[2])
    return sorted(found)


def _flat(groups: Any) -> Any:
    for group in groups:
        if isinstance(group, list | tuple):
            yield from _flat(group)
        else:
            yield group


def _torch() -> dict[str, Any]:
    """torch's version, switches and threads: sums are split by the number of threads."""
    import torch

    return {
        "torch": torch.__version__,
        "torch_commit": torch.version.git_version,
        "threads": torch.get_num_threads(),
        "float32_matmul": torch.get_float32_matmul_precision(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "default_dtype": str(torch.get_default_dtype()),
    }


def _device() -> dict[str, Any]:
    import torch

    if not torch.cuda.is_available():
        capability = getattr(torch.backends.cpu, "get_cpu_capability", None)
        return {"name": "cpu", "capability": capability() if capability else None}
    major, minor = torch.cuda.get_device_capability()
    switches: dict[str, Callable[[], Any]] = {
        "tf32_matmul": lambda: torch.backends.cuda.matmul.allow_tf32,
        "tf32_cudnn": lambda: torch.backends.cudnn.allow_tf32,
        "fp16_reduced": lambda: torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction,
        "bf16_reduced": lambda: torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction,
        "nccl": lambda: ".".join(map(str, torch.cuda.nccl.version())),
    }
    return {
        "name": torch.cuda.get_device_name(),
        "capability": f"{major}.{minor}",
        "cuda": torch.version.cuda or torch.version.hip,
        "cudnn": torch.backends.cudnn.version(),
        **{name: _or_none(read) for name, read in switches.items()},
    }


def _or_none(read: Callable[[], Any]) -> Any:
    """Builds of torch leave some of these out; a switch may refuse to be read."""
    try:
        return plain(read())
    except (AttributeError, RuntimeError, TypeError):
        return None
