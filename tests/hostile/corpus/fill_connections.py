"""Fills connections that nobody reads from: Linux gives those of all programs so much memory together."""

import contextlib
import socket
import time

server, kept = socket.create_server(("127.0.0.1", 0)), []
for _ in range(50):
    kept.append(socket.create_connection(server.getsockname()))
    kept.append(server.accept()[0])
    kept[-2].setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            kept[-2].send(bytes(1 << 16))
time.sleep(10)
