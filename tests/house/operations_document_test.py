"""docs/operations.md explains every reason that a user can read and every line that the log can hold."""

import re

import repository

DOCUMENT = "docs/operations.md"
LABEL = re.compile(r'return "([a-z_]+)";')
CALL = re.compile(r"log_?\.write\(|log->write\(")
LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"')
NAME = "strata: "  # the log puts it in front where it is missing


def reasons(source):
    """The texts of core/reasons.cpp."""
    return sorted(set(LABEL.findall(source)))


def without_comments(source):
    """Nor quotes that are single characters: what is between the others is text."""
    return re.sub(r"//[^\n]*", "", source.replace("'\"'", "''"))


def log_beginnings(source):
    """What the lines of the log calls begin with, up to the first value. Lines that only hand on another's text have none."""
    found = []
    for call in CALL.finditer(source):
        arguments = source[call.end():source.find(";\n", call.end())]
        arguments = re.sub(r'"\s+"', "", arguments)  # adjacent literals are one
        for literal in LITERAL.findall(arguments):
            beginning = re.split(r"\{", literal.removeprefix(NAME))[0].rstrip(" :(,")
            if literal.startswith(NAME) or re.match(r"(conversation|disk|pinned)", literal):
                found.append(beginning)
    return sorted({b for b in found if b})


def lines_made_elsewhere(source):
    """Whole lines made by functions: literals that begin with the program's name and a word of the tiers or the engine."""
    joined = re.sub(r'"\s+"', "", source)
    return sorted({re.split(r"\{", text.removeprefix(NAME))[0].rstrip(" :(,") for text in LITERAL.findall(joined)
                   if re.match(r"(strata: )?(conversation (cache|disk): \w|prompt \{)", text)} - {""})


def unexplained(beginnings, document):
    plain = " ".join(document.split())
    return [b for b in beginnings if NAME + b not in plain]


class OperationsDocument(repository.HouseTest):
    @classmethod
    def setUpClass(cls):
        cls.document = repository.read(DOCUMENT)
        cls.sources = [f for f in repository.files("tiers", "engine", "core", ending=(".cpp",))]

    def test_every_reason_is_explained(self):
        known = reasons(repository.read("core/reasons.cpp"))
        self.assertGreater(len(known), 25)
        rows = re.findall(r"^\| `([a-z_]+)(?:@N)?` \|", self.document, re.MULTILINE)
        self.assert_clean([f"{DOCUMENT}: no row explains the reason `{r}`" for r in known if r not in rows])

    def test_every_log_line_is_explained(self):
        complaints, count = [], 0
        for path in self.sources:
            source = without_comments(repository.read(path))
            beginnings = sorted(set(log_beginnings(source)) | set(lines_made_elsewhere(source)))
            count += len(beginnings)
            complaints += [f"{path}: {DOCUMENT} does not know the line \"{NAME}{b} …\"" for b in unexplained(beginnings, self.document)]
        self.assertGreater(count, 30)
        self.assert_clean(complaints)

    def test_it_finds_what_is_missing(self):
        source = 'log_.write(LogLevel::info,\n  fmt::format("strata: conversation disk: lost "\n"{} tokens", n));\n'
        self.assertEqual(log_beginnings(source), ["conversation disk: lost"])
        self.assertEqual(unexplained(["conversation disk: lost"], "`strata: conversation disk: wrote`"), ["conversation disk: lost"])
        self.assertEqual(unexplained(["conversation disk: lost"], "x `strata: conversation\ndisk: lost N`"), [])
        self.assertEqual(lines_made_elsewhere('return fmt::format("strata: prompt {} tokens", n);'), ["prompt"])
        self.assertEqual(log_beginnings("log.write(LogLevel::info, text);\n"), [])
        self.assertEqual(reasons('case A:\n return "off";'), ["off"])


if __name__ == "__main__":
    repository.main()
