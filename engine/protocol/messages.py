"""Requests and replies of the control surface, shared by the plugin and its clients.

Every path lies under `/v1/` because vLLM's `--api-key` guards nothing else. The
standard library only: this module is imported inside vLLM's processes.

    GET  /v1/specdeck/state          EngineState
    GET  /v1/specdeck/steps?since=N  {"steps": [policy.step.Step, ...]}; of another data-parallel
                                      rank than the first with &rank=R
    GET  /v1/specdeck/tuning         protocol.tuning.Tuning
    GET  /v1/specdeck/cohorts        protocol.cohorts.Cohorts
    GET  /v1/specdeck/requests       protocol.requests.Requests
    GET  /v1/specdeck/facts          {"facts": {...}, "names": {"build": "sd1:b…", "path": …},
                                      "partial": [{"fact", "reason"}], "progress": {...}, ...}
    PUT  /v1/specdeck/control        Change -> AppliedChange; requires the admin token

A refusal is `{"error": {"code", "message", "remedy"}}` with status 400 (nonsense),
401 (admin token), 409 (the version moved), 501 (this engine cannot) or 503 (its engine core
does not answer, or too late).
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal, Self, get_args

from specdeck.engine.protocol.codec import (
    Count,
    DraftLength,
    OneOf,
    UnixTime,
    read_record,
    read_value,
)
from specdeck.engine.protocol.full_graphs import Reach

PROTOCOL = 1
"""Raised when a reply changes its meaning; a client refuses a newer one."""

PREFIX = "/v1/specdeck"
LOOKS = ("state", "steps", "tuning", "cohorts", "requests", "facts")
"""The routes under it that change nothing: consoles and recorders ask some every second."""
TOKEN_HEADER = "X-Specdeck-Token"
TOKEN_FILE_VARIABLE = "SPECDECK_ADMIN_TOKEN_FILE"
"""Names the environment variable that tells the plugin where its admin token lies."""

CLOCKS_APART_S = 60.0
"""The clocks of an engine and of whoever asks it may differ by so much."""

TIERS_VARIABLE = "SPECDECK_TIERS"
"""Set where any num_speculative_tokens_per_batch_size is specdeck's, for graphs at every k."""

IN_RESPONSES_VARIABLE = "SPECDECK_FINGERPRINT_IN_RESPONSES"
"""Set to 0 where responses are to keep vLLM's own system_fingerprint and nothing else."""

ORCHESTRATION_VARIABLE = "SPECDECK_ORCHESTRATION"
"""The config's `orchestration` block as JSON: parameters of the policies."""

INTERMEDIATE_K = "intermediate_k"
"""The capability of drafting some tokens, and neither none nor k_max."""

MASK_VARIABLE = "SPECDECK_MASK_LOGS"
"""Set for an engine with a secret among its arguments: its processes mask what they log.

Names the file of those arguments, which is there until the engine is ready.
"""

EXACT_VARIABLE = "SPECDECK_EXACT_MODELS"
"""The config's `exact_models` as a JSON list."""

TOKEN_VARIABLE = "SPECDECK_ADMIN_TOKEN"
"""Names the environment variable a client reads the admin token from."""

Mode = Literal["speculate", "target-only"]
Fallback = Literal["warm", "cold"]
"""How target-only is kept: warm runs the drafter to keep it in step; cold does not."""

Policy = Literal["fixed", "threshold", "goodput"]
Breaker = Literal["closed", "open", "half-open"]
KnownBreaker = Annotated[Breaker, OneOf(get_args(Breaker))]

Origin = Literal["operator", "policy", "breaker", "trial", "sweep", "lease", "config", "undo"]
"""Where a change comes from: an operator, by hand or by a command; the policy, the breaker, a
trial or a lease that acts by itself; a sweep; the engine's config; a change taken back. Another
word, of somebody newer, is read as it is."""

Value = float | int | str | bool
"""What a parameter of a policy can be set to."""

MODES: tuple[Mode, ...] = get_args(Mode)
FALLBACKS: tuple[Fallback, ...] = get_args(Fallback)
POLICIES: tuple[Policy, ...] = get_args(Policy)

STEPS_IN_FLIGHT = 3
"""Steps after a change that may still verify drafts made before it: the drafts of one
step are verified in the next, and asynchronous scheduling runs two steps ahead."""

