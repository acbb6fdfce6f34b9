"""Reads a config: YAML in, a validated `Config` out, or every error there is in it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from specdeck.engine.config.config import Config, Keys
from specdeck.engine.config.legacy import GONE, MOVED, translate
from specdeck.engine.config.schema import Block, ConfigSettings, Orchestration
from specdeck.engine.config.vllm_args import (
    Arguments,
    Misfit,
    find_table,
    fit,
    installed_version,
    shipped_table,
)
from specdeck.engine.config.yaml_source import Document, quote, read, show_key
from specdeck.engine.fingerprint.secrecy import contains_secret, find_secrets
from specdeck.engine.fingerprint.secret_names import is_secret_variable
from specdeck.engine.paths import locations
from specdeck.engine.policy.parameters import block_of
from specdeck.engine.protocol.methods import SPECULATIVE
from specdeck.engine.text import find_nearest

_OWN = frozenset(ConfigSettings.model_fields)
_TEXT = "text"
_PHRASES = {
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": _TEXT,
    "tuple_type": "a list of words",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "finite_number": "a finite number",
    "int_from_float": "a whole number",
}

SECRET: Final[dict[str, str]] = {
    "api_key": "set VLLM_API_KEY in the environment",
    "hf_token": "set HF_TOKEN in the environment",
}
"""Engine arguments that would put a secret on a command line, and the way around."""

_NO_TLS = "leave it out: specdeck talks HTTP to the engine; end TLS in front of it"

REFUSED: Final[dict[str, str]] = {
    "config": "put its keys here: specdeck checks one file",
    "headless": "leave it out: specdeck talks to the engine's API server",
    "grpc": "leave it out: specdeck talks HTTP to the engine",
    "uds": "leave it out: specdeck talks HTTP on a port",
    "ssl_certfile": _NO_TLS,
    "ssl_keyfile": _NO_TLS,
    "ssl_ca_certs": _NO_TLS,
}
"""Engine arguments under which specdeck could not reach the engine it starts."""

_POINTERS = frozenset({"FILE", "PATH", "ENV", "NAME", "DIR"})
"""A variable that ends so only says where a secret lies."""

DEV_MODE = "VLLM_SERVER_DEV_MODE"

_SHOWN_NAMES = ("model", "tokenizer", "hf_config_path", "served_model_name")
"""Arguments that vLLM tells: as names of models, in errors and in its log."""

_UNMISTAKABLE = 8
"""Characters of a credential from which on nothing else is spelt like it."""

_PATHS = ("model", "tokenizer", "hf_config_path", "chat_template", "tool_parser_plugin")
"""Arguments that may be paths, relative to the config."""


def load(path: Path, *, accepted: frozenset[str] | None = None) -> Config:
    """The config in the file `path`.

    `accepted` are the engine arguments to allow; without it, those of the installed
    vLLM, or those of the version specdeck was made for. Raises ConfigError, or ConfigErrors
    with all of them, and nothing else.
    """
    if accepted is None:
        arguments = find_table(installed_version(), locations(os.environ).cache)
    else:
        arguments = shipped_table().only(accepted)
    return build_config(read(path), arguments)


def build_config(document: Document, arguments: Arguments) -> Config:
    """The config that `document` holds; raises the errors of the document and its own.

    What is in error is left out, so that the rest is checked as well.
    """
    translate(document, arguments.engine)
    _check_names(document, arguments)
    settings = _read_settings(document)
    _check_environment(document, settings.environment)
    engine_args = _read_engine_args(document, arguments)
    _check_served(document, engine_args)
    missing = "model" not in engine_args and settings.attach is None
    if missing and not document.has_error("model", "attach"):
        document.refuse((), "no `model` to serve", "add `model: …`, or `attach:` with a `url`")
    _check_sampling(document, settings, engine_args)
    _check_bounds(document, settings, engine_args)
    _check_parameters(document, settings.orchestration)
    engine_args = resolve_paths(engine_args, document.path.parent)
    engine_args = _add_exact(document, settings.exact_models, engine_args)
    document.raise_errors()
    return Config(
        path=document.path,
        engine_args=MappingProxyType(engine_args),
        arguments=arguments,
        notices=tuple(document.notices),
        lines=MappingProxyType(document.lines),
        **dict(settings),  # a Config has every block of the settings
    )


def _check_names(document: Document, arguments: Arguments) -> None:
    """Refuses keys at the top that mean nothing, or must not be there, and takes them out."""
    for name in list(document.data):
        if name in SECRET:
            document.refuse((name,), f"`{name}` is a secret in a file", SECRET[name])
        elif name in REFUSED:
            document.refuse((name,), f"`{name}` is not for a config", REFUSED[name])
        elif name not in _OWN and name not in arguments.engine:
            words = {*_OWN, *arguments.engine, *MOVED, *(k[0] for k in GONE if len(k) == 1)}
            elsewhere = f"nor is it one of {arguments.source}"
            _refuse_unknown(document, (name,), words, elsewhere)
        else:
            continue
        del document.data[name]


def _refuse_unknown(document: Document, keys: Keys, words: Iterable[str], elsewhere: str) -> None:
    near = find_nearest(keys[-1], words)
    remedy = f"did you mean `{near}`?" if near else f"it is no key of specdeck's, {elsewhere}"
    document.refuse(keys, f"unknown key `{show_key(keys[-1])}`", remedy)


def _refuse_value(document: Document, keys: Keys, value: object, requires: str) -> None:
    quoted = requires == _TEXT and isinstance(value, int | float)
    given = str(value).lower() if isinstance(value, bool) else quote(value)
    if holds_secret(keys[-1]) or contains_secret(keys[-1], value) or _may_be_secret(keys, value):
        given = "what it has"
    remedy = "put it in quotes" if quoted else None
    document.refuse(keys, f"`{show_key(keys[-1])}` requires {requires}, not {given}", remedy)


def _may_be_secret(keys: Keys, value: object) -> bool:
    """Whether a value may be a secret by where it stands: a webhook's URL is one whole, and a block
    of names and values may have become one text."""
    stands = keys[0] in ("alerts", "environment") and not isinstance(value, int | float)
    return stands or "://" in str(value)


def _read_settings(document: Document) -> ConfigSettings:
    """specdeck's own blocks, without what is in error in them."""
    own = {
        name: dict(value) if isinstance(value, dict) else value
        for name, value in document.data.items()
        if name in _OWN and value is not None
    }
    while True:
        try:
            return ConfigSettings.model_validate(own)
        except ValidationError as error:
            for detail in error.errors():
                keys = tuple(part for part in detail["loc"] if isinstance(part, str))
                _refuse_setting(document, keys, detail)
                block = own.get(keys[0])
                if len(keys) > 1 and isinstance(block, dict) and keys[1] in block:
                    del block[keys[1]]
                else:
                    own.pop(keys[0], None)


