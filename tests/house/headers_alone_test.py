"""Each header compiles alone. A header that some source includes first is shown by the build itself; only the others
are compiled here, syntax only, two at a time."""

import concurrent.futures
import json
import os
import re
import shlex
import subprocess
import sys

import repository

KEPT_FLAGS = re.compile(r"^(-std=.*|-isystem|-I.*|-D.*)$")


def first_include(text):
    found = repository.includes(text)
    return found[0][2] if found else None


def not_shown_by_the_build(headers, source_texts):
    first = {first_include(text) for text in source_texts.values()}
    return [header for header in headers if header not in first]


# Built only where the library that its headers include was found.
OPTIONAL_FOLDER = "plugins/model_llama/"


def compile_command(folder="engine/"):
    """Compiler and include flags of a source in that folder, without its output and warnings; None: nothing there is
    built."""
    with open(os.path.join(os.environ["STRATA_BUILD_DIR"], "compile_commands.json"), encoding="utf-8") as file:
        commands = json.load(file)
    here = [c for c in commands if "/" + folder in c["file"]]
    if not here:
        return None
    words = shlex.split(here[0]["command"])
    compiler = next(w for w in words if not w.endswith("ccache"))
    kept, take = [], False
    for word in words[1:]:
        if take or KEPT_FLAGS.match(word):
            kept.append(word)
            take = not take and word == "-isystem"
    return [compiler] + kept


def compile_header(command, header, text=None):
    """The compiler's complaints about a file that includes nothing but this header, twice."""
    language = "c" if header.endswith(".h") else "c++"
    flags = [f for f in command[1:] if language == "c++" or not f.startswith("-std=")]
    if language == "c":
        flags += ["-std=c11"]
    source = text if text is not None else f'#include "{header}"\n#include "{header}"\n'
    result = subprocess.run(
        [command[0], *flags, "-I", repository.ROOT, "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only",
         "-x", language, "-"], input=source, capture_output=True, text=True, check=False)
    return result.stderr if result.returncode else ""


class HeadersAlone(repository.HouseTest):
    def test_each_header_compiles_alone(self):
        headers = [header for header in repository.files(*repository.PROGRAM_FOLDERS, ending=repository.HEADERS)
                   if not header.endswith(repository.INCLUDED_PER_UNIT)]
        sources = repository.files(*repository.PROGRAM_FOLDERS, ending=repository.SOURCES)
        rest = not_shown_by_the_build(headers, {path: repository.read(path) for path in sources})
        optional = compile_command(OPTIONAL_FOLDER)
        if optional is None:
            rest = [header for header in rest if not header.startswith(OPTIONAL_FOLDER)]
        commands = {True: optional, False: compile_command()}
        with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
            errors = pool.map(lambda header: compile_header(commands[header.startswith(OPTIONAL_FOLDER)], header), rest)
        self.assert_clean([f"{header}: does not compile alone\n{error}" for header, error in zip(rest, errors) if error])

    def test_a_header_that_needs_others_is_seen(self):
        command = compile_command()
        self.assertTrue(compile_header(command, "x.hpp", "inline std::vector<int> v;\n"))
        self.assertFalse(compile_header(command, "x.hpp", "#include <vector>\ninline std::vector<int> v;\n"))
        self.assertEqual(not_shown_by_the_build(["a.hpp", "b.hpp"], {"a.cpp": '#include "a.hpp"\n#include "b.hpp"\n'}),
                         ["b.hpp"])


if __name__ == "__main__":
    sys.exit(repository.main())
