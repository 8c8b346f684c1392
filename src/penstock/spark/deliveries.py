"""All sinks of a pipeline, each delivered to on its own: one that fails or waits never stops another."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.config.model import Config
from penstock.delivery.import_delivery import ImportDelivery
from penstock.error_policy import Verdict, policy_for
from penstock.errors import PenstockError, SparkLost
from penstock.imports.copier import Unfinished
from penstock.imports.copying import CopierTask
from penstock.lsn import LSN, ZERO
from penstock.process import step_back
from penstock.retry import Backoff, interval
from penstock.rules.checks.earlier_rules import tell_of_other_rules
from penstock.rules.passage import NO_RULES, Passage
from penstock.sinks.contract import Sink
from penstock.spark.delivery import SinkDelivery
from penstock.spark.frame_check import refuse_unfit_frames
from penstock.spark.imports import copied, import_delivery
from penstock.spark.session import close_session, open_session
from penstock.state.pipeline_state import PipelineState

logger = logging.getLogger(__name__)

_LOOK_SECONDS = 0.05
_ADVANCE_SECONDS = interval(10.0)
_PATIENCE_SECONDS = 20.0
_FAULT_SECONDS = 5.0


class Deliveries:
    """``copies``: tables wait for their imports, which are committed here as well."""

    def __init__(
        self,
        spark: SparkSession,
        sinks: Sequence[Sink[Any, Any]],
        state: PipelineState,
        copies: bool = False,
        rules: Passage = NO_RULES,
    ) -> None:
        self._spark, self._state = spark, state
        deliveries = [(SinkDelivery(spark, sink, state, copies, rules), sink) for sink in sinks]
        self._running = [
            _Running(delivery, sink, import_delivery(spark, sink, state, delivery) if copies else None)
            for delivery, sink in deliveries
        ]

    def run(
        self,
        stop: threading.Event,
        until: LSN | None = None,
        available_now: bool = False,
        unfinished: Unfinished = lambda given_up: False,
    ) -> None:
        """Until ``stop``, or until every sink holds everything up to ``until``, or all that the log has now.

        Not before whatever is ``unfinished`` is finished. Raises the error of a sink that gave up, once no other sink has
        anything left to do.
        """
        try:
            while not stop.is_set() and not all(sink.ended for sink in self._running):
                going_on = unfinished([sink.name for sink in self._running if sink.failed is not None])
                for sink in self._running:
                    sink.look(available_now)
                    if not available_now:
                        self._advance(sink, None if going_on else until)
                stop.wait(_LOOK_SECONDS)
        finally:
            for sink in self._running:
                sink.stop()
        for sink in self._running:
            if sink.failed is not None:
                raise sink.failed

    def _advance(self, sink: _Running, until: LSN | None) -> None:
        """Past WAL that held nothing for us, so that the source may let go of it; at once when a goal is waited for."""
        if sink.ended or (until is None and time.monotonic() < sink.next_advance):
            return
        sink.next_advance = time.monotonic() + _ADVANCE_SECONDS
        captured, position = self._state.capture(), sink.delivery.position
        nothing_yet = captured is not None and position is None and captured.log_end == captured.begin
        holds_the_log = nothing_yet or (captured is not None and position is not None and position >= captured.log_end)
        if captured is not None and holds_the_log and sink.started:
            sink.guarded(lambda: sink.delivery.advance(captured.position))
        if until is not None and (sink.delivery.position or ZERO) >= until:
            sink.done = True


class _Running:
    """One sink: its query while there is one, and the wait before the next try."""

    def __init__(self, delivery: SinkDelivery, sink: Sink[Any, Any], imports: ImportDelivery | None) -> None:
        self.delivery, self._sink, self._imports = delivery, sink, imports
        self._importing: threading.Thread | None = None
        self._end = threading.Event()
        self.name = sink.settings.name
        self.done = False
        self.failed: PenstockError | None = None
        self.next_advance = 0.0
        self._query: StreamingQuery | None = None
        self._backoff = Backoff()
        self._next_try = 0.0
        self._begun_with = delivery.position

    @property
    def started(self) -> bool:
        """The sink is prepared and its query runs."""
        return self._query is not None

    @property
    def ended(self) -> bool:
        return self.done or self.failed is not None

    def look(self, available_now: bool) -> None:
        if self.ended or time.monotonic() < self._next_try:
            return
        if self._query is None:
            self.guarded(lambda: self._start(available_now))
        elif not self._query.isActive:
            query, self._query = self._query, None
            self.done = self._ended_well(query, available_now)
        elif self.delivery.position != self._begun_with:
            self._backoff.reset()

    def _start(self, available_now: bool) -> None:
        self._query = self.delivery.start(available_now)
        self._begun_with = self.delivery.position
        if self._imports is not None and self._importing is None:  # not before the sink was prepared
            name = f"imports of {self._sink.settings.name}"
            self._importing = threading.Thread(target=self._commit_imports, name=name, daemon=True)
            self._importing.start()

    def _commit_imports(self) -> None:
        assert self._imports is not None
        if self._sink.capabilities.imports_beside:
            step_back()  # otherwise the stream would wait for us to end what we do
        while not self._end.is_set() and self.failed is None:
            try:
                did_something = self._imports.step()
            except (PenstockError, Py4JError, ConnectionError) as error:
                logger.debug(
                    "While looking for imports: %s", error
                )  # the state's disk or the JVM, which the query tells of
                did_something = False
            if not did_something:
                self._end.wait(_LOOK_SECONDS)

    def _ended_well(self, query: StreamingQuery, available_now: bool) -> bool:
        """It holds all that there was. One that is to go on for ever does not end well, whatever Spark says of it."""
        try:
            failure = query.exception()
        except Py4JError as error:
            raise SparkLost("The Java process of Spark is gone.") from error
        if failure is None and available_now and not self.delivery.gave_up:
            return True
        self._give_up_or_wait(self.delivery.diagnose(failure or SparkLost("its query ended without a reason.")))
        return False

    def guarded(self, action: Callable[[], None]) -> None:
        try:
            action()
        except PenstockError as error:
            self._give_up_or_wait(error)
        except PySparkException as error:
            self._give_up_or_wait(self.delivery.diagnose(error))

    def _give_up_or_wait(self, error: PenstockError) -> None:
        policy = policy_for(error)
        name = self._sink.settings.name
        self._stop_query()  # an error may also come from beside it, and the next try begins with the sink's own record
        if policy.verdict is Verdict.STOP:
            self.failed = error
            self.delivery.note_error("failed", error)
            trace = error if logger.isEnabledFor(logging.DEBUG) else None
            logger.error('Sink "%s" stopped: %s %s', name, error, policy.advice, exc_info=trace)
            error.told = True
            return
        delay = min(next(self._backoff), policy.longest_wait)
        self._next_try = time.monotonic() + delay
        self.delivery.note_error("retrying", error)
        logger.warning('Sink "%s": %s %s Next try in %.1f s.', name, error, policy.advice, delay)

    def _stop_query(self) -> None:
        query, self._query = self._query, None
        if query is not None:
            try:
                query.stop()
            except (Py4JError, PySparkException) as error:
                logger.debug("While stopping: %s", error)

    def stop(self) -> None:
        """Abandons or finishes the batch under way."""
        self._end.set()
        self._stop_query()
        if self._importing is not None:
            self._importing.join(_PATIENCE_SECONDS)
        self.delivery.settle()
        if self.failed is None:
            self.delivery.note_stopped()
        self._sink.close()


def deliver(
    config: Config,
    sinks: Sequence[Sink[Any, Any]],
    state: PipelineState,
    stop: threading.Event,
    until: LSN | None = None,
    available_now: bool = False,
    copying: CopierTask | None = None,
) -> None:
    """Opens a Spark session, delivers, and closes it again. ``copying``: and copies tables."""
    with state.exclusive([sink.settings.name for sink in sinks]), _spark(config, sinks, state, stop) as spark:
        if spark is None:
            return
        logger.info("Delivering to %s.", ", ".join(sink.settings.name for sink in sinks))
        rules = Passage(config.rules)
        deliveries = Deliveries(spark, sinks, state, config.source.copies, rules)
        refuse_unfit_frames(config, rules)
        tell_of_other_rules(config.rules, state, [sink.settings.name for sink in sinks])
        with copied(spark, config, sinks, state, copying) as unfinished:
            deliveries.run(stop, until, available_now, unfinished)


def copy(
    config: Config, sinks: Sequence[Sink[Any, Any]], state: PipelineState, stop: threading.Event, copying: CopierTask
) -> None:
    """Opens a Spark session, copies tables for a delivery that runs elsewhere, and closes it again."""
    with _spark(config, sinks, state, stop) as spark:
        if spark is None:
            return
        with copied(spark, config, sinks, state, copying) as unfinished:
            while not stop.is_set() and unfinished(()):
                stop.wait(_LOOK_SECONDS)


@contextmanager
def _spark(
    config: Config, sinks: Sequence[Sink[Any, Any]], state: PipelineState, stop: threading.Event
) -> Iterator[SparkSession | None]:
    logger.info("Starting Spark (%s).", config.spark.master)
    modules = [type(sink).__module__ for sink in sinks]
    spark = _open_unless_stopped(_with_warehouse(config, state), modules, state.root.is_local, stop)
    if spark is None:
        yield None
        return
    try:
        yield spark
    except (Py4JError, ConnectionError) as error:
        raise SparkLost("The Java process of Spark is gone.") from error
    finally:
        close_session(spark)


def _with_warehouse(config: Config, state: PipelineState) -> Config:
    """Spark makes an empty directory for tables when it first runs a query: not where the command happens to be run."""
    if not state.root.is_local or not any(rule.in_frame for rule in config.rules):
        return config
    place = state.root.child("staging/.warehouse")
    place.create()
    conf = {"spark.sql.warehouse.dir": place.path, **config.spark.conf}
    return config.model_copy(update={"spark": config.spark.model_copy(update={"conf": conf})})


def _open_unless_stopped(
    config: Config, sink_modules: Sequence[str], local_state: bool, stop: threading.Event
) -> SparkSession | None:
    """None if ``stop`` came first: a JVM takes seconds to start, and until then there is nothing to end in good order."""
    outcome: list[SparkSession | BaseException] = []

    def work() -> None:
        try:
            session = open_session(config.spark, local_state, config.copying_workers, sink_modules)
        except BaseException as error:  # noqa: BLE001  raised by the thread that waits for us
            outcome.append(error)
            return
        outcome.append(session)
        if stop.is_set():
            close_session(session)

    thread = threading.Thread(target=work, name="open Spark", daemon=True)
    thread.start()
    while thread.is_alive() and not stop.is_set():
        thread.join(_LOOK_SECONDS)
    if stop.is_set():
        return None
    if isinstance(outcome[0], BaseException):
        raise outcome[0]
    return outcome[0]
