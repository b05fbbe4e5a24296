"""Names on the broker: streams, subjects and keys, from the name of a flow of messages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import sha256
from urllib.parse import quote

from penstock.errors import BadOption

#: The token of a flow without partitions.
WHOLE = "_"
#: Characters of a token beyond which a digest stands for it: NATS takes subjects of less than 4,096 and ends the
#: connection of whoever sends a longer one.
_LONGEST = 2_000


def check_name(name: str) -> str:
    """The name of a flow of messages, which is one token of a subject."""
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name):
        raise BadOption(f"{name!r} is not a name for messages.", do="Use letters, digits, _ and -, at most 64 of them.")
    return name


def token(values: Sequence[object]) -> str:
    """A partition as one token of a subject, different for different values, however long they are.

    >>> token(["New York", 7]), token(["a.b"]), token([-0.0]), token([])
    ('New%20York|7', 'a%2Eb', '0%2E0', '_')
    """
    # Both zeros are one value.
    texts = (str(value + 0.0 if isinstance(value, float) else value) for value in values)
    quoted = "|".join(quote(text, safe="").replace(".", "%2E").replace("_", "%5F") for text in texts)
    if len(quoted) > _LONGEST:
        # No other token begins with _ and goes on.
        return f"{WHOLE}{sha256(quoted.encode()).hexdigest()}"
    return quoted or WHOLE


def subject(name: str, partition: str, path: str) -> str:
    """Where the messages of a cell are published."""
    return f"{name}.{partition}.{path}"


def crowd_subject(name: str) -> str:
    """Where gateways tell the publisher where their subscribers crowd."""
    return f"penstock-crowd.{name}"


def stream_of(name: str) -> str:
    """The stream that keeps a flow's messages."""
    return f"penstock-{name}"


def bucket_of(name: str) -> str:
    """The bucket with what a publisher tells its gateways: the kind of messages, and the cells."""
    return f"penstock-{name}"
