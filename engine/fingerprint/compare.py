"""Two fingerprints side by side: what differs, and what that means in words."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from specdeck.engine.fingerprint.behaviour import (
    MovedProbe,
    explain_incomparable,
    explain_lost_agreement,
    moved_probes,
)
from specdeck.engine.fingerprint.digest import canonical
from specdeck.engine.fingerprint.fingerprint import Fingerprint
from specdeck.engine.fingerprint.name import FACTS_OF_FILES
from specdeck.engine.fingerprint.package_code import BY_PATH
from specdeck.engine.text import format_value

Kind = Literal["changed", "added", "removed"]
PathVerdict = Literal["same", "knob", "model", "runtime", "behaviour", "unknown"]

WORDS: dict[PathVerdict, str] = {
    "same": "nothing changed",
    "knob": "knob changed",
    "model": "model changed",
    "runtime": "runtime changed",
    "behaviour": "behaviour changed with nothing else",
    "unknown": "not every fact is known",
}
OWN_STOOD_STILL = "vLLM's own fingerprint did not move"

_MODELS = {"target": "target", "draft": "draft", "tokenizer": "tokenizer",
           "draft_tokenizer": "draft tokenizer"}  # fmt: skip
_FIRST = ("live.mode", "live.k", "config.speculative.method",
          "config.speculative.num_speculative_tokens", "config.model.dtype")  # fmt: skip
_OF_TARGET = ("model.target", "model.tokenizer", "serving", "environment", "live.weights")
_OF_PROCESSES = ("engine.vllm", "engine.commit", "engine.python", "runtime.code",
                 "runtime.libraries", "runtime.versions", "serving.code")  # fmt: skip
"""What an engine's processes have loaded, which is more of it with a drafter."""
_LONG = 64
"""A value longer than this is a digest or a tree: a line names the fact alone."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One fact that is not the same on both sides."""

    fact: str
    """Its place in the tree, such as `live.k`."""
    kind: Kind
    before: Any = None
    after: Any = None

    def line(self) -> str:
        """For one line of a diff.

        >>> Difference("live.k", "changed", 6, 5).line()
        'live.k: 6 → 5'
        >>> Difference("environment.VLLM_BATCH_INVARIANT", "added", None, "1").line()
        'environment.VLLM_BATCH_INVARIANT: – → 1'
        """
        return f"{self.fact}: {_format_fact(self.before)} → {_format_fact(self.after)}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """What lies between two looks, the older one first."""

    before: Fingerprint
    after: Fingerprint
    differences: tuple[Difference, ...]
    probes: tuple[MovedProbe, ...]
    """Probes that are answered otherwise; empty where behaviour was not compared."""
    verdicts: tuple[tuple[PathVerdict, str], ...]
    """Every kind of change with its line, the gravest first; at least one."""

    @property
    def same(self) -> bool:
        """Whether nothing is known to differ, and nothing that was known became unknown."""
        return self.verdicts[0][0] == "same"

    @property
    def layers(self) -> dict[str, bool | None]:
        """Which layer moved; None for a behaviour that was not tried on both sides."""
        moved = bool(self.probes) or any(_lost_agreement(self.before, self.after))
        behaviour = moved if self._is_probed else None
        return {
            "build": self.before.build != self.after.build,
            "path": self.before.path != self.after.path,
            "behaviour": behaviour,
        }

    @property
    def system_fingerprint_moved(self) -> bool | None:
        """Whether vLLM's own fingerprint moved; None when one side does not know it."""
        return _system_fingerprint_moved(self.before, self.after)

    @property
    def system_fingerprints(self) -> dict[str, Any]:
        """vLLM's own fingerprints, as JSON has them."""
        return {
            "before": self.before.system_fingerprint,
            "after": self.after.system_fingerprint,
            "moved": self.system_fingerprint_moved,
        }

    @property
    def _is_probed(self) -> bool:
        old, new = self.before.behaviour, self.after.behaviour
        return old is not None and new is not None and old.probe_set == new.probe_set

    def lines(self) -> list[str]:
        """The verdict in words, one kind of change a line."""
        found = [line for _, line in self.verdicts]
        if not self.same and self.system_fingerprint_moved is False:
            found.append(OWN_STOOD_STILL)
        return found

    def as_json(self) -> dict[str, Any]:
        """The keys of `fingerprint verify --json` and `diff --json`."""
        return {
            "same": self.same,
            "verdict": self.verdicts[0][0],
            "verdicts": [{"kind": kind, "text": text} for kind, text in self.verdicts],
            "layers": self.layers,
            "before": {"t": self.before.t, "engine": self.before.url, **self.before.names},
            "after": {"t": self.after.t, "engine": self.after.url, **self.after.names},
            "system_fingerprint": self.system_fingerprints,
            "differences": [asdict(one) for one in self.differences],
            "probes": [asdict(one) for one in self.probes],
            "partial": [asdict(one) for one in self.after.unread],
        }


