"""Streams of changes of a view that is open: each runs, or is known to have stopped."""

from typing import Any

import pytest

from penstock.errors import ViewDamaged
from penstock.spark.views import opening
from penstock.spark.views.opening import Opened
from penstock.spark.views.store import Store


class Query:
    """A query of Spark, as far as a view looks at one."""

    isActive = True  # noqa: N815

    def stop(self) -> None:
        self.isActive = False

    def exception(self) -> None:
        return None


class Service:
    def close(self) -> None:
        pass


def test_a_stream_that_is_refused_leaves_no_other_behind(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: dict[str, list[Query]] = {"a": [], "b": []}
    lost = True

    def follow(stream: str, *_: object) -> Query:
        if stream == "b" and lost:
            raise ViewDamaged("The checkpoint is lost.")
        begun[stream].append(Query())
        return begun[stream][-1]

    monkeypatch.setattr(opening, "follow", follow)
    streams: Any = {"a": "a", "b": "b"}
    view = Opened(None, Store(tmp_path), Service(), streams, {})  # type: ignore[arg-type]
    with pytest.raises(ViewDamaged):
        view.follow()
    lost = False
    view.follow()
    assert [len(begun["a"]), len(begun["b"])] == [1, 1], "the one that runs goes on, and the other is begun"
    begun["a"][0].isActive = False
    view.follow()
    assert [len(begun["a"]), len(begun["b"])] == [2, 1], "one that stopped is begun again"
    view.close()
    assert not any(query.isActive for queries in begun.values() for query in queries)
