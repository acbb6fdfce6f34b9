"""Load on an engine: streams of completions after a profile, until it is stopped."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import select
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from specdeck.engine.client import event_loop
from specdeck.engine.client.bounds import answer_bound, refuse_compressed
from specdeck.engine.client.cookies import NoCookies
from specdeck.engine.client.engine_client import EngineClient
from specdeck.engine.client.http import (
    IDLE_S,
    NO_ANSWER,
    PortCheck,
    clean_line,
    hold_to_port,
    no_check,
    read_events,
    send,
    verification,
)
from specdeck.engine.client.secret import Secret, refuse_no_name
from specdeck.engine.demo.profiles import PROFILES, Profile, ask
from specdeck.engine.errors import EngineError, NotAnEngine, Unreachable, UsageError


def count_generated(event: dict[str, Any], before: int) -> int:
    """Tokens of the answer so far, after one more event of its stream.

    vLLM says so in every event when asked to; of a server that does not, an event with text is
    taken for one token.

    >>> count_generated({"usage": {"completion_tokens": 7}}, 4)
    7
    >>> count_generated({"choices": [{"text": "a"}]}, 4), count_generated({"choices": []}, 4)
    (5, 4)
    """
    usage = event.get("usage")
    if isinstance(usage, dict) and isinstance(usage.get("completion_tokens"), int):
        return max(before, int(usage["completion_tokens"]))
    choices = event.get("choices")
    has_text = isinstance(choices, list) and any(
        isinstance(choice, dict) and choice.get("text") for choice in choices
    )
    return before + has_text


async def find_model(engine: EngineClient) -> str:
    """The name of the first model that an engine serves; raises EngineError."""
    found = await engine.models()
    if not found:
        raise NotAnEngine(f"{engine.url} serves no model")
    return found[0]


async def tokens(client: httpx.AsyncClient, body: dict[str, Any]) -> AsyncIterator[int]:
    """The tokens that each event of the answer added.

    Raises EngineError when the engine refuses, breaks off or answers something else.
    """
    so_far, url = 0, str(client.base_url).rstrip("/")
    request = client.build_request("POST", "/v1/completions", json=body)
    bound = answer_bound(
        body["max_tokens"], 0, request_size=len(request.content), patience_s=PATIENCE_S
    )
    try:
        response = await send(client, request)
        try:
            refuse_compressed(response, url)
            response.raise_for_status()
            async with contextlib.aclosing(
                read_events(response.aiter_bytes(), bound, url)
            ) as events:
                async for event in events:
                    if "error" in event:
                        raise EngineError(f"the engine broke off: {clean_line(event['error'])}")
                    before, so_far = so_far, count_generated(event, so_far)
                    yield so_far - before
        finally:
            await response.aclose()
    except NO_ANSWER as error:
        raise Unreachable(str(error) or type(error).__name__) from error


TICK = 0.2
"""Seconds between two looks at how many streams there should be."""
PATIENCE_S = 30.0
PATIENCE = httpx.Timeout(PATIENCE_S, connect=5.0)
"""A stopped engine answers nothing for ever; after this its streams count as failed."""
Sleep = Callable[[float], Awaitable[None]]


@dataclass(slots=True)
class Load:
    """The load as it is: changed by whoever steers it, counted by its streams."""

    profile: Profile
    streams: int
    """Streams at once where the phase does not say."""
    seed: int = 0
    model: str | None = None
    """None until the engine has said what it serves."""
    clock: Callable[[], float] = time.monotonic
    requests: int = 0
    """Answers received to the end."""
    failed: int = 0
    tokens: int = 0
    began: float = field(init=False)

    def __post_init__(self) -> None:
        self.began = self.clock()

    def switch(self, profile: Profile) -> None:
        """Begin another profile; answers on their way are received to their end."""
        self.profile, self.began = profile, self.clock()

    def count_streams(self) -> int:
        """How many streams there should be now."""
        streams = self.profile.at(self.clock() - self.began).streams
        return self.streams if streams is None else streams

    def line(self, t: float) -> str:
        """The counts so far as one line of JSON; `t` is Unix time.

        >>> Load(PROFILES["hard"], streams=4).line(1.5)
        '{"t": 1.5, "profile": "hard", "streams": 4, "requests": 0, "failed": 0, "tokens": 0}'
        """
        counts = {"requests": self.requests, "failed": self.failed, "tokens": self.tokens}
        about = {"t": round(t, 3), "profile": self.profile.name, "streams": self.count_streams()}
        return json.dumps(about | counts)


def pause(failures: int) -> float:
    """Seconds to wait after so many failures in a row.

    >>> [pause(n) for n in (1, 2, 3, 20)]
    [0.25, 0.5, 1.0, 5.0]
    """
    return float(min(5.0, 0.25 * 2 ** (min(failures, 10) - 1)))


async def run(load: Load, client: httpx.AsyncClient, *, sleep: Sleep = asyncio.sleep) -> None:
    """Keep as many streams going as `load` wants, until cancelled."""
    numbers = itertools.count()
    running: set[int] = set()

    async def stream(index: int) -> None:
        failures = 0
        while index < load.count_streams():
            if await complete_once(load, client, next(numbers)):
                failures = 0
            else:
                failures += 1
                await sleep(pause(failures))
        running.discard(index)

    async with asyncio.TaskGroup() as group:
        while True:
            for index in range(load.count_streams()):
                if index not in running:
                    running.add(index)
                    group.create_task(stream(index))
            await sleep(TICK)


async def complete_once(load: Load, client: httpx.AsyncClient, number: int) -> bool:
    """Send one request, count what comes, and say whether it came to its end."""
    kind = load.profile.at(load.clock() - load.began).kind
    request = ask(kind, load.seed, number)
    found = load.model is None
    try:
        load.model = load.model or await find_model(_as_engine(client))
        async for new in tokens(client, request.body(load.model)):
            load.tokens += new
    except (EngineError, *NO_ANSWER):
        load.failed += 1
        if found:
            load.model = None  # what answers next may serve another
        return False
    load.requests += 1
    return True


def _as_engine(client: httpx.AsyncClient) -> EngineClient:
    """The same connections, for what is no stream."""
    url = str(client.base_url).rstrip("/")
    return EngineClient(client, url=url, timeout_s=PATIENCE_S)


async def report(load: Load, *, write: Callable[[str], None], sleep: Sleep = asyncio.sleep) -> None:
    """Write the counts each second; a reader that has gone is no reason to stop the load."""
    while True:
        await sleep(1.0)
        write(load.line(time.time()))


def print_line(text: str) -> None:
    """Print to stdout, and to nowhere once nobody reads it.

    Where whoever does has stopped, the line is left out: the load goes on, and hears signals.
    """
    try:
        if select.select([], [sys.stdout], [], 0)[1]:
            print(text, flush=True)
    except OSError:
        # The descriptor is replaced, as the interpreter flushes stdout once more when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def follow(load: Load, text: str) -> None:
    """Switch to the profile that a line of stdin names; talk about any other line on stderr."""
    name = text.strip()
    if name in PROFILES:
        load.switch(PROFILES[name])
    elif name:
        print(f"no profile {name!r}; there are {', '.join(PROFILES)}", file=sys.stderr)


def watch_stdin(
    loop: asyncio.AbstractEventLoop, line: Callable[[str], None], end: Callable[[], None]
) -> None:
    """Call back in the loop for every line of stdin, and at its end.

    A thread with bare reads: a loop cannot wait on a file or on /dev/null, and a buffered read
    would hold a lock that the interpreter wants when it ends.
    """

    def read() -> None:
        rest = b""
        with contextlib.suppress(RuntimeError):  # the loop has closed: nobody listens
            while chunk := os.read(0, 4096):
                *lines, rest = (rest + chunk).split(b"\n")
                for each in lines:
                    loop.call_soon_threadsafe(line, each.decode("utf-8", "replace"))
            loop.call_soon_threadsafe(end)

    threading.Thread(target=read, name="stdin", daemon=True).start()


def open_load_client(
    url: str, *, headers: Mapping[str, str], check_port: PortCheck = no_check
) -> httpx.AsyncClient:
    """A client for the streams of a load; `check_port` raises where no request may go out."""
    limits = httpx.Limits(max_connections=None, keepalive_expiry=IDLE_S)
    return httpx.AsyncClient(
        base_url=url, headers=headers, timeout=PATIENCE, limits=limits,
        verify=verification(url), trust_env=False, cookies=NoCookies(),
        event_hooks={"request": [hold_to_port(check_port)]},
    )  # fmt: skip


@contextlib.asynccontextmanager
async def drive(load: Load, client: httpx.AsyncClient) -> AsyncIterator[Load]:
    """Keeps the streams going while the block runs; what they gave up is cut off at its end."""
    task = asyncio.create_task(run(load, client))
    try:
        yield load
    finally:
        task.cancel()
        (ended,) = await asyncio.gather(task, return_exceptions=True)
    if ended is not None and not isinstance(ended, asyncio.CancelledError):
        raise ended  # a defect of the load


async def serve(
    load: Load,
    url: str,
    *,
    headers: dict[str, str],
    stdin: bool,
    check_port: PortCheck = no_check,
) -> None:
    """Drive and report until SIGTERM, SIGINT or, with `stdin`, the end of stdin.

    No request goes out that `check_port` raises for; it counts as failed.
    """
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if stdin:
        watch_stdin(loop, lambda text: follow(load, text), stop.set)
    async with open_load_client(url, headers=headers, check_port=check_port) as client:
        working = [
            asyncio.create_task(run(load, client)),
            asyncio.create_task(report(load, write=print_line)),
        ]
        stopping = asyncio.create_task(stop.wait())
        # A defect in the load ends it, with its traceback, and does not hang.
        await asyncio.wait([*working, stopping], return_when=asyncio.FIRST_COMPLETED)
        for task in (*working, stopping):
            task.cancel()
        results = await asyncio.gather(*working, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, asyncio.CancelledError):
            raise result


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line, read."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("url", help="the engine's address, as http://127.0.0.1:8000")
    parser.add_argument("--profile", choices=sorted(PROFILES), default="predictable")
    parser.add_argument(
        "--streams", type=int, default=4, help="streams at once (burst, prompts: ignored)"
    )
    parser.add_argument("--seed", type=int, default=0, help="decides every prompt")
    parser.add_argument("--model", help="default: the first that the engine serves")
    parser.add_argument("--api-key-env", metavar="NAME", help="the variable that holds the key")
    parser.add_argument("--no-stdin", action="store_true", help="run until SIGTERM")
    return parser.parse_args(argv)


def authorization(variable: str | None, environment: Mapping[str, str]) -> dict[str, str]:
    """The header that carries the key, from the variable that holds it.

    >>> authorization("KEY", {"KEY": "s"}), authorization(None, {})
    ({'Authorization': 'Bearer s'}, {})
    """
    if variable is None:
        return {}
    refuse_no_name(variable, environment, option="--api-key-env")
    if not (key := environment.get(variable, "").strip()):
        raise UsageError(f"{variable} is not set", remedy="export the engine's API key in it")
    secret = Secret(key, source=f"the API key in {variable}")
    return {"Authorization": f"Bearer {secret.reveal()}"}


def main(argv: list[str] | None = None, *, check_port: PortCheck = no_check) -> int:
    """Run as a process; the exit code."""
    options = arguments(argv)
    try:
        headers = authorization(options.api_key_env, os.environ)
    except UsageError as error:
        print(error.line(), file=sys.stderr)
        return error.exit_code
    load = Load(PROFILES[options.profile], options.streams, options.seed, options.model)
    stdin = not options.no_stdin
    event_loop.run(serve(load, options.url, headers=headers, stdin=stdin, check_port=check_port))
    return 0


if __name__ == "__main__":
    sys.exit(main())