KNOBS = ("k", "mode", "fallback", "policy", "breaker")
"""What a change turns beside parameters, in the order in which they are told."""


def check_knobs(knobs: Mapping[str, Any], place: str) -> None:
    """Raises WrongType unless every knob has a value of its kind, or none."""
    for name, value in knobs.items():
        hint: Any = DraftLength if name == "k" else str if name in KNOBS else Value
        read_value(hint | None, value, f"{place}.{name}")


Knobs = Annotated[dict[str, Any], check_knobs]
"""Knobs and parameters by name."""


def shorten(value: object) -> str:
    """What was asked for, as an error quotes it: no longer than a line, however deep or long.

    Not for whole numbers of thousands of digits, which Python does not write out.

    >>> shorten(-1), shorten("x" * 900)
    ('-1', "'xxxxxxxxxxxx...xxxxxxxxxxxxx'")
    """
    return reprlib.repr(value)


def with_origin(change: object) -> object:
    """A change as a plugin tells it; an older one names policy, breaker and trial as `who` alone.

    >>> with_origin({"who": "breaker"}), with_origin({"who": "ann"})
    ({'who': 'breaker', 'origin': 'breaker'}, {'who': 'ann'})
    """
    if not isinstance(change, Mapping):
        return change
    who = change.get("who")
    if change.get("origin") or who not in ("policy", "breaker", "trial"):
        return change
    return {**change, "origin": who}


@dataclass(frozen=True, slots=True)
class Capability:
    """Something an operator may want to do, and whether this engine can."""

    name: str
    """`live_k`, `target_only`, `cold`, `policy.threshold`, …"""
    available: bool
    reason: str | None = None
    """Why not, in plain words; of what is available, what it costs or does not save."""
    remedy: str | None = None
    """What would make it available."""
    how: str | None = None
    """How it is known: `run here` (on a CPU), `run on a GPU` or `read in source` of vLLM's."""


@dataclass(frozen=True, slots=True)
class Lease:
    """A change that takes itself back unless it is renewed."""

    seconds_left: float
    k: DraftLength
    """The k that comes back when the lease runs out."""
    mode: Mode
    """The mode that comes back."""


@dataclass(frozen=True, slots=True)
class LastChange:
    """Who changed the engine last."""

    t: UnixTime
    """Unix time, seconds."""
    who: str
    reason: str | None
    before: Knobs
    after: Knobs
    origin: Origin | None = None
    """Where the change came from; None of a plugin that does not tell."""
    undo: Knobs | None = None
    """As that of `AppliedChange`, for whoever did not hear that."""


@dataclass(frozen=True, slots=True)
class RankState:
    """One of several data-parallel ranks: each has a scheduler, requests and counts of its own."""

    rank: Count
    version: Count
    k: DraftLength
    mode: Mode
    fallback: Fallback
    policy: Policy
    breaker: KnownBreaker
    step: Count
    drafts: Count
    drafted_per_position: tuple[Count, ...]
    accepted_per_position: tuple[Count, ...]
    running: Count
    waiting: Count


