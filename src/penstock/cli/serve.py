"""`penstock serve`."""

from __future__ import annotations

import ipaddress
import logging
from dataclasses import dataclass, replace
from pathlib import Path

from rich.markup import escape

from penstock.cli.say import asking, console, step, without_interrupts
from penstock.errors import BadOption
from penstock.server.app import make_app
from penstock.server.auth import open_token
from penstock.server.limits import Limits
from penstock.server.pipelines import Run, checked, open_session
from penstock.server.serving import Serving
from penstock.spark.gateway import shut_down


@dataclass(frozen=True)
class Asked:
    """The options of the command."""

    pipeline: Path
    host: str
    port: int
    allow_hosts: list[str]
    new_token: bool


def serve(asked: Asked) -> None:
    """Serve until asked to stop; then finish the micro-batches under way."""
    asked = replace(asked, host=address(asked.host))
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    without_interrupts()
    pipeline, _ = checked(asked.pipeline)
    if pipeline.trigger is None:
        # A server waits for what comes.
        pipeline = replace(pipeline, trigger="1 second")
    pipeline.folder.mkdir(parents=True, exist_ok=True)
    limits = Limits()
    # Before anything is started, and before a token is made that is shown once.
    serving = _bound(asked, limits)
    with asking(serving.ask_to_stop) as listen:
        with step("starting Spark"):
            spark = open_session(pipeline, "penstock-serve")
        listen()  # a new session takes Ctrl-C for itself
        try:
            if not serving.asked:
                _serve(asked, serving, Run(pipeline, spark, None, limits=limits), limits)
        finally:
            serving.stop()
            shut_down()


def _serve(asked: Asked, serving: Serving, running: Run, limits: Limits) -> None:
    folder = running.engine.folder
    token, text = open_token(folder, anew=asked.new_token)
    names = hosts(asked.host, serving.port, asked.allow_hosts)
    running.start()
    try:
        _say(asked, serving.port, text, folder)
        serving.run(make_app(running.engine, token, names, limits))
    finally:
        console.print("stopping", style="dim")
        serving.stop()
        running.stop()


def _bound(asked: Asked, limits: Limits) -> Serving:
    try:
        return Serving(asked.host, asked.port, limits)
    except OSError as fault:
        raise BadOption(
            f"{asked.host}:{asked.port} cannot be served: {fault.strerror}.", do="Choose another --port or --host."
        ) from None


def address(host: str) -> str:
    """The address to listen at: as it is, or that of this machine alone."""
    if host == "localhost":
        return "127.0.0.1"
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        raise BadOption(
            f"--host {host!r} is not an address.",
            do="Give an address: 127.0.0.1, ::1, or 0.0.0.0 for all of this machine; names go to --allow-host.",
        ) from None


def hosts(host: str, port: int, more: list[str]) -> frozenset[str]:
    """The values of the header Host that are ours: this address with its port, and names that a proxy passes on."""
    own = [host]
    if host in ("0.0.0.0", "::") or ipaddress.ip_address(host).is_loopback:
        own += ["127.0.0.1", "localhost", "::1"]
    shown = [f"[{name}]" if ":" in name else name for name in own]
    named = [f"{name}:{port}" for name in [*shown, *more]] + more + (shown if port == 80 else [])
    return frozenset(name.lower() for name in named)


def _say(asked: Asked, port: int, token: str | None, folder: Path) -> None:
    shown = f"[{asked.host}]" if ":" in asked.host else asked.host
    address = f"http://{shown}:{port}/"
    console.print(f"[green]✓[/] serving at {address}", soft_wrap=True)
    if token is not None:
        console.print("The token, shown this once; every call needs it:", soft_wrap=True)
        console.print(f"  {token}", highlight=False, soft_wrap=True)
        console.print(f"The page, with the token in it: {address}#token={token}", highlight=False, soft_wrap=True)
    else:
        console.print(
            "The token is the one of the first start; --new-token makes another.", style="dim", soft_wrap=True
        )
    if not ipaddress.ip_address(asked.host).is_loopback:
        console.print(
            "[yellow]It can be reached from outside, and speaks plain HTTP: put a proxy with TLS before it.[/]"
        )
    console.print(f"Everything is kept in {escape(str(folder))}; Ctrl-C stops.", style="dim", soft_wrap=True)
