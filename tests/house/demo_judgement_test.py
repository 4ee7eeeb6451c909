"""What the demo says about answers can be wrong in no direction: tools/support/answer_comparison.py and demo_table.py on
made-up answers. (The demo itself takes minutes and real models; its judgement must not be the part that never fails.)"""

import os
import sys
import unittest

import repository

sys.path.insert(0, os.path.join(repository.ROOT, "tools", "support"))

import answer_comparison as comparison  # noqa: E402  (found through the line above)
import demo_table  # noqa: E402
import strata_process  # noqa: E402

TOLERANCE = 0.5


def entry(token, logprob, **others):
    """A token and the candidates beside it."""
    top = {token: logprob, **others}
    return {"token": token, "bytes": list(token.encode()), "logprob": logprob,
            "top_logprobs": [{"token": t, "bytes": list(t.encode()), "logprob": p} for t, p in top.items()]}


def answer(*entries, finish="length", reused=0, tier="none", prompt=3000, first_token_s=1.0):
    made = strata_process.Answer()
    made.logprobs = list(entries)
    made.text = "".join(e["token"] for e in entries)
    made.finish = finish
    made.timings = {"cache_n": reused, "cache_tier": tier, "cache_reason": "new"}
    made.usage = {"prompt_tokens": prompt}
    made.first_token_s = first_token_s
    return made


class Comparison(unittest.TestCase):
    def kind(self, mine, theirs):
        return comparison.with_tolerance(mine, theirs, TOLERANCE)

    def test_equal_tokens_within_the_tolerance_are_equal(self):
        verdict = self.kind(answer(entry("a", -1.0), entry("b", -2.0)), answer(entry("a", -1.1), entry("b", -2.4)))
        self.assertEqual(verdict.kind, comparison.EQUAL)
        self.assertAlmostEqual(verdict.largest, 0.4)

    def test_equal_tokens_with_other_probabilities_differ(self):
        verdict = self.kind(answer(entry("a", -1.0)), answer(entry("a", -1.6)))
        self.assertEqual(verdict.kind, comparison.DIFFERS)

    def test_near_candidates_that_change_places_are_a_tie(self):
        verdict = self.kind(answer(entry("x", -3.0), entry("a", -1.0, b=-1.1), entry("q", -9.0)),
                            answer(entry("x", -3.0), entry("b", -1.0, a=-1.2), entry("z", -1.0)))
        self.assertEqual((verdict.kind, verdict.at), (comparison.TIE, 1))

    def test_candidates_must_be_near_on_both_servers(self):
        near, far = entry("a", -1.0, b=-1.1), entry("b", -0.1, a=-4.0)
        self.assertEqual(self.kind(answer(near), answer(far)).kind, comparison.DIFFERS)
        self.assertEqual(self.kind(answer(far), answer(near)).kind, comparison.DIFFERS)

    def test_a_token_that_was_no_candidate_differs(self):
        self.assertEqual(self.kind(answer(entry("a", -1.0)), answer(entry("b", -1.0))).kind, comparison.DIFFERS)

    def test_an_early_end_needs_a_near_end(self):
        short = answer(entry("a", -1.0), finish="stop")
        near = answer(entry("a", -1.0), entry("b", -1.0, **{"<|im_end|>": -1.2}))
        far = answer(entry("a", -1.0), entry("b", -0.1, **{"<|im_end|>": -5.0}))
        self.assertEqual(self.kind(short, near).kind, comparison.TIE)
        self.assertEqual(self.kind(short, far).kind, comparison.DIFFERS)

    def test_without_probabilities_nothing_is_equal(self):
        self.assertEqual(self.kind(answer(), answer()).kind, comparison.DIFFERS)

    def test_the_control_counts_answers_told_apart(self):
        a, b = answer(entry("a", -1.0)), answer(entry("b", -1.0))
        compare = lambda mine, theirs: comparison.with_tolerance(mine, theirs, TOLERANCE)
        self.assertEqual(comparison.told_apart([(a, a), (b, b)], compare), (2, 2))
        self.assertEqual(comparison.told_apart([(a, a), (a, a)], compare), (0, 2))


class Faults(unittest.TestCase):
    def row(self, agent, phase="first run", verdict=comparison.EQUAL, control=False, uncached_reused=0, **cached):
        return demo_table.Row(phase, agent, answer(entry("a", -1.0), **cached),
                              answer(entry("a", -1.0), reused=uncached_reused), control,
                              comparison.Verdict(verdict, None, 0.0))

    def rows(self):
        return [self.row("main"), self.row("main", tier="ram", reused=3000, prompt=3020),
                self.row("main", tier="disk", reused=3020, prompt=3050),
                self.row("main", phase="after the restart", tier="disk", reused=3050, prompt=3060)]

    def test_a_good_run_has_none(self):
        self.assertEqual(demo_table.faults(self.rows(), 2000), [])

    def test_each_fault_is_found(self):
        bad = {"differs": self.row("other", verdict=comparison.DIFFERS), "shows little": self.row("other", prompt=1000),
               "without a cache reused": self.row("other", uncached_reused=5),
               "the control reused": self.row("control", control=True, reused=500, tier="ram"),
               "known tokens": self.row("main", tier="ram", reused=100)}
        for words, row in bad.items():
            found = demo_table.faults([*self.rows(), row], 2000)
            self.assertEqual(len(found), 1, words)
            self.assertIn(words, found[0])

    def test_a_share_of_different_answers_may_be_allowed(self):
        rows = [*self.rows(), self.row("other", verdict=comparison.DIFFERS)]
        self.assertEqual(demo_table.faults(rows, 2000, 0.25), [])
        rows.append(self.row("third", verdict=comparison.DIFFERS))
        self.assertEqual(len(demo_table.faults(rows, 2000, 0.25)), 2)

    def test_each_tier_must_have_been_seen(self):
        self.assertEqual(len(demo_table.faults(self.rows()[:1], 2000)), 3)

    def test_speedups_count_only_turns_that_read_little(self):
        rows = [self.row("main", tier="ram", reused=2990, first_token_s=0.1), self.row("main", tier="ram", reused=1000)]
        (line,) = demo_table.speedups(rows, {"ram": 20})
        self.assertIn("10 times sooner", line)
        self.assertIn("1 turns", line)


if __name__ == "__main__":
    unittest.main()
