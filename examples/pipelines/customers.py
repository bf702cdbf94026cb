"""How many orders each customer has made so far: a pipeline in Python, with state.

trine topic create orders; trine topic create orders.seen
trine pipeline run customers.py --follow
"""

import pandas as pd

from trine.spark.pipelines import Pipeline

pipeline = Pipeline()
pipeline.variable("floor", 0)
pipeline.source("orders", topic="orders", json="id BIGINT, customer STRING, amount DOUBLE")
pipeline.sql("worth", "SELECT * FROM orders WHERE amount >= ${floor}")


@pipeline.step(
    input="worth",
    schema="customer STRING, orders BIGINT",
    state={"key": "customer", "schema": "orders BIGINT"},
    mode="update",
)
def seen(key, batches, state):
    """Called for each customer with new orders; what is put into `state` is there the next time."""
    before = state.get[0] if state.exists else 0
    now = before + sum(len(batch) for batch in batches)
    state.update((now,))
    yield pd.DataFrame({"customer": [key[0]], "orders": [now]})


pipeline.sink("seen", topic="orders.seen", key="customer", mode="update")
