"""A gateway in a process of its own: it reads who waits, and prints each change as it is told, until it is killed.

Run as `python -m tests.broker.gateway_process URL NAME LINES`, with a JSON list of [partition, x1, x2, after] to read.
It kills itself when it has printed so many lines: so SIGKILL comes between two changes, however slow the machine is.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Iterator

from penstock.broker.gateway import Subscriber
from penstock.broker.receiver import NatsGateway


async def main(url: str, name: str, lines: str) -> None:
    left = iter(range(int(lines)))
    gateway = await NatsGateway(url, name, f"process-{os.getpid()}").open()
    waiting = []
    for number, (part, x1, x2, after) in enumerate(json.load(sys.stdin)):
        waiting.append(tell(number, await gateway.subscribe(x1, x2, partition=part, after=after), left))
    await asyncio.gather(*waiting)


async def tell(number: int, subscriber: Subscriber, left: Iterator[int]) -> None:
    while True:
        for change in await subscriber.changes():
            if next(left, None) is None:
                os.kill(os.getpid(), signal.SIGKILL)
            # One write a change: a line is there whole, or was not told.
            os.write(1, json.dumps([number, *change]).encode() + b"\n")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
