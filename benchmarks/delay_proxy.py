"""A PostgreSQL that answers late: stands between a client and the server and holds back the end of each transaction.

The setting commit_delay does not do this: it only waits when other sessions are about to commit. A cloud disk makes
every commit wait. What is held back here is the message "ready for query, no transaction open", which follows a commit,
a rollback and every single statement; so single reads are late too, and the figures are a little on the dark side.

Threads and not a loop, because a loop's timers are only good to a millisecond.
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from pathlib import Path

SOCKET_NAME = ".s.PGSQL.5432"
# ReadyForQuery with status I. The server is silent after it until the client asks again, so it ends a chunk.
OUTSIDE_A_TRANSACTION = b"Z\x00\x00\x00\x05I"


def main(server_directory: str, own_directory: str, delay_ms: float) -> None:
    """Serve until killed; prints a line once connections are accepted."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(Path(own_directory) / SOCKET_NAME))
    listener.listen(64)
    print("listening", flush=True)
    while True:
        client, _ = listener.accept()
        server = socket.socket(socket.AF_UNIX)
        server.connect(str(Path(server_directory) / SOCKET_NAME))
        threading.Thread(target=_pass_on, args=(client, server, 0.0), daemon=True).start()
        threading.Thread(target=_pass_on, args=(server, client, delay_ms / 1000), daemon=True).start()


def _pass_on(source: socket.socket, target: socket.socket, delay_seconds: float) -> None:
    try:
        while data := source.recv(1 << 18):
            if delay_seconds and data.endswith(OUTSIDE_A_TRANSACTION):
                time.sleep(delay_seconds)
            target.sendall(data)
    except OSError:
        pass  # one side went away; the other is told below
    finally:
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                end.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
