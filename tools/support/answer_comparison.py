"""Compares an answer with that of a server without a cache: to the letter, or token by token with a tolerance.

Why a tolerance exists: some models compute a token that is read among many and one that is read among few by other code,
which rounds otherwise. Two candidates that are nearly equally probable may then change places, and everything behind them
is another answer. So tokens are compared up to the first such place, and there both candidates must be near each other on
both servers.
"""

import collections

EQUAL, TIE, DIFFERS = "equal", "tie", "DIFFERS"
TOP = 5  # candidates asked for at each token

Verdict = collections.namedtuple("Verdict", "kind at largest")  # at: token of a tie; largest: difference of log probabilities


def exact(cached, uncached):
    return Verdict(EQUAL if cached.content == uncached.content else DIFFERS, None, 0.0)


def _candidates(entry):
    return {tuple(other.get("bytes") or ()): other["logprob"] for other in entry["top_logprobs"]}


def _bytes(entry):
    return tuple(entry.get("bytes") or ())


def _near(entry, other, tolerance):
    """`other` was nearly chosen where `entry` was."""
    candidates = _candidates(entry)
    return other in candidates and entry["logprob"] - candidates[other] <= tolerance


def _end_was_near(entry, tolerance):
    """Where one answer ended, a candidate for an end stood close to the token that the other one went on with."""
    return any(other["token"].startswith("<|") and entry["logprob"] - other["logprob"] <= tolerance
               for other in entry["top_logprobs"])


def with_tolerance(cached, uncached, tolerance):
    largest = 0.0
    for at, (mine, theirs) in enumerate(zip(cached.logprobs, uncached.logprobs)):
        if _bytes(mine) != _bytes(theirs):
            tie = _near(mine, _bytes(theirs), tolerance) and _near(theirs, _bytes(mine), tolerance)
            return Verdict(TIE if tie else DIFFERS, at, largest)
        largest = max(largest, abs(mine["logprob"] - theirs["logprob"]))
    if largest > tolerance or not cached.logprobs:
        return Verdict(DIFFERS, None, largest)
    shorter = min(len(cached.logprobs), len(uncached.logprobs))
    longer = max(cached.logprobs, uncached.logprobs, key=len)
    if len(longer) > shorter:
        return Verdict(TIE if _end_was_near(longer[shorter], tolerance) else DIFFERS, shorter, largest)
    return Verdict(EQUAL if cached.content[:2] == uncached.content[:2] else DIFFERS, None, largest)


def told_apart(pairs, compare):
    """The control of a comparison: how many of the answers it tells from the next one's counterpart, and of how many."""
    foreign = [(cached, pairs[(at + 1) % len(pairs)][1]) for at, (cached, _) in enumerate(pairs)]
    return sum(compare(cached, other).kind == DIFFERS for cached, other in foreign), len(foreign)
