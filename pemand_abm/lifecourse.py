"""The turn of a year: who dies, is born, ages, works, marries, leaves home, arrives and leaves.

One call of `turn_of_year` takes the residents of a region to the next year's first day. Every draw
is keyed by the person's or household's id, so the order of rows changes nothing. It keeps the
accounts: households = before + formed + in - dissolved - out, persons = before + births + in -
deaths - out, and no zone ever houses more households than it has dwellings. Moves of whole
households within the region are the housing market's matter (`housing`, `relocation`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from pemand_abm import keys
from pemand_abm.anchors import AGE_EDGES
from pemand_abm.housing import HousingSettings, preferred_zones
from pemand_abm.liferates import LifeRates

YOUNGEST_HEAD = 15
ADULT = 18
RETIREMENT = 62  # Who leaves work from here on retires: the earliest age of a social pension (SSA).
AGE_GAP = 4.0  # Years over which the order of brides and of grooms by age is shaken.
HEAD, COUPLE = "reference person", ("spouse", "partner")
FLOWS = (
    "births", "deaths", "households_formed", "households_dissolved", "households_in",
    "households_out", "persons_in", "persons_out", "no_home", "turned_away",
)  # fmt: skip
EVENT_COLUMNS = ["minute", "kind", "household_id", "person_id", "from", "to_zone", "detail"]


@dataclass(frozen=True, slots=True, eq=False)
class Residents:
    """The households and persons of a day, and the first ids that nobody has had.

    `households` and `persons` as in docs/design.md, index ascending.
    """

    households: pd.DataFrame
    persons: pd.DataFrame
    next_household: int
    next_person: int

    @classmethod
    def of(cls, households: pd.DataFrame, persons: pd.DataFrame) -> Residents:
        """Return the residents of a base year."""
        return cls(
            households.sort_index(),
            persons.sort_index(),
            int(households.index.max()) + 1,
            int(persons.index.max()) + 1,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Stock:
    """Where homes are: `zones` (index zone_id; `dwellings`, `median_income`), `minutes` between."""

    zones: pd.DataFrame
    minutes: np.ndarray
    settings: HousingSettings


@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """What the turn of a year left: `residents`, `events` (EVENT_COLUMNS) and `flows` (FLOWS)."""

    residents: Residents
    events: pd.DataFrame
    flows: dict[str, int]


def turn_of_year(
    residents: Residents, stock: Stock, rates: LifeRates, seed: int, year: int, minute: int
) -> Turn:
    """Return the residents on the first day of *year*, with what happened at its turn.

    Parameters
    ----------
    residents : Residents
        Of the last day of the year before, after its moves.
    stock : Stock
        Dwellings of the new year.
    seed, year : int
        The key of the draws; the base year is 1.
    minute : int
        Of the turn, since the start of the base year.
    """
    state = _State(residents, rates, seed, year, minute)
    state.leave_region()
    state.die()
    state.grow_older()
    state.work()
    pairs = state.marry()
    seekers = state.seekers(pairs)
    state.settle(seekers, state.arrivals(), stock)
    state.give_birth()
    return state.end()


class _State:
    """The tables while the year turns; each method is one kind of event, in the order of calls."""

    def __init__(
        self, residents: Residents, rates: LifeRates, seed: int, year: int, minute: int
    ) -> None:
        self.homes = residents.households.sort_index()
        self.people = residents.persons.sort_index()
        self.next_household, self.next_person = residents.next_household, residents.next_person
        self.rates, self.seed, self.year, self.minute = rates, seed, year, minute
        self.flows = dict.fromkeys(FLOWS, 0)
        self.events: list[pd.DataFrame] = []
        self.models = self.people
        self.coming = (self.homes.iloc[:0], self.homes["home_zone_id"].iloc[:0])
        # What the income follows: who was at work when it was earned.
        self.workers = self.homes["num_workers"].astype("Int64")

    def draw(self, ids: pd.Index | np.ndarray, what: str) -> np.ndarray:
        return keys.uniforms(ids, self.seed, "life", self.year, what)

    def happens(
        self, people: pd.DataFrame, event: str, married: np.ndarray | int = 0
    ) -> np.ndarray:
        return self.draw(people.index, event) < self.rates.of(event, people, married)

    def log(
        self,
        kind: str | np.ndarray,
        households: pd.Index | pd.Series | np.ndarray,
        persons: pd.Index | np.ndarray | None = None,
        to: pd.Series | np.ndarray | None = None,
        detail: str | pd.Series = "",
        frm: pd.Series | np.ndarray | None = None,
    ) -> None:
        """Keep events; they start in the zone of the household unless *frm* says where."""
        at = np.asarray(households)
        zone = self.homes["home_zone_id"].reindex(at).array if frm is None else frm
        table = pd.DataFrame({"household_id": at})
        table["minute"], table["kind"] = self.minute, kind
        table["person_id"] = pd.array([pd.NA] * len(at) if persons is None else persons, "Int64")
        table["from"] = np.asarray(zone, dtype=object)
        table["to_zone"] = np.asarray([None] * len(at) if to is None else to, dtype=object)
        table["detail"] = detail if isinstance(detail, str) else np.asarray(detail)
        self.events.append(table[EVENT_COLUMNS])

    # --- going ----------------------------------------------------------------------------------

    def leave_region(self) -> None:
        """Let households leave for another state."""
        rate = self.rates.migrating(self.homes, "leave")
        leaves = self.homes.index[self.draw(self.homes.index, "leave_region") < rate]
        self.log("left_region", leaves)
        goes = self.people["household_id"].isin(leaves)
        self.flows["households_out"] += len(leaves)
        self.flows["persons_out"] += int(goes.sum())
        self.people, self.homes = self.people[~goes], self.homes.drop(leaves)

    def die(self) -> None:
        """Let persons die; a household whose last member of 15 and over died dissolves."""
        dead = self.draw(self.people.index, "die") < self.rates.dying(self.people)
        gone = self.people[dead]
        self.log("died", gone["household_id"], gone.index)
        self.flows["deaths"] += len(gone)
        self.people = self.people[~dead]
        grown = self.people.loc[self.people["age"] >= YOUNGEST_HEAD, "household_id"]
        ended = self.homes.index[~self.homes.index.isin(grown)]
        orphans = self.people["household_id"].isin(ended)
        self.flows["persons_out"] += int(orphans.sum())
        left = np.where(
            ended.isin(self.people.loc[orphans, "household_id"]),
            "the children left the region",
            "the last member died",
        )
        self.dissolve(ended, pd.Series(left))
        self.people = self.people[~orphans]
        self.reseat()

    def dissolve(self, ended: pd.Index, detail: pd.Series | str) -> None:
        self.log("dissolved", ended, detail=detail)
        self.flows["households_dissolved"] += len(ended)
        self.homes = self.homes.drop(ended)

    # --- growing older, school and work ---------------------------------------------------------

    def grow_older(self) -> None:
        """Add a year to all ages; begin and end school and college."""
        people = self.people.assign(age=self.people["age"] + 1)
        age, student = people["age"].to_numpy(), people["pstudent"].to_numpy()
        begins = self.happens(people, "begin_college")
        ends = self.happens(people, "end_college")
        people["pstudent"] = np.select(
            [
                (student == 3) & (age == 5),
                (student == 1) & (age > ADULT),
                (student == 2) & ends,
            ],
            [1, np.where(begins, 2, 3), 3],
            student,
        )
        people["pemploy"] = people["pemploy"].mask((people["pemploy"] == 4) & (age >= 16), 3)
        self.people = people

    def work(self) -> None:
        """Begin work, leave it, retire from it, or change the employer."""
        people = self.people
        grown = people["age"].to_numpy() >= 16
        works = people["pemploy"].isin([1, 2]).to_numpy() & grown
        leaves = works & self.happens(people, "leave_work")
        starts = ~works & grown & self.happens(people, "start_work")
        changes = works & ~leaves & self.happens(people, "change_job")
        hours = np.where(self.happens(people, "full_time"), 1, 2)
        retires = leaves & (people["age"].to_numpy() >= RETIREMENT)
        for kind, who in (
            ("retired", retires),
            ("left_work", leaves & ~retires),
            ("started_work", starts),
            ("changed_job", changes),
        ):
            self.log(kind, people.loc[who, "household_id"], people.index[who])
        employed = np.select([leaves, starts | changes], [3, hours], people["pemploy"])
        self.people = people.assign(pemploy=employed)

    # --- couples and leaving home ---------------------------------------------------------------

    def couples(self) -> pd.DataFrame:
        """Return household_id (index), `head` and `other`, the persons of each couple."""
        people = self.people
        head = people[people["relate"] == HEAD]
        other = people[people["relate"].isin(COUPLE)].sort_values("PNUM", kind="stable")
        other = other.drop_duplicates("household_id")
        heads = pd.Series(head.index, index=head["household_id"].to_numpy())
        table = pd.DataFrame(
            {"other": other.index.to_numpy()}, index=other["household_id"].to_numpy()
        )
        return table.assign(head=heads.reindex(table.index)).sort_index()

    def marry(self) -> pd.DataFrame:
        """Match brides and grooms; who can joins the other's home. Return the pairs without one.

        Columns `first` (the bride) and `second`.
        """
        people, couples = self.people, self.couples()
        taken = people.index.isin([*couples["head"], *couples["other"]])
        free = people[~taken & (people["age"] >= ADULT) & (people["relate"] != "parent")]
        lists = []
        for sex in (2, 1):
            own = free[free["sex"] == sex]
            lists.append(own[self.happens(own, "marry")])
        n = min(map(len, lists))
        brides, grooms = (self._by_age(table, n) for table in lists)
        pairs = pd.DataFrame({"first": brides, "second": grooms})
        home = people["household_id"]
        apart = home.reindex(pairs["first"]).to_numpy() != home.reindex(pairs["second"]).to_numpy()
        pairs = pairs[apart]
        # Who follows a head that has just left is a head, whom the other can join in turn.
        while len(rest := self._move_together(pairs)) < len(pairs):
            pairs = rest
        return rest

    def _by_age(self, people: pd.DataFrame, n: int) -> np.ndarray:
        """Return *n* of the persons by age, shaken; the others marry nobody this year."""
        kept = people.iloc[np.argsort(self.draw(people.index, "match"), kind="stable")[:n]]
        shaken = kept["age"].to_numpy() + AGE_GAP * self.draw(kept.index, "age_gap")
        return kept.index.to_numpy()[np.argsort(shaken, kind="stable")]

    def _move_together(self, pairs: pd.DataFrame) -> pd.DataFrame:
        """Move one of each pair, with his or her children, to the other who heads a household."""
        people = self.people
        home = people["household_id"]
        heads = people["relate"] == HEAD
        size = home.map(home.value_counts())
        first_heads, second_heads = (
            heads.reindex(pairs[c]).to_numpy(bool) for c in ("first", "second")
        )
        larger = size.reindex(pairs["second"]).to_numpy() > size.reindex(pairs["first"]).to_numpy()
        to_second = second_heads & (~first_heads | larger)
        moves = first_heads | second_heads
        mover = np.where(to_second, pairs["first"], pairs["second"])[moves]
        stayer = np.where(to_second, pairs["second"], pairs["first"])[moves]
        old, new = home.reindex(mover).to_numpy(), home.reindex(stayer).to_numpy()

        # A head takes the children along, and everybody when nobody else of 15 and over is left.
        led = heads.reindex(mover).to_numpy(bool)
        others = people[
            people["household_id"].isin(old[led])
            & ~people["relate"].isin([HEAD, "child"])
            & ~people.index.isin(mover)
            & (people["age"] >= YOUNGEST_HEAD)
        ]
        whole = led & ~np.isin(old, others["household_id"])
        leads = pd.Series(new[led], index=old[led])
        target = home.map(leads)
        goes = target.notna() & (people["relate"].isin([HEAD, "child"]) | home.isin(old[whole]))
        after = home.mask(goes, target).astype("int64")
        relate = people["relate"].mask(goes & (people["relate"] != "child"), "other relative")
        after.loc[mover], relate.loc[mover] = new, "spouse"
        zone = self.homes["home_zone_id"]
        self.log("joined", old, mover, to=zone.reindex(new).array)
        self._pool(old[whole], new[whole])
        self.people = people.assign(household_id=after, relate=relate)
        self.dissolve(pd.Index(old[whole]).sort_values(), "joined another household")
        self.reseat()
        return pairs[~moves]

    def _pool(self, old: np.ndarray, new: np.ndarray) -> None:
        """Add incomes and vehicles of households that join others; cars up to the grown members."""
        homes = self.homes.copy()
        grown = self.people[self.people["age"] >= 16].groupby("household_id").size()
        both = grown.reindex(old, fill_value=0).to_numpy() + grown.reindex(new).to_numpy()
        cars, joined = (homes["auto_ownership"].reindex(h).to_numpy() for h in (new, old))
        homes.loc[new, "auto_ownership"] = np.maximum(cars, np.minimum(cars + joined, both))
        homes.loc[new, "income"] += homes["income"].reindex(old).to_numpy()
        self.homes = homes
        self.workers.loc[new] = pd.NA

    def seekers(self, pairs: pd.DataFrame) -> pd.DataFrame:
        """Return who needs a home of his own: `first`, `second` (-1: alone), `kind`, ascending."""
        people, couples = self.people, self.couples()
        wife = people.loc[couples["other"]].assign(head=couples["head"].to_numpy())
        lead = people.loc[couples["head"]]
        woman = np.where(wife["sex"] == 2, wife["age"], lead["age"])
        rate = self.rates.of("part", pd.DataFrame({"sex": 2, "age": woman}))
        part = self.draw(wife.index, "part") < rate
        settled = ~wife.index.isin(self._joined())
        with_children = people.loc[people["age"] < ADULT, "household_id"]
        father = (
            wife["household_id"].isin(with_children).to_numpy()
            & (wife["sex"] == 2).to_numpy()
            & (lead["sex"] == 1).to_numpy()
        )
        leaver = np.where(father, wife["head"], wife.index)[part & settled]
        parted = pd.DataFrame({"first": leaver, "second": -1, "kind": "parted"})

        busy = [*leaver, *pairs["first"], *pairs["second"], *self._joined()]
        children = people[(people["relate"] == "child") & ~people.index.isin(busy)]
        children = children[children["age"] >= ADULT]
        leaves = children[self.happens(children, "leave_home")]
        alone = self.happens(leaves, "alone")
        shares = leaves.index.to_numpy()[~alone]
        shares = shares[np.argsort(self.draw(shares, "share"), kind="stable")]
        odd = len(shares) % 2
        single = [*leaves.index[alone], *shares[len(shares) - odd :]]
        two = shares[: len(shares) - odd].reshape(-1, 2)
        table = pd.concat(
            [
                parted,
                pairs.assign(kind="joined"),
                pd.DataFrame({"first": single, "second": -1, "kind": "left_home"}),
                pd.DataFrame({"first": two[:, 0], "second": two[:, 1], "kind": "left_home"}),
            ]
        )
        return table.astype({"first": "int64", "second": "int64"}).sort_values("first")

    def _joined(self) -> set[int]:
        found = [e["person_id"] for e in self.events if (e["kind"] == "joined").any()]
        return set(pd.concat(found).astype("int64")) if found else set()

    # --- homes ----------------------------------------------------------------------------------

    def arrivals(self) -> pd.Index:
        """Return the households of the region whose like arrive from elsewhere."""
        self.recount()
        self.models = self.people
        rate = self.rates.migrating(self.homes, "arrive")
        return self.homes.index[self.draw(self.homes.index, "arrive") < rate]

    def settle(self, seekers: pd.DataFrame, models: pd.Index, stock: Stock) -> None:
        """Give the seekers and those who arrive a vacant dwelling, as far as there are any."""
        people, zones = self.people, stock.zones
        lead = people.loc[seekers["first"]]
        both = people.reindex(seekers["second"])["pemploy"].isin([1, 2]).to_numpy()
        donors = _donors(
            self.homes,
            1 + (seekers["second"] >= 0).to_numpy(),
            lead["pemploy"].isin([1, 2]).to_numpy().astype(int) + both,
            lead["age"].to_numpy(),
            self.draw(lead.index, "donor"),
        )
        at = self.homes["home_zone_id"]
        formed = donors.set_axis(lead.index).assign(
            home_zone_id=at.reindex(lead["household_id"]).array
        )
        arrived = self.homes.loc[models]
        choices = np.concatenate(
            [
                preferred_zones(t, zones, stock.minutes, stock.settings, keys.digest(*key))
                for t, key in (
                    (formed, (self.seed, "formed", self.year)),
                    (arrived, (self.seed, "arrived", self.year)),
                )
            ]
        )
        order = np.concatenate([self.draw(lead.index, "place"), self.draw(models, "place_arrival")])
        occupied = at.value_counts().reindex(zones.index, fill_value=0).to_numpy()
        vacant = np.maximum(zones["dwellings"].to_numpy() - occupied, 0)
        got = place(choices, order, vacant)
        own, theirs = got[: len(formed)], got[len(formed) :]
        self._form(seekers, formed, own, zones.index)
        self._arrive(arrived, theirs, zones.index)

    def _form(
        self, seekers: pd.DataFrame, formed: pd.DataFrame, at: np.ndarray, zones: pd.Index
    ) -> None:
        found = at >= 0
        lost = seekers[~found]
        home = self.people["household_id"]
        self.log("found_no_home", home.reindex(lost["first"]), lost["first"].to_numpy())
        self.flows["no_home"] += len(lost)
        seekers, formed = seekers[found], formed[found]
        ids = pd.Index(self.next_household + np.arange(len(formed)), name="household_id")
        self.next_household += len(ids)
        old = home.reindex(seekers["first"]).to_numpy()
        self.log("formed", ids, frm=formed["home_zone_id"].array, to=zones[at[found]].array)
        self.log(
            seekers["kind"].to_numpy(), old, seekers["first"].to_numpy(), to=zones[at[found]].array
        )
        two = (seekers["second"] >= 0).to_numpy()
        second = seekers["second"].to_numpy()[two]
        self.log(
            seekers["kind"].to_numpy()[two],
            home.reindex(second),
            second,
            to=zones[at[found][two]].array,
        )
        people = self.people.copy()
        people.loc[seekers["first"], "household_id"] = ids
        people.loc[seekers["first"], "relate"] = HEAD
        people.loc[second, "household_id"] = ids[two]
        people.loc[second, "relate"] = np.where(
            seekers["kind"].to_numpy()[two] == "joined", "spouse", "housemate"
        )
        self.people = people
        rows = formed.set_axis(ids).assign(home_zone_id=zones[at[found]].array)
        # One of a couple's cars goes with who leaves, in place of the donor's none.
        homes = self.homes.copy()
        parted = old[(seekers["kind"] == "parted").to_numpy()]
        cars = homes.loc[parted, "auto_ownership"]
        homes.loc[parted, "auto_ownership"] = cars - (cars >= 2)
        self.homes = pd.concat([homes, rows])
        self.flows["households_formed"] += len(ids)
        self.reseat()

    def _arrive(self, models: pd.DataFrame, at: np.ndarray, zones: pd.Index) -> None:
        """Let copies of the *models* arrive, as they were before anybody left them this year."""
        self.flows["turned_away"] += int((at < 0).sum())
        self.coming = (models[at >= 0], pd.Series(zones[at[at >= 0]]))

    # --- births and the end ---------------------------------------------------------------------

    def give_birth(self) -> None:
        """Let women bear children, who live where their mothers live."""
        people = self.people
        wed = people.loc[people["relate"] == "spouse", "household_id"]
        married = (people["relate"] == "spouse") | (
            (people["relate"] == HEAD) & people["household_id"].isin(wed)
        )
        bears = (people["sex"] == 2) & self.happens(people, "birth", married.astype(int).to_numpy())
        mothers = people[bears]
        ids = pd.Index(self.next_person + np.arange(len(mothers)), name="person_id")
        self.next_person += len(ids)
        own = mothers["relate"].isin([HEAD, *COUPLE]).to_numpy()
        boys = self.draw(mothers.index, "boy") < self.rates.events["boy"][0, 0, 0]
        babies = mothers.set_axis(ids).assign(
            age=0, sex=np.where(boys, 1, 2), pemploy=4, pstudent=3, ptype=8, PNUM=10_000,
            relate=np.where(own, "child", "other relative"),
        )  # fmt: skip
        self.log("born", babies["household_id"], ids)
        self.flows["births"] += len(babies)
        self.people = pd.concat([people, babies])

    def end(self) -> Turn:
        """Add who arrives, number the members, and bring the households up to their persons."""
        homes, zones = self.coming
        ids = pd.Index(self.next_household + np.arange(len(homes)), name="household_id")
        self.next_household += len(ids)
        self.people = pd.concat([self.people, self._copies(homes.index, ids)])
        self.log("arrived", ids, frm=np.full(len(ids), None), to=zones.array)
        self.flows["households_in"] += len(ids)
        self.homes = pd.concat([self.homes, homes.set_axis(ids).assign(home_zone_id=zones.array)])
        self.reseat()
        self.people = self.people.assign(ptype=person_types(self.people))
        self.recount()
        types = household_types(self.people).reindex(self.homes.index)
        self.homes = self.homes.assign(HHT=types.astype("int64"))
        residents = Residents(
            self.homes.sort_index(), self.people.sort_index(), self.next_household, self.next_person
        )
        events = pd.concat(self.events, ignore_index=True)
        return Turn(residents, events, self.flows)

    def _copies(self, models: pd.Index, ids: pd.Index) -> pd.DataFrame:
        home = pd.Series(ids, index=models)
        copies = self.models[self.models["household_id"].isin(models)]
        copies = copies.assign(household_id=copies["household_id"].map(home).astype("int64"))
        copies = copies.sort_values(["household_id", "PNUM"], kind="stable")
        new = pd.Index(self.next_person + np.arange(len(copies)), name="person_id")
        self.next_person += len(new)
        self.flows["persons_in"] += len(new)
        return copies.set_axis(new)

    def reseat(self) -> None:
        self.people = reseated(self.people)

    def recount(self) -> None:
        """Bring the households' columns up to their persons, and incomes up to who is at work."""
        homes = counted(self.homes, self.people)
        was = self.workers.reindex(homes.index)
        was = was.fillna(homes["num_workers"]).clip(upper=3).to_numpy("int64")
        ratio = self.rates.income[homes["num_workers"].clip(upper=3)] / self.rates.income[was]
        income = np.rint(homes["income"].to_numpy() * ratio).astype("int64")
        self.homes, self.workers = homes.assign(income=income), homes["num_workers"].astype("Int64")


