"""A baseline: what one engine said, and how fast, in a file that another is compared with.

Of answers it keeps digests alone. It says when it was edited by hand.
"""

from __future__ import annotations

import errno
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from specdeck.engine.divergence.verdict import Word
from specdeck.engine.errors import EngineError, UsageError
from specdeck.engine.files import read_file, replace_file
from specdeck.engine.fingerprint.digest import canonical, checksum
from specdeck.engine.fingerprint.fingerprint import Fingerprint
from specdeck.engine.protocol.codec import (
    NotJson,
    OneOf,
    UnixTime,
    Within,
    WrongType,
    loads,
    read_record,
)

SCHEMA = 1
"""Raised when a baseline changes its meaning; a newer one is refused."""
LARGEST = 8_000_000
"""Bytes of a file that can be a baseline at all: of a hundred thousand prompts it has as many."""
_REMEDY = "make one with `specdeck gate --save FILE URL`"


_OTHERS = 0.1
"""Of what the answers come to: what is counted besides is somebody else's, and by as much the
figures may be off."""
_POSITIVE = Within(0, 1e12)
"""What counts and durations are, 0 included."""


@dataclass(frozen=True, slots=True)
class Block:
    """Some prompts asked at once, and what the engine did for them; None is not known."""

    tokens: Annotated[int, _POSITIVE]
    seconds: Annotated[float, _POSITIVE]
    drafts: Annotated[float, _POSITIVE] | None = None
    drafted: Annotated[float, _POSITIVE] | None = None
    accepted: Annotated[float, _POSITIVE] | None = None
    """As `drafts` and `drafted` a counter's, so of whatever the engine served meanwhile."""
    generated: Annotated[float, _POSITIVE] | None = None
    """Tokens by the engine's counter; `tokens` are those of the answers."""
    own_drafted: Annotated[float, _POSITIVE] | None = None
    """Tokens drafted for the answers, by their own word."""
    accepted_per_position: tuple[Annotated[float, _POSITIVE], ...] | None = None
    """Of `accepted`, those that were the first of their draft, the second, and so on."""
    prompt: Annotated[float, _POSITIVE] | None = None
    """Tokens of prompts by the engine's counter."""
    own_prompt: Annotated[float, _POSITIVE] | None = None
    """Those of the prompts that were asked, by the answers' word."""
    left: Annotated[int, _POSITIVE] | None = None
    """Requests that the engine still had when all of these were answered."""

    @property
    def is_shared(self) -> bool:
        """Whether the engine served others meanwhile, as far as anything tells.

        Who asks for a token of a long prompt leaves no trace in what is generated or drafted, and
        who gives up while it is computed none in any counter.

        >>> Block(100, 1.0, generated=100.0).is_shared, Block(100, 1.0, generated=300.0).is_shared
        (False, True)
        >>> Block(100, 1.0, drafted=400.0, own_drafted=50.0).is_shared, Block(100, 1.0).is_shared
        (True, False)
        >>> Block(9, 1.0, prompt=900.0, own_prompt=300.0).is_shared, Block(9, 1.0, left=1).is_shared
        (True, True)
        """
        return (
            _exceeds(self.generated, self.tokens)
            or _exceeds(self.drafted, self.own_drafted)
            or _exceeds(self.prompt, self.own_prompt)
            or bool(self.left)
        )


def _exceeds(counted: float | None, own: float | None) -> bool:
    return None not in (counted, own) and (counted or 0.0) > (1 + _OTHERS) * (own or 0.0)


@dataclass(frozen=True, slots=True)
class Workload:
    """What was asked: two engines compare only by the same."""

    source: str
    """A prompts file or the name of a shipped set."""
    digest: str
    """Of the prompts."""
    prompts: Annotated[int, Within(1, 1e9)]
    max_tokens: Annotated[int, Within(1, 1e7)]
    ignore_eos: bool
    streams: Annotated[int, Within(1, 512)]
    rounds: Annotated[int, Within(1, 1000)]


