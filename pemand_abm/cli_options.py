"""What several commands share: types of options, and how a command speaks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from pemand_abm.errors import Stopped

AGAIN = "Run the same command again to go on."


class Commands(click.Group):
    """Commands that Ctrl-C ends, wherever it falls, as docs/howto-stopped-run.md says."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Stopped(f"stopped. {AGAIN}") from None


@contextmanager
def keeping(journal: Path) -> Iterator[None]:
    """Say, where Ctrl-C ends the block, in which *journal* the answers are kept."""
    try:
        yield
    except KeyboardInterrupt:
        raise Stopped(f"stopped; what was answered is in {journal}. {AGAIN}") from None


class Folder(click.Path):
    """A folder's path; an empty text, as of an unset shell variable, is an error."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("the name of the folder is empty", param, ctx)
        return super().convert(value, param, ctx)


FOLDER = Folder(path_type=Path, file_okay=False)
FILE = click.Path(path_type=Path, dir_okay=False)


REMOTE = click.Choice(["refuse", "allow"])
REMOTE_HELP = "Whether households' data may go to a model on another machine (docs/privacy.md)"


def say(text: str) -> None:
    """Tell the user what happens, on standard error."""
    click.echo(text, err=True)
