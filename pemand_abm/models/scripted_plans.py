"""How the model without a language model settles a plan (MIND), by rules that can be read.

It checks the engine: whatever differs between the variants of the protocol comes from their
switches alone. It reads its prompt as text, as a language model would:

- *Speech*. With a tone, a proposal says its band plainly: it *must be*, *should be* or *could be*
  so, or anything else *is fine too*. Without one it says none of it.
- *Appraisal*. Must is 10, should 7, could 5, fine 2; speech without any of these sounds as if it
  left no room and is taken for an 8. A wish of the voter's own stands at 10, 7, 5 or 2 by its band.
  Firmer than the proposer: push. Less firm: yield. As firm: yield; two who are *fine*
  compromise.
- *Vote without appraisal*. With a tone: strict and firm voters insist, neutral ones agree. Warm
  ones, and all without a tone, agree or insist by the toss of the request's seed.
- *Update*. With the social rules: only a strict proposer keeps, all others take the commonest wish
  of those who do not agree. Without: strict and firm tones keep, all others take the commonest
  wish where more than half do not agree, else keep.
"""

from __future__ import annotations

import re
from collections import Counter

from pemand_abm.dialogue import Request

WORDS = {"strict": "must be", "firm": "should be", "warm": "could be", "neutral": "is fine too"}
SOUNDS = {"must be": 10, "should be": 7, "could be": 5, "is fine too": 2}
PLAIN = 8  # How speech without a tone sounds.
OWN = {"cannot do without": 10, "very much": 7, "would like": 5, "all the same": 2}


def fill_plan(request: Request) -> str | None:
    """Return the filled form of a prompt of a plan; None for any other prompt."""
    user = request.user
    form = user.rpartition("Answer in this form:")[2].strip()
    if form.startswith("RATIONALE: I propose"):
        return _proposal(request)
    if form.startswith("GUESS:"):
        return _appraisal(user)
    if form.startswith("COMMENT:"):
        return _vote(request, form)
    if form.startswith("RATIONALE:") and "ACTION:" in form:
        return _update(request)
    if form.startswith("RATIONALITY:"):
        return "\n".join(f"{line.partition(':')[0]}: TIE" for line in form.splitlines())
    if "Answer with one line for each point" in user:
        return _survey(request)
    return None


def _tone(request: Request) -> str:
    found = re.search(r"Your tone on this point\. (\w+):", request.system)
    return found[1].lower() if found else ""


def _field(user: str, name: str) -> str:
    found = re.search(rf"^{name}: (.*)$", user, flags=re.M)
    return found[1].strip() if found else ""


def _said(tone: str, value: str) -> str:
    if not tone:
        return f"that we take {value}."
    if tone == "neutral":
        return f"{value}, and anything else {WORDS[tone]}."
    return f"that it {WORDS[tone]} {value}."


def _proposal(request: Request) -> str:
    value = re.findall(r"^VALUE: (.*)$", request.user, flags=re.M)[-1]
    return f"RATIONALE: I propose {_said(_tone(request), value)}\nVALUE: {value}"


def _last_words(user: str) -> str:
    """Return what the proposer said last."""
    proposer = re.search(r"^(.*) proposes now: ", user, flags=re.M)
    assert proposer is not None
    spoken = rf'^- {re.escape(proposer[1])} \([^)]*\): "(.*)"$'
    return (re.findall(spoken, user, flags=re.M) or [""])[-1]


def _sound(words: str) -> int:
    return next((n for word, n in SOUNDS.items() if re.search(rf"\b{word}\b", words)), PLAIN)


def _appraisal(user: str) -> str:
    matters = _field(user, "How much it matters to you")
    own = next(n for words, n in OWN.items() if words in matters)
    guess = _sound(_last_words(user))
    alike = "compromise" if own == SOUNDS["is fine too"] else "yield"
    intent = "push" if own > guess else "yield" if own < guess else alike
    return f"GUESS: {guess}\nROOM: {'no' if guess >= 9 else 'yes'}\nINTENT: {intent}"


def _vote(request: Request, form: str) -> str:
    user, tone = request.user, _tone(request)
    votes = _field(form, "VOTE").split(" or ")
    choices = user.partition("copied exactly: ")[2].partition("\n")[0].split(", ")
    own = _field(user, "Your own wish").partition(", because")[0]
    agree = "AGREE" in votes
    if len(votes) == 2:
        toss = request.seed % 2 == 0
        agree = {"strict": False, "firm": False, "neutral": True}.get(tone, toss)
    if agree:
        return "COMMENT: I can go along with that.\nVOTE: AGREE\nVALUE: none"
    value = own if own in choices else choices[0]
    return f"COMMENT: I say {_said(tone, value)}\nVOTE: DISAGREE\nVALUE: {value}"


def _update(request: Request) -> str:
    user, tone = request.user, _tone(request)
    wanted = re.findall(r"^- .* wants (.*)$", user, flags=re.M)
    current = re.findall(r" proposes now: (.*)$", user, flags=re.M)[-1]
    found = re.search(r"(\d+) of (\d+) do not agree:", user)
    assert found is not None
    pressed = int(found[1]) * 2 > int(found[2])
    if "take their value" in user:
        # More than half press the strict too, once they were told so (all but the utmost wish).
        change = tone != "strict" or "must change" in user
    else:
        change = pressed and tone not in ("strict", "firm")
    if change and wanted:
        value = Counter(wanted).most_common(1)[0][0]
        return f"RATIONALE: I see that you want {value}.\nACTION: UPDATE\nVALUE: {value}"
    return f"RATIONALE: I say {_said(tone, current)}\nACTION: KEEP\nVALUE: {current}"


def _survey(request: Request) -> str:
    """Choose values and importance by the request's seed."""
    lines = []
    points = re.findall(r"^\d+\. .* \((.*)\)$", request.user, flags=re.M)
    labels = re.findall(r"^([A-Z_]+): value; ", request.user, flags=re.M)
    for place, (values, label) in enumerate(zip(points, labels, strict=True)):
        draw = (request.seed >> place) ^ (request.seed * (place + 7))
        options = values.split(", ")
        lines.append(
            f"{label}: {options[draw % len(options)]}; {draw // 7 % 11}; because I like it"
        )
    return "\n".join(lines)
