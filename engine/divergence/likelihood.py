"""How well sampled tokens fit what the reference thinks at each place, given all before it.

The reference is given every continuation again and says, at each place, its likeliest
candidates with their log-probabilities. So what a draw scores there on average, and how much
that varies, is known for each prefix, and only the surprise counts: the score of the token less
its expectation. Four scores see what speculation can get wrong:

* *likelihood*: the log-probability, among the candidates. A temperature moves it.
* *first choice*: whether it is the likeliest candidate. Drafts accepted unchecked move it.
* *rare*: whether it is a token that the reference draws less than once in a hundred times.
  Drafts that come from a flat distribution and are accepted unchecked are such tokens.
* *flatter*: how much likelier than the reference a distribution of the same order is to draw it
  that is flatter, as smaller models' are. Their drafts, accepted unchecked, move it.

The serving arm's scores are compared with those of the reference's own draws, so that what
rounding does to both, or a sampler that both use, is no difference.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from specdeck.engine.divergence.statistics import holm
from specdeck.engine.special_functions import special_functions
from specdeck.engine.text import format_percent

if TYPE_CHECKING:
    import numpy as np

CANDIDATES = 20
"""Log-probabilities asked for at a place: vLLM gives no more unless it is told to."""
RARE = 0.01
"""A token is rare below this probability."""
POWER = 0.8
"""The chance with which an effect is found that a report calls visible."""
LARGEST_VOCABULARY = 300_000
"""Tokens among which the probability may lie that no candidate has."""
SCORES = ("likelihood", "first_choice", "rare", "flatter")
_NORMAL = ("likelihood", "first_choice", "flatter")
"""Those that are sums of so many that they are normal."""
_FLATTER = 0.7
"""The power that a distribution is taken to, to be a flatter one."""
_LEAST_SHARE = 1e-4
"""Of a token, in that: its score is bounded, so that a single one never proves much."""


@dataclass(frozen=True, slots=True)
class Places:
    """What the reference thinks at places of one arm's continuations, one row a place."""

    tops: np.ndarray
    """Log-probabilities of the candidates, at temperature 1, the likeliest first; -inf pads."""
    own: np.ndarray
    """The column of the token that was drawn; -1 where it is no candidate."""
    prefix: np.ndarray
    """Numbers that are equal where everything before the place is."""


@dataclass(frozen=True, slots=True)
class Surprise:
    """Sums over places: what the scores were beyond their expectation, and how that varies.

    Likelihoods are in nats at the temperature of the draws.
    """

    tokens: int = 0
    likelihood: float = 0.0
    likelihood_variance: float = 0.0
    """As the reference's probabilities have it."""
    likelihood_spread: float = 0.0
    """As the draws have it, those after one prefix counted as one; rounding adds to it."""
    first_choice: float = 0.0
    first_choice_variance: float = 0.0
    first_choice_spread: float = 0.0
    rare: int = 0
    rare_expected: float = 0.0
    """Where the temperature is not 1, an upper bound."""
    flatter: float = 0.0
    flatter_variance: float = 0.0
    flatter_spread: float = 0.0
    gain: float = 0.0
    """What likelihoods would be beyond their expectation if each token were the likeliest."""

    def __add__(self, other: Surprise) -> Surprise:
        return Surprise(*(getattr(self, n) + getattr(other, n) for n in _SUMS))


_SUMS = tuple(one.name for one in fields(Surprise))


def measure_surprise(places: Places, temperature: float) -> Surprise:
    """The scores of tokens that were drawn at `temperature`."""
    import numpy as np

    if not len(places.own):
        return Surprise()
    scaled = (places.tops - places.tops[:, :1]) / temperature  # beside the likeliest one
    weights = np.exp(scaled)
    among = weights.sum(axis=1)
    share = weights / among[:, None]
    finite = np.where(np.isfinite(scaled), scaled, 0.0)
    mean = (share * finite).sum(axis=1)
    variance = (share * (finite - mean[:, None]) ** 2).sum(axis=1)
    listed = places.own >= 0
    drawn = np.where(listed, finite[np.arange(len(mean)), places.own], mean)
    whole = among + _rest_bound(places.tops, temperature)
    common = np.where(weights / whole[:, None] >= RARE, weights, 0.0)
    is_common = listed & (common[np.arange(len(mean)), places.own] > 0)
    first = np.where(listed, (places.own == 0) - share[:, 0], 0.0)
    ratio = np.maximum(share, _LEAST_SHARE) ** (_FLATTER - 1)
    ratio /= (share * ratio).sum(axis=1)[:, None]
    flatter = np.where(listed, ratio[np.arange(len(mean)), places.own] - 1, 0.0)
    surprise = drawn - mean
    return Surprise(
        tokens=len(mean),
        likelihood=float(surprise.sum()),
        likelihood_variance=float(variance[listed].sum()),
        likelihood_spread=_spread(surprise, places.prefix),
        first_choice=float(first.sum()),
        first_choice_variance=float((share[:, 0] * (1 - share[:, 0]))[listed].sum()),
        first_choice_spread=_spread(first, places.prefix),
        rare=int((~is_common).sum()),
        rare_expected=float((1 - common.sum(axis=1) / whole).sum()),
        flatter=float(flatter.sum()),
        flatter_variance=float((share * (ratio - 1) ** 2).sum(axis=1)[listed].sum()),
        flatter_spread=_spread(flatter, places.prefix),
        gain=float((finite[:, 0] - mean).sum()),
    )


