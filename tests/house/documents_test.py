"""Documents and comments keep their word: files, tools and tests that they name exist, and nothing in the repository
knows the machine that it was written on."""

import fnmatch
import os
import re
import sys

import repository

# `core/lines.hpp`, `tests/unit/*_test.cpp`, `docs/` … in backticks, and [text](target).
NAMED = re.compile(r"`((?:\.ci|bench|cmake|core|docs|engine|plugins|tests|tiers|tools)/[\w.*/{},-]*)`")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s#]+)(?:#[^)]*)?\)")
TEST_NAME = re.compile(r"`([A-Z]\w+)\.([A-Z*]\w*)`")
DEFINED_TEST = re.compile(r"\bTEST(?:_F|_P)?\(\s*(\w+)\s*,\s*(\w+)\s*\)")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
MACHINE = re.compile(r"(?<![\w.])/(?:home|Users|root|work|tmp/\w+)/[\w.-]+")
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX)\b")


def documents():
    return repository.files("docs", "plugins", "tests", ending=(".md",)) + ["README.md"]


def expand(pattern):
    """a/{b,c}.hpp → a/b.hpp, a/c.hpp."""
    match = re.search(r"\{([^}]*)\}", pattern)
    if not match:
        return [pattern]
    head, tail = pattern[: match.start()], pattern[match.end():]
    return [path for part in match.group(1).split(",") for path in expand(head + part + tail)]


def exists(pattern, all_files):
    pattern = pattern.rstrip("/")
    return pattern in all_files or any(fnmatch.fnmatch(f, pattern) or f.startswith(pattern + "/") for f in all_files)


def missing_files(path, text, all_files):
    found = []
    for match in NAMED.finditer(text):
        found += [f"{path}: names {p}, which does not exist" for p in expand(match.group(1)) if not exists(p, all_files)]
    for match in LINK.finditer(text):
        target = match.group(1)
        if "://" in target:
            continue
        target = os.path.normpath(os.path.join(os.path.dirname(path), target)).replace(os.sep, "/")
        if not exists(target, all_files):
            found.append(f"{path}: links to {target}, which does not exist")
    return found


def missing_tests(path, text, defined):
    return [f"{path}: names the test {suite}.{name}, which does not exist"
            for suite, name in TEST_NAME.findall(text)
            if not any(fnmatch.fnmatchcase(f"{s}.{n}", f"{suite}.{name}") for s, n in defined)]


def missing_commands(path, text, all_files):
    found = []
    for language, block in FENCE.findall(text):
        if language not in ("sh", "bash", "console"):
            continue
        for word in re.findall(r"(?:^|[\s;&|])(?:\./)?((?:tools|\.ci)/[\w.-]+)", block):
            if word not in all_files:
                found.append(f"{path}: the command {word} does not exist")
            elif not os.access(os.path.join(repository.ROOT, word), os.X_OK):
                found.append(f"{path}: {word} is not executable")
    return found


def own_words(path):
    """Files whose text is looked at for machine paths: all but this folder's samples, pictures and fuzz seeds."""
    return not path.startswith(("tests/house/", "tests/fuzz/corpus/")) and not path.endswith((".png", ".bin", ".idx", ".sess"))


class Documents(repository.HouseTest):
    @classmethod
    def setUpClass(cls):
        cls.all_files = set(repository.files())

    def test_named_files_exist(self):
        found = []
        for path in documents():
            found += missing_files(path, repository.read(path), self.all_files)
        self.assert_clean(found)

    def test_named_tests_exist(self):
        defined = set()
        for path in repository.files("tests", ending=repository.SOURCES):
            defined.update(DEFINED_TEST.findall(repository.read(path)))
        self.assertTrue(defined)
        found = []
        for path in documents():
            found += missing_tests(path, repository.read(path), defined)
        self.assert_clean(found)

    def test_commands_exist(self):
        found = []
        for path in documents():
            found += missing_commands(path, repository.read(path), self.all_files)
        self.assert_clean(found)

    def test_nothing_knows_the_machine_it_was_written_on(self):
        found = []
        for path in sorted(filter(own_words, self.all_files)):
            try:
                text = repository.read(path)
            except UnicodeDecodeError:
                continue
            for pattern, what in ((MACHINE, "a path of one machine"), (UNFINISHED, "unfinished work")):
                found += [f"{path}:{text.count(chr(10), 0, m.start()) + 1}: {what}: {m.group(0)}" for m in pattern.finditer(text)]
        self.assert_clean(found)

    def test_wrong_words_are_seen(self):
        there = {"core/a.hpp", "tools/demo", "docs/x.md"}
        self.assertTrue(missing_files("docs/x.md", "see `core/b.hpp`", there))
        self.assertTrue(missing_files("docs/x.md", "see [b](y.md)", there))
        self.assertTrue(missing_files("docs/x.md", "see `core/{a,b}.hpp`", there))
        self.assertFalse(missing_files("docs/x.md", "see `core/a.hpp`, `core/*.hpp`, `core/`, [a](../core/a.hpp)", there))
        self.assertTrue(missing_tests("docs/x.md", "`Planner.Pins`", {("Planner", "Waits")}))
        self.assertFalse(missing_tests("docs/x.md", "`Planner.Pins`", {("Planner", "Pins")}))
        self.assertTrue(missing_commands("README.md", "```sh\ntools/none --x\n```\n", there))
        self.assertTrue(MACHINE.search("in /home/" + "me/strata"))
        self.assertFalse(MACHINE.search("docs/work/plan and /tmp"))
        self.assertTrue(UNFINISHED.search("TO" + "DO: later"))


if __name__ == "__main__":
    sys.exit(repository.main())
