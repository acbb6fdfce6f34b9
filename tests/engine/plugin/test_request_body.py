"""Bodies that no operator sends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdeck.engine.plugin.reply import Refusal
from specdeck.engine.plugin.request_body import MOST_BYTES, parse_json, read_json

pytest.importorskip("starlette")


@dataclass
class Request:
    """A request whose body is sent as it is read; the last chunk never comes if it `stalls`."""

    chunk: bytes
    chunks: int = 1
    stalls: bool = False
    headers: dict[str, str] = field(default_factory=dict)
    read: int = 0

    async def stream(self) -> AsyncIterator[bytes]:
        for _ in range(self.chunks):
            self.read += len(self.chunk)
            yield self.chunk
        if self.stalls:
            await asyncio.Event().wait()


async def test_a_body_without_a_length_is_read_up_to_its_bound() -> None:
    request = Request(b" " * 1000, chunks=10**6)
    with pytest.raises(Refusal, match="longer than 64 KB") as refusal:
        await read_json(request)
    assert refusal.value.status == 400
    assert request.read <= MOST_BYTES + 1000


@pytest.mark.parametrize("length", [str(MOST_BYTES + 1), "9" * 4400], ids=["more", "absurd"])
async def test_a_body_that_says_its_length_is_not_read(length: str) -> None:
    request = Request(b"{}", headers={"content-length": length})
    with pytest.raises(Refusal, match="longer than 64 KB"):
        await read_json(request)
    assert request.read == 0


async def test_a_body_that_does_not_end_is_not_waited_for() -> None:
    with pytest.raises(Refusal, match="did not arrive within") as refusal:
        await read_json(Request(b"{", stalls=True), patience_s=0.01)
    assert refusal.value.status == 400


async def test_a_client_that_leaves_is_no_failure_of_the_server() -> None:
    from starlette.requests import ClientDisconnect

    class Leaving(Request):
        async def stream(self) -> AsyncIterator[bytes]:
            yield b"{"
            raise ClientDisconnect

    with pytest.raises(Refusal):
        await read_json(Leaving(b""))


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"\xff\xfe", b"[" * 60_000, b'{"k":' * 10_000, b'{"k": %s}' % (b"9" * 4200),
        b'{"k": %s}' % (b"9" * 5000), b'{"k": NaN}', b'{"lease_s": -Infinity}', b"\x00" * 8,
    ],
)  # fmt: skip
def test_what_is_no_sensible_json_is_refused(body: bytes) -> None:
    with pytest.raises(Refusal, match="is not JSON") as refusal:
        parse_json(body)
    assert refusal.value.status == 400


async def test_a_change_is_read_whole() -> None:
    assert await read_json(Request(b'{"k": 3}', headers={"content-length": "8"})) == {"k": 3}


@given(st.binary())
def test_no_bytes_do_worse_than_be_refused(body: bytes) -> None:
    found: Any = None
    try:
        found = parse_json(body)
    except Refusal as refusal:
        found = refusal.status
    assert found == 400 or isinstance(found, dict | list | str | int | float | None)
