"""The errors that a user can mend, each made from one message."""

import click


class PemandError(click.ClickException):
    """A fault in what the user gave us: shown as one message without a traceback, exit code 1."""


class TableError(PemandError):
    """Faults of one input file, all of them at once."""


class SettingsError(PemandError):
    """A scenario or recipe that does not say what to do."""


class ModelError(PemandError):
    """A language model that cannot be had, or that failed."""


class BudgetExhausted(PemandError):
    """The budget ended before every sampled household was heard; all that was done is kept."""

    exit_code = 3


class Stopped(PemandError):
    """Ctrl-C: what was answered is kept."""

    exit_code = 130


MOST = 40
"""How many problems of a file one message shows."""


def listed(problems: list[str], of: str) -> str:
    """Return one message that lists every problem of one file, each once."""
    problems = list(dict.fromkeys(problems))
    if len(problems) == 1:
        return f"{of}: {problems[0]}"
    shown = [f"  - {p}" for p in problems[:MOST]]
    if len(problems) > MOST:
        shown.append(f"  - and {len(problems) - MOST:,} more")
    return f"{of}: {len(problems):,} problems\n" + "\n".join(shown)
