"""Fills the page `reference/api` from `penstock.__all__`, grouped by the layer that a name lives in."""

from __future__ import annotations

import importlib
import inspect
from collections import defaultdict
from typing import Any

import penstock

PAGE = "reference/api"
#: Layers in the order of the page, each with its heading.
GROUPS = {
    "operators": "Operators",
    "sql": "Queries as text",
    "server": "The server",
    "plan": "Conditions, windows and shapes",
    "tables": "Tables",
    "spark": "Running",
    "errors": "Errors",
}

#: What most come for, before the rest of its layer.
FIRST = ("join_table", "join_streams", "join_shared", "StandingQueries", "Subscriptions", "View", "session", "Flow")

#: Of packages that can be called: what they call, and what that gives back.
CALLED = {
    "sql": ".. autofunction:: penstock.sql.run.sql\n\n.. autoclass:: penstock.sql.standing.Standing\n   :members:\n"
}

#: What the public names give back and is no public name itself, with what one does with it.
GIVEN_BACK = """## What they give back

```{eval-rst}
.. autoclass:: penstock.spark.running.Running
   :members: active, wait, stop, progress
.. autoclass:: penstock.spark.shared_flow.SharedFlow
   :members: add, remove, queries
.. autoclass:: penstock.sql.standing.Started
   :members: active, wait, stop
.. autoclass:: penstock.spark.catch_up.CaughtUp
   :members:
.. autoclass:: penstock.spark.catch_up_streams.CaughtUpStreams
   :members:
.. autoclass:: penstock.spark.views.answer.Answer
   :members:
.. autoclass:: penstock.spark.views.service.Progress
   :members:
```

## Programs of your own

```{eval-rst}
.. autofunction:: penstock.spark.signals.stop_on_signal
.. autoclass:: penstock.broker.receiver.NatsGateway
   :members: open, subscribe, unsubscribe, close
.. autoclass:: penstock.broker.gateway.Subscriber
   :members: changes
.. autoclass:: penstock.broker.gateway.Change
```
"""


def grouped() -> dict[str, list[str]]:
    """The public names by layer."""
    found: dict[str, list[str]] = defaultdict(list)
    for name in penstock.__all__:
        if not name.startswith("__"):
            module, _ = penstock._HOMES[name]
            found[module.split(".")[1]].append(name)
    return found


def described(name: str) -> str:
    """What documents one public name."""
    thing = getattr(penstock, name)
    if inspect.ismodule(thing):
        # The tree at the top of the file says it all; each error follows.
        whole = f".. automodule:: {thing.__name__}\n   :members:\n   :show-inheritance:\n"
        return f"{whole}\n{CALLED.get(name, '')}"
    kind = "autoclass" if inspect.isclass(thing) else "autofunction"
    members = "   :members:\n" if kind == "autoclass" else ""
    return f".. py:currentmodule:: penstock\n\n.. {kind}:: {name}\n{members}"


def fill(app: Any, page: str, source: list[str]) -> None:
    """Add every public name to the reference."""
    if page != PAGE:
        return
    names = grouped()
    parts = [source[0]]
    for layer in [*GROUPS, *sorted(names.keys() - GROUPS.keys())]:
        if layer == "errors":
            parts.append(GIVEN_BACK)
        if layer in names:
            parts.append(f"## {GROUPS.get(layer, layer)}\n")
            ordered = sorted(names[layer], key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST))
            parts += [f"```{{eval-rst}}\n{described(name)}```\n" for name in ordered]
    source[0] = "\n".join(parts)


def setup(app: Any) -> dict[str, Any]:
    """Called by Sphinx."""
    for module, _ in penstock._HOMES.values():
        importlib.import_module(module)
    app.connect("source-read", fill)
    return {"parallel_read_safe": True}
