"""``ui``: serves the inspector's pages over one store. Without a token, on this machine only."""

from __future__ import annotations

import ipaddress
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from lastlight_state.cli.opening import open_readonly, writable_store
from lastlight_state.cli.output import Answer, Call, command
from lastlight_state.errors import InvalidValue, MisuseError
from lastlight_state.lazy import load
from lastlight_state.settings import secret_in
from lastlight_state.store import StateStore

#: Least characters of the token for an address that other machines reach.
LEAST_TOKEN = 16
#: Seconds that unfinished requests have when the server ends.
LAST_SECONDS = 3


@command("ui")
@click.option("--host", metavar="ADDRESS", default="127.0.0.1", help="The address to listen on.")
@click.option("--port", metavar="PORT", default=8765, help="The port to listen on; 0 for any that is free.")
@click.option("--token-file", metavar="FILE", type=click.Path(path_type=Path), help="A file with the token to look.")
@click.option("--name", metavar="HOST", multiple=True, help="A name that browsers call it by; several times.")
@click.option("--root-path", metavar="PATH", default="", help="The path in front of it that a proxy takes away.")
@click.option("--allow-acting", is_flag=True, help="Let people answer, cancel, pause and resume.")
@click.option("--person", metavar="NAME", help="With --allow-acting: in whose name.")
@click.option("--hide-personal", is_flag=True, help="Show neither names of people nor what they wrote.")
def run(call: Call, **options: Any) -> Answer:
    """Serve pages that show what is in the store, until interrupted.

    By default it only reads, and listens on this machine only. Another address needs --token-file: put TLS in front of
    it. With --allow-acting and --person, questions can be answered, and runs cancelled, paused and resumed.
    """
    host, token = options["host"], _token(options["token_file"])
    local = _is_loopback(host)
    if not local and token is None:
        raise InvalidValue("--host", "others reach this address: it needs --token-file")
    if options["person"] is not None and not options["allow_acting"]:
        raise InvalidValue("--person", "must not be given without --allow-acting")
    with ExitStack() as stack:
        store = stack.enter_context((writable_store if options["allow_acting"] else open_readonly)(call))
        hosts = {"localhost", "127.0.0.1", "::1", host.strip("[]"), *options["name"]} if local else options["name"]
        _serve(call, store, options, token, hosts or None)
    return Answer()


def _serve(call: Call, store: StateStore, options: dict[str, Any], token: str | None, hosts: Any) -> None:
    try:
        uvicorn, inspector = load("uvicorn"), load("lastlight_state.inspector").inspector
    except ImportError as error:
        raise MisuseError("`ui` needs an extra: pip install 'lastlight-state[ui]'", extra="ui") from error
    app = inspector(
        store,
        token=token,
        hosts=hosts,
        person=options["person"],
        acting=options["allow_acting"],
        hide_personal=options["hide_personal"],
    )
    config = uvicorn.Config(
        app,
        host=options["host"],
        port=options["port"],
        root_path=options["root_path"],
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        timeout_graceful_shutdown=LAST_SECONDS,
    )
    socket = config.bind_socket()
    socket.listen(config.backlog)  # a reader of the printed address may connect at once
    where = socket.getsockname()
    name = f"[{where[0]}]" if ":" in where[0] else where[0]
    call.output.note(f"http://{name}:{where[1]}/ shows {store.backend.location}; end it with Ctrl-C")
    with socket:
        uvicorn.Server(config).run(sockets=[socket])


def _token(file: Path | None) -> str | None:
    """Read the token from the file. Raises `InvalidValue` if it is unreadable or too short."""
    if file is None:
        return None
    token = secret_in(file, "--token-file")
    if len(token) < LEAST_TOKEN:
        raise InvalidValue("--token-file", f"the token must have at least {LEAST_TOKEN} characters")
    return token


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
