"""Three Postgres servers under Patroni, with its own consensus, each on a host of its own: a network namespace.

The hosts hang on a bridge in the namespace of this process, which must be its own: ``make cluster`` makes it. A host is
cut off by taking its link down, so that nothing is refused and nothing arrives.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lastlight_state.testing.server import Binaries, in_wheels, installed_servers

#: Where ``make cluster`` puts Patroni, and says so.
PLACE = "LASTLIGHT_TEST_PATRONI"
#: The addresses of the hosts, in the namespace that ``make cluster`` makes for them.
NETWORK = "10.213.71"
MEMBERS = 3
#: The shortest that Patroni takes: seconds until a leader that says nothing is replaced, and between its looks.
TTL, LOOP, RETRY = 20, 1, 3
_PATIENCE_SECONDS = 150


@dataclass
class Member:
    """A host with Patroni and its server."""

    number: int
    folder: Path
    namespace: str
    process: subprocess.Popen[bytes] | None = None
    log: Path = field(init=False)

    def __post_init__(self) -> None:
        self.log = self.folder / "log"

    @property
    def name(self) -> str:
        return f"m{self.number}"

    @property
    def address(self) -> str:
        return f"{NETWORK}.{10 + self.number}"

    @property
    def pids(self) -> list[int]:
        """Return the processes on the host: Patroni's and those of the server."""
        said = subprocess.run(["ip", "netns", "pids", self.namespace], capture_output=True, text=True, check=True)
        return [int(pid) for pid in said.stdout.split()]

    @property
    def postmaster(self) -> int | None:
        """Return the first process of the server; None when it does not run."""
        with suppress(OSError, ValueError, IndexError):
            return int((self.folder / "data" / "postmaster.pid").read_text().splitlines()[0])
        return None