@dataclass(frozen=True, slots=True)
class EngineState:
    """What the plugin knows of the engine at one moment.

    Of several data-parallel ranks, counts and requests are those of all, and the rest is the
    first one's, which a change reaches first.
    """

    protocol: Count
    plugin: str
    """The plugin's own version."""
    instance: str
    """Random, new with every start of the engine: a change of it is a restart."""
    version: Count
    """Counts changes of the control state; a change may name the one it expects."""
    started: UnixTime
    """Unix time at which the plugin took hold, seconds."""

    vllm: str
    model: str
    method: str | None
    """vLLM's name of the speculative method; None without speculation."""
    runner: str
    """`V1` or `V2`, or `unknown`."""

    k: DraftLength
    """Tokens drafted per round as the scheduler is told for the next step; 0 in target-only."""
    k_set: DraftLength
    """The operator's k: what `k` returns to when target-only ends."""
    k_max: DraftLength
    """num_speculative_tokens: buffers are sized by it, so k cannot exceed it."""
    mode: Mode
    fallback: Fallback
    policy: Policy
    breaker: KnownBreaker

    step: Count
    """Scheduler steps since the plugin took hold."""
    drafts: Count
    """Drafts verified since the plugin took hold."""
    drafted_per_position: tuple[Count, ...]
    """Drafts that had a token at each position; length k_max."""
    accepted_per_position: tuple[Count, ...]
    """Drafts whose token at each position was accepted; length k_max."""
    running: Count
    waiting: Count

    fingerprint: str | None
    """specdeck's own name of the serving path at this moment, `sd1:p…`; with a tilde where
    not every fact behind it is known. None while data-parallel ranks differ."""
    system_fingerprint: str | None = None
    """vLLM's own, as its responses carry it; filled in by the API server's process, whose
    configuration it is taken from."""

    policy_reason: str | None = None
    """Why the policy or the breaker has k where it is, in words."""
    alarm: str | None = None
    """Acceptance near 1 for so long that streams may repeat themselves, in words."""
    pinned: Count = 0
    """Unfinished requests with a k of their own (`vllm_xargs: {"specdeck_k": 0}`)."""
    exact_running: Count = 0
    """Unfinished requests under `exact_models`; they are among `pinned`."""
    exact_requests: Count = 0
    """Requests under `exact_models` since the plugin took hold."""
    exact_tokens: Count = 0
    """Tokens generated for them."""
    trial: str | None = None
    """`baseline` or `changed` while a judged trial is under way; `GET tuning` has the rest."""

    full_graphs: tuple[Reach, ...] = ()
    """How many requests full CUDA graphs serve, by k from 0; empty where there are none."""

    capabilities: tuple[Capability, ...] = ()
    lease: Lease | None = None
    last_change: LastChange | None = None
    ranks: tuple[RankState, ...] = ()
    """The data-parallel ranks, in their order; empty where there is one."""

    @property
    def mover(self) -> str | None:
        """Whose sweep or trial moves k to and fro, in words; None where what is set stays.

        Both give the engine back: what it is meanwhile is no change of it.
        """
        last = self.last_change
        if self.trial is not None:
            return (
                f"{last.who}'s trial" if last is not None and last.origin == "trial" else "a trial"
            )
        if self.lease is None or last is None or last.origin != "sweep":
            return None
        return f"{last.who}'s sweep"

    def is_older_than(self, t: float) -> bool:
        """Whether the plugin held this engine already at `t`, Unix seconds by a clock that may be
        `CLOCKS_APART_S` from the engine's own.

        Of another `instance` than the one that answered then, it is no restart of that one: two
        engines answer.
        """
        return self.started < t - CLOCKS_APART_S

    def can(self, name: str) -> Capability:
        """The capability called `name`; one that the plugin does not name is absent."""
        for capability in self.capabilities:
            if capability.name == name:
                return capability
        reason = "the engine's plugin does not know it"
        return Capability(name, False, reason, "update specdeck there")

    def find_refusal(self, k: int) -> Capability | None:
        """Why the engine cannot draft `k` tokens, of 0 to k_max; None where it can.

        Older plugins do not know of engines that only draft all or none.
        """
        if not 0 < k < self.k_max:
            return None
        named = (one for one in self.capabilities if one.name == INTERMEDIATE_K)
        return next((one for one in named if not one.available), None)

    def as_json(self) -> dict[str, Any]:
        """Plain dicts and lists, for the wire."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """The state a plugin sent; raises WrongType on nonsense."""
        change = with_origin(data.get("last_change") or None)
        return read_record(cls, {**data, "lease": data.get("lease") or None, "last_change": change})


class InvalidChange(ValueError):
    """What was asked for is no change at all."""


@dataclass(frozen=True, slots=True)
class Change:
    """What a client asks for; None leaves a thing as it is."""

    k: int | None = None
    mode: Mode | None = None
    fallback: Fallback | None = None
    policy: Policy | None = None
    breaker: Literal["open", "closed"] | None = None
    """By hand: open is target-only until it is reset, closed resets it."""
    probe: bool = False
    """With breaker open: lets it come back by its own cool-down and probes, instead of holding."""
    cause: Literal["divergence"] | None = None
    """With breaker open: a check found a breach of divergence. Without it, it is by hand."""
    parameters: Mapping[str, Value] | None = None
    """Parameters by dotted name, such as `goodput.margin`; the string `none` unsets one that can
    be unset. All are checked before any takes effect."""
    lease_s: float | None = None
    """Seconds after which the engine takes the change back by itself; None keeps it."""
    judge: bool = False
    """Tries the change: measured before and after, then kept or taken back without being asked,
    and taken back as well when `lease_s` runs out without a renewal."""
    trial_s: float | None = None
    """Seconds of work that a judged change is measured for; None is the parameter trial.seconds."""
    renew: bool = False
    """Extends the lease in force by `lease_s` from this moment; nothing else may be asked."""
    cancel: bool = False
    """Takes back what is leased or on trial, now; nothing else may be asked."""
    trial: int | None = None
    """With renew or cancel: the `number` of the trial that is meant, and no other nor a lease."""
    reason: str | None = None
    who: str | None = None
    expect_version: int | None = None
    """The `version` the client last saw; a different one is a conflict."""
    origin: Origin = "operator"
    """Where it comes from; of a client that does not tell, an operator."""

    def knobs(self) -> dict[str, Any]:
        """The knobs that this change turns.

        >>> Change(k=3, parameters={"goodput.margin": 0.03}, reason="trying").knobs()
        {'k': 3, 'goodput.margin': 0.03}
        """
        knobs = {name: value for name in KNOBS if (value := getattr(self, name)) is not None}
        return {**knobs, **({"breaker": "probe"} if self.probe else {}), **(self.parameters or {})}

    def as_json(self) -> dict[str, Any]:
        """Plain values, without what was not asked; an operator's origin goes without saying.

        >>> Change(k=0).as_json(), Change(k=1, origin="sweep").as_json()
        ({'k': 0}, {'k': 1, 'origin': 'sweep'})
        """
        # Not `in (None, False)`: 0 equals False, and k=0 is a request like any other.
        return {
            key: value
            for key, value in asdict(self).items()
            if value is not None and value is not False and (key, value) != ("origin", "operator")
        }

    @classmethod
    def from_json(cls, body: object) -> Self:
        """The change that a request's JSON body asks for; raises InvalidChange on nonsense.

        Unlike a reply, of which a newer plugin may say more, it is read strictly: what is not
        understood is refused, and never left out of what is done.

        >>> Change.from_json({"k": 3, "who": "ana"}).knobs()
        {'k': 3}
        """
        if not isinstance(body, dict):
            raise InvalidChange("the body is not a JSON object")
        known = cls.__dataclass_fields__
        unknown = sorted(set(body) - set(known))
        if unknown:
            name = shorten(unknown[0])
            raise InvalidChange(f"unknown key {name}; known are {', '.join(sorted(known))}")
        for key, value in body.items():
            _require_bounds(key, value)
        for key in ("k", "expect_version", "trial"):
            if not _is_whole(body.get(key)):
                found = shorten(body[key])
                raise InvalidChange(f"{key} requires a whole number from 0 up, not {found}")
        for key, choices in _CHOICES.items():
            if body.get(key) is not None and body[key] not in choices:
                found = shorten(body[key])
                raise InvalidChange(f"{key} is one of {', '.join(choices)}, not {found}")
        for key in ("reason", "who"):
            if not isinstance(body.get(key), str | None):
                raise InvalidChange(f"{key} requires text")
        if not isinstance(body.get("origin", ""), str):  # another word is of a newer client
            raise InvalidChange("origin requires text")
        lease = body.get("lease_s")
        if lease is not None and not (_is_number(lease) and 0 < lease <= 86_400):
            found = shorten(lease)
            raise InvalidChange(f"lease_s requires seconds above 0 and up to a day, not {found}")
        for key in ("renew", "cancel", "judge", "probe"):
            if not isinstance(body.get(key, False), bool):
                raise InvalidChange(f"{key} requires true or false")
        seconds = body.get("trial_s")
        if seconds is not None and not (_is_number(seconds) and 0.5 <= seconds <= 86_400):
            found = shorten(seconds)
            raise InvalidChange(f"trial_s requires seconds from 0.5 up to a day, not {found}")
        if not _are_parameters(body.get("parameters")):
            raise InvalidChange("parameters requires names with numbers, words, true or false")
        change = cls(**body)
        change._require_sense()
        return change

    def _require_sense(self) -> None:
        """Raises InvalidChange where the parts do not go together."""
        held = self.renew or self.cancel
        if self.renew and (self.knobs() or self.lease_s is None):
            raise InvalidChange("renew takes lease_s and no knob")
        if self.cancel and (self.knobs() or self.renew or self.judge or self.lease_s):
            raise InvalidChange("cancel takes nothing else")
        if self.trial is not None and not held:
            raise InvalidChange("trial goes with renew and cancel")
        if not held and not self.knobs():
            raise InvalidChange(
                "nothing to change: give k, mode, fallback, policy, breaker or parameters"
            )
        if self.breaker and (self.judge or self.lease_s):
            raise InvalidChange(
                "the breaker cannot be put on trial: give it without lease_s, judge and trial_s"
            )
        if self.judge and self.lease_s is None:
            raise InvalidChange(
                "judge requires lease_s: the change is reverted when nobody renews it"
            )
        if self.trial_s is not None and not self.judge:
            raise InvalidChange("trial_s requires judge")
        if (self.probe or self.cause) and self.breaker != "open":
            raise InvalidChange("probe and cause require breaker=open")
        if self.probe and self.cause:
            raise InvalidChange("probe and cause are mutually exclusive")


_CHOICES: Mapping[str, tuple[str, ...]] = {
    "mode": MODES,
    "fallback": FALLBACKS,
    "policy": POLICIES,
    "breaker": ("open", "closed"),
    "cause": ("divergence",),
}
_MOST_PARAMETERS = 100
LONGEST_TEXT = 500
"""Characters of any text in a change."""

LARGEST_NUMBER = 2**53
"""The largest that survives every JSON parser."""


def _are_parameters(given: object) -> bool:
    """Whether it is a flat mapping of values; the names are looked at by the catalogue."""
    if given is None:
        return True
    if not isinstance(given, dict) or len(given) > _MOST_PARAMETERS:
        return False
    for name, value in given.items():
        _require_bounds("a parameter's name", name)
        _require_bounds(shorten(name), value)
    return all(isinstance(value, int | float | str | bool | None) for value in given.values())


def _require_bounds(name: str, value: object) -> None:
    """Raises InvalidChange for what an engine would have to carry about for everybody."""
    if isinstance(value, str):
        if len(value) > LONGEST_TEXT:
            raise InvalidChange(f"{name} is longer than {LONGEST_TEXT} characters")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InvalidChange(f"{name} is not text: it has half a surrogate pair") from None
    elif isinstance(value, int | float) and abs(value) > LARGEST_NUMBER:
        raise InvalidChange(f"{name} is beyond any sense")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_whole(value: object) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0)


def with_implied_policy(knobs: Mapping[str, Any]) -> dict[str, Any]:
    """`knobs` with the policy that they imply: a k without a policy ends the policy.

    >>> with_implied_policy({"k": 3, "mode": "speculate"})
    {'k': 3, 'mode': 'speculate', 'policy': 'fixed'}
    >>> with_implied_policy({"k": 3, "policy": "goodput"})
    {'k': 3, 'policy': 'goodput'}
    >>> with_implied_policy({"mode": "target-only"})
    {'mode': 'target-only'}
    """
    implied = {"policy": "fixed"} if "k" in knobs and "policy" not in knobs else {}
    return {**knobs, **implied}


@dataclass(frozen=True, slots=True)
class AppliedChange:
    """The engine's word on a change."""

    before: Knobs
    """The knobs as they were."""
    applied: Knobs
    """The same knobs, as they are."""
    version: Count
    step: Count
    """The last scheduler step before the change: every later one obeys it."""
    notices: tuple[str, ...] = ()
    """What an operator should know, such as the price of a resync."""
    trial: Count | None = None
    """The `number` of the trial that this change began; None of a plugin that names none."""
    undo: Knobs | None = None
    """What takes it back, where that may not be `before`: a breaker's word is another then, and
    over a lease it is what that goes back to."""
    instance: str | None = None
    """The life of the engine that made the change, as in its state; None of a plugin that does not
    tell it."""

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """The reply a plugin sent; raises WrongType on nonsense."""
        return read_record(cls, data)


def knobs_on_trial(change: Change, applied: AppliedChange) -> dict[str, Any]:
    """What the judged `change` tries: the engine's word tells no more than what it turns.

    >>> knobs_on_trial(Change(k=3), AppliedChange({"k": 5, "policy": "goodput"}, {}, 1, 7))
    {'k': 3, 'policy': 'fixed'}
    """
    asked = with_implied_policy(change.knobs())
    return {name: asked[name] for name in applied.before if name in asked}