@dataclass(frozen=True, slots=True)
class StructureCounts:
    """Of the prompts that require a structure, those whose answers broke it."""

    prompts: Annotated[int, _POSITIVE] = 0
    serving_invalid: Annotated[int, _POSITIVE] = 0
    reference_invalid: Annotated[int, _POSITIVE] = 0
    invalid: Annotated[int, _POSITIVE] = 0
    """In the serving arm alone."""


@dataclass(frozen=True, slots=True)
class CheckSummary:
    """What the check of the engine said, in the words of `check --json`."""

    verdict: Annotated[Word, OneOf(("pass", "fail", "inconclusive"))]
    reason: str
    prompts: int = 0
    mismatches: int = 0
    mismatch_rate: Annotated[float, Within(0, 1)] | None = None
    structured: StructureCounts = StructureCounts()


@dataclass(frozen=True, slots=True)
class Baseline:
    """What was measured of one engine."""

    t: UnixTime
    engine: str
    """Its URL."""
    workload: Workload
    check: CheckSummary
    blocks: tuple[Block, ...]
    """In the order of the prompts, one round after another."""
    answers: Mapping[str, str] = field(default_factory=dict)
    """A digest of the answer's tokens, by the prompt's."""
    fingerprint: Mapping[str, Any] | None = None

    def read_fingerprint(self) -> Fingerprint | None:
        """The fingerprint; None where there is none that this specdeck can read."""
        if self.fingerprint is None:
            return None
        try:
            return Fingerprint.from_json(self.fingerprint)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            return None


def digest_tokens(tokens: tuple[int, ...]) -> str:
    """16 digits that name an answer and tell nothing of it."""
    return hashlib.sha256(canonical({"tokens": list(tokens)})).hexdigest()[:16]


def write_baseline(found: Baseline, path: Path) -> None:
    """Writes a baseline in place of an older one.

    Raises UsageError where it cannot, and EngineError for figures that it would not read again.
    """
    body = {
        "specdeck_baseline": SCHEMA,
        "written": datetime.fromtimestamp(found.t, UTC).isoformat(timespec="seconds"),
        **asdict(found),
    }
    text = json.dumps({**body, "checksum": checksum(body)}, indent=1) + "\n"
    if len(text) > LARGEST:  # ASCII
        raise UsageError(
            f"a baseline of {found.workload.prompts} prompts has more than {LARGEST:,} bytes",
            remedy="give a --limit",
        )
    try:
        read_record(Baseline, loads(text.encode()))
    except (NotJson, WrongType) as error:
        raise EngineError(
            f"{found.engine} makes no baseline, nothing is written: {error}",
            remedy="see what its /metrics counts",
        ) from error
    try:
        replace_file(path, text)
    except OSError as error:
        why = (error.strerror or "cannot be written").lower()
        raise UsageError(f"{path}: {why}", remedy="give another file") from error


def read_baseline(path: Path) -> Baseline:
    """The baseline in a file.

    Raises UsageError for a file that is none, is of a newer schema, or was edited.
    """
    try:
        body = loads(read_file(path, most=LARGEST))
    except FileNotFoundError:
        raise UsageError(f"there is no baseline at {path}", remedy=_REMEDY) from None
    except OSError as error:
        large = error.errno == errno.EFBIG
        why = f"no baseline has more than {LARGEST:,} bytes" if large else error.strerror
        raise UsageError(f"the baseline {path} cannot be read: {why}") from error
    except NotJson as error:
        raise UsageError(f"{path} is not a baseline: {error}", remedy=_REMEDY) from error
    schema = body.get("specdeck_baseline") if isinstance(body, dict) else None
    if not isinstance(schema, int) or isinstance(schema, bool):
        raise UsageError(f"{path} is not a baseline", remedy=_REMEDY)
    if schema > SCHEMA:
        raise UsageError(
            f"{path} is a baseline of schema {schema}, this specdeck knows {SCHEMA}",
            remedy="update specdeck here, or save another",
        )
    if body.get("checksum") != checksum(body):
        raise UsageError(f"{path} was edited by hand", remedy=_REMEDY)
    try:
        return read_record(Baseline, body)
    except WrongType as error:
        raise UsageError(f"{path} is not a baseline: {error}", remedy=_REMEDY) from error