def place(choices: np.ndarray, order: np.ndarray, vacant: np.ndarray) -> np.ndarray:
    """Return the zone (position) of each seeker, -1 for who finds none.

    *choices* (seekers, considered): zones, best first. First all first choices are served, as far
    as dwellings are *vacant*, those of the smallest *order* before the others, then all second
    ones.

    >>> choices = np.array([[0, 1], [0, 1], [0, 1]])
    >>> place(choices, np.array([0.9, 0.1, 0.5]), np.array([1, 1])).tolist()
    [-1, 0, 1]
    """
    line = np.argsort(order, kind="stable")
    got, left = np.full(len(choices), -1), np.asarray(vacant).copy()
    for k in range(choices.shape[1]):
        waiting = line[got[line] < 0]
        wanted = choices[waiting, k]
        rank = pd.Series(wanted).groupby(wanted).cumcount().to_numpy()
        served = rank < left[wanted]
        got[waiting[served]] = wanted[served]
        left -= np.bincount(wanted[served], minlength=len(left))
    return got


# What a member is to the new reference person, by what both were to the old one; the rest are
# other relatives.
_KIN = {
    ("spouse", "child"): "child",
    ("spouse", "housemate"): "housemate",
    ("partner", "child"): "child",
    ("partner", "housemate"): "housemate",
    ("child", "child"): "sibling",
    ("child", "housemate"): "housemate",
    ("parent", "sibling"): "child",
    ("sibling", "sibling"): "sibling",
    ("sibling", "parent"): "parent",
    ("housemate", "housemate"): "housemate",
}


