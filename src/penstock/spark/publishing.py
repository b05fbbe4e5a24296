"""A flow of subscriptions published to a broker, every message once, whatever is killed when."""

from __future__ import annotations

import contextlib
import shutil
import warnings
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.broker.messages import Kind
from penstock.broker.portal import Portal
from penstock.broker.publisher import Publisher
from penstock.broker.subjects import check_name
from penstock.errors import BadOption, BrokerUnreachable
from penstock.kernels.contract import RESULTS, SET_ASIDE
from penstock.kernels.subscriptions.select_join import LEFT_RIGHT
from penstock.plan.given import kind_of
from penstock.plan.select_join_subscriptions import SelectJoinPlan
from penstock.plan.subscriptions import SubscriptionsPlan
from penstock.plan.units import parse_count
from penstock.spark.agreement import check_agreement
from penstock.spark.checkpoint import Checkpoint
from penstock.spark.crash import crash_point
from penstock.spark.flow import Flow, check_side_by_side
from penstock.spark.running import Running
from penstock.spark.sink import Ledger, claiming, commit, staging
from penstock.spark.trigger import check_trigger
from penstock.tables.places import place_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame


class Publishing(Running):
    """A started flow whose messages go to a broker. While the broker is down it waits, and `progress()` says so."""

    def __init__(self, flow: Flow, checkpoint: Checkpoint, publisher: Publisher, ledgers: Mapping[str, Ledger]) -> None:
        super().__init__(flow, checkpoint)
        self.publisher = publisher
        self.ledgers = ledgers
        #: Where workers stage messages on their way to the driver.
        self.place = checkpoint.path / "messages"
        self._portal = Portal()
        self._waiting = ""

    def publish(self, batch: DataFrame, number: int) -> None:
        """One micro-batch, as Spark hands it over: files that the workers staged."""
        self.hold_if_stopping()
        crash_point("before-sink")
        self.check_source(number)
        written = batch.collect()
        self.check_source(number)
        files = [staging(self.place) / row["file"] for row in written if row["channel"] == RESULTS]
        schema = self.flow._channels[RESULTS]
        messages = pa.concat_tables([schema.empty_table(), *(pq.read_table(file).cast(schema) for file in files)])
        work = self.publisher.publish(number, messages, waiting=self._wait_for, stopping=self._stopping.is_set)
        try:
            self._portal.run(work)
        except BrokerUnreachable:
            self.hold_if_stopping()
            raise
        self._waiting = ""
        # What could not be used is committed after the messages: both are idempotent, so a crash between the two is
        # made good by the repetition.
        commit(self.ledgers, number, written)
        shutil.rmtree(staging(self.place), ignore_errors=True)
        crash_point("after-sink")

    def _wait_for(self, text: str) -> None:
        if not self._waiting:
            warnings.warn(text, stacklevel=2)
        self._waiting = text

    def _wait(self, seconds: float | None) -> bool:
        try:
            ended = super()._wait(seconds)
        except BaseException:
            self._leave()
            raise
        if ended:
            self._leave()
        return ended

    def stop(self, patience: float = 60.0) -> None:
        """As `Running.stop`."""
        super().stop(patience)
        self._leave()

    def progress(self) -> dict[str, Any]:
        """As `Running.progress`; among the notes, that the broker is waited for."""
        said = super().progress()
        return said | {"notes": [*said["notes"], *([self._waiting] if self._waiting else [])]}

    def _leave(self) -> None:
        with contextlib.suppress(Exception):
            self._portal.run(self.publisher.close(), 5)
        self._portal.close()


def publish(
    flow: Flow,
    *,
    to: str,
    name: str,
    checkpoint: str,
    set_aside: str | None = None,
    trigger: Mapping[str, Any] | None = None,
    crowd: int = 10_000,
    keep_seconds: float = 86_400.0,
) -> Publishing:
    """Start a flow of `Subscriptions` that publishes to NATS.

    Guarantees
        Every message is on the broker once for each cell that it touches, in order, also after crashes and while the
        broker is down: `test_subscribers_are_told_through_spark_and_the_broker`.
    State and cost
        That of the flow; messages pass the driver as files, then as one frame for each cell that a micro-batch touches.

    Parameters
        to: the broker, "nats://host:4222".
        name: of these messages, for gateways to find them.
        checkpoint: as for any query; start again with the same one to go on.
        set_aside: a directory for updates that could not be used, as Parquet, each once.
        trigger: as for `flow.start`.
        crowd: a cell with more subscribers than this is split where that spares a gateway something.
        keep_seconds: how long the broker keeps messages for gateways that were away; it may be another at a restart.

    Example::

        flow = ps.Subscriptions(quotes, x="risk", y="per", key="symbol", order="at")
        running = ps.publish(flow, to="nats://localhost:4222", name="stocks", checkpoint="ck/", set_aside="aside/")
    """
    check_trigger(trigger)
    if not isinstance(flow, Flow):
        raise BadOption(
            f"There is nothing to publish: this is {kind_of(flow)}.", do="Give a flow: ps.Subscriptions(…)."
        )
    given: object = to
    if not isinstance(given, str) or not given:
        raise BadOption(f"to={to!r} is not the address of a broker.", do='Give one: to="nats://localhost:4222".')
    parse_count(crowd, option="crowd")
    plan = flow._plan
    if plan.name != SubscriptionsPlan.name:
        raise BadOption(f"A flow of {plan.name} has no messages to publish.", do="Publish a flow of Subscriptions.")
    assert isinstance(plan, SubscriptionsPlan | SelectJoinPlan)
    if set_aside is None:
        warnings.warn(
            "Rows on channel set_aside are counted but not kept; give a directory to keep them.", stacklevel=2
        )
    check_name(name)
    places = {} if set_aside is None else {SET_ASIDE: set_aside}
    check_side_by_side({**places, "checkpoint": checkpoint})
    held = Checkpoint(checkpoint, plan)
    try:
        publisher = Publisher(to, name, _kind(plan), crowd=crowd, keep_seconds=keep_seconds, owner=held.id)
        ledgers = {
            channel: Ledger(place_of(place, channel), held.id, flow._channels[channel], held.path)
            for channel, place in places.items()
        }
        with claiming(ledgers.values()):
            check_agreement(held, plan, ledgers)
            running = Publishing(flow, held, publisher, ledgers)
            running.note_partitions()

            def write(batch: DataFrame, number: int) -> None:
                running.publish(batch, number)

            staged = {channel: str(ledger.place) for channel, ledger in ledgers.items()} | {RESULTS: str(running.place)}
            writer = flow._files(staged).writeStream.foreachBatch(write).option("checkpointLocation", str(held.path))
            writer = writer.trigger(**trigger) if trigger else writer
            running.query = writer.start()
    except BaseException:
        held.close()
        raise
    return running


def _kind(plan: SubscriptionsPlan | SelectJoinPlan) -> Kind:
    """What is subscribed to."""
    schema = plan.channels[RESULTS]
    columns = plan.columns[0] if isinstance(plan, SelectJoinPlan) else plan.columns
    parts = pa.schema([pa.field(name, schema.field(name).type) for name in columns.partition_by])
    if isinstance(plan, SelectJoinPlan):
        sides = zip(LEFT_RIGHT, plan.columns, strict=True)
        keys = [f"{side}_{name}" for side, columns in sides for name in columns.key]
        return Kind.of_pairs(schema, keys, parts)
    news = "value" if "value" in schema.names else "added"
    second = None if plan.columns.x2 is None else schema.field("inner_bottom").type
    return Kind(plan.agg, schema.field("inner_left").type, schema.field(news).type, x2=second, partition_by=parts)
