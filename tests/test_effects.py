"""A policy's effect by published figures and by negotiation: laws on runs whose answers are known."""

import shutil

import numpy as np
import pandas as pd
import pytest
import yaml
from test_run import pemand, run, write_study

from pemand_abm.comparison import compare
from pemand_abm.comparison_page import effect_words, effects_table, write_page
from pemand_abm.effects import NET, REGION
from pemand_abm.errors import PemandError
from pemand_abm.responses import read_responses
from pemand_abm.surrogate import PURPOSES

CARDS = [{"card": kind, "passed": True} for kind in ("level", "response")]
NUMBERS = ["effect_published", "effect_negotiated", "effect_used"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The folders of a base, of dearer fuel, of a price as it is, and of a placebo; all negotiate."""
    folder = tmp_path_factory.mktemp("runs")
    scenario = write_study(
        folder, households=(60, 40, 30), negotiate={"trips": "all", "relocation": 0}
    )
    held = yaml.safe_load(scenario.read_text())
    run(scenario, folder / "base")
    placebo = {"announcement": {"text": "The street signs get new lettering."}}
    for name, levers in (
        ("policy", {"fuel_price": {"percent": 100}}),
        ("null", {"fuel_price": {"percent": 0}}),
        ("placebo", placebo),
    ):
        path = folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump(held | {"levers": levers}))
        run(path, folder / name)
    return folder


def settled(runs, folder, name, answer, asked=None, **keys):
    """Copy a run whose households settle on *answer* of their rows; those not *asked* do not."""
    place = folder / name
    if not place.exists():
        shutil.copytree(runs / name, place)
    rows = pd.read_parquet(place / "decisions.parquet")
    days = rows["kind"] == "trips"
    told = answer(rows[days].set_index("household_id")).to_numpy("float64")
    rows["negotiated"] = rows["negotiated"].astype("Float64")
    rows.loc[days, "negotiated"] = told
    if asked is not None:
        inside = rows["household_id"].isin(asked.index)
        rows["sampled"] = days & inside
        rows.loc[~rows["sampled"], "negotiated"] = pd.NA
        for column in asked:
            found = rows["household_id"].map(asked[column])
            rows[column] = found.where(rows["sampled"], "" if column == "stratum" else np.nan)
    rows.to_parquet(place / "decisions.parquet")
    path = place / "run.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | keys))
    return place


def means(rows):
    return rows["expected"]


def half(runs, zones=(10, 20, 35)):
    """Return a sample of every second household that lives in *zones*, one stratum."""
    homes = pd.read_parquet(runs / "base" / "households.parquet")
    ids = homes.index[homes["home_zone_id_before"].isin(zones)]
    return pd.DataFrame({"stratum": "all", "inclusion": 0.5}, index=ids[::2])


def rates(runs):
    return read_responses(yaml.safe_load((runs / "small.yaml").read_text())["rates"])


# --- laws -----------------------------------------------------------------------------------------


def test_a_model_that_answers_like_the_surrogate_has_the_published_effect(runs, tmp_path):
    folders = [settled(runs, tmp_path, name, means) for name in ("base", "policy")]
    table = compare(*folders).effects.table
    assert (table["effect_published"] < 0).sum() > 5
    np.testing.assert_allclose(table["effect_negotiated"], table["effect_published"], atol=1e-9)
    assert (table["se_negotiated"] == 0).all()  # Everybody negotiated: nothing to be off by.


def test_the_published_effect_is_the_difference_of_the_surrogates_means(runs):
    before, after = (
        pd.read_parquet(runs / name / "decisions.parquet").query("kind == 'trips'")
        for name in ("base", "policy")
    )
    row = compare(runs / "base", runs / "policy").effects.region()
    assert row["effect_published"] == pytest.approx(after["expected"].sum() - before["expected"].sum())  # fmt: skip
    table = compare(runs / "base", runs / "policy").effects.table.xs("region")
    assert table.loc[("all", "hbsch"), "effect_published"] == 0  # No published answer of school.
    for rows in (before, after):
        sums = rows[[f"expected_{p}" for p in PURPOSES]].sum(axis=1)
        assert sums.tolist() == pytest.approx(rows["expected"].tolist())
        # Drawn trips scatter about their means.
        drawn = rows[list(PURPOSES)].sum().sum()
        assert drawn == pytest.approx(rows["expected"].sum(), rel=0.25)


def test_districts_and_purposes_add_up_to_the_region(runs):
    table = compare(runs / "base", runs / "policy").effects.table
    region, districts = table.xs("region"), table.xs("district")
    for column in [*NUMBERS, "changed", "sampled", "n"]:
        sums = districts[column].groupby("purpose").sum()
        whole = region[column].droplevel("domain")
        assert sums.reindex(whole.index).tolist() == pytest.approx(whole.tolist()), column
    purposes = table.drop("all", level="purpose")[NUMBERS].groupby(level=["level", "domain"]).sum()
    whole = table.xs("all", level="purpose")[NUMBERS].reindex(purposes.index)
    np.testing.assert_allclose(purposes, whole, atol=1e-9)


def test_every_household_heard_gives_the_sum_of_its_differences(runs):
    before, after = (
        pd.read_parquet(runs / name / "decisions.parquet").query("kind == 'trips'")
        for name in ("base", "policy")
    )
    drivers = pd.read_parquet(runs / "policy" / "levers.parquet")["household_id"]
    change = after.set_index("household_id")["negotiated"] - before.set_index("household_id")["negotiated"]  # fmt: skip
    row = compare(runs / "base", runs / "policy").effects.region()
    assert row["n"] == row["changed"] == drivers.nunique() < 130
    assert row["effect_negotiated"] == pytest.approx(float(change[drivers.unique()].sum()))
    assert row["otherwise"] == (change[drivers.unique()] != 0).sum()


def test_a_bias_that_a_model_always_has_falls_out(runs, tmp_path):
    asked = half(runs)

    def odd(rows):  # Each household is off by an amount of its own, the same in both runs.
        return rows["expected"] + rows.index.to_numpy() % 7

    found = [
        compare(*(settled(runs, tmp_path / str(k), n, answer, asked) for n in ("base", "policy")))
        for k, answer in enumerate((means, odd))
    ]
    plain, biased = (f.effects.table.xs("all", level="purpose") for f in found)
    assert biased["effect_negotiated"].tolist() == pytest.approx(plain["effect_negotiated"].tolist())  # fmt: skip
    assert biased["se_negotiated"].tolist() == pytest.approx(plain["se_negotiated"].tolist(), abs=1e-9)  # fmt: skip


def test_households_who_change_nothing_do_not_confirm_the_published_effect(runs, tmp_path):
    asked = half(runs)
    folders = [
        settled(runs, tmp_path, n, lambda rows: pd.Series(4, rows.index), asked)
        for n in ("base", "policy")
    ]
    row = compare(*folders).effects.region()
    assert row["otherwise"] == 0 and row["effect_published"] < 0
    assert row["se_negotiated"] > 0 and row["low"] <= 0 <= row["high"]


def test_a_lever_at_its_present_value_has_no_effect_of_any_kind(runs, tmp_path):
    pemand("compare", runs / "base", runs / "null", "--out", tmp_path)
    table = pd.read_csv(tmp_path / "effects.csv")
    kept = [*NUMBERS, "se_published", "se_negotiated", "low", "high", "changed", "n"]
    assert (table[kept] == 0).all().all()


# --- the placebo ----------------------------------------------------------------------------------


def test_what_an_announcement_as_such_does_is_taken_off(runs, tmp_path):
    asked = half(runs)
    noise = pd.Series(np.random.default_rng(3).normal(0, 1, 1000))

    def told(extra, scale=0.0):
        return lambda rows: rows["expected"] + extra + scale * noise.reindex(rows.index).to_numpy()

    base = settled(runs, tmp_path, "base", told(0), asked)
    policy = settled(runs, tmp_path, "policy", told(2.0), asked)
    gross = compare(base, policy).effects.region()
    # Each household heard stands for two, and any announcement adds two trips to each.
    assert gross["placebo"] == "gross"
    assert gross["effect_negotiated"] == pytest.approx(gross["effect_published"] + 4 * gross["n"])
    net = []
    for scale in (0.0, 0.5):
        placebo = settled(runs, tmp_path, "placebo", told(2.0, scale), asked)
        net.append(compare(base, policy, None, placebo).effects.region())
    still, noisy = net
    assert still["placebo"] == NET
    assert still["effect_negotiated"] == pytest.approx(gross["effect_published"])
    held = noise[asked.index[asked.index.isin(_drivers(runs))]]
    assert noisy["effect_negotiated"] == pytest.approx(gross["effect_published"] - held.sum())
    # What the placebo's answers scatter enters the interval.
    assert noisy["se_negotiated"] > still["se_negotiated"] >= 0


def _drivers(runs):
    return pd.read_parquet(runs / "policy" / "levers.parquet")["household_id"].unique()


def test_a_placebo_that_some_never_heard_is_refused(runs, tmp_path):
    said = pemand(
        "compare", runs / "base", runs / "policy", "--placebo", runs / "null", "--out", tmp_path, code=1
    )  # fmt: skip
    assert "is no placebo for this policy" in said
    said = pemand("compare", "--seeds", runs / "base", runs / "null", "--placebo", runs / "null", code=2)  # fmt: skip
    assert "--placebo: of no use beside --seeds" in said
    pemand("compare", runs / "base", runs / "policy", "--placebo", runs / "placebo", "--out", tmp_path)  # fmt: skip
    assert yaml.safe_load((tmp_path / "compare.yaml").read_text())["placebo"]["folder"] == "placebo"
    assert set(pd.read_csv(tmp_path / "effects.csv")["placebo"]) == {NET}
    assert "net of the placebo" in (tmp_path / "compare.html").read_text()


# --- who counts, and why --------------------------------------------------------------------------


def test_without_a_card_the_published_effect_is_used_and_every_row_says_so(runs):
    table = compare(runs / "base", runs / "policy").effects.table
    assert table["effect_used"].tolist() == table["effect_published"].tolist()
    assert set(table["used"]) == {"published"}
    assert table["note"].str.contains("no response card covers this model").all()


def test_with_a_response_card_both_effects_weigh_by_their_precision(runs, tmp_path):
    asked = half(runs)
    base = settled(runs, tmp_path, "base", means, asked)
    policy = settled(
        runs,
        tmp_path,
        "policy",
        lambda rows: rows["expected"] - rows.index.to_numpy() % 3,
        asked,
        admitted=True,
        cards=CARDS,
    )
    found = compare(base, policy, rates(runs))
    table, row = found.effects.table, found.effects.region()
    p, n = row["se_published"], row["se_negotiated"]
    # Range 0 to -0.1 about -0.05: a standard error of 0.05 / 1.96 of 0.05.
    assert p == pytest.approx(-row["effect_published"] / 1.959964, rel=1e-6)
    used = (row["effect_published"] / p**2 + row["effect_negotiated"] / n**2) / (p**-2 + n**-2)
    assert row["effect_used"] == pytest.approx(used)
    assert row["se_used"] == pytest.approx((p**-2 + n**-2) ** -0.5)
    districts = table.xs("district").xs("all", level="purpose")
    assert districts["effect_used"].sum() == pytest.approx(row["effect_used"])
    assert set(table["used"]) == {"weighted"}
    assert "weighing" in effect_words(found)[-1]
    # Without published ranges there is nothing to weigh by.
    assert compare(base, policy).effects.region()["used"] == "published"
    failed = [CARDS[0], CARDS[1] | {"passed": False}]
    policy = settled(runs, tmp_path, "policy", means, asked, cards=failed)
    assert compare(base, policy, rates(runs)).effects.region()["used"] == "published"


def test_a_few_households_do_not_outweigh_the_published_effect(runs, tmp_path):
    asked = half(runs)
    few = asked[asked.index.isin(_drivers(runs))].iloc[:8]
    base = settled(runs, tmp_path, "base", means, few)
    policy = settled(runs, tmp_path, "policy", means, few, admitted=True, cards=CARDS)
    row = compare(base, policy, rates(runs)).effects.region()
    assert 0 < row["n"] < 10 and row["used"] == "published"
    assert "fewer than 10 households negotiated" in row["note"]


def test_a_district_where_nobody_was_heard_is_empty_and_says_why(runs, tmp_path):
    asked = half(runs, (10, 20))  # The zones of the district West.
    found = compare(*(settled(runs, tmp_path, n, means, asked) for n in ("base", "policy")))
    row = found.effects.table.loc[("district", "East", "all")]
    assert row["n"] == 0 and row[["effect_negotiated", "se_negotiated", "low"]].isna().all()
    assert "none of the households concerned was heard" in row["note"]
    assert row["effect_used"] == row["effect_published"] < 0


def test_households_that_stayed_undecided_in_one_run_are_counted_and_named(runs, tmp_path):
    asked = half(runs)
    lost = [h for h in asked.index if h in set(_drivers(runs))][:2]
    base = settled(runs, tmp_path, "base", means, asked)
    policy = settled(
        runs, tmp_path, "policy", lambda rows: means(rows).where(~rows.index.isin(lost)), asked
    )
    found = compare(base, policy)
    row = found.effects.region()
    assert row["not_in_both"] == 2 and row["n"] == row["sampled"] - 2
    assert found.effects.missing.tolist() == lost
    assert f"household {lost[0]}, {lost[1]}" in " ".join(effect_words(found))
    # The others stand for them: the surrogate's own answers still give the published effect.
    assert row["effect_negotiated"] == pytest.approx(row["effect_published"])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model": {"model": "another"}}, "talk by other means (model)"),
        ({"prompts_sha256": "0"}, "talk by other means (prompts)"),
    ],
)
def test_answers_of_another_model_or_prompts_are_not_paired(runs, tmp_path, change, said):
    policy = settled(runs, tmp_path, "policy", means, None, **change)
    found = compare(runs / "base", policy)
    assert found.effects.table["effect_negotiated"].isna().all()
    assert said in found.effects.region()["note"] and said in " ".join(effect_words(found))


def test_other_samples_and_runs_without_negotiations_are_not_paired(runs, tmp_path):
    policy = settled(runs, tmp_path, "policy", means, half(runs))
    assert "other samples" in compare(runs / "base", policy).effects.lacking
    policy = settled(runs, tmp_path, "policy", means, half(runs).iloc[:0])
    found = compare(runs / "base", policy)
    assert "none did in policy" in found.effects.lacking
    assert found.effects.table[["effect_negotiated", "low"]].isna().all().all()
    write_page(found, tmp_path)
    text = (tmp_path / "compare.html").read_text()
    assert "There is no negotiated effect: no household negotiated its trips in both runs" in text


def test_the_page_shows_the_region_and_every_district(runs):
    found = compare(runs / "base", runs / "policy")
    rows = effects_table(found).rows
    districts = found.base.zones["district"].nunique()
    assert len(rows) == len(PURPOSES) + 1 + districts
    assert found.effects.table.index.is_unique and REGION in found.effects.table.index
    assert "This is gross" in " ".join(effect_words(found))


def test_a_run_of_an_older_version_is_named(runs, tmp_path):
    shutil.copytree(runs / "policy", tmp_path / "old")
    path = tmp_path / "old" / "decisions.parquet"
    pd.read_parquet(path).drop(columns="expected_hbw").to_parquet(path)
    with pytest.raises(PemandError, match=r"decisions.parquet: column expected_hbw is missing"):
        compare(runs / "base", tmp_path / "old")
