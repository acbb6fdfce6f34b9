"""What people type for an engine, and a client of it with the secrets it requires."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from specdeck.engine.client.command_options import CommandOptions, list_options
from specdeck.engine.client.secret import Secret, refuse_no_name
from specdeck.engine.client.token import admin_token, refuse_unfit
from specdeck.engine.errors import ConfigError, Unsupported, UsageError
from specdeck.engine.launch.ownership import PortOwner
from specdeck.engine.launch.registry import Record, Registry
from specdeck.engine.paths import locations
from specdeck.engine.protocol.messages import TOKEN_VARIABLE

if TYPE_CHECKING:
    from specdeck.engine.client.engine_client import EngineClient
    from specdeck.engine.config.config import Config

OWN_KEY = "VLLM_API_KEY"
"""vLLM's own variable: an engine started here inherited the caller's."""

_KEYS_OF_ENGINES = re.compile(r"VLLM_API_KEY(_[A-Za-z0-9_]+)?|SPECDECK_([A-Za-z0-9_]+_)?API_KEY")
"""The variables that a config may name by itself: nothing but engines' keys lies in these."""

_FILE_NAME = re.compile(r"[\w-]{1,20}\.[A-Za-z]{1,8}")
"""What can only be meant as a file of the working folder: tokens are longer, or have no dot."""


