"""The names under which requests are answered target-only."""

from __future__ import annotations

from typing import Any

from specdeck.engine.config.config import Notice
from specdeck.engine.config.document import Document

_KEYS = ("exact_models",)


def with_exact(
    document: Document, names: tuple[str, ...], engine_args: dict[str, Any]
) -> tuple[dict[str, Any], list[Notice]]:
    """`engine_args` that serve every exact name, and what there is to say of it.

    Raises ConfigError on a name that cannot be one.
    """
    for name in names:
        if not name.strip() or name != name.strip() or not name.isprintable():
            raise document.error(_KEYS, f"`exact_models` holds {name!r}, which is no name")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise document.error(_KEYS, f"`exact_models` names `{twice}` twice", "say it once")
    model = engine_args.get("model")
    if not names or model is None:
        return engine_args, []
    served = list(engine_args.get("served_model_name") or [model])
    missing = [name for name in names if name not in served and name not in _adapters(engine_args)]
    notices = [_notice(document, f"`{name}` is served as well") for name in missing]
    if not engine_args.get("speculative_config"):
        notices.append(_notice(document, "without speculative_config every request is exact"))
    elif not set(served) - set(names):
        notices.append(_notice(document, "every served name is exact: nothing will speculate"))
    if missing:
        engine_args = {**engine_args, "served_model_name": [*served, *missing]}
    return engine_args, notices


def _adapters(engine_args: dict[str, Any]) -> set[str]:
    """Names of LoRA modules, which vLLM serves beside the model's own."""
    modules = engine_args.get("lora_modules") or []
    named = (m.get("name") if isinstance(m, dict) else str(m).partition("=")[0] for m in modules)
    return {str(name) for name in named}


def _notice(document: Document, text: str) -> Notice:
    return Notice(document.where(*_KEYS), f"`exact_models`: {text}")