def compare(before: Fingerprint, after: Fingerprint) -> Comparison:
    """What changed from `before` to `after`."""
    found = tuple(differences(before.facts, after.facts))
    probes: tuple[MovedProbe, ...] = ()
    if before.behaviour is not None and after.behaviour is not None:
        probes = moved_probes(before.behaviour, after.behaviour)
    verdicts = tuple(_verdicts(before, after, found, probes))
    return Comparison(before, after, found, probes, verdicts)


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Difference]:
    """The leaves of two trees that differ, in the order of their places.

    >>> [d.line() for d in differences({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}})]
    ['a.c: 2 → 3']
    """
    old, new = _bare(before, after), _bare(after, before)
    for fact in sorted(old.keys() | new.keys()):
        if fact not in old:
            yield Difference(fact, "added", None, new[fact])
        elif fact not in new:
            yield Difference(fact, "removed", old[fact], None)
        elif _spell(old[fact]) != _spell(new[fact]):
            yield Difference(fact, "changed", old[fact], new[fact])


def find_another_target(before: Fingerprint, after: Fingerprint) -> tuple[Difference, ...]:
    """What makes `after` the engine of another target than `before`, with a draft or without.

    Not the config, from which a draft's settings follow, nor the draft, nor what moves without a
    restart but for weights. Of code and libraries that counts which both have: a drafter has its
    own. What one side could not read is not known to differ.
    """
    found = tuple(differences(before.facts, after.facts))
    unread = _find_unread([one.fact for one in found], before, after)
    return tuple(one for one in found if one.fact not in unread and _is_of_target(one))


def _is_of_target(difference: Difference) -> bool:
    """Whether it shows another target, whatever drafts for it.

    >>> weights, code = "model.target.weights.model.safetensors", "runtime.code.acme"
    >>> _is_of_target(Difference(weights, "changed")), _is_of_target(Difference(code, "changed"))
    (True, True)
    >>> _is_of_target(Difference(code, "removed")), _is_of_target(Difference("live.k", "changed"))
    (False, False)
    """
    fact = difference.fact
    if _is_below(fact, _OF_PROCESSES):
        return difference.kind == "changed" and not fact.endswith(f".{BY_PATH}")
    return _is_below(fact, _OF_TARGET)


def _is_below(fact: str, branches: Iterable[str]) -> bool:
    return any(fact == branch or fact.startswith(f"{branch}.") for branch in branches)


def _spell(value: Any) -> bytes:
    """As the names have it: to Python 1 is True and 1.0, to a name they are three values."""
    return canonical({"": value})


