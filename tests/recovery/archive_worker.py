"""Archives a topic and is killed on the way, at the place it is told: a process of its own, for test_archive_kill.py.

python archive_worker.py URL PATH TOPIC before-commit|after-commit|never
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from trine.spark.archive import archive
from trine.spark.delta import Table
from trine.spark.place import Place
from trine.spark.session import spark_session


def main(url: str, path: str, topic: str, when: str) -> None:
    commit = Table.commit
    rounds = 0

    def killed(self: Table, *words: Any) -> int:
        nonlocal rounds
        rounds += 1
        if when == "before-commit" and rounds == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        version = commit(self, *words)
        if when == "after-commit" and rounds == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return version

    Table.commit = killed  # type: ignore[method-assign]
    spark = spark_session("local[2]", conf={"spark.driver.memory": "512m"})
    archive(spark, Place(url), [topic], path, max_offsets=20_000)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
