"""A settings file is told what is wrong with it in our words, by key, with what to write instead."""

import pytest
import yaml
from test_run import RATES

from pemand_abm.errors import SettingsError
from pemand_abm.scenario import Scenario, read_scenario
from pemand_abm.settings import _models

FOREIGN = ("Input", "valid ", "instance", "NoneType", "dictionary", "tuple", "pathlib", "parse")


def said_of(folder, given):
    """Return what is said of a scenario with these settings; nothing where it is taken."""
    (folder / "region").mkdir(exist_ok=True)
    path = folder / "small.yaml"
    whole = {"title": "Small", "region": "region", "rates": str(RATES)} | given
    path.write_text(yaml.safe_dump(whole))
    try:
        read_scenario(path)
    except SettingsError as fault:
        return fault.message.removeprefix(f"{path}: ")
    return ""


def places(model=Scenario, above=()):
    """Give every key of the scenario and of its sections, with whether it takes nothing."""
    for name, field in model.model_fields.items():
        yield (*above, name), type(None) in getattr(field.annotation, "__args__", ())
        for part in _models(field.annotation):
            yield from places(part, (*above, name))


def at(place, value):
    return {place[0]: at(place[1:], value)} if place else value


EVERY = dict(places())


@pytest.mark.parametrize("place", EVERY, ids=".".join)
def test_a_key_with_nothing_after_its_colon_is_told_in_our_words(tmp_path, place):
    said = said_of(tmp_path, at(place, None))
    told = [line for line in said.splitlines() if "is empty; " in line]
    assert not any(word in said for word in FOREIGN), said
    if EVERY[place]:
        assert not told
    else:
        assert len(told) == 1 and place[-1] in told[0]


SECTIONS = [place for place in EVERY if any(other[:-1] == place for other in EVERY)]


@pytest.mark.parametrize(
    ("place", "given"),
    # A text under `model` is a model's name.
    [(p, g) for p in SECTIONS for g in ("none", 5, [7]) if (p, g) != (("model",), "none")],
    ids=str,
)
def test_a_section_that_holds_something_else_is_told_its_keys(tmp_path, place, given):
    said = said_of(tmp_path, at(place, given))
    key = next(other[-1] for other in EVERY if other[:-1] == place)
    assert "must be `key: value` lines" in said and key in said
    assert not any(word in said for word in FOREIGN), said


def test_an_empty_section_is_told_its_keys_and_that_it_can_go(tmp_path):
    assert said_of(tmp_path, {"negotiate": None}) == (
        "negotiate: is empty; write what belongs in it (trips, relocation, terms, shared_trip), "
        "or leave it out"
    )


@pytest.mark.parametrize(
    ("given", "said"),
    {
        "text for a count": (
            {"negotiate": {"terms": "many"}},
            "negotiate.terms: must be a whole number, got 'many'",
        ),
        "text for a count of households": (
            {"negotiate": {"trips": "many"}},
            "negotiate.trips: must be a whole number of households, `all`, `none`, or words such as"
            " `24 households`, `2 hours`, `90 minutes`, `10 USD`, got 'many'",
        ),
        "half a count": ({"years": 1.5}, "years: must be a whole number, got 1.5"),
        "no year": ({"years": 0}, "years: must be greater than or equal to 1, got 0"),
        "perhaps": ({"exact": "perhaps"}, "exact: must be true or false, got 'perhaps'"),
        "another word": ({"remote": "ask"}, "remote: must be 'refuse' or 'allow', got 'ask'"),
        "a number for a name": ({"title": 7}, "title: must be a text, got 7"),
        "an empty zone": (
            {"levers": {"fuel_price": {"percent": 5, "area": [None]}}},
            "levers.fuel_price.0.area.0: is empty; give it a value, or leave it out",
        ),
    }.values(),
)
def test_a_value_of_another_kind_is_told_which_kind_it_must_be(tmp_path, given, said):
    assert said_of(tmp_path, given) == said


def test_an_empty_file_is_told_as_such(tmp_path):
    (tmp_path / "small.yaml").write_text("# all commented out\n")
    with pytest.raises(SettingsError, match="is empty; write `key: value` lines"):
        read_scenario(tmp_path / "small.yaml")
