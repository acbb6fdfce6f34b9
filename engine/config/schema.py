"""specdeck's own blocks of a config; the docstring under a field is its documentation."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from specdeck.engine.client.address import quote_address


class Block(BaseModel):
    """A block: frozen, strict about types, closed to unknown keys."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


def _share(value: object) -> object:
    """`1.5%` as 0.015; anything else is left to the type's own check.

    >>> _share("1.5%"), _share(0.2)
    (0.015, 0.2)
    """
    if isinstance(value, str) and value.endswith("%"):
        try:
            return float(value[:-1]) / 100
        except ValueError:
            return value
    return value


Share = Annotated[float, BeforeValidator(_share), Field(ge=0, le=1)]
Words = Annotated[tuple[str, ...], Field(strict=False)]


class Orchestration(Block):
    """How k is chosen while the engine runs."""

    adaptive_draft: bool = False
    """Starts the engine with a policy that moves k by itself; without it k stays where the
    operator puts it."""
    policy: Literal["goodput", "threshold"] | None = None
    """The policy that `adaptive_draft` starts; goodput without a value."""
    breaker: Literal["policy", "always", "never"] | None = None
    """When speculation that does not pay is bypassed by itself: while a policy moves k, with a
    fixed k as well, or never; `policy` without a value. By hand and by a check it always can."""
    min_draft_length: int | None = Field(default=None, ge=0)
    """The smallest k that the policy may choose."""
    max_draft_length: int | None = Field(default=None, ge=1)
    """The largest k that the policy may choose; num_speculative_tokens bounds it anyway."""
    fallback_after_low_acceptance: int | None = Field(default=None, ge=1)
    """Windows in a row below the threshold after which the breaker goes to target-only."""
    draft_acceptance_threshold: Share | None = None
    """The acceptance rate, 0 to 1, below which a window counts as low."""
    soft_cost: float | None = Field(default=None, ge=-0.5, le=10)
    """What a step at k = 0 takes longer than one of an engine without speculation, as a share:
    what `specdeck sweep --hard` measured. Savings are told against soft k = 0 without a value."""
    graphs_per_k: bool | None = None
    """Has CUDA graphs captured for every k: live k costs no speed, the start takes longer.

    Without a value they are captured where that is known to work.
    """

    @model_validator(mode="after")
    def _check_lengths(self) -> Orchestration:
        low, high = self.min_draft_length, self.max_draft_length
        if low is not None and high is not None and low > high:
            raise ValueError(f"min_draft_length {low} is more than max_draft_length {high}")
        return self


class Sampling(Block):
    """Sampling defaults, the same on every engine started from this config.

    A request may still ask for something else; what is locked is that the serving
    path and its reference start from one set of values and not from a model's own.
    """

    temperature: float | None = Field(default=None, ge=0)
    """0 is greedy."""
    top_p: float | None = Field(default=None, gt=0, le=1)
    """Keeps the most likely tokens up to this share of the probability."""
    top_k: int | None = Field(default=None, ge=-1)
    """Keeps this many tokens; 0 or -1 keeps all."""
    min_p: float | None = Field(default=None, ge=0, le=1)
    """Drops tokens below this share of the likeliest; vLLM refuses it beside speculation."""
    repetition_penalty: float | None = Field(default=None, gt=0)
    """Above 1 discourages repetition."""
    presence_penalty: float | None = Field(default=None, ge=-2, le=2)
    """Above 0 discourages tokens that appeared."""
    frequency_penalty: float | None = Field(default=None, ge=-2, le=2)
    """Above 0 discourages tokens by how often they appeared."""
    max_new_tokens: int | None = Field(default=None, ge=1)
    """The most tokens that a request gets when it does not say."""

    def values(self) -> dict[str, Any]:
        """The parameters that have a value."""
        return self.model_dump(exclude_none=True)


