"""A check of the console as the command of the shell that does the same."""

from __future__ import annotations

import shlex
from dataclasses import fields

from specdeck.engine.operations.check import CheckOptions

_CHECK = {
    "max_tokens": "--max-tokens", "threshold": "--max-mismatch", "streams": "--streams",
    "calls": "--calls", "model": "--model", "retry_s": "--patience",
}  # fmt: skip
_CHECK_FLAGS = {
    "ignore_eos": "--ignore-eos", "gentle": "--gentle", "private": "--private", "fresh": "--fresh",
}  # fmt: skip


def format_check(url: str, options: CheckOptions, source: str) -> str:
    """The `specdeck check` of the engine at `url` with the same prompts and options.

    >>> format_check("http://gpu-1:8000", CheckOptions(prompts=50, gentle=True), "chat")
    'specdeck check http://gpu-1:8000 --prompts chat --limit 50 --gentle'
    """
    words = ["specdeck", "check", url]
    if options.reference is not None:
        words += ["--reference", options.reference]
    words += ["--prompts", source, "--limit", str(options.prompts)]
    usual = CheckOptions()
    for one in fields(CheckOptions):
        value = getattr(options, one.name)
        if value == getattr(usual, one.name):
            continue
        if one.name in _CHECK:
            words += [_CHECK[one.name], f"{value:g}" if isinstance(value, float) else str(value)]
        elif one.name in _CHECK_FLAGS:
            words.append(_CHECK_FLAGS[one.name])
    return shlex.join(words)
