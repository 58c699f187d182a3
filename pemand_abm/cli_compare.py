"""`pemand compare`: what policies change, and how much one scenario varies over seeds."""

from __future__ import annotations

from pathlib import Path

import click

from pemand_abm.cli_options import FOLDER, say

RATES = Path("synthpop/rates")


@click.command()
@click.argument("base", type=FOLDER)
@click.argument("policies", metavar="POLICY", type=FOLDER, nargs=-1, required=True)
@click.option("--out", type=FOLDER, help="Where to write; outputs/compare_BASE_POLICY by default.")
@click.option(
    "--rates",
    type=FOLDER,
    help="The folder with responses.csv, published elasticities; synthpop/rates by default, where "
    "it is there.",
)
@click.option(
    "--placebo",
    type=FOLDER,
    help="A run of the base with an announcement that is none of the households' business: what it "
    "does to their answers is taken off the negotiated effects.",
)
@click.option(
    "--seeds",
    is_flag=True,
    help="The folders are runs of one scenario with several seeds: print and write their spread.",
)
def compare(
    base: Path,
    policies: tuple[Path, ...],
    out: Path | None,
    rates: Path | None,
    placebo: Path | None,
    seeds: bool,
) -> None:
    """Compare the run in BASE with the run in each POLICY, on the same households.

    Writes tables, a map, matrices and a page of differences, and prints the region's.
    """
    if seeds:
        for name, given in (("--rates", rates), ("--placebo", placebo)):
            if given:
                raise click.UsageError(f"{name}: of no use beside --seeds; leave it out")
        _spread([base, *policies], out)
    else:
        _compare(base, policies, out, rates, placebo)


def _compare(
    base: Path,
    policies: tuple[Path, ...],
    out: Path | None,
    rates: Path | None,
    placebo: Path | None,
) -> None:
    from pemand_abm import comparison, responses
    from pemand_abm.comparison_page import summary_text, write_page
    from pemand_abm.study import check_writable
    from pemand_abm.tables import staging, write_csv

    names = [Path(policy).resolve().name for policy in policies]
    if len({*names}) < len(names):
        raise click.UsageError("two policies have folders of the same name; rename one")
    first = Path(base).resolve().name
    places = [_place(out, first, name, len(names) > 1) for name in names]
    if runs := [str(place) for place in places if (place / "run.yaml").exists()]:
        raise click.UsageError(
            f"--out: {', '.join(runs)} holds a run; name another folder for the comparison"
        )
    for place in places:
        check_writable(place)
    given = rates or (RATES if (RATES / responses.FILE).exists() else None)
    published = responses.read_responses(given) if given else None
    found = []
    for policy, place in zip(policies, places, strict=True):
        say(f"Comparing {policy} with {base}")
        one = comparison.compare(base, policy, published, placebo)
        with staging(place, "compare.yaml", stale=comparison.SIDECARS) as made:
            comparison.write_comparison(one, made)
            write_page(one, made)
        found.append(one)
    click.echo(summary_text(found))
    for place in places:
        click.echo(f"open {place / 'compare.html'}; differences.gpkg and the tables are beside it")
    if len(found) > 1:
        table = comparison.summary(found).set_index("policy_folder")
        place = (out or Path("outputs") / f"compare_{first}") / "summary.csv"
        write_csv(table, place)
        click.echo(f"all policies in one table: {place}")


def _place(out: Path | None, base: str, policy: str, several: bool) -> Path:
    if out is None:
        return Path("outputs") / f"compare_{base}_{policy}"
    return out / policy if several else out


def _spread(folders: list[Path], out: Path | None) -> None:
    from pemand_abm.spread import COLUMNS, spread_over_seeds
    from pemand_abm.tables import write_csv

    table = spread_over_seeds(folders)
    place = (out or Path("outputs") / f"seeds_{Path(folders[0]).resolve().name}") / "seeds.csv"
    write_csv(table, place)
    click.echo(table[list(COLUMNS)].to_string(float_format="{:,.2f}".format))
    click.echo(f"wrote {place}, with a column a seed")
