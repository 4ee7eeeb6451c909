"""Prompts of an exact number of tokens, made of files of this repository; no two begin alike."""

import glob
import os

import native_client
from servers import ROOT


MOST = 64


class Prompts:
    """Cuts one prompt after the other from the repository's documents and headers. Needs its server only to begin."""

    def __init__(self, port):
        """port: of a server that tokenizes; both have the same tokenizer, that of the file."""
        names = [*glob.glob(os.path.join(ROOT, "docs", "*.md")), *glob.glob(os.path.join(ROOT, "*", "*.hpp"))]
        texts = []
        for name in sorted(names):
            with open(name, encoding="utf-8") as file:
                texts.append(file.read().encode("ascii", "replace").decode())
        self._tokens = native_client.tokenize(port, "\n".join(texts))
        self._heads = [native_client.tokenize(port, f"{number * 7919} is the number of this text.\n")
                       for number in range(1, MOST + 1)]
        self.follow_up = native_client.tokenize(port, "\nAnd what follows from that?\n")
        self._next = 0

    def next(self, size):
        """`size` tokens: a number of its own, then text that was not used before (from the start again at the end)."""
        head = self._heads.pop(0)
        body = size - len(head)
        if self._next + body > len(self._tokens):
            self._next = 0
        text = self._tokens[self._next:self._next + body]
        self._next += body
        return head + text