def _bare(tree: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """The leaves of `tree`, without branches that are empty here and grown there."""
    grown = sorted(place for place, _ in leaves(other))
    return {
        place: value for place, value in leaves(tree) if value != {} or not _has_below(grown, place)
    }


def _has_below(places: Sequence[str], branch: str) -> bool:
    """Whether one of `places`, which are sorted, lies below `branch`."""
    stem = f"{branch}."
    at = bisect_left(places, stem)
    return at < len(places) and places[at].startswith(stem)


def leaves(tree: Mapping[str, Any], under: str = "") -> Iterator[tuple[str, Any]]:
    """Every value of a tree with its place; an empty branch is a value.

    >>> list(leaves({"a": {"b": [1]}, "c": {}}))
    [('a.b', [1]), ('c', {})]
    """
    for name, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{under}{name}.")
        else:
            yield f"{under}{name}", value


def _verdicts(
    before: Fingerprint,
    after: Fingerprint,
    found: tuple[Difference, ...],
    probes: tuple[MovedProbe, ...],
) -> Iterator[tuple[PathVerdict, str]]:
    stray = _find_stray_change(before, after, found)
    behaviour = [*([_probes(probes)] if probes else []), *_lost_agreement(before, after)]
    if behaviour and not found and not stray:
        yield "behaviour", f"{WORDS['behaviour']}: {'; '.join(behaviour)}"
    unread = _find_unread([d.fact for d in found], before, after)
    known = [d for d in found if d.fact not in unread]
    upgraded = any(d.fact == "engine.vllm" for d in known)
    # A method without a draft model of its own comes or goes by a knob.
    other_method = any(d.fact.startswith("config.speculative.method") for d in known)
    yield from _models([d for d in known if not (other_method and d.kind != "changed")])
    for kind in ("knob", "runtime"):
        named = [d for d in known if _kind(d, upgraded=upgraded) == kind]
        if named:
            yield kind, f"{WORDS[kind]}: {_list_changes(named)}"
    if stray:
        yield "runtime", stray
    if behaviour and (found or stray):
        yield "behaviour", f"behaviour changed with it: {'; '.join(behaviour)}"
    reasons = tuple(_unknown_reasons(before, after, found))
    if reasons:
        yield "unknown", f"{WORDS['unknown']}: {'; '.join(reasons[:3])}"
    elif not found and not behaviour and not stray:
        also = ", as far as it is known" if after.partial else ""
        if (before.behaviour is None) != (after.behaviour is None):
            also += "; the behaviour was not compared, which one side was not probed for"
        yield "same", WORDS["same"] + also


def _lost_agreement(before: Fingerprint, after: Fingerprint) -> Iterator[str]:
    """How much less the engine agrees with itself than it did, where it was probed twice."""
    if before.behaviour is not None and after.behaviour is not None:
        lost = explain_lost_agreement(before.behaviour, after.behaviour)
        yield from filter(None, [lost])


def _system_fingerprint_moved(before: Fingerprint, after: Fingerprint) -> bool | None:
    old, new = before.system_fingerprint, after.system_fingerprint
    return None if old is None or new is None else old != new


def _find_stray_change(
    before: Fingerprint, after: Fingerprint, found: tuple[Difference, ...]
) -> str | None:
    """vLLM's own fingerprint, where it alone tells of a change among unknown facts.

    Where every fact is known it moves with what is no change, such as a model's place.
    """
    if found or not after.partial or not _system_fingerprint_moved(before, after):
        return None
    old, new = before.system_fingerprint, after.system_fingerprint
    return f"vLLM's own fingerprint moved: {old} → {new}"


def _unknown_reasons(
    before: Fingerprint, after: Fingerprint, found: tuple[Difference, ...]
) -> Iterator[str]:
    """What stands in the way of saying that nothing else changed."""
    yield from _find_unexplained_moves(before, after, found)
    old, new = set(before.unread), set(after.unread)
    apart = [one for one in after.unread if one not in old]
    apart += [one for one in before.unread if one not in new]
    # Where no file was read on either side, whatever makes answers may be another.
    apart += [one for one in after.unread if one in old and one.fact == FACTS_OF_FILES]
    yield from (one.line() for one in apart)
    if before.partial != after.partial and not apart:
        yield "one of the names is of facts that are not all known"
    was = before.system_fingerprint
    is_untold = after.is_own_asked and after.system_fingerprint is None
    if was is not None and is_untold and after.partial:
        # Among unknown facts it may be all that moves with another model.
        yield f"vLLM's own fingerprint, {was} before, is not told"
    if before.behaviour is not None and after.behaviour is not None:
        yield from explain_incomparable(before.behaviour, after.behaviour)


def _find_unexplained_moves(
    before: Fingerprint, after: Fingerprint, found: tuple[Difference, ...]
) -> Iterator[str]:
    """Names that moved although the facts that they name are the same.

    A name that came to be partial, or is so no more, says so by itself.
    """
    if before.partial != after.partial:
        return
    is_live = [d.fact == "live" or d.fact.startswith("live.") for d in found]
    # The build's name is a part of what the path's is of.
    if before.build != after.build:
        layer, is_explained = "build", not all(is_live)
    else:
        layer, is_explained = "path", before.path == after.path or any(is_live)
    if not is_explained:
        yield f"the {layer}'s name moved and no fact tells why"


def _models(found: list[Difference]) -> Iterator[tuple[PathVerdict, str]]:
    parts = dict.fromkeys(
        d.fact.removeprefix("model.").split(".")[0] for d in found if _section(d.fact) == "model"
    )
    if parts:
        named = ", ".join(_MODELS.get(part, part) for part in parts)
        yield "model", f"{WORDS['model']}: {named}"


def _section(fact: str) -> str:
    """The first part of a fact's place; the whole of one that has grown no branches."""
    return fact.split(".")[0]


def _kind(difference: Difference, *, upgraded: bool) -> PathVerdict:
    """What a fact outside the models is a matter of.

    A setting that appears or goes together with another vLLM is the runtime's doing.
    """
    section = _section(difference.fact)
    if section == "model":
        return "model"
    if section in ("engine", "runtime"):
        return "runtime"
    return "runtime" if upgraded and difference.kind != "changed" else "knob"


def _find_unread(facts: Sequence[str], before: Fingerprint, after: Fingerprint) -> set[str]:
    """Which of `facts`, sorted, differ only because one side could not read them."""
    apart = {*before.unread} ^ {*after.unread}
    places = {place.strip() for one in apart for place in one.fact.split(",")}
    ordered = sorted(places)
    found = {fact for fact in facts if fact in places or _has_below(ordered, fact)}
    found.update(_below(facts, places))
    return found


def _below(facts: Sequence[str], branches: Iterable[str]) -> Iterator[str]:
    """Those of `facts`, sorted, that lie below one of `branches`; each is looked at once."""
    seen = 0
    for stem in sorted(f"{branch}." for branch in branches):
        at = max(seen, bisect_left(facts, stem))
        while at < len(facts) and facts[at].startswith(stem):
            yield facts[at]
            at += 1
        seen = at


def _list_changes(found: list[Difference]) -> str:
    # A draft takes over much of its target's configuration: one change is said once.
    said = list(dict.fromkeys(_short(d) for d in sorted(found, key=_rank)))
    shown = said[:4]
    more = len(said) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def _rank(difference: Difference) -> int:
    """What an operator turned comes before what follows from it."""
    fact = difference.fact
    return _FIRST.index(fact) if fact in _FIRST else len(_FIRST)


def _short(difference: Difference) -> str:
    """`k 6 → 5`: the last part of the place is what an operator knows it by."""
    names = difference.fact.split(".")
    # A module's name has dots of its own.
    is_whole = names[0] == "runtime" or names[:2] == ["serving", "code"]
    name = difference.fact if is_whole else names[-1]
    values = difference.before, difference.after
    if any(_is_digest(str(value)) or len(str(value)) > _LONG for value in values):
        return name
    return f"{name} {_format_fact(values[0])} → {_format_fact(values[1])}"


def _is_digest(value: str) -> bool:
    return len(value) == 64 and all(c in "0123456789abcdef" for c in value)


def _format_fact(value: Any) -> str:
    text = format_value(value)
    return f"{text[:12]}…" if _is_digest(text) else text


def _probes(probes: tuple[MovedProbe, ...]) -> str:
    first = probes[0].line()
    return first if len(probes) == 1 else f"{first}, and {len(probes) - 1} more"