class Alerts(Block):
    """Limits of what an engine does, and who is notified when one is crossed.

    The console, `watch`, `--headless` and a webhook report an alert once when it is raised and
    once when it is cleared.
    """

    acceptance_floor: Share | None = None
    """The acceptance rate, 0 to 1, that must be reached.

    An alert is raised when the rate of the last 30 s is below it with 95 % confidence, from at
    least 100 drafts, and cleared when the rate is one percentage point above it with the same
    confidence; one that comes again within ten minutes only after a minute of that, then two, up
    to sixteen, pauses in the traffic not counted. An engine that drafts nothing changes nothing.
    The rate is that of whole drafts: of shorter ones a larger share is accepted, so for an alert
    that was raised by longer drafts what a policy drafts less counts as rejected, and a policy
    that drafts less at once may keep it from being raised.
    """
    mismatch_max: Share | None = None
    """The share of outputs that may differ from the target's beyond the noise floors, such as
    `1.5%`.

    An alert is raised by a check of this machine and of the same address, made while somebody
    watches, whose excess over the floors is above it with 95 % confidence (of one that fails, also
    the excess of streamed answers alone), and cleared by one that passes and is within it with the
    same confidence: a check that fails, or is inconclusive (nothing was drafted in it, say), clears
    none.
    """
    webhook_env: str | None = None
    """Names the environment variable with a URL that drifts and alerts are posted to."""
    webhook: str | None = None
    """The URL itself, where it is no secret; the variable SPECDECK_WEBHOOK goes before it."""


class Attach(Block):
    """Engines that run already."""

    url: str | None = None
    """One engine, such as http://127.0.0.1:8000."""
    urls: Words = ()
    """Several engines."""
    control: bool = False
    """Arms control at once; without it the console only reads until it is armed."""
    api_key_env: str | None = None
    """Names the environment variable that holds the engines' API key.

    `VLLM_API_KEY`, `VLLM_API_KEY_…` or `SPECDECK_…_API_KEY`; another one has to be given as
    `--api-key-env`, too.
    """
    reference: str | None = None
    """A target-only engine to compare with."""

    @property
    def engines(self) -> tuple[str, ...]:
        """Every engine to attach to, in the order given."""
        return ((self.url,) if self.url else ()) + self.urls

    @model_validator(mode="after")
    def _check_engines(self) -> Attach:
        if not self.engines:
            raise ValueError("attach needs `url` or `urls`")
        for url in (*self.engines, *((self.reference,) if self.reference else ())):
            _check_url(url)
        return self


class Deepen(Block):
    """Makes the target slower without changing what it says, for demonstrations.

    Layers that pass their input through are added before the first start.
    """

    layers: int = Field(ge=1, le=512)
    """The number of layers that the deepened target has."""


class Fingerprint(Block):
    """How the engine names its serving path."""

    in_responses: bool = True
    """Puts the path's name behind vLLM's own system_fingerprint in every response."""
    pin: str | None = None
    """The pin to watch for drift, relative to the config; without it, the engine's own one."""


class ConfigSettings(Block):
    """Every key of a config that is specdeck's own and not vLLM's."""

    orchestration: Orchestration = Orchestration()
    sampling: Sampling = Sampling()
    exact_models: Words = ()
    """Served names whose requests are answered target-only, beside others that speculate.

    A name that is not among served_model_name is added to it. vLLM's `/invocations` passes over
    a body's `model`: there the header X-Amzn-SageMaker-Adapter-Identifier has the name.
    """
    alerts: Alerts = Alerts()
    fingerprint: Fingerprint = Fingerprint()
    attach: Attach | None = None
    environment: dict[str, str] = {}
    """Variables for the engine's process, below those of the caller; never secrets."""
    host: str | None = None
    """The address to listen on; 127.0.0.1 without."""
    port: int | None = Field(default=None, ge=0, le=65535)
    """The port to listen on; 0 takes a free one."""
    deepen: Deepen | None = None


def _check_url(url: str) -> None:
    """ValueError unless `url` can be an engine's and holds no secret, which it does not repeat."""
    if "@" in url:
        raise ValueError("a URL holds no password: put the key's variable in api_key_env")
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname)
        parts.port  # noqa: B018  # raises on a port that is none
    except ValueError:
        good = False
    if not good:
        raise ValueError(f"{quote_address(url[:80])} is not a URL such as http://127.0.0.1:8000")
