"""What a session is given, without starting one."""

from __future__ import annotations

import socket
from contextlib import closing
from pathlib import Path

import pytest

from penstock.spark.session import _sockets


@pytest.mark.parametrize("length", [20, 60, 64, 65, 120])
def test_sockets_are_used_only_where_their_paths_fit(tmp_path: Path, length: int) -> None:
    place = Path("/" + "d" * (length - 1))
    settings = {"spark.driver.extraJavaOptions": f"-Xss4m -Djava.io.tmpdir={place} -ea"}
    (used,) = _sockets(settings).values()
    with closing(socket.socket(socket.AF_UNIX)) as one:
        try:
            one.bind(f"{place}/.{'f' * 36}.sock")
        except FileNotFoundError:
            fits = True  # The directory does not exist, but its name was not too long.
        except OSError:
            fits = False
    assert used == str(fits).lower()
