"""The desk: batches by instant, decisions as without a clock, and a budget kept."""

import simpy
from people import Says, household, member, personas, proposal, statement

from pemand_abm.desk import Desk
from pemand_abm.dialogue import Reply, Request, converse
from pemand_abm.domains import TRIPS
from pemand_abm.protocols.pemand import PemandSettings, pemand


def question(text="?", seed=1):
    return Request("system", text, seed, ("household 1", "member 1", "proposal"))


def talks(n):
    homes = [household(member(1), member(2), key=k) for k in range(n)]
    settings = PemandSettings(max_rounds=2, max_regenerations=0, moderator="checks")
    return [pemand(h, personas(h), TRIPS, settings, "", 0, (0, h.id, "trips", 1, 0)) for h in homes]


def say(request):
    return (
        proposal(request.seed % 5)
        if request.label[-1] == "proposal"
        else statement(request.seed % 9)
    )


class Batches(Says):
    def complete(self, requests):
        self.sizes = [*getattr(self, "sizes", []), len(requests)]
        yield from super().complete(requests)


def in_simpy(dialogues, model, minutes, calls=None, reserve=10, in_flight=64):
    env = simpy.Environment()
    desk = Desk(env, model, calls, in_flight)
    results = {}

    def process(i, dialogue):
        yield env.timeout(minutes[i])
        results[i] = yield from desk.hold(dialogue, reserve)

    for i, dialogue in enumerate(dialogues):
        env.process(process(i, dialogue))
    env.run()
    return [results[i] for i in range(len(dialogues))], desk


def test_a_talk_in_the_calendar_decides_as_one_without_a_clock():
    alone = [converse([dialogue], Says(say))[0] for dialogue in talks(5)]
    together = converse(talks(5), Says(say))
    clocked, _ = in_simpy(talks(5), Says(say), minutes=[0, 0, 3, 3, 9])
    assert alone == together == [decision for decision, _ in clocked]


def test_requests_of_one_minute_are_one_batch_and_of_another_minute_another():
    model = Batches(say)
    in_simpy(talks(4), model, minutes=[5, 5, 5, 7])
    assert model.sizes[0] == 6
    assert sum(model.sizes) == len(model.asked)
    assert model.sizes[-1] <= 2


def test_a_household_whose_worst_case_is_not_covered_is_not_started():
    def one():
        yield [question()]
        yield [question()]
        return "done"

    results, desk = in_simpy(
        [one() for _ in range(5)], Says(lambda _: "x"), [0] * 5, calls=7, reserve=3
    )
    # 7 calls: two start (6 reserved), use 2 each and give 1 back; then 3 are left for one more; 1
    # is left for nobody.
    assert [r for r, _ in results] == ["done", "done", "done", None, None]
    assert sum(calls for _, calls in results) == 6
    assert desk.left == 1


def test_households_in_flight_are_limited():
    open_ = {"now": 0, "most": 0}

    def counted():
        open_["now"] += 1
        open_["most"] = max(open_["most"], open_["now"])
        yield [question()]
        open_["now"] -= 1
        return 1

    in_simpy([counted() for _ in range(9)], Says(lambda _: "x"), [0] * 9, in_flight=2)
    assert open_["most"] == 2


def test_replies_come_back_to_who_asked_though_they_arrive_in_another_order():
    def asker(text):
        replies = yield [question(f"{text}{i}") for i in range(3)]
        return [r.text for r in replies]

    results, _ = in_simpy([asker("a"), asker("b")], Says(lambda r: r.user), [0, 0])
    assert [r for r, _ in results] == [["a0", "a1", "a2"], ["b0", "b1", "b2"]]


def test_a_model_that_leaves_a_request_unanswered_stops_the_run():
    class Forgets:
        identity = {}  # noqa: RUF012

        def complete(self, requests):
            yield 0, Reply("x")

    def asker():
        yield [question("a"), question("b")]

    try:
        in_simpy([asker()], Forgets(), [0])
    except RuntimeError as fault:
        assert "1 of 2 requests" in str(fault)
    else:
        raise AssertionError("the run went on")