def _refuse_setting(document: Document, keys: Keys, detail: ErrorDetails) -> None:
    """What pydantic says of one thing that is wrong, as this module says it."""
    kind = detail["type"]
    if kind == "extra_forbidden":
        words = _fields(keys[0])
        _refuse_unknown(document, keys, words, f"which has {', '.join(sorted(words))}")
    elif kind in ("missing", "value_error"):
        if document.has_error(keys[0]) and (kind == "missing" or _lacks_a_value(document, keys[0])):
            return  # of a block from which something was taken out
        if kind == "missing":
            document.refuse(keys, f"`{keys[0]}` needs `{keys[-1]}`")
        else:
            document.refuse(keys, str(detail["ctx"]["error"]))
    else:
        _refuse_value(document, keys, detail["input"], _PHRASES.get(kind) or _limits(detail))


def _lacks_a_value(document: Document, block: str) -> bool:
    """Whether a value of the block was refused, so that what is left of it says little."""
    fields = _fields(block)
    places = (error.place for error in document.errors)
    return any(p and p.keys[:1] == (block,) and p.keys[1:2] and p.keys[1] in fields for p in places)


def _fields(block: str) -> set[str]:
    annotation = ConfigSettings.model_fields[block].annotation
    for kind in (annotation, *getattr(annotation, "__args__", ())):
        if isinstance(kind, type) and issubclass(kind, Block):
            return set(kind.model_fields)
    return set()


def _limits(detail: ErrorDetails) -> str:
    """`at least 1`, from pydantic's own "Input should be greater than or equal to 1"."""
    text = detail["msg"].removeprefix("Input should be ")
    return text.replace("greater than or equal to", "at least").replace(
        "less than or equal to", "at most"
    )


