"""What an operator may change about a check, as text to edit and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from specdeck.console.bench import Wishes
from specdeck.engine.errors import UsageError


@dataclass(frozen=True, slots=True)
class Field:
    """One line of the form."""

    name: str
    label: str
    least: int = 1
    most: int = 1_000_000
    empty: str = ""
    """What an empty field means."""


FIELDS = (
    Field("reference", "reference", empty="URL; empty: this engine, k=0"),
    Field("tokens", "tokens an answer", most=1_000_000),
    Field("replays", "replays", most=100_000),
    Field("streams", "requests at once", most=512),
    Field("prompts", "prompts a check"),
    Field("threshold", "may differ"),
    Field("gentle", "gentle"),
)


def spelt(now: Wishes) -> dict[str, str]:
    """The wishes as text.

    >>> spelt(Wishes())["threshold"], spelt(Wishes())["gentle"]
    ('1.5%', 'no')
    """
    texts = {field.name: str(getattr(now, field.name)) for field in FIELDS}
    return texts | {
        "reference": now.reference or "",
        "threshold": f"{now.threshold * 100:g}%",
        "gentle": "yes" if now.gentle else "no",
    }


def wishes(texts: Mapping[str, str]) -> Wishes:
    """The wishes that were typed; raises UsageError for what is none.

    >>> wishes(spelt(Wishes(replays=50, gentle=True))) == Wishes(replays=50, gentle=True)
    True
    """
    numbers = {field.name: _number(field, texts[field.name]) for field in FIELDS[1:5]}
    return Wishes(
        reference=_reference(texts["reference"].strip()),
        threshold=_share(texts["threshold"].strip()),
        gentle=_yes(texts["gentle"].strip().lower()),
        **numbers,
    )


def _reference(text: str) -> str | None:
    if not text:
        return None
    from specdeck.engine.client.address import engine_url

    # A name from `ps` is one word; it is looked up when it is asked.
    return text if text.replace("-", "").replace("_", "").isalnum() else engine_url(text)


def _number(field: Field, text: str) -> int:
    try:
        number = int(text.strip())
    except ValueError:
        number = 0
    if not field.least <= number <= field.most:
        raise UsageError(
            f"{field.label}: {text.strip() or 'nothing'} is no number of them",
            remedy=f"give {field.least} to {field.most}",
        )
    return number


def _share(text: str) -> float:
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = 0.0
    if not 0 < share < 1:
        raise UsageError(f"may differ: {text or 'nothing'} is no share", remedy="give 1.5% or so")
    return share


def _yes(text: str) -> bool:
    if text not in ("yes", "no", "y", "n"):
        raise UsageError(f"gentle: {text or 'nothing'} is no answer", remedy="give yes or no")
    return text.startswith("y")
