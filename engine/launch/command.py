"""The command line and the environment of an engine, from a config."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from specdeck.engine.client.webhook import VARIABLE as WEBHOOK_VARIABLE
from specdeck.engine.config.config import Config
from specdeck.engine.config.vllm_args import Argument, format_word
from specdeck.engine.errors import UsageError
from specdeck.engine.launch.machine import Build, detect_build
from specdeck.engine.launch.masked_server import MODULE
from specdeck.engine.launch.model_runner import choose_runner
from specdeck.engine.launch.private_arguments import FLAG, find_private, format_private
from specdeck.engine.launch.registry import private_file
from specdeck.engine.protocol.messages import (
    EXACT_VARIABLE,
    IN_RESPONSES_VARIABLE,
    LOOKS,
    MASK_VARIABLE,
    ORCHESTRATION_VARIABLE,
    PREFIX,
    TIERS_VARIABLE,
    TOKEN_FILE_VARIABLE,
    TOKEN_VARIABLE,
)
from specdeck.engine.protocol.methods import GRAPHS_PER_K, SCHEDULE, SPECULATIVE, is_mtp
from specdeck.engine.protocol.vllm_versions import is_too_old

PLUGIN = "specdeck"
_MASKED = "specdeck.engine.launch.masked_server"
"""The same as vLLM's own module, for arguments with a secret, which vLLM would log."""

_SEVERAL = "specdeck.engine.launch.api_servers"
"""The same for several API servers, which vLLM's own module does not start."""

_OPERATORS = re.compile(
    rf"{TOKEN_VARIABLE}|{WEBHOOK_VARIABLE}|VLLM_API_KEY_[A-Za-z0-9_]+"
    r"|SPECDECK_([A-Za-z0-9_]+_)?API_KEY"
)
"""Variables for specdeck alone: tokens and keys of other engines, and who is told of alerts."""

_UNLOGGED = ",".join(("/metrics", *(f"{PREFIX}/{name}" for name in LOOKS)))
"""What is asked every second or so, and would be most of the log of an idle engine."""

_DEFAULT_SEQS = 256
"""The end of a schedule when max_num_seqs is vLLM's to choose: it carries the last tier on."""

_PLUGIN_GROUPS = (
    "vllm.platform_plugins",
    "vllm.general_plugins",
    "vllm.io_processor_plugins",
    "vllm.stat_logger_plugins",
)
"""Groups whose plugins vLLM loads when VLLM_PLUGINS is not set; its endpoint plugins are not."""


def build_argv(
    config: Config,
    *,
    python: str,
    host: str,
    port: int,
    build: Build | None = None,
    environment: Mapping[str, str] | None = None,
    private: Path | None = None,
) -> list[str]:
    """The words that start the config's engine with the interpreter `python`.

    `build` is the vLLM that will run, None where it is not known, and `environment` what
    it will find there: both decide whether CUDA graphs are asked for at every k. Holds no
    secret: arguments with one are left to the file `private`, whose text is
    `private_arguments`. Raises UsageError for such arguments without it.
    """
    args = engine_arguments(config, build=build or Build("unknown"), environment=environment or {})
    several = (args.get("api_server_count") or 1) > 1
    secret = find_private(args)
    words = [python, "-m", _SEVERAL if several else _MASKED if secret else MODULE]
    if secret:
        if private is None:
            raise UsageError(f"{', '.join(sorted(secret))}: a secret is no word of a command line")
        words += [FLAG, str(private)]
    for name, value in (args | {"host": host, "port": port}).items():
        if name not in secret:
            words += format_flags(name, value, config.arguments.engine.get(name, Argument()))
    return words


def private_arguments(
    config: Config, *, build: Build, environment: Mapping[str, str]
) -> str | None:
    """The file for arguments with a secret in them, as text; None where there are none."""
    args = engine_arguments(config, build=build, environment=environment)
    return format_private(args, config.arguments.engine)


def engine_arguments(
    config: Config, *, build: Build, environment: Mapping[str, str]
) -> dict[str, Any]:
    """The config's engine arguments with what specdeck adds to them."""
    args = dict(config.engine_args)
    accepted = config.arguments.engine
    if defaults := config.sampling.values():
        override = args.get("override_generation_config") or {}
        args["override_generation_config"] = {**override, **defaults}
        args.setdefault("generation_config", "vllm")
    if "enable_per_request_metrics" in accepted:
        args.setdefault("enable_per_request_metrics", True)
    if "allowed_origins" in accepted:  # some vLLMs let any web page read a keyless engine
        args.setdefault("allowed_origins", [])
    if "disable_access_log_for_endpoints" in accepted:
        args.setdefault("disable_access_log_for_endpoints", _UNLOGGED)
    speculative = config.speculative
    if speculative is not None:
        if "per_request_spec_decode_metrics" in accepted:
            args.setdefault("per_request_spec_decode_metrics", "summary")
        if needs_schedule(config, build=build, environment=environment):
            tiers = schedule(config.k_max or 1, args.get("max_num_seqs") or _DEFAULT_SEQS)
            args[SPECULATIVE] = {**speculative, SCHEDULE: tiers}
    return args


