"""Reads a config: YAML in, validated `Config` out, or one line that says where it is wrong."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from specdeck.engine.config.arguments import (
    Argument,
    Arguments,
    installed_version,
    known,
    shipped,
)
from specdeck.engine.config.check import Misfit, fitted, nearest
from specdeck.engine.config.config import Config, Notice
from specdeck.engine.config.document import Document, Keys, read, shown
from specdeck.engine.config.exact import with_exact
from specdeck.engine.config.paths import resolved
from specdeck.engine.config.schema import Block, Settings
from specdeck.engine.config.secrets import check_environment
from specdeck.engine.config.spellings import GONE, MOVED, REFUSED, SECRET, SPECULATIVE
from specdeck.engine.config.translate import translated
from specdeck.engine.config.tuned import check_tuned

_OWN = frozenset(Settings.model_fields)
_PHRASES = {
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "text",
    "tuple_type": "a list of words",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "finite_number": "a finite number",
    "int_from_float": "a whole number",
}


def load(path: Path, *, accepted: frozenset[str] | None = None) -> Config:
    """The config in the file `path`.

    `accepted` are the engine arguments to allow; without it, those of the installed
    vLLM, or those of the version specdeck was made for. Raises ConfigError only.
    """
    arguments = _arguments() if accepted is None else shipped().only(accepted)
    return checked(read(path), arguments)


def _arguments() -> Arguments:
    import os

    from specdeck.engine.locations import locations

    return known(installed_version(), locations(os.environ).cache)


def checked(document: Document, arguments: Arguments) -> Config:
    """The config that `document` holds; ConfigError when it holds none."""
    document, notices = translated(document, arguments.engine)
    _check_names(document, arguments)
    settings = _settings(document)
    check_environment(document, settings.environment)
    engine_args = _engine_args(document, arguments)
    if "model" not in engine_args and settings.attach is None:
        raise document.error((), "no `model` to serve", "add `model: …`, or `attach:` with a `url`")
    _check_sampling(document, settings, engine_args)
    notices += _bounds(document, settings, engine_args)
    check_tuned(document, settings.orchestration)
    resolved_args, added = with_exact(
        document, settings.exact_models, resolved(engine_args, document.path.parent)
    )
    notices += added
    return Config(
        path=document.path,
        engine_args=MappingProxyType(resolved_args),
        orchestration=settings.orchestration,
        sampling=settings.sampling,
        alerts=settings.alerts,
        arguments=arguments,
        exact_models=settings.exact_models,
        attach=settings.attach,
        environment=MappingProxyType(settings.environment),
        host=settings.host,
        port=settings.port,
        deepen=settings.deepen,
        fingerprint=settings.fingerprint,
        notices=tuple(notices),
        lines=MappingProxyType(document.lines),
    )


def _check_names(document: Document, arguments: Arguments) -> None:
    for name in document.data:
        if name in SECRET:
            raise document.error((name,), f"`{name}` is a secret in a file", SECRET[name])
        if name in REFUSED:
            raise document.error((name,), f"`{name}` is not for a config", REFUSED[name])
        if name not in _OWN and name not in arguments.engine:
            words = {*_OWN, *arguments.engine, *MOVED, *(k[0] for k in GONE if len(k) == 1)}
            raise _unknown(document, (name,), words, f"nor is it one of vLLM {arguments.vllm}")


def _unknown(document: Document, keys: Keys, words: Iterable[str], elsewhere: str) -> Exception:
    near = nearest(keys[-1], words)
    remedy = f"did you mean `{near}`?" if near else f"it is no key of specdeck's, {elsewhere}"
    name = keys[-1] if len(keys[-1]) <= 60 else keys[-1][:59] + "…"
    return document.error(keys, f"unknown key `{name}`", remedy)


def _wants(document: Document, keys: Keys, value: object, wants: str) -> Exception:
    quoted = wants == "text" and isinstance(value, int | float)
    given = str(value).lower() if isinstance(value, bool) else shown(value)
    remedy = "put it in quotes" if quoted else None
    return document.error(keys, f"`{keys[-1]}` wants {wants}, not {given}", remedy)


def _settings(document: Document) -> Settings:
    own = {k: v for k, v in document.data.items() if k in _OWN and v is not None}
    try:
        return Settings.model_validate(own)
    except ValidationError as error:
        raise _first(document, error.errors()[0]) from None


def _first(document: Document, detail: ErrorDetails) -> Exception:
    """What pydantic says of the first thing that is wrong, as this module says it."""
    keys = tuple(str(part) for part in detail["loc"] if isinstance(part, str))
    kind, value = detail["type"], detail["input"]
    if kind == "extra_forbidden":
        words = _fields(keys[0])
        return _unknown(document, keys, words, f"which has {', '.join(sorted(words))}")
    if kind == "missing":
        return document.error(keys, f"`{keys[0]}` needs `{keys[-1]}`")
    if kind == "value_error":
        return document.error(keys, str(detail["ctx"]["error"]))
    wants = _PHRASES.get(kind) or _limits(detail)
    return _wants(document, keys, value, wants)


def _fields(block: str) -> set[str]:
    annotation = Settings.model_fields[block].annotation
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


def _engine_args(document: Document, arguments: Arguments) -> dict[str, Any]:
    given = {k: v for k, v in document.data.items() if k not in _OWN and v is not None}
    found = {
        name: _fitted(document, (name,), arguments.engine[name], value)
        for name, value in given.items()
    }
    speculative = found.get(SPECULATIVE)
    if speculative is not None:
        if not isinstance(speculative, dict):
            raise _wants(document, (SPECULATIVE,), speculative, "a mapping")
        found[SPECULATIVE] = _speculative(document, speculative, arguments)
        if not found[SPECULATIVE]:
            del found[SPECULATIVE]
    return found


def _speculative(document: Document, given: dict[str, Any], arguments: Arguments) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in given.items():
        keys = (SPECULATIVE, name)
        if name not in arguments.speculative:
            elsewhere = f"nor does vLLM {arguments.vllm} know it here"
            raise _unknown(document, keys, arguments.speculative, elsewhere)
        if value is not None:
            found[name] = _fitted(document, keys, arguments.speculative[name], value)
    k = found.get("num_speculative_tokens")
    if k is not None and k < 1:
        keys = (SPECULATIVE, "num_speculative_tokens")
        raise document.error(
            keys, f"`{keys[1]}` is {k}", "leave speculative_config out to serve target-only"
        )
    return found


def _fitted(document: Document, keys: Keys, argument: Argument, value: object) -> object:
    try:
        return fitted(argument, value)
    except Misfit as misfit:
        raise _wants(document, keys, value, str(misfit)) from None


def _check_sampling(document: Document, settings: Settings, engine_args: dict[str, Any]) -> None:
    """Two places for one sampling default must agree."""
    override = engine_args.get("override_generation_config") or {}
    for name, value in settings.sampling.given().items():
        if isinstance(override, dict) and override.get(name, value) != value:
            message = f"`{name}` differs from the one in override_generation_config"
            raise document.error(("sampling", name), message, "keep the one in `sampling`")


def _bounds(document: Document, settings: Settings, engine_args: dict[str, Any]) -> list[Notice]:
    """What orchestration asks for beyond k_max, which sizes vLLM's buffers."""
    k_max = engine_args.get(SPECULATIVE, {}).get("num_speculative_tokens")
    longest = settings.orchestration.max_draft_length
    shortest = settings.orchestration.min_draft_length
    if k_max is None:
        return []
    if shortest is not None and shortest > k_max:
        keys = ("orchestration", "min_draft_length")
        message = f"`{keys[1]}` is {shortest}, more than num_speculative_tokens, {k_max}"
        raise document.error(keys, message, "raise num_speculative_tokens or lower it")
    if longest is not None and longest > k_max:
        keys = ("orchestration", "max_draft_length")
        text = f"`{keys[1]}: {longest}` is bounded by num_speculative_tokens, {k_max}"
        return [Notice(document.where(*keys), text)]
    return []
