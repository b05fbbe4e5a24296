"""A PostgreSQL server of the benchmark's own: from the system's packages, on a socket in a folder, gone afterwards."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.tables import Table

if TYPE_CHECKING:
    import psycopg


def programs() -> Path | None:
    """The folder with the server's programs; None where it is not installed."""
    found = [Path(path).resolve().parent for name in ("initdb", "postgres") if (path := shutil.which(name))]
    found += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((folder for folder in found if (folder / "initdb").exists()), None)


@contextmanager
def server(memory: int) -> Iterator[psycopg.Connection[Any]]:
    """A connection to a fresh server whose cache has so many bytes."""
    import psycopg

    home = programs()
    if home is None:
        raise RuntimeError("PostgreSQL is not installed: apt-get install postgresql")
    with tempfile.TemporaryDirectory(prefix="penstock-pg-") as folder:
        place = Path(folder) / "data"
        # It refuses to run as root.
        user = ["runuser", "-u", "postgres", "--"] if os.getuid() == 0 else []
        if user:
            shutil.chown(folder, "postgres")
        settings = f"-c shared_buffers={memory // 1024}kB -c listen_addresses= -c unix_socket_directories={folder}"
        subprocess.run(
            [*user, home / "initdb", "-D", place, "-A", "trust", "-U", "bench"], check=True, capture_output=True
        )
        control = [*user, home / "pg_ctl", "-D", place, "-w"]
        subprocess.run(
            [*control, "-l", f"{folder}/log", "-o", f"{settings} -c fsync=off", "start"],
            check=True,
            capture_output=True,
        )
        try:
            with psycopg.connect(host=folder, user="bench", dbname="postgres", autocommit=True) as connection:
                yield connection
        finally:
            subprocess.run([*control, "-m", "immediate", "stop"], check=True, capture_output=True)


def load(connection: psycopg.Connection[Any], table: Table) -> None:
    """The table's rows of whole numbers, indexed by its key."""
    names = table.schema.names
    connection.execute(f"CREATE UNLOGGED TABLE rows ({', '.join(f'{name} bigint' for name in names)})")
    # A tuple of the binary format: how many fields, then of each its size and its value.
    layout = np.dtype([("fields", ">i2"), *((name, [("size", ">i4"), ("value", ">i8")]) for name in names)])
    reader = table.open()
    with connection.cursor() as cursor, cursor.copy("COPY rows FROM STDIN (FORMAT BINARY)") as copy:
        copy.write(b"PGCOPY\n\xff\r\n\0" + bytes(8))
        for page in table.pages:
            for batch in reader.batches(page):
                tuples = np.empty(batch.num_rows, layout)
                tuples["fields"] = len(names)
                for name in names:
                    tuples[name]["size"] = 8
                    tuples[name]["value"] = batch.column(name).to_numpy()
                copy.write(tuples.tobytes())
        copy.write(b"\xff\xff")
    reader.close()
    connection.execute(f"ALTER TABLE rows ADD PRIMARY KEY ({table.key[0]})")
    connection.execute("VACUUM ANALYZE rows")


def look_up(connection: psycopg.Connection[Any], table: Table, keys: pa.ChunkedArray, at_once: int = 10_000) -> int:
    """How many rows the keys have, each fetched whole."""
    found = 0
    with connection.cursor(binary=True) as cursor:
        for begin in range(0, len(keys), at_once):
            some = keys.slice(begin, at_once).to_pylist()
            cursor.execute(
                f"SELECT rows.* FROM unnest(%s::bigint[]) AS asked JOIN rows ON {table.key[0]} = asked", (some,)
            )
            found += len(cursor.fetchall())
    return found
