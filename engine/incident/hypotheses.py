"""What kinds of fault look like a case, and what would tell them apart: for a person who knows
more of the engine than its counters do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from specdeck.engine.incident.case import Case, Pattern
from specdeck.engine.why.causes import RESYNC


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A class of fault."""

    fault: str
    test: str
    """What would tell it from the others."""
    issue: str | None = None
    """Where vLLM's users met something like it."""
    command: str | None = None
    """As `causes.format_command` takes it."""


_POSITIONS: Final = Hypothesis(
    "the draft computes prompts of this length wrongly: positions, rope scaling, or a limit of its"
    " context or window",
    "send requests a little shorter and a little longer than the limit: a sharp edge in tokens is a"
    " limit, a slope is none",
    "vllm#47930",
)
_CACHE: Final = Hypothesis(
    "the draft's KV cache of these requests is wrong: never filled, overwritten, or of another"
    " request",
    "have it filled anew; if new requests are accepted as before, it was that",
    command=RESYNC,
)
_REPLACED: Final = Hypothesis(
    "something between draft and verification replaces these requests' drafts: a plugin of vLLM, a"
    " patch, a race",
    "read the engine's log of that second; list its plugins (VLLM_PLUGINS, entry points"
    " vllm.general_plugins) and files that were written then",
)
_PATH: Final = Hypothesis(
    "what these requests alone pass through spoils their drafts or rejects them",
    "send the same prompts without it: if they are accepted, it is that",
)
_STATE: Final = Hypothesis(
    "a state of the draft decays with time",
    "have its KV cache filled anew; if that does not help and a restart does, it was another state",
    "vllm#41838",
    RESYNC,
)
_TEXT: Final = Hypothesis(
    "these requests ask for text that is harder to guess than before",
    "compare what was sent before and after, such as by client or template",
)
_WEAKER: Final = Hypothesis(
    "the draft became worse for these requests",
    "replay requests that were sent before: if they are accepted less than then, it is the draft",
)

_BY_KIND: Final[Mapping[str, tuple[Hypothesis, ...]]] = {
    "prompt": (_POSITIONS, _CACHE, _REPLACED),
    "cached": (_CACHE, _REPLACED),
}


def list_hypotheses(case: Case) -> tuple[Hypothesis, ...]:
    """Classes of fault that a case may be of, the likelier first; none where nothing is known."""
    found: Mapping[Pattern | None, tuple[Hypothesis, ...]] = {
        "rejected": _BY_KIND.get(case.group.by, (_PATH, _REPLACED)),
        "decayed": (_STATE, _TEXT),
        "weaker": (_TEXT, _WEAKER),
        None: (),
    }
    return found[case.pattern]
