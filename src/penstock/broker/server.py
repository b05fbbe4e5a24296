"""A broker of one's own: starts `nats-server` on a free port of this host, and stops it again."""

from __future__ import annotations

import atexit
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType

from penstock.errors import BrokerUnreachable

_PATIENCE = 10.0


class NatsServer:
    """A `nats-server` with JetStream, on loopback alone, that ends with this object.

    `folder` keeps what was published, also beyond the end; without one it is gone afterwards. A server that was killed
    is started again on the same port with `start()`.
    """

    def __init__(self, folder: str | Path | None = None, port: int | None = None) -> None:
        self._own = None if folder else tempfile.TemporaryDirectory(prefix="penstock-nats-")
        self.folder = Path(folder or self._own.name)  # type: ignore[union-attr]
        self.port = port or _free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where it is reached."""
        return f"nats://127.0.0.1:{self.port}"

    def start(self) -> NatsServer:
        """Start it, and wait until it listens."""
        program = shutil.which("nats-server") or shutil.which("nats-server", path="/usr/sbin:/usr/local/sbin")
        if program is None:
            raise BrokerUnreachable(
                "nats-server is not installed.",
                do="Install it (Debian, Ubuntu: apt-get install nats-server), or give the address of one that runs.",
            )
        self.folder.mkdir(parents=True, exist_ok=True)
        options = ["-a", "127.0.0.1", "-p", str(self.port), "-js", "-sd", str(self.folder)]
        with (self.folder / "log.txt").open("ab") as log:
            # It must not outlive us, however we end, short of being killed ourselves.
            atexit.register(self.kill)
            self._process = subprocess.Popen([program, *options], stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        until = time.monotonic() + _PATIENCE
        while time.monotonic() < until and self._process.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return self
            time.sleep(0.02)
        said = (self.folder / "log.txt").read_text(errors="replace").splitlines()[-3:]
        self.stop()
        raise BrokerUnreachable("nats-server did not start.", why=" ".join(said))

    def kill(self) -> None:
        """End it at once, as a crash would; what it stored stays."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        atexit.unregister(self.kill)

    def stop(self) -> None:
        """End it, and what is its own."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                self.kill()
            self._process = None
        atexit.unregister(self.kill)
        if self._own is not None:
            self._own.cleanup()

    def __enter__(self) -> NatsServer:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
