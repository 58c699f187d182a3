"""Progress of a run's requests on standard error: calls, rate, tokens, time left.

A terminal gets a bar; a file or a pipe gets a plain line every ten seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from rich.console import Console
from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from pemand_abm.dialogue import Model, Reply, Request

SECONDS_BETWEEN_LINES = 10.0


class Progress:
    """A model that shows what goes through it; a context manager, to leave the terminal as it was.

    Parameters
    ----------
    model : Model
        Who answers. Where it counts what it `replayed` (a Journal does), those leave the rate.
    console : Console, optional
        Where to show; standard error by default.
    clock : callable, optional
        Seconds.

    Attributes
    ----------
    calls, tokens : int
        Replies so far, and their tokens of prompt and reply together, remembered ones included.
    """

    def __init__(
        self,
        model: Model,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._model, self._clock = model, clock
        self.identity = model.identity
        self.calls = self.tokens = 0
        self._expected: int | None = None
        self._console = console or Console(stderr=True)
        self._started: float | None = None
        self._said = 0.0
        self._bar = Bar(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[figures]}", markup=False),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
        )
        self._task = self._bar.add_task("", total=None, figures="")
        self._what = ""

    def expect(self, total: int | None) -> None:
        """Say how many calls there will be in all, where that is known; it may be said anew."""
        self._expected = total

    def complete(self, requests: Sequence[Request]) -> Iterator[tuple[int, Reply]]:
        """Yield what the model yields, and show it."""
        if requests:
            self._start(requests[0])
        try:
            for position, reply in self._model.complete(requests):
                self.calls += 1
                self.tokens += reply.prompt_tokens + reply.completion_tokens
                self._show(requests[position])
                yield position, reply
        except BaseException:
            self._stop()
            raise

    def close(self) -> None:
        """End the display with one line that sums up, and close the model if it can be closed."""
        self._stop()
        if self.calls:
            self._print(self.figures())
        if close := getattr(self._model, "close", None):
            close()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def calls_a_minute(self) -> float:
        """The rate at which the model answers, over its time so far; 0 before its first reply."""
        asked = self._asked()
        if self._started is None or asked == 0:
            return 0.0
        return 60.0 * asked / max(self._clock() - self._started, 1e-3)

    @property
    def seconds_left(self) -> float | None:
        """The time to the expected total at this rate; None where either is unknown."""
        rate = self.calls_a_minute
        if self._expected is None or rate == 0.0:
            return None
        return max(0, self._expected - self.calls) * 60.0 / rate

    def figures(self) -> str:
        """Return the figures: ``12 of 160 calls, 32 a minute, 4,572 tokens, 4 min 38 s left``."""
        of = f" of {self._expected}" if self._expected is not None else ""
        parts = [f"{self.calls}{of} calls"]
        if rate := self.calls_a_minute:
            parts.append(f"{rate:.0f} a minute")
        if replayed := self.replayed:
            parts.append(f"{replayed} from the journal")
        parts.append(f"{self.tokens:,} tokens")
        if left := self.seconds_left:
            parts.append(f"{_spoken(left)} left")
        return ", ".join(parts)

    def _start(self, request: Request) -> None:
        if self._started is None:
            self._started = self._said = self._clock()
        self._what = ", ".join(request.label)
        if self._console.is_terminal:
            self._bar.start()
            self._update()

    def _stop(self) -> None:
        if self._console.is_terminal:
            self._bar.stop()

    def _show(self, request: Request) -> None:
        self._what = ", ".join(request.label)
        if self._console.is_terminal:
            self._update()
        elif self._clock() - self._said >= SECONDS_BETWEEN_LINES:
            self._said = self._clock()
            self._print(f"{self.figures()}: {self._what}")

    def _update(self) -> None:
        self._bar.update(
            self._task,
            description=self._what,
            completed=self.calls,
            total=self._expected,
            figures=self.figures(),
        )

    def _print(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    @property
    def replayed(self) -> int:
        """How many of the replies were remembered ones."""
        return getattr(self._model, "replayed", 0)

    def _asked(self) -> int:
        return self.calls - self.replayed


def _spoken(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