def reseated(people: pd.DataFrame) -> pd.DataFrame:
    """Return the persons with one reference person a household, and numbered 1, 2, 3 ...

    Where the reference person is gone, the spouse or partner follows, else the oldest; the others'
    relations are told anew.
    """
    rank = people["relate"].map({HEAD: 0, "spouse": 1, "partner": 2}).fillna(3)
    rank = rank.mask(people["age"] < YOUNGEST_HEAD, 4)
    old = np.where(rank == 3, -people["age"], 0)
    table = people.assign(_rank=rank, _old=old, _id=people.index)
    table = table.sort_values(["household_id", "_rank", "_old", "PNUM", "_id"], kind="stable")
    first = ~table["household_id"].duplicated().to_numpy()
    relate = table["relate"].to_numpy(object)
    was = relate[first][np.cumsum(first) - 1]
    for i in np.flatnonzero(was != HEAD):  # Few: the members of households whose head is new.
        relate[i] = HEAD if first[i] else _KIN.get((was[i], relate[i]), "other relative")
    told = pd.Series(relate, index=table.index).astype(people["relate"].dtype)
    table = table.assign(relate=told, _rank=np.where(first, 0, 1))
    table = table.sort_values(["household_id", "_rank", "PNUM", "_id"], kind="stable")
    table["PNUM"] = table.groupby("household_id").cumcount() + 1
    return table.drop(columns=["_rank", "_old", "_id"]).sort_index()