class _TokenFile(click.Path):
    """A file that exists. One that does not is quoted only where it is spelt as a path."""

    def __init__(self) -> None:
        super().__init__(path_type=Path, exists=True, dir_okay=False)

    def convert(
        self,
        value: str | os.PathLike[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> str | bytes | os.PathLike[str]:
        """The path; fails for one that leads nowhere, as the token itself does in its place."""
        text = os.fspath(value)
        if not ("/" in text or _FILE_NAME.fullmatch(text) or os.path.exists(text)):
            self.fail("no file is called what was given here", param, ctx)
        return super().convert(value, param, ctx)


key_option = click.option(
    "--api-key-env", metavar="NAME", help="The variable that holds the engine's API key."
)
token_option = click.option(
    "--admin-token-file",
    "token_file",
    metavar="F",
    type=_TokenFile(),
    help="The file with the engine's admin token; or set SPECDECK_ADMIN_TOKEN.",
)


@dataclass(frozen=True, slots=True)
class Access:
    """Where one engine answers and what it has to be told."""

    url: str
    record: Record | None = None
    """None for an engine that specdeck did not start here."""
    api_key: Secret | None = None
    token_file: Path | None = None
    """Beside the variable SPECDECK_ADMIN_TOKEN."""
    is_inherited: bool = False
    """Whether nobody named `api_key`: it is the one of this shell, for an engine started here."""
    key_variable: str | None = None
    """The variable that `api_key` was named by."""
    owner: PortOwner | None = None
    """Who must have the port that is asked; None where there is no record."""

    def __repr__(self) -> str:
        return f"Access({self.url})"

    @property
    def name(self) -> str:
        """What the audit log calls it: its name from `ps`, or its URL."""
        return self.record.name if self.record else self.url

    @property
    def options(self) -> CommandOptions:
        """What another command has to be given for it; a record's token is found by the URL."""
        has_token = self.record is not None or bool(os.environ.get(TOKEN_VARIABLE, "").strip())
        return list_options(self.key_variable, self.token_file, has_token=has_token)

    def client(self) -> EngineClient:
        """A client of it, to be closed by the caller."""
        from specdeck.engine.client.engine_client import open_client

        return open_client(
            self.url, api_key=self.api_key, token=self.token, check_port=self.check_port
        )

    def token(self) -> Secret | None:
        """The admin token: the one that was named, or else the record's."""
        given = admin_token(os.environ, self.token_file)()
        return given if given is not None or self.owner is None else self.owner.token()

    def check_port(self) -> None:
        """Raises EngineError where a record was found and its engine does not have the port."""
        if self.owner is not None:
            self.owner.check(is_asked_for=self.api_key is None or not self.is_inherited)


def access(
    engine: str, *, api_key_env: str | None = None, token_file: Path | None = None
) -> Access:
    """The engine that a name from `ps`, a URL, `host:port` or a port means.

    Raises UsageError for what can be none of them, for a name that no engine has, for
    https where a record has http, for a variable that is not set and a token file
    that holds none.
    """
    from specdeck.engine.client.address import engine_url

    if token_file is not None:
        refuse_unfit(token_file)
    admin_token(os.environ)()  # one that cannot be sent is refused before anything is asked
    registry = Registry(locations(os.environ).engines)
    record = _find_started(engine, registry)
    key = api_key(api_key_env, os.environ)
    if record is not None:
        # Only an engine that was started here is sent the key of this shell unasked.
        return Access(
            record.url,
            record,
            key or own_key(),
            token_file,
            is_inherited=key is None,
            key_variable=api_key_env,
            owner=PortOwner(record, registry),
        )
    if is_name(engine):
        file = f", or give ./{engine} for the file" if Path(engine).is_file() else ""
        raise UsageError(f"no engine called {engine}", remedy=f"see `specdeck ps`{file}")
    return Access(engine_url(engine), None, key, token_file, key_variable=api_key_env)


def _find_started(engine: str, registry: Registry) -> Record | None:
    """The record of an engine that was started here; None for any other.

    Records are found by name, or by host and port: then the engine must run, as one that has
    ended says nothing about who has its port now. What was asked for with https is not asked
    in the clear instead.
    """
    record = registry.find(engine)
    if record is None or record.name == engine:
        return record
    if record.life() != "running":
        return None
    if engine.strip().lower().startswith("https://") and not record.url.startswith("https://"):
        raise UsageError(
            f"`specdeck ps` has {record.name} with http, not https", remedy=f"give {record.url}"
        )
    return record


@asynccontextmanager
async def require_vllm(client: EngineClient) -> AsyncIterator[None]:
    """Turns an Unsupported of the plugin's routes into NotAnEngine where there is no vLLM at all.

    Any server lacks those routes; only vLLM tells its version.
    """
    try:
        yield
    except Unsupported:
        await client.version()
        raise


def is_config(subject: str) -> bool:
    """Whether `subject` is meant as a file rather than as an engine.

    By its spelling alone: a file that somebody left in the folder where an operator stands, under
    the name of an engine, would say where its key goes.

    >>> is_config("a.yaml"), is_config("./a"), is_config("http://h:1"), is_config("h:1")
    (True, True, False, False)
    """
    return "://" not in subject and (subject.endswith((".yaml", ".yml")) or "/" in subject)


def is_name(engine: str) -> bool:
    """Whether `engine` can only be meant as a name from `ps`, and not as an address.

    >>> is_name("demo-2"), is_name("localhost"), is_name("8000"), is_name("gpu-1:8000")
    (True, False, False, False)
    """
    word = engine.replace("-", "").replace("_", "").isalnum()
    return word and not engine.isdecimal() and engine.lower() != "localhost"


def own_key() -> Secret | None:
    """The API key of an engine that is started here: it inherits the caller's.

    Raises UsageError for one that no request can carry.
    """
    key = os.environ.get(OWN_KEY)
    return Secret(key, source=f"the API key in {OWN_KEY}") if key else None


def choose_key_variable(given: str | None, config: Config) -> str | None:
    """The variable with the key of a config's engines: the one that was given, else the config's.

    A file says where the key goes as well, so it does not choose among all the secrets of this
    shell: raises ConfigError where it names a variable that is not for engines' keys.
    """
    named = None if config.attach is None else config.attach.api_key_env
    if given is not None or named is None:
        return given
    refuse_no_name(named, os.environ, option="attach.api_key_env")
    if _KEYS_OF_ENGINES.fullmatch(named) is None:
        raise ConfigError(
            f"a config alone does not have {named} sent: it is not named like an engine's key",
            place=config.place("attach", "api_key_env"),
            remedy=f"give --api-key-env {named} if the engines in it are to get it, or use"
            " VLLM_API_KEY, VLLM_API_KEY_… or SPECDECK_…_API_KEY",
        )
    return named


def api_key(variable: str | None, environment: Mapping[str, str]) -> Secret | None:
    """The key that lies in `variable`; None when none was named.

    Raises UsageError where there is none, and for one that no request can carry.

    >>> api_key("KEY", {"KEY": "secret"}), api_key(None, {})
    (Secret(…), None)
    """
    if variable is None:
        return None
    refuse_no_name(variable, environment, option="--api-key-env")
    if not (key := environment.get(variable, "").strip()):
        raise UsageError(f"the variable {variable} is not set", remedy="export the API key in it")
    return Secret(key, source=f"the API key in {variable}")
