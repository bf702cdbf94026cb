"""What a verb has in its hands: the broker, and a way to show things to people or to programs.

People get tables and lines; with `--json` programs get one document, or a line for each record of a stream. What
comes from messages is shown with its control characters escaped: a value must not steer the terminal it is looked
at on.
"""

from __future__ import annotations

import contextlib
import os
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypeVar

from trine.cli.interrupts import Interrupted, interrupts
from trine.cli.safe import printable, safe_json
from trine.cli.target import Given, find_place, open_place
from trine.model.errors import TrineError

if TYPE_CHECKING:
    from rich.console import Console

    from trine import Broker

CELL_CHARS_MAX: Final = 120
"""Of a value in a table; `-o value` and `--json` show all of it."""

PIPE_COLUMNS: Final = 10_000
"""Tables in a pipe are not folded: programs read lines."""

COUNT_EVERY: Final = 1000
"""Items between two looks at how many they are."""

T = TypeVar("T")


class Reached(Protocol):
    """How far work is, and what is to be said beside the bar from now on."""

    def __call__(self, so_far: float, told: str | None = None) -> None: ...


Record = dict[str, Any]
Column = Callable[[Record], object]


class Session:
    def __init__(self, given: Given, *, makes: bool = False) -> None:
        self.given = given
        self.makes = makes
        self._broker: Broker | None = None
        self.json = given.json

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: types.TracebackType | None,
    ) -> None:
        if self._broker is not None:
            # A connection that is lost is not worth telling when something else went wrong first.
            with contextlib.suppress(*(() if error is None else (TrineError,))):
                self._broker.close()
        if error is None:
            self.flush()

    @property
    def broker(self) -> Broker:
        if self._broker is None:
            self._broker = open_place(find_place(self.given, os.environ), makes=self.makes)
            interrupts.check()
        return self._broker

    # --- to stdout

    def write(self, raw: bytes) -> None:
        with interrupts.waiting():
            sys.stdout.buffer.write(raw)

    def flush(self) -> None:
        with interrupts.waiting():
            sys.stdout.flush()

    def line(self, text: str) -> None:
        self.write(printable(text).encode() + b"\n")

    def text(self, text: str) -> None:
        """Lines that were laid out elsewhere."""
        for line in text.splitlines():
            self.line(line)

    def record(self, record: Mapping[str, Any]) -> None:
        """One line of a stream of JSON."""
        self.write(safe_json(record).encode() + b"\n")

    def document(self, document: object) -> None:
        self.write(safe_json(document, indent=2).encode() + b"\n")

    def listing(self, records: Sequence[Record], columns: Mapping[str, Column], *, none: str) -> None:
        """Records as a table with these columns, or as one JSON list. `none` is said when there are none."""
        if self.json:
            self.document(records)
        elif not records:
            self.note(none)
        else:
            self.table(list(columns), [[show(record) for show in columns.values()] for record in records])

    def table(self, heads: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
        for number, head in enumerate(heads):
            right = all(_is_number(row[number]) for row in rows)
            table.add_column(head, justify="right" if right else "left", overflow="fold")
        for row in rows:
            table.add_row(*(Text(cell(value)) for value in row))
        console = self._console()
        with console.capture() as captured:
            console.print(table)
        self.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()).encode())

    def fields(self, pairs: Mapping[str, object]) -> None:
        """Names and values, one a line."""
        wide = max(map(len, pairs))
        for name, value in pairs.items():
            self.line(f"{name:<{wide}}  {cell(value)}".rstrip())

    def done(self, sentence: str, **facts: Any) -> None:
        """What was done: a sentence for people, the facts for programs."""
        if self.json:
            self.document(facts)
        else:
            self.line(sentence)

    def _console(self) -> Console:
        from rich.console import Console

        # Rich looks at NO_COLOR, TERM and whether this is a terminal by itself.
        width = None if sys.stdout.isatty() else PIPE_COLUMNS
        return Console(file=sys.stdout, width=width, highlight=False, markup=False, emoji=False)

    # --- to stderr

    def note(self, sentence: str) -> None:
        """For people beside the output: it is not part of it."""
        with contextlib.suppress(Interrupted):  # the note may be about it; the next look raises it again
            self.flush()
        print(printable(sentence), file=sys.stderr, flush=True)

    @contextlib.contextmanager
    def progress(self, what: str, total: float | None) -> Iterator[Reached]:
        """A bar on stderr, if somebody looks and the end is known; gives a function that takes how far it is.

        Between two steps is also where work can be interrupted.
        """
        if total is None or not self.watched:
            yield lambda so_far, told=None: interrupts.check()
            return
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            Progress,
            SpinnerColumn,
            TaskProgressColumn,
            TextColumn,
            TimeRemainingColumn,
        )

        console = Console(file=sys.stderr)
        columns = (
            SpinnerColumn(),  # a step may take long: something moves
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TaskProgressColumn(),
            TimeRemainingColumn(),
        )
        with Progress(
            *columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False
        ) as bar:
            task = bar.add_task(what, total=total)

            def reached(so_far: float, told: str | None = None) -> None:
                interrupts.check()
                bar.update(task, completed=so_far, description=None if told is None else printable(told))

            yield reached

    @contextlib.contextmanager
    def status(self, what: str) -> Iterator[Callable[[str], None]]:
        """A line on stderr for work whose end is not known, if somebody looks; gives a function that says another.

        It goes away when the work is done. As between two steps of a bar, work can be interrupted when it is told.
        """
        if not self.watched:
            yield lambda told: interrupts.check()
            return
        from rich.console import Console
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            TimeElapsedColumn(),
        )
        with Progress(
            *columns,
            console=Console(file=sys.stderr),
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        ) as line:
            task = line.add_task(printable(what), total=None)

            def tell(told: str) -> None:
                interrupts.check()
                line.update(task, description=printable(told))

            yield tell

    def awaited(self, what: str, items: Iterable[T]) -> Iterator[T]:
        """Items on their way to the output: a line on stderr until the first one comes, and how many there were so far
        where the output itself is not to be seen."""
        with contextlib.ExitStack() as shown:
            tell = shown.enter_context(self.status(what))
            for number, item in enumerate(items, 1):
                if number == 1 and sys.stdout.isatty():
                    shown.close()
                elif number % COUNT_EVERY == 0:
                    tell(f"{what}: {number} so far")
                interrupts.check()
                yield item

    @property
    def watched(self) -> bool:
        """Whether somebody looks at stderr: only people look at bars."""
        return not self.json and sys.stderr.isatty()


def cell(value: object) -> str:
    """A value in a table: short, on one line, and without power over the terminal."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = printable(str(value))
    return text if len(text) <= CELL_CHARS_MAX else text[: CELL_CHARS_MAX - 1] + "…"


def counted(number: int, thing: str) -> str:
    """How many there are: `1 file`, `2 files`."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))
