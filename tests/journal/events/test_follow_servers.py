"""Servers with open streams of events, which wait for their responses and are stopped by SIGTERM."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from contextlib import ExitStack

import pytest
from support.preloaded import Program
from support.workflows.steps import started

from lastlight_state import StateStore
from lastlight_state.testing import Database

THREADS = """
import signal, sys, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from lastlight_state import StateStore

class Events(BaseHTTPRequestHandler):
    def do_GET(self):
        self.wfile.write(b"HTTP/1.1 200 OK\\r\\n\\r\\n")
        for event in store.journal.events.follow(self.path[1:], until_end=True, heartbeat=0.1, stop=stop):
            self.wfile.write(b": still here\\n\\n" if event is None else f"data: {event.type}\\n\\n".encode())

class Server(ThreadingHTTPServer):
    daemon_threads = False  # closing it waits for the open responses

told = threading.Event()
with StateStore.open(sys.argv[1], migrate=False) as store:
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: told.set())
    with Server(("127.0.0.1", 0), Events) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print(server.server_port, flush=True)
        told.wait()
        began = time.monotonic()
        stop.set()
        server.shutdown()
print(time.monotonic() - began, flush=True)
"""
TASKS = """
import asyncio, signal, sys, threading, time
from lastlight_state import AsyncStateStore

async def main():
    stop, told, open_responses = threading.Event(), asyncio.Event(), set()

    async def serve(reader, writer):
        open_responses.add(asyncio.current_task())
        run_id = (await reader.readline()).split()[1].decode()[1:]
        writer.write(b"HTTP/1.1 200 OK\\r\\n\\r\\n")
        async for event in store.journal.events.follow(run_id, until_end=True, heartbeat=0.1, stop=stop):
            writer.write(b": still here\\n\\n" if event is None else f"data: {event.type}\\n\\n".encode())
            await writer.drain()
        writer.close()

    async with await AsyncStateStore.open(sys.argv[1], migrate=False) as store:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        print(server.sockets[0].getsockname()[1], flush=True)
        await told.wait()
        began = time.monotonic()
        stop.set()
        server.close()
        await asyncio.gather(*open_responses)  # as web servers do
    print(time.monotonic() - began, flush=True)

asyncio.run(main())
"""
CLIENTS = 8


def client(stack: ExitStack, port: int, run_id: str) -> socket.SocketIO:
    """Open a stream, and return it once its first event was read."""
    connection = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
    connection.sendall(f"GET /{run_id} HTTP/1.1\r\n\r\n".encode())
    stream = stack.enter_context(connection.makefile("rb", buffering=0))
    while stream.readline() != b"data: begun\n":
        pass
    return stream


@pytest.mark.parametrize("program", [THREADS, TASKS], ids=["threads", "tasks"])
def test_a_server_with_open_followers_stops_within_a_second_of_sigterm(database: Database, program: str) -> None:
    """journal J-22: the streams end in order, the store is closed, and the stream of an ended run is over already."""
    with ExitStack() as stack:
        store = stack.enter_context(StateStore.open(database.url))
        run, ended = started(store), started(store)
        for each in (run, ended):
            store.journal.events.append(each.id, "begun")
        process = stack.enter_context(
            Program([sys.executable, "-c", program, database.url], stdout=subprocess.PIPE, text=True)
        )
        stack.callback(process.kill)
        assert process.stdout
        port = int(process.stdout.readline())
        streams = [client(stack, port, run.id) for _ in range(CLIENTS)]
        over = client(stack, port, ended.id)
        store.workflows.runs.finish(ended.id, "succeeded")
        while over.readline():
            pass
        for stream in streams:
            while stream.readline() != b": still here\n":
                pass
        process.send_signal(signal.SIGTERM)
        for stream in streams:
            while stream.readline():
                pass
        assert float(process.stdout.readline()) < 1
        assert process.wait(60) == 0
