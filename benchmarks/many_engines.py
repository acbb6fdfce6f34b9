"""What following many engines costs: CPU of one process that looks at each once a second.

    python -m benchmarks.many_engines [--engines 32] [--seconds 20]

The engines are one small server in a process of its own, which serves a recorded page of
70 KB and a state: what is measured is the side that looks.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import time
from multiprocessing.connection import Connection

from benchmarks.engines import table
from benchmarks.parse_page import RECORDED, grow_page
from tests.support.engine_state import engine_state

from specdeck.engine.client.engine_client import open_client
from specdeck.engine.metrics.scrape import readings
from specdeck.engine.protocol.messages import PREFIX


def serve(pipe: Connection) -> None:
    """A server that answers every GET with the page, the state or the version."""
    import json

    page = grow_page(RECORDED.read_text()).encode()
    told = engine_state()
    state = json.dumps(told.as_json()).encode()
    version = json.dumps({"version": told.vllm}).encode()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while request := await reader.readline():
            while (await reader.readline()).strip():
                pass
            asks_state, asks_version = PREFIX.encode() in request, b" /version " in request
            body = state if asks_state else version if asks_version else page
            kind = b"text/plain" if body is page else b"application/json"
            head = b"HTTP/1.1 200 OK\r\ncontent-type: %s\r\ncontent-length: %d\r\n\r\n"
            writer.write(head % (kind, len(body)) + body)
            await writer.drain()

    async def listen() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        pipe.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(listen())


async def measure(port: int, engines: int, seconds: float) -> tuple[float, int]:
    """Share of a core, and readings taken."""
    taken = 0

    async def follow() -> None:
        nonlocal taken
        async for reading in readings(open_client(f"http://127.0.0.1:{port}"), every=1.0):
            assert reading.up
            assert reading.state is not None
            taken += 1

    tasks = [asyncio.create_task(follow()) for _ in range(engines)]
    await asyncio.sleep(2)
    began, spent, before = time.perf_counter(), time.process_time(), taken
    await asyncio.sleep(seconds)
    share = (time.process_time() - spent) / (time.perf_counter() - began)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return share, taken - before


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--engines", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args()
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.Process(target=serve, args=(theirs,), daemon=True)
    server.start()
    try:
        share, taken = asyncio.run(measure(ours.recv(), options.engines, options.seconds))
    finally:
        server.terminate()
    each = share * options.seconds / taken * 1e3
    head = ["engines", "readings", "of one core (budget 25 %)", "CPU each"]
    print(table(head, [[str(options.engines), str(taken), f"{share:.1%}", f"{each:.1f} ms"]]))


if __name__ == "__main__":
    main()
