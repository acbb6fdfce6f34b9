"""A real engine with an API key, and clients that are up to no good."""

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
from tests.support.command import PATIENCE_S, Command
from tests.support.live_engine import LIMITS, Driver, LiveEngine, until

from specdeck.engine.protocol.messages import PREFIX, TOKEN_HEADER

KEY = "key-of-every-client"
BEARER = {"Authorization": f"Bearer {KEY}"}
READS = ("state", "steps", "tuning", "facts")
MIB = 1 << 20


@pytest.fixture(scope="module")
def keyed(specdeck: Command) -> Iterator[LiveEngine]:
    """An engine that asks for an API key."""
    started = LiveEngine.start(specdeck, VLLM_API_KEY=KEY)
    yield started
    started.clear_away()


@pytest.fixture
async def client(keyed: LiveEngine) -> AsyncIterator[httpx.AsyncClient]:
    """One without the key."""
    async with httpx.AsyncClient(base_url=keyed.url, timeout=120, limits=LIMITS) as found:
        yield found


@pytest.fixture
async def driver(keyed: LiveEngine, client: httpx.AsyncClient) -> Driver:
    """One with the key, and the token."""
    client.headers.update(BEARER)
    return Driver(client, keyed.token)


def peak(engine: LiveEngine) -> int:
    """Bytes that the API server's process has ever had."""
    status = Path(f"/proc/{engine.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) * 1024


@pytest.mark.parametrize("name", [*READS, "control"])
async def test_nothing_of_ours_is_open_to_those_without_the_key(
    keyed: LiveEngine, client: httpx.AsyncClient, name: str
) -> None:
    headers = {TOKEN_HEADER: keyed.token, "Origin": "http://page.invalid"}
    paths = ("/v1", "//v1", "/V1", "/%76%31", "/./v1", "/x/../v1", "/v1;")
    for path in paths:
        for method in ("GET", "HEAD", "OPTIONS", "POST", "PUT"):
            answer = await client.request(
                method, f"{path}/specdeck/{name}", headers=headers, content=b'{"k": 1}'
            )
            assert answer.status_code in (400, 401, 404, 405), (method, path, answer.text)
            assert "access-control-allow-origin" not in answer.headers
            assert "sd1:" not in answer.text
    client.headers.update(BEARER)
    assert (await client.get(f"{PREFIX}/state")).json()["version"] == 0


async def test_a_page_of_another_origin_reads_nothing(client: httpx.AsyncClient) -> None:
    answer = await client.get("/version", headers={"Origin": "http://page.invalid"})
    assert answer.status_code == 200
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("beams", [{}, {"use_beam_search": True, "n": 2}])
async def test_a_k_that_cannot_be_is_refused_whatever_is_asked(
    driver: Driver, beams: dict[str, object]
) -> None:
    body = {"model": "demo", "prompt": "def f(", "max_tokens": 3, "temperature": 0.0, **beams}
    for path, asked in (
        ("/v1/completions", body),
        ("/v1/chat/completions", {**body, "messages": [{"role": "user", "content": "def f("}]}),
    ):
        for k, status in ((99, 400), (0, 200)):
            request = {**asked, "vllm_xargs": {"specdeck_k": k}}
            answer = await driver.client.post(path, json=request)
            assert answer.status_code == status, answer.text
            assert k == 0 or "specdeck_k requires a whole number from 0" in answer.text


async def test_a_streamed_response_with_a_k_that_cannot_be_is_an_answer(driver: Driver) -> None:
    """vLLM refuses it within the stream otherwise, and the connection breaks off."""
    asked = {"model": "demo", "input": "def f(", "max_output_tokens": 3, "stream": True}
    for k, status in ((99, 400), (0, 200)):
        request = {**asked, "vllm_xargs": {"specdeck_k": k}}
        answer = await driver.client.post("/v1/responses", json=request)
        assert answer.status_code == status, answer.text
        assert k == 0 or "specdeck_k requires a whole number from 0" in answer.text


@pytest.mark.parametrize("token", [False, True])
async def test_an_endless_body_is_refused_and_kept_by_nobody(
    keyed: LiveEngine, driver: Driver, token: bool
) -> None:
    before = peak(keyed)
    headers = {**BEARER, **({TOKEN_HEADER: keyed.token} if token else {})}
    lines = [f"PUT {PREFIX}/control HTTP/1.1", "Host: engine", "Transfer-Encoding: chunked"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    reader, writer = await asyncio.open_connection("127.0.0.1", keyed.port)
    writer.write("\r\n".join([*lines, "", ""]).encode())
    chunk = b"%x\r\n%s\r\n" % (MIB, b" " * MIB)
    async with asyncio.timeout(PATIENCE_S):
        with contextlib.suppress(ConnectionError):
            for _ in range(256):
                writer.write(chunk)
                await writer.drain()
        status = await reader.readline()
    writer.close()
    assert status.split()[1] == (b"400" if token else b"401")
    assert peak(keyed) - before < 64 * MIB
    assert (await driver.client.get(f"{PREFIX}/state")).status_code == 200


async def test_a_body_that_drips_is_not_waited_for(keyed: LiveEngine) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", keyed.port)
    writer.write(
        f"PUT {PREFIX}/control HTTP/1.1\r\nHost: engine\r\nContent-Length: 9\r\n"
        f"Authorization: Bearer {KEY}\r\n{TOKEN_HEADER}: {keyed.token}\r\n\r\n{{".encode()
    )
    try:
        async with asyncio.timeout(PATIENCE_S):
            assert (await reader.readline()).split()[1] == b"400"
            await reader.readuntil(b"\r\n\r\n")
            await reader.readuntil(b"did not arrive")  # may come after the headers
    finally:
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize(
    "body",
    [
        '{"k": 3, "reason": "\\ud800"}',
        json.dumps({"k": 3, "reason": "x" * 10_000_000}),
        '{"k": ' + "9" * 4200 + "}",
        "[" * 30_000,
        '{"parameters": {"goodput.margin": NaN}}',
    ],
    ids=["surrogate", "10 MB", "4,200 digits", "deep", "NaN"],
)
async def test_a_body_that_makes_no_sense_is_a_400_and_spoils_nothing(
    keyed: LiveEngine, driver: Driver, body: str
) -> None:
    answer = await driver.client.put(
        f"{PREFIX}/control", content=body, headers={TOKEN_HEADER: keyed.token}
    )
    assert answer.status_code == 400, answer.text
    for name in READS:
        assert (await driver.client.get(f"{PREFIX}/{name}")).status_code == 200


async def test_pinned_requests_that_are_given_up_are_forgotten(driver: Driver) -> None:
    body = {
        "model": "demo", "prompt": "def add(a, b):", "max_tokens": 400, "ignore_eos": True,
        "vllm_xargs": {"specdeck_k": 0},
    }  # fmt: skip
    asking = [
        asyncio.create_task(driver.client.post("/v1/completions", json=body)) for _ in range(200)
    ]
    most = await until(driver.state, lambda state: state["pinned"] > 100)
    assert most["waiting"] > 0
    for one in asking:
        one.cancel()
    await asyncio.gather(*asking, return_exceptions=True)
    await until(driver.state, lambda state: state["pinned"] == state["running"] == 0)
    reply = await driver.client.post("/v1/completions", json={**body, "max_tokens": 16})
    assert reply.json()["metrics"]["speculative_decoding"]["num_draft_tokens"] == 0
    assert (await driver.state())["pinned"] == 0