def counted(households: pd.DataFrame, people: pd.DataFrame) -> pd.DataFrame:
    """Return the households with the columns that their persons make."""
    home = people["household_id"]
    head = people[people["relate"] == HEAD]
    columns = {
        "hhsize": home.value_counts(),
        "num_workers": home[people["pemploy"].isin([1, 2])].value_counts(),
        "children": home[people["age"] < ADULT].value_counts(),
        "age_of_head": pd.Series(head["age"].to_numpy(), index=head["household_id"].to_numpy()),
    }
    return households.assign(
        **{
            name: counts.reindex(households.index, fill_value=0).astype("int64")
            for name, counts in columns.items()
        }
    )


def person_types(people: pd.DataFrame) -> np.ndarray:
    """Return ActivitySim's `ptype` by age, work and school (docs/region.md)."""
    age, work, school = people["age"], people["pemploy"], people["pstudent"]
    return np.select(
        [
            age < 6,
            age < 16,
            work == 1,
            (school == 1) & (age < 20),
            school != 3,
            work == 2,
            age >= 65,
        ],
        [8, 7, 1, 6, 3, 2, 5],
        4,
    )


def household_types(people: pd.DataFrame) -> pd.Series:
    """Return the Census household type `HHT`, 1 to 7, by household_id."""
    head = people[people["relate"] == HEAD].set_index("household_id")
    home = people["household_id"]
    wed = head.index.isin(home[people["relate"] == "spouse"])
    kin = ["child", "parent", "sibling", "other relative"]
    family = head.index.isin(home[people["relate"].isin(kin)])
    alone = (home.value_counts().reindex(head.index) == 1).to_numpy()
    man = (head["sex"] == 1).to_numpy()
    types = np.select([wed, family & man, family, man & alone, man, alone], [1, 2, 3, 4, 5, 6], 7)
    return pd.Series(types, index=head.index)


