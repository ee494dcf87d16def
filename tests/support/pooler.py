"""A real PgBouncer in front of a database, where one is installed."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import make_url

from lastlight_state.testing import Database

PGBOUNCER = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")


@contextmanager
def pooled(database: Database, *settings: str) -> Iterator[str]:
    """The URL of the database behind a PgBouncer that lends connections per transaction."""
    server = make_url(database.url)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)  # for whom it runs as
        host = str(server.query.get("host", server.host or "127.0.0.1"))
        user = f"user={server.username}" + (f" password='{server.password}'" if server.password else "")
        (folder / "pooler.ini").write_text(
            f"[databases]\npooled = host={host} port={server.port or 5432} dbname={server.database} {user}\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\npool_mode = transaction\n"
            "auth_type = any\n" + "".join(f"{setting}\n" for setting in settings)
        )
        owner = Path(host).owner() if host.startswith("/") else "nobody"
        as_whom = ["-u", owner] if os.getuid() == 0 else []  # it does not run as root
        with subprocess.Popen([str(PGBOUNCER), "-q", *as_whom, str(folder / "pooler.ini")]) as process:
            try:
                _until_it_listens(port)
                yield f"postgresql://anybody@127.0.0.1:{port}/pooled"
            finally:
                process.terminate()


def _until_it_listens(port: int) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            time.sleep(0.01)
        else:
            return