class PatroniCluster:
    """Members that elect a leader. ``synchronous``: a commit waits for a standby."""

    def __init__(self, folder: Path, *, synchronous: bool) -> None:
        self.synchronous = synchronous
        self.members = [
            Member(number, folder / f"m{number}", f"ll{os.getpid()}-{number}") for number in range(1, MEMBERS + 1)
        ]
        self._user = pwd.getpwnam("nobody")
        self._packages = Path(os.environ[PLACE])
        self._binaries = _runnable(self._user.pw_uid)
        self._python = _interpreter(self._user.pw_uid)

    @property
    def url(self) -> str:
        """Return the URL of all members, as libpq writes several hosts: the one that takes writes is used."""
        hosts = ",".join(f"{member.address}:5432" for member in self.members)
        return f"postgresql://postgres@{hosts}/postgres?target_session_attrs=read-write&connect_timeout=2"

    def start(self) -> None:
        """Make the hosts, and start Patroni on each."""
        _run("ip", "link", "set", "lo", "up")
        _run("ip", "link", "add", "llbr", "type", "bridge")
        _run("ip", "addr", "add", f"{NETWORK}.1/24", "dev", "llbr")
        _run("ip", "link", "set", "llbr", "up")
        for member in self.members:
            _run("ip", "netns", "add", member.namespace)
            _run(
                "ip",
                "link",
                "add",
                f"ll{member.number}",
                "type",
                "veth",
                "peer",
                "name",
                "eth0",
                "netns",
                member.namespace,
            )
            _run("ip", "link", "set", f"ll{member.number}", "master", "llbr", "up")
            for words in (
                ["addr", "add", f"{member.address}/24", "dev", "eth0"],
                ["link", "set", "eth0", "up"],
                ["link", "set", "lo", "up"],
            ):
                _run("ip", "-n", member.namespace, *words)
            member.folder.mkdir(mode=0o700)
            (member.folder / "raft").mkdir()
            (member.folder / "patroni.json").write_text(json.dumps(self._settings(member)))
            for path in (member.folder, *member.folder.rglob("*")):
                os.chown(path, self._user.pw_uid, self._user.pw_gid)
            self.launch(member)

    def launch(self, member: Member) -> None:
        """Start Patroni on the host, which starts its server."""
        identity = [f"--reuid={self._user.pw_uid}", f"--regid={self._user.pw_gid}", "--clear-groups"]
        command = ["setpriv", *identity, self._python, "-m", "patroni", str(member.folder / "patroni.json")]
        with member.log.open("ab") as log:
            member.process = subprocess.Popen(
                ["ip", "netns", "exec", member.namespace, *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=member.folder,
                env={
                    "PATH": "/usr/bin:/bin",
                    "PYTHONPATH": str(self._packages),
                    "LC_ALL": "C",
                    "HOME": str(member.folder),
                },
                start_new_session=True,
            )

    def stop(self) -> None:
        """End everything, and remove the hosts."""
        for member in self.members:
            with suppress(subprocess.CalledProcessError):
                for pid in member.pids:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            if member.process is not None:
                member.process.wait()
            subprocess.run(["ip", "netns", "del", member.namespace], check=False, capture_output=True)
        subprocess.run(["ip", "link", "del", "llbr"], check=False, capture_output=True)

    def leader(self) -> Member | None:
        """Return the member that most others call their leader and that takes writes; None while there is none."""
        for member in self.members:
            if self._asked(member, "/primary") == 200:
                return member
        return None

    def settled(self) -> Member:
        """Wait until there is a leader that the others follow, and return it."""
        end = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < end:
            found = self.leader()
            others = [member for member in self.members if member is not found]
            path = "/replica" if self.synchronous else "/replica?lag=1MB"
            follow = found is not None and all(self._asked(member, path) == 200 for member in others)
            if follow and (not self.synchronous or any(self._asked(member, "/sync") == 200 for member in others)):
                assert found is not None
                return found
            time.sleep(0.2)
        raise AssertionError(
            "\n".join(f"{one.name}: {one.log.read_text(errors='replace')[-1500:]}" for one in self.members)
        )

    def kill(self, member: Member) -> None:
        """Kill the server's first process; Patroni stays."""
        if (pid := member.postmaster) is not None:
            os.kill(pid, signal.SIGKILL)

    def freeze(self, member: Member) -> None:
        """Stop every process of the host, as a machine does that hangs."""
        _signal(member, signal.SIGSTOP)

    def thaw(self, member: Member) -> None:
        """Let the processes go on."""
        _signal(member, signal.SIGCONT)

    def cut_off(self, member: Member) -> None:
        """Let nothing reach the host, and nothing leave it."""
        _run("ip", "link", "set", f"ll{member.number}", "down")

    def reconnect(self, member: Member) -> None:
        """Let the host be reached again."""
        _run("ip", "link", "set", f"ll{member.number}", "up")

    def _asked(self, member: Member, path: str) -> int:
        try:
            with urllib.request.urlopen(f"http://{member.address}:8008{path}", timeout=1) as answer:
                return int(answer.status)
        except OSError as error:
            return int(getattr(error, "code", 0))

    def _settings(self, member: Member) -> Mapping[str, Any]:
        partners = [f"{other.address}:2222" for other in self.members if other is not member]
        return {
            "scope": "lastlight",
            "name": member.name,
            "restapi": {"listen": f"{member.address}:8008", "connect_address": f"{member.address}:8008"},
            "raft": {
                "self_addr": f"{member.address}:2222",
                "partner_addrs": partners,
                "data_dir": str(member.folder / "raft"),
            },
            "bootstrap": {
                "dcs": {
                    "ttl": TTL,
                    "loop_wait": LOOP,
                    "retry_timeout": RETRY,
                    "maximum_lag_on_failover": 16 * 2**20,
                    "primary_start_timeout": 0,
                    "synchronous_mode": self.synchronous,
                    "postgresql": {"use_pg_rewind": True, "use_slots": True, "parameters": _PARAMETERS},
                },
                "initdb": ["no-locale", "no-sync", "data-checksums", {"encoding": "UTF8"}, {"auth": "trust"}],
            },
            "postgresql": {
                "listen": f"{member.address}:5432",
                "connect_address": f"{member.address}:5432",
                "data_dir": str(member.folder / "data"),
                "bin_dir": str(self._binaries.folder),
                "pgpass": str(member.folder / "pgpass"),
                "authentication": {name: {"username": "postgres"} for name in ("superuser", "replication", "rewind")},
                "pg_hba": [
                    "local all all trust",
                    f"host all all {NETWORK}.0/24 trust",
                    f"host replication all {NETWORK}.0/24 trust",
                ],
                "remove_data_directory_on_rewind_failure": True,
                "remove_data_directory_on_diverged_timelines": True,
                "parameters": {"unix_socket_directories": str(member.folder)},
            },
        }


#: A crash of a process loses nothing that the operating system has, so that nothing need wait for the disk.
_PARAMETERS = {
    "fsync": "off",
    "shared_buffers": "32MB",
    "max_connections": 100,
    "wal_keep_size": "256MB",
    "wal_log_hints": "on",
}


def why_not() -> str | None:
    """Return why no cluster can be started here; None if it can."""
    if not os.environ.get(PLACE):
        return "make cluster runs these"
    if os.geteuid() != 0 or any(shutil.which(program) is None for program in ("ip", "setpriv")):
        return "hosts of their own need root, ip and setpriv"
    return None


@contextmanager
def patroni(*, synchronous: bool) -> Iterator[PatroniCluster]:
    """Start a cluster and wait until it has a leader and standbys."""
    with tempfile.TemporaryDirectory(prefix="ll-patroni-", dir="/dev/shm", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o755)
        cluster = PatroniCluster(folder, synchronous=synchronous)
        try:
            cluster.start()
            cluster.settled()
            yield cluster
        finally:
            cluster.stop()


def _runnable(uid: int) -> Binaries:
    for binaries in [*installed_servers(), *in_wheels()]:
        with suppress(OSError):
            binaries.version(user=uid)
            return binaries
    raise AssertionError("no Postgres server that `nobody` can run is installed")


def _interpreter(uid: int) -> str:
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for python in (sys.executable, f"/usr/bin/{name}", f"/usr/local/bin/{name}"):
        if Path(python).exists():
            with suppress(OSError):
                if (
                    subprocess.run([python, "-c", ""], user=uid, cwd="/", capture_output=True, check=False).returncode
                    == 0
                ):
                    return python
    raise AssertionError(f"no {name} that `nobody` can run is installed")


def _signal(member: Member, number: int) -> None:
    for pid in member.pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (command, done.stderr)