def _spread(surprise: np.ndarray, prefix: np.ndarray) -> float:
    import numpy as np

    _, which = np.unique(prefix, return_inverse=True)
    return float((np.bincount(which, weights=surprise) ** 2).sum())


def _rest_bound(tops: np.ndarray, temperature: float) -> np.ndarray:
    """The most that the tokens which are no candidates can weigh, beside the likeliest one.

    None of them is likelier than the least likely candidate. Above temperature 1 they weigh
    most when all of a vocabulary share what is left, below it when as few as can be do.
    """
    import numpy as np

    left = np.clip(1 - np.exp(tops).sum(axis=1), 1e-300, 1.0)
    likeliest, power = tops[:, 0], 1 / temperature
    if power <= 1:
        weight = power * np.log(left) + (1 - power) * math.log(LARGEST_VOCABULARY)
    else:
        least = np.where(np.isfinite(tops), tops, 0.0).min(axis=1)
        weight = np.log(left) + (power - 1) * least
    return np.asarray(np.exp(weight - power * likeliest))


@dataclass(frozen=True, slots=True)
class Contrast:
    """How unlikely it is that two arms draw alike, by score."""

    p: Mapping[str, float]
    z: Mapping[str, float]
    """Standard deviations; above 0 where the first arm's score is the higher."""

    @property
    def lowest(self) -> float:
        """The lowest p-value after Holm's correction for the number of scores."""
        return min(holm(list(self.p.values())))

    @property
    def word(self) -> str:
        """What the most unlikely score says of the first arm."""
        name = min(SCORES, key=lambda name: self.p[name])
        return _WORDS[name][self.z[name] > 0]

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "p_lowest": self.lowest,
            "scores": {name: {"p": self.p[name], "z": self.z[name]} for name in SCORES},
        }


_WORDS = {
    "likelihood": ("its tokens are too unlikely", "its tokens are too likely"),
    "first_choice": ("too few are the likeliest token", "too many are the likeliest token"),
    "rare": ("too few are rare tokens", "too many are rare tokens"),
    "flatter": ("too few are unlikely tokens", "too many are unlikely tokens"),
}


def contrast(ours: Surprise, theirs: Surprise) -> Contrast:
    """Compares the scores of two arms; 1.0 where there is nothing to compare.

    Likelihood and first choice are two-sided; of rare tokens, and of those of a flatter
    distribution, only too many are a difference. The number of rare ones is binomial, given how
    many both arms drew and were to draw.
    """
    z = {name: _difference(ours, theirs, name) for name in _NORMAL}
    return _as_contrast(z, _rare_p(ours, theirs))


def _as_contrast(z: dict[str, float], rare: float) -> Contrast:
    p = {name: math.erfc(abs(each) / math.sqrt(2)) for name, each in z.items()}
    p["flatter"] = math.erfc(z["flatter"] / math.sqrt(2)) / 2
    p["rare"] = rare
    z["rare"] = -NormalDist().inv_cdf(min(max(rare, 1e-16), 1 - 1e-16))
    return Contrast(p, z)


def fit(ours: Surprise) -> Contrast:
    """How unlikely the scores are by the reference's probabilities alone."""
    gammainc = special_functions().gammainc
    z = {name: _own_z(ours, name) for name in _NORMAL}
    return _as_contrast(z, float(gammainc(ours.rare, ours.rare_expected)) if ours.rare else 1.0)


def _own_z(ours: Surprise, name: str) -> float:
    variance = _variance(ours, name)
    total: float = getattr(ours, name)
    return total / math.sqrt(variance) if variance > 0 else 0.0


def _variance(ours: Surprise, name: str) -> float:
    expected, seen = getattr(ours, f"{name}_variance"), getattr(ours, f"{name}_spread")
    return float(max(expected, seen))