def needs_schedule(config: Config, *, build: Build, environment: Mapping[str, str]) -> bool:
    """Whether the engine should be told every k, to capture CUDA graphs for each.

    Only the V2 runner captures them; the V1 runner would lose its full graphs. Engines
    that are too old can only be watched, and with some methods crashed at capturing them.
    """
    asked, args = config.orchestration.graphs_per_k, config.engine_args
    speculative = config.speculative
    if asked is False or speculative is None or config.k_max is None or SCHEDULE in speculative:
        return False
    graphs = build.kind == "gpu" and not args.get("enforce_eager", False)
    one_rank = args.get("data_parallel_size", 1) == 1
    v2 = choose_runner(config, environment, cpu=build.kind == "cpu") == "V2"
    known = asked is True or config.method in GRAPHS_PER_K or is_mtp(config.method)
    return graphs and one_rank and v2 and known and not is_too_old(build.version)


def schedule(k_max: int, max_num_seqs: int) -> list[list[int]]:
    """Tiers `[first, last, k]` of the batch size that name every k from 0 to k_max once.

    The plugin puts the live k over it; the tiers are there for the graphs. k_max
    comes last and widest, since vLLM sizes its captures by the widest batch of a
    tier. With fewer batch sizes than k's, 0 and the largest ones are kept.

    >>> schedule(3, 256)
    [[1, 1, 0], [2, 2, 1], [3, 3, 2], [4, 256, 3]]
    >>> schedule(5, 3)
    [[1, 1, 0], [2, 2, 4], [3, 3, 5]]
    """
    room = max(1, max_num_seqs)
    depths = list(range(k_max + 1))
    if room < len(depths):
        depths = [k_max] if room == 1 else [0, *depths[-(room - 1) :]]
    last = len(depths)
    return [[size, room if size == last else size, k] for size, k in enumerate(depths, start=1)]


def format_flags(name: str, value: object, argument: Argument) -> Iterator[str]:
    """The words of one argument as vLLM's parser takes them.

    >>> list(format_flags("max_num_seqs", 8, Argument("int")))
    ['--max-num-seqs', '8']
    >>> list(format_flags("enforce_eager", False, Argument("bool")))
    ['--no-enforce-eager']
    >>> list(format_flags("speculative_config", {"method": "ngram"}, Argument("json")))
    ['--speculative-config', '{"method": "ngram"}']
    """
    flag = f"--{name.replace('_', '-')}"
    if value is None:
        return
    if isinstance(value, bool) and argument.kind != "json":
        if value:
            yield flag
        elif argument.kind != "flag":
            yield f"--no-{name.replace('_', '-')}"
    elif argument.words == "repeat" and isinstance(value, list):
        for item in value:
            yield from _flag(flag, item)
    elif argument.words == "many" and isinstance(value, list):
        if value:
            yield flag
            yield from map(format_word, value)
    elif argument.kind == "any" and isinstance(value, list):
        yield from _flag(flag, ",".join(map(format_word, value)))  # device_ids
    else:
        yield from _flag(flag, value)


def _flag(flag: str, value: object) -> Iterator[str]:
    word = format_word(value)
    if word.startswith("-"):  # argparse would take it for a flag
        yield f"{flag}={word}"
    else:
        yield from (flag, word)


def build_environment(
    config: Config,
    base: Mapping[str, str],
    *,
    token_file: Path,
    build: Build | None = None,
    installed: Callable[[], Iterable[str]] | None = None,
) -> dict[str, str]:
    """The engine's variables: the config's, the caller's over them, then specdeck's.

    What the caller has for other engines stays with the caller: a model's own code runs in this
    one. `build` is the vLLM that will run, `installed` gives the names of vLLM plugins
    that load by themselves; both are looked up when they are not given.
    """
    inherited = {name: value for name, value in base.items() if not _OPERATORS.fullmatch(name)}
    found = {
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        **config.environment,
        **inherited,
        # What lies in the folder where an operator stands is no part of the engine.
        "PYTHONSAFEPATH": "1",
        TOKEN_FILE_VARIABLE: str(token_file),
    }
    if (build or detect_build()).kind == "cpu":
        found.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    if block := config.orchestration.model_dump(exclude_none=True, exclude={"graphs_per_k"}):
        found[ORCHESTRATION_VARIABLE] = json.dumps(block)
    if config.exact_models:
        found[EXACT_VARIABLE] = json.dumps(config.exact_models)
    if find_private(config.engine_args):
        found[MASK_VARIABLE] = str(private_file(token_file))
    if SCHEDULE not in (config.speculative or {}):
        found[TIERS_VARIABLE] = "1"
    if config.fingerprint is not None and not config.fingerprint.in_responses:
        found[IN_RESPONSES_VARIABLE] = "0"
    listed = found.get("VLLM_PLUGINS")
    names = (installed or installed_plugins)() if listed is None else listed.split(",")
    found["VLLM_PLUGINS"] = ",".join(dict.fromkeys([*filter(None, names), PLUGIN]))
    return found


def installed_plugins() -> list[str]:
    """The plugins that vLLM would load were there no list: one list holds for all groups."""
    from importlib.metadata import entry_points

    return sorted({entry.name for group in _PLUGIN_GROUPS for entry in entry_points(group=group)})
