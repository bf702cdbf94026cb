"""A broker at work, for a dashboard to look at: topics, groups that keep up and one that does not, dead letters, a
schedule.

    with Busy(url): …        topics are filled, and producers and consumers work until the end

Run by itself, `python -m tests.browser.busy`, it starts a server too and says where: to look at the dashboard by hand.
"""

from __future__ import annotations

import contextlib
import json
import random
import signal
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import trine
from tests.integration.serving import Serving
from trine.model.errors import Closed, TrineError, Unreachable

PACE_S = 0.1
"""Between two bursts of a producer: the pace of the load, which no test waits for."""
REASONS = ("card declined", "address unknown", "timeout talking to the bank", "amount is negative")
CUSTOMERS = ("ada", "grace", "linus", "barbara", "edsger", "margaret", "dennis", "radia")
LETTERS = 24


class Busy:
    """Fills a broker, and keeps it busy while the `with` lasts. A broker that goes away and returns is gone on with."""

    def __init__(self, url: str, key: str | None = None) -> None:
        self._url = url
        self._key = key
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self._dice = random.Random(6)
        self.failures: list[str] = []

    def __enter__(self) -> Self:
        with self._connected() as broker:
            self._make(broker)
            self._fill(broker)
        self._start("producer", self._produce)
        for number in (1, 2):
            self._start(f"worker-{number}", self._work("orders", "billing", f"worker-{number}", pause_s=0.0))
        self._start("shipper-1", self._work("orders", "shipping", "shipper-1", pause_s=0.02, fails=0.04))
        self._start("teller-1", self._work("payments", "payments", "teller-1", pause_s=0.0))
        self._start("counter-1", self._work("clicks", "analytics", "counter-1", pause_s=0.0))
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()
        assert not self.failures, self.failures

    def _connected(self) -> Any:
        return trine.connect(self._url, key=self._key) if self._key else trine.connect(self._url)

    def _start(self, name: str, work: Callable[[Any], None]) -> None:
        def run() -> None:
            try:
                with self._connected() as broker:
                    work(broker)
            except Exception as error:
                self.failures.append(f"{name}: {type(error).__name__}: {error}")

        thread = threading.Thread(target=run, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    # --- what there is

    def _make(self, broker: Any) -> None:
        broker.create_topic("orders", partitions=6)
        broker.create_queue("payments", partitions=3)
        broker.create_topic("clicks", partitions=4, durability="written")
        broker.create_topic("sensors", partitions=2, retention="1d")
        broker.create_topic("emails", partitions=2)
        broker.create_topic("returns", partitions=1, compact=True)
        broker.topic("orders").create_group("billing")
        broker.topic("orders").create_group("shipping", max_deliveries=2, backoff={"first": "200ms"})
        broker.topic("orders").create_group("audit")
        broker.topic("clicks").create_group("analytics")
        broker.topic("emails").create_group("mailer")

    def _fill(self, broker: Any) -> None:
        orders = broker.topic("orders")
        orders.publish_many([self._order(number) for number in range(300)])
        audit = orders.group("audit")
        with audit.consumer("auditor-1") as consumer:
            for message in consumer.receive(max=40, wait="5s"):
                message.ack()
        audit.pause("the auditors look at June first")
        self._bury(broker)
        broker.topic("sensors").publish_many(
            [
                {"value": bytes(self._dice.randrange(256) for _ in range(96)), "key": f"sensor-{n % 5}"}
                for n in range(40)
            ]
        )
        emails = broker.topic("emails")
        for number in range(70):
            minutes = int(self._dice.triangular(1, 1400, 500))
            emails.publish(
                json.dumps({"to": self._dice.choice(CUSTOMERS), "mail": "reminder", "number": number}),
                delay=f"{minutes}m",
                key=self._dice.choice(CUSTOMERS),
            )
        broker.create_cron(
            "nightly-sweep", topic="emails", expression="0 3 * * *", value="sweep", timezone="Europe/Berlin"
        )
        broker.create_cron("pulse", topic="sensors", expression="@hourly", value="beat")

    def _bury(self, broker: Any) -> None:
        """Some dead letters that nothing but a test will touch."""
        returns = broker.topic("returns")
        returns.publish_many(
            [
                {
                    "value": json.dumps({"return": n, "of": f"orders/{n % 6}/{n}"}),
                    "key": self._dice.choice(CUSTOMERS),
                }
                for n in range(LETTERS)
            ]
        )
        with returns.group("refunds").consumer("refunder-1") as consumer:
            left = LETTERS
            while left:
                for message in consumer.receive(max=LETTERS, wait="5s"):
                    message.reject(REASONS[message.offset % len(REASONS)])
                    left -= 1

    def _order(self, number: int) -> dict[str, Any]:
        customer = self._dice.choice(CUSTOMERS)
        value = {
            "order": number,
            "customer": customer,
            "amount": {"value": round(self._dice.uniform(5, 400), 2), "currency": "EUR"},
            "items": [
                {"sku": f"SKU-{self._dice.randrange(9999):04}", "count": self._dice.randrange(1, 4)}
                for _ in range(2)
            ],
        }
        lane = self._dice.choices(["high", "normal", "low"], [1, 6, 2])[0]
        return {
            "value": json.dumps(value),
            "key": customer,
            "priority": lane,
            "headers": {"source": "shop", "version": "2"},
        }

    # --- who works

    def _produce(self, broker: Any) -> None:
        orders, payments, clicks = (broker.topic(name) for name in ("orders", "payments", "clicks"))
        number = 1000
        while not self._over.wait(PACE_S):
            number += 1
            with contextlib.suppress(Unreachable):  # a test may have stopped the broker for a moment
                orders.publish_many([self._order(number) for _ in range(self._dice.randrange(2, 5))])
                clicks.publish_many(
                    [
                        {
                            "value": f'{{"page": "/p/{self._dice.randrange(50)}"}}',
                            "key": f"v{self._dice.randrange(90)}",
                        }
                        for _ in range(25)
                    ]
                )
                if number % 3 == 0:
                    payments.publish(
                        json.dumps({"payment": number, "of": self._dice.choice(CUSTOMERS)}),
                        key=f"p{number % 7}",
                    )

    def _work(
        self, topic: str, group: str, member: str, *, pause_s: float, fails: float = 0.0
    ) -> Callable[[Any], None]:
        dice = random.Random(member)

        def work(broker: Any) -> None:
            with broker.topic(topic).group(group).consumer(member) as consumer:
                while not self._over.is_set():
                    try:
                        for message in consumer.receive(max=20, wait="300ms"):
                            if pause_s and self._over.wait(pause_s):
                                return
                            if dice.random() < fails:
                                message.nack(reason=dice.choice(REASONS))
                            else:
                                message.ack()
                    except (Unreachable, Closed):
                        if self._over.wait(PACE_S):
                            return
                    except TrineError as error:
                        if error.code not in ("stale_receipt", "lease_expired"):
                            raise

        return work


def main() -> None:
    over = threading.Event()
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, lambda *_: over.set())
    with tempfile.TemporaryDirectory() as folder, Serving(Path(folder) / "data") as server:
        print(f"{server.http_url}/  {server.url}", flush=True)  # noqa: T201
        with Busy(server.url):
            over.wait()


if __name__ == "__main__":
    main()