def _donors(
    homes: pd.DataFrame, size: np.ndarray, workers: np.ndarray, age: np.ndarray, u: np.ndarray
) -> pd.DataFrame:
    """Return a like household of the region for each wanted one: its income, cars, tenure.

    Like means the same size (3 and more), workers (2 and more) and age band of the head; where
    there is none, the same size and workers, then the same size, then any.
    """
    own = _cells(
        homes["hhsize"].to_numpy(), homes["num_workers"].to_numpy(), homes["age_of_head"].to_numpy()
    )
    wanted = _cells(size, workers, age)
    chosen = np.full(len(u), -1)
    for width in (1, 8, 24, 1_000):
        pool, cell = own // width, wanted // width
        order = np.argsort(pool, kind="stable")
        low = np.searchsorted(pool[order], cell, "left")
        high = np.searchsorted(pool[order], cell, "right")
        free = (chosen < 0) & (high > low)
        chosen[free] = order[(low + (u * (high - low)).astype(int))[free]]
    return homes.iloc[chosen]


def _cells(size: np.ndarray, workers: np.ndarray, age: np.ndarray) -> np.ndarray:
    band = np.searchsorted(AGE_EDGES, age, side="right")  # 0 to 7
    return (np.minimum(size, 3) * 3 + np.minimum(workers, 2)) * 8 + band
