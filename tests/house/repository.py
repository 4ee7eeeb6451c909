"""What the house tests look at: the files of the repository, without what is built or hidden."""

import os
import re
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
CODE_FOLDERS = ("core", "tiers", "plugins", "engine", "bench", "tests", "tools")
PROGRAM_FOLDERS = ("core", "tiers", "plugins", "engine")
HEADERS = (".hpp", ".h")
SOURCES = (".cpp", ".c")
INCLUDED_PER_UNIT = "_body.hpp"  # source text that several units include, each with macros of its own
SKIPPED = {".git", "build", ".cache", "__pycache__"}


def files(*folders, ending=()):
    """Paths relative to the root, with '/', sorted."""
    found = []
    for folder in folders or (".",):
        for directory, names, entries in os.walk(os.path.join(ROOT, folder)):
            names[:] = sorted(n for n in names if n not in SKIPPED)
            for entry in entries:
                if entry not in SKIPPED and (not ending or entry.endswith(tuple(ending))):
                    path = os.path.relpath(os.path.join(directory, entry), ROOT)
                    found.append(path.replace(os.sep, "/"))
    return sorted(found)


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


_LITERAL_OR_COMMENT = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<tag>[^(\s]*)\(.*?\)(?P=tag)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'', re.DOTALL)


def code_only(text):
    """C++ without comments and without the content of literals; lines keep their numbers."""

    def blank(match):
        return re.sub(r"[^\n]", " ", match.group(0))

    return _LITERAL_OR_COMMENT.sub(blank, text)


_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"\n]+)[>"]', re.MULTILINE)


def includes(text):
    """[(line number, '<' or '"', path)] of C or C++ text."""
    return [(text.count("\n", 0, m.start()) + 1, m.group(1), m.group(2)) for m in _INCLUDE.finditer(text)]


class HouseTest(unittest.TestCase):
    def assert_clean(self, complaints):
        """Fails with every complaint, one a line."""
        if complaints:
            self.fail("\n" + "\n".join(complaints))


def main():
    unittest.main(verbosity=2)