def _read_engine_args(document: Document, arguments: Arguments) -> dict[str, Any]:
    """vLLM's own arguments, without those in error."""
    found = {}
    for name, value in document.data.items():
        if name in _OWN or value is None:
            continue
        try:
            found[name] = fit(arguments.engine[name], value)
        except Misfit as misfit:
            _refuse_value(document, (name,), value, str(misfit))
    speculative = found.pop(SPECULATIVE, None)
    if isinstance(speculative, dict):
        if kept := _read_speculative(document, speculative, arguments):
            found[SPECULATIVE] = kept
    elif speculative is not None:
        _refuse_value(document, (SPECULATIVE,), speculative, "a mapping")
    return found


def _read_speculative(
    document: Document, given: dict[str, Any], arguments: Arguments
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in given.items():
        keys = (SPECULATIVE, name)
        if name not in arguments.speculative:
            elsewhere = f"nor does {arguments.source} know it here"
            _refuse_unknown(document, keys, arguments.speculative, elsewhere)
        elif value is not None:
            try:
                found[name] = fit(arguments.speculative[name], value)
            except Misfit as misfit:
                _refuse_value(document, keys, value, str(misfit))
    name = "num_speculative_tokens"
    if found.get(name) is not None and found[name] < 1:
        remedy = "leave speculative_config out to serve target-only"
        document.refuse((SPECULATIVE, name), f"`{name}` is {found.pop(name)}", remedy)
    return found


def _check_environment(document: Document, environment: Mapping[str, str]) -> None:
    """Refuses variables that must not stand in a config."""
    for name in environment:
        keys = ("environment", name)
        if not name or "=" in name:
            document.refuse(keys, f"`{show_key(name)}` cannot be a variable's name")
        elif holds_secret(name):
            document.refuse(
                keys,
                f"`{show_key(name)}` looks like a secret in a file",
                "leave it out and set it where specdeck is started: the engine inherits it",
            )
        elif name == DEV_MODE:
            document.refuse(keys, f"`{name}` lets anyone run code in the engine", "leave it out")


def holds_secret(name: str) -> bool:
    """Whether a variable of this name holds a secret.

    >>> names = ("HF_TOKEN", "TOKENIZERS_PARALLELISM", "KEY_FILE", "AWS_KEY_ID", "REDIS_PW")
    >>> [name for name in (*names, "PAGER_WEBHOOK") if holds_secret(name)]
    ['HF_TOKEN', 'AWS_KEY_ID', 'REDIS_PW', 'PAGER_WEBHOOK']
    >>> holds_secret("VLLM_SHARED_EXPERTS_STREAM_TOKEN_THRESHOLD")
    False
    """
    return is_secret_variable(name) and name.upper().split("_")[-1] not in _POINTERS


def _check_sampling(
    document: Document, settings: ConfigSettings, engine_args: dict[str, Any]
) -> None:
    """Two places for one sampling default must agree."""
    override = engine_args.get("override_generation_config") or {}
    for name, value in settings.sampling.values().items():
        if isinstance(override, dict) and override.get(name, value) != value:
            message = f"`{name}` differs from the one in override_generation_config"
            document.refuse(("sampling", name), message, "keep the one in `sampling`")


def _check_bounds(
    document: Document, settings: ConfigSettings, engine_args: dict[str, Any]
) -> None:
    """What orchestration asks for beyond k_max, which sizes vLLM's buffers."""
    k_max = engine_args.get(SPECULATIVE, {}).get("num_speculative_tokens")
    longest = settings.orchestration.max_draft_length
    shortest = settings.orchestration.min_draft_length
    if k_max is None:
        return
    if shortest is not None and shortest > k_max:
        keys = ("orchestration", "min_draft_length")
        message = f"`{keys[1]}` is {shortest}, more than num_speculative_tokens, {k_max}"
        document.refuse(keys, message, "raise num_speculative_tokens or lower it")
    if longest is not None and longest > k_max:
        keys = ("orchestration", "max_draft_length")
        text = f"`{keys[1]}: {longest}` is bounded by num_speculative_tokens, {k_max}"
        document.note(keys, text)


def _check_parameters(document: Document, orchestration: Orchestration) -> None:
    """Refuses a value at odds with the others of the policy or breaker it is a parameter of.

    Only what is in force from the start: bounds that suit goodput need not suit threshold.
    """
    given = orchestration.model_dump(exclude_none=True)
    starts = (orchestration.policy or "goodput",) if orchestration.adaptive_draft else ()
    for block in ("breaker", *starts):
        what = block if block == "breaker" else f"{block} policy"
        _, refused = block_of(block, given)
        for key, reason in refused.items():
            document.refuse(
                ("orchestration", key),
                f"`{key}` makes no sense for the {what}: {reason}",
                "change it or leave it out",
            )


def _add_exact(
    document: Document, names: tuple[str, ...], engine_args: dict[str, Any]
) -> dict[str, Any]:
    """`engine_args` that serve every name under which requests are answered target-only."""
    keys = ("exact_models",)
    for name in names:
        if not name.strip() or name != name.strip() or not name.isprintable():
            document.refuse(keys, f"`exact_models` holds {name!r}, which is no name")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        document.refuse(keys, f"`exact_models` names `{twice}` twice", "say it once")
    model = engine_args.get("model")
    if not names or model is None:
        return engine_args
    served = list(engine_args.get("served_model_name") or [model])
    missing = [name for name in names if name not in served and name not in _adapters(engine_args)]
    for name in missing:
        document.note(keys, f"`exact_models`: `{name}` is served as well")
    if not engine_args.get(SPECULATIVE):
        text = "without speculative_config every request is exact"
        document.note(keys, f"`exact_models`: {text}")
    elif not set(served) - set(names):
        text = "every served name is exact: nothing will speculate"
        document.note(keys, f"`exact_models`: {text}")
    return {**engine_args, "served_model_name": [*served, *missing]} if missing else engine_args


def _adapters(engine_args: dict[str, Any]) -> set[str]:
    """Names of LoRA modules, which vLLM serves beside the model's own."""
    modules = engine_args.get("lora_modules") or []
    named = (m.get("name") if isinstance(m, dict) else str(m).partition("=")[0] for m in modules)
    return {str(name) for name in named}


def _check_served(document: Document, engine_args: Mapping[str, Any]) -> None:
    """Refuses a credential in what the engine says to every client, and what `ps` shows."""
    speculative = engine_args.get(SPECULATIVE)
    draft = speculative.get("model") if isinstance(speculative, dict) else None
    names = [((name,), engine_args.get(name)) for name in _SHOWN_NAMES]
    # One may stand under a second name, as YAML's aliases have it.
    known = set(find_secrets("", engine_args))
    long = [one for one in known if len(one) >= _UNMISTAKABLE]
    for keys, value in [*names, ((SPECULATIVE, "model"), draft)]:
        for one in map(str, value if isinstance(value, list) else [value]):
            marks = ("://", "=") if keys == ("served_model_name",) else ("://",)
            is_told = any(mark in one for mark in marks) and contains_secret("", one)
            if is_told or one in known or any(secret in one for secret in long):
                document.refuse(
                    keys, f"`{keys[-1]}` has a credential in it, which the engine tells",
                    "give it in the environment, such as HF_TOKEN or AWS_SECRET_ACCESS_KEY",
                )  # fmt: skip
                break


def resolve_paths(engine_args: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """`engine_args` with the paths that are relative to `folder` made absolute."""
    found = dict(engine_args)
    for name in _PATHS:
        if isinstance(found.get(name), str):
            found[name] = locate(found[name], folder)
    speculative = found.get(SPECULATIVE)
    if isinstance(speculative, dict) and isinstance(speculative.get("model"), str):
        found[SPECULATIVE] = {**speculative, "model": locate(speculative["model"], folder)}
    return found


def locate(name: str, folder: Path) -> str:
    """`name` as a path where it is one: where it exists, or says so by ./, ../ or ~.

    Anything else is left alone: `org/model` is a name on the Hugging Face hub.

    >>> locate("meta-llama/Llama-3.2-1B", Path("/nowhere"))
    'meta-llama/Llama-3.2-1B'
    >>> locate("../m", Path("/a/b"))
    '/a/m'
    """
    if name.startswith("~"):
        return os.path.expanduser(name)
    if name.startswith(("./", "../")):
        return os.path.normpath(folder.absolute() / name)
    try:
        exists = bool(name) and (folder / name).exists()
    except OSError:  # a chat template in place is longer than a path may be
        exists = False
    return os.path.normpath(folder.absolute() / name) if exists else name