def _difference(ours: Surprise, theirs: Surprise, name: str) -> float:
    if not (ours.tokens and theirs.tokens):
        return 0.0
    apart: float = getattr(ours, name) / ours.tokens - getattr(theirs, name) / theirs.tokens
    error = _error(ours, theirs, name)
    return apart / error if error > 0 else 0.0


def _error(ours: Surprise, theirs: Surprise, name: str) -> float:
    """The standard error of the difference of two means."""
    return math.sqrt(
        _variance(ours, name) / ours.tokens**2 + _variance(theirs, name) / theirs.tokens**2
    )


def _rare_p(ours: Surprise, theirs: Surprise) -> float:
    if not ours.rare or not theirs.tokens:
        return 1.0
    # Half a token more for each keeps a share from 0 and 1 where hardly any are expected.
    mine, yours = ours.rare_expected + 0.5, theirs.rare_expected + 0.5 * _ratio(theirs, ours)
    return float(special_functions().betainc(ours.rare, theirs.rare + 1, mine / (mine + yours)))


def _ratio(one: Surprise, other: Surprise) -> float:
    return one.tokens / other.tokens


@dataclass(frozen=True, slots=True)
class Visible:
    """The smallest effects that such draws show with a chance of `POWER`; None: none."""

    temperature: tuple[float, float] | None
    """Those below and above the one that was asked for."""
    unchecked_flat: float | None
    """The share of tokens that are drafts of a flat distribution, accepted unchecked."""
    unchecked_likeliest: float | None
    """The same where drafts are always the likeliest token."""

    @property
    def shows_anything(self) -> bool:
        """Whether any effect would have been found at all."""
        return (self.temperature, self.unchecked_flat, self.unchecked_likeliest) != (None,) * 3

    def line(self) -> str:
        """One line for the operator.

        >>> Visible((0.948, 1.054), 0.021, 0.08).line()
        'temperature 0.948 or 1.05, 2.10% of tokens flat drafts unchecked, 8.00% likeliest ones'
        """
        parts = []
        if self.temperature is not None:
            parts.append("temperature {:.3g} or {:.3g}".format(*self.temperature))
        if self.unchecked_flat is not None:
            parts.append(f"{format_percent(self.unchecked_flat)} of tokens flat drafts unchecked")
        if self.unchecked_likeliest is not None:
            parts.append(f"{format_percent(self.unchecked_likeliest)} likeliest ones")
        return ", ".join(parts) or "nothing"

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "power": POWER,
            "temperature": None if self.temperature is None else list(self.temperature),
            "unchecked_flat": self.unchecked_flat,
            "unchecked_likeliest": self.unchecked_likeliest,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Visible:
        """What `as_json` gave."""
        pair = data["temperature"]
        return cls(
            None if pair is None else (pair[0], pair[1]),
            data["unchecked_flat"],
            data["unchecked_likeliest"],
        )


def visible_effects(
    ours: Surprise, theirs: Surprise, *, temperature: float, alpha: float
) -> Visible:
    """What a comparison of `ours` with `theirs` at the level `alpha` would have found."""
    if not (ours.tokens and theirs.tokens):
        return Visible(None, None, None)
    normal = NormalDist()
    single = alpha / len(SCORES)
    reach = normal.inv_cdf(1 - single / 2) + normal.inv_cdf(POWER)
    error = reach * _error(ours, theirs, "likelihood")
    by_temperature = ours.likelihood_variance / ours.tokens
    by_likeliest = ours.gain / ours.tokens
    step = error / by_temperature if by_temperature > 0 else math.inf
    return Visible(
        temperature=_apart(temperature, step),
        unchecked_flat=_visible_flat(ours, theirs, single),
        unchecked_likeliest=_share(error, by_likeliest),
    )


def _apart(temperature: float, step: float) -> tuple[float, float] | None:
    """The temperatures `step` away, in logarithms; None where that is no temperature at all."""
    if step > 2:
        return None
    return temperature * math.exp(-step), temperature * math.exp(step)


def _share(wanted: float, whole: float) -> float | None:
    return wanted / whole if 0 < wanted <= whole else None


def _visible_flat(ours: Surprise, theirs: Surprise, alpha: float) -> float | None:
    normal = NormalDist()
    mine, yours = ours.rare_expected + 0.5, theirs.rare_expected + 0.5 * _ratio(theirs, ours)
    variance = mine * (1 + mine / yours)
    reach = normal.inv_cdf(1 - alpha)
    extra = reach * math.sqrt(variance) + reach**2 / 2
    # The tokens that come in addition vary as well.
    extra += normal.inv_cdf(POWER) * math.sqrt(variance + extra)
    return _share(extra, ours.tokens - ours.rare_expected)
