"""Nothing dead lies around: every source is built, every header is included, every header opens with its contract."""

import json
import os
import sys

import repository

# Built by one preset only, or by hand: not in every build's list of commands.
BUILT_ELSEWHERE = ("tests/fuzz/", "tests/plugins_bad/", "tests/gpu/", "plugins/device_gpu/", "plugins/skeleton/")


def unbuilt(sources, built):
    return [path for path in sources if path not in built and not path.startswith(BUILT_ELSEWHERE)]


def unincluded(headers, texts):
    """Headers that no other file includes; texts: path → content."""
    used = set()
    for path, text in texts.items():
        used.update(target for _, _, target in repository.includes(text) if target != path)
    return [header for header in headers if header not in used]


def contract_complaints(path, text):
    found = []
    if not text.startswith(("// ", "/* ")):
        found.append(f"{path}: opens without saying what it is for")
    if path.endswith(".hpp") and not path.endswith(repository.INCLUDED_PER_UNIT) and "#pragma once" not in text:
        found.append(f"{path}: no #pragma once")
    if path.endswith(".h") and "#ifndef" not in text and "#pragma once" not in text:
        found.append(f"{path}: no include guard")
    return found


class FilesInUse(repository.HouseTest):
    def test_every_source_is_built(self):
        build = os.environ["STRATA_BUILD_DIR"]
        with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
            commands = json.load(file)
        built = {os.path.relpath(os.path.realpath(c["file"]), os.path.realpath(repository.ROOT)) for c in commands}
        sources = repository.files(*repository.CODE_FOLDERS, ending=repository.SOURCES)
        self.assertTrue(sources)
        self.assert_clean([f"{path}: no target builds it" for path in unbuilt(sources, built)])

    def test_every_header_is_included(self):
        everything = repository.files(*repository.CODE_FOLDERS, ending=repository.HEADERS + repository.SOURCES)
        texts = {path: repository.read(path) for path in everything}
        headers = [path for path in everything if path.endswith(repository.HEADERS)]
        self.assert_clean([f"{path}: nothing includes it" for path in unincluded(headers, texts)])

    def test_every_header_opens_with_its_contract(self):
        found = []
        for path in repository.files(*repository.PROGRAM_FOLDERS, ending=repository.HEADERS):
            found += contract_complaints(path, repository.read(path))
        self.assert_clean(found)

    def test_dead_files_are_seen(self):
        self.assertEqual(unbuilt(["core/a.cpp", "core/b.cpp", "tests/fuzz/c.cpp"], {"core/a.cpp"}), ["core/b.cpp"])
        texts = {"core/a.hpp": '#include "core/a.hpp"\n', "core/b.hpp": "", "core/b.cpp": '#include "core/b.hpp"\n'}
        self.assertEqual(unincluded(["core/a.hpp", "core/b.hpp"], texts), ["core/a.hpp"])
        self.assertTrue(contract_complaints("core/a.hpp", "#pragma once\n"))
        self.assertTrue(contract_complaints("core/a.hpp", "// A thing.\n"))
        self.assertFalse(contract_complaints("core/a.hpp", "// A thing.\n#pragma once\n"))


if __name__ == "__main__":
    sys.exit(repository.main())
