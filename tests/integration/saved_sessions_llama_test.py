"""SES-6 with real models of every kind of state: saved by name, a conversation goes on in an occupied slot and in another process
with the tokens and log probabilities of one that never left its slot; another beginning of the same length must differ."""

import os
import random

import harness
import llama_models
from strata_process import Engine

FLOORS = ["--session-min-free-mib", 1, "--conversation-cache-min-free-mib", 64]


def tokens(seed, count):
    source = random.Random(seed)
    return [source.randrange(5, 100) for _ in range(count)]


class SavedLlamaSessions(harness.StrataTest):
    def engine(self, model):
        engine = Engine(harness.BINARY, [*model, *FLOORS]).start()
        self.addCleanup(engine.kill)
        return engine

    def act(self, engine, line, word):
        answer = engine.query(line, word)
        return [float(number) for number in answer.split()]

    def go_on(self, model):
        path = os.path.join(self.folder(), "chat.sess")
        staying, leaving = self.engine(model), self.engine(model)
        begin = tokens("begin", 200)
        answer = leaving.generate(begin, slot=0, ignore_end=1)
        self.assertEqual(staying.generate(begin, slot=0, ignore_end=1).tokens, answer.tokens)
        saved = self.act(leaving, f"SAVE slot=0 {path}", "SAVED")
        leaving.generate(tokens("other", 220), slot=1, ignore_end=1)
        prompt = begin + answer.tokens + tokens("more", 10)
        expected = staying.generate(prompt, slot=0, maximum=6, logprobs=2, ignore_end=1)
        returned = self.engine(model)
        for engine, slot in ((leaving, 1), (returned, 0)):
            restored = self.act(engine, f"RESTORE slot={slot} {path}", "RESTORED")
            self.assertEqual(restored[:3], [saved[0], saved[0], saved[1]])
            back = engine.generate(prompt, slot=slot, maximum=6, logprobs=2, ignore_end=1)
            self.assertEqual((back.reused, back.tier), (int(saved[0]), "vram"))
            self.assertEqual(back.content, expected.content)
        changed = returned.generate(tokens("other", 200) + prompt[200:], slot=0, maximum=6, logprobs=2, ignore_end=1)
        self.assertNotEqual(changed.content, expected.content)
        for engine in (staying, leaving, returned):
            engine.kill()

    def test_every_kind_of_state_goes_on_exactly(self):
        for name in llama_models.TINY:
            for granularity in ("auto", "whole"):
                with self.subTest(model=name, state=granularity):
                    self.go_on(llama_models.options(llama_models.tiny(name), slots=2, context=256, granularity=granularity))


if __name__ == "__main__":
    harness.main()
