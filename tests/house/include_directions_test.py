"""Who may include what (docs/architecture.md, "The house"): arrows point one way, vendor headers stay where they belong."""

import re
import sys

import repository

# Folder → prefixes of quoted includes. The longest folder that holds a file decides.
MAY_INCLUDE = {
    "plugins/abi": ("plugins/abi/",),
    "plugins/sdk": ("plugins/abi/", "plugins/sdk/"),
    "plugins/host": ("core/", "plugins/abi/", "plugins/host/"),
    "core": ("core/",),
    "core/posix": ("core/",),
    "tiers": ("core/", "tiers/"),
    "engine/runtime": ("core/", "plugins/host/", "plugins/abi/", "tiers/", "engine/runtime/"),
    "engine/protocol": ("core/", "plugins/host/", "plugins/abi/", "tiers/", "engine/runtime/", "engine/protocol/"),
    "engine/server": ("core/", "plugins/host/", "plugins/abi/", "engine/server/"),
    "engine/cli": ("core/", "plugins/host/", "plugins/abi/", "tiers/", "engine/"),
    "bench": ("",),
    "tests": ("",),
    "tools": ("",),
}
# Within an allowed prefix, what is still out of bounds.
MAY_NOT_INCLUDE = {
    "core": ("core/posix/",),
    "plugins/host": ("core/posix/",),
    "tiers": ("core/posix/",),
}
PLUGIN = ("plugins/abi/", "plugins/sdk/")

C_STANDARD = re.compile(r"^(stdint|stddef|stdbool|string)\.h$")
CXX_STANDARD = re.compile(r"^[a-z_]+$")
# Operating system headers live in these folders; elsewhere a port is used.
MAY_CALL_THE_SYSTEM = ("core/posix/", "plugins/", "engine/")
# Vendor header prefix → folders that may include it, beside those of MAY_INCLUDE_ANYTHING.
VENDORS = {
    "tl/": ("core/", "engine/"),
    "fmt/": ("core/", "tiers/", "plugins/", "engine/"),
    "xxh": ("core/",),
    "boost/": ("engine/server/",),
    "spdlog/": ("engine/",),
    "CLI/": ("engine/cli/",),
    "liburing": ("plugins/io_uring/",),
    "tbb/": ("engine/runtime/",),
    "oneapi/": ("engine/runtime/",),
    "gtest/": (),
    "gmock/": (),
    "benchmark/": (),
}
MAY_INCLUDE_ANYTHING = ("bench/", "tests/", "tools/")


def rules_for(path):
    folders = [folder for folder in MAY_INCLUDE if path.startswith(folder + "/")]
    if folders:
        return max(folders, key=len)
    return "plugins/<name>" if path.startswith("plugins/") else None


def quoted_complaint(path, target):
    folder = rules_for(path)
    if folder is None:
        return "stands in no folder of the house"
    own = path.rsplit("/", 1)[0] + "/"
    allowed = PLUGIN + (own,) if folder == "plugins/<name>" else MAY_INCLUDE[folder]
    forbidden = MAY_NOT_INCLUDE.get(folder, ())
    if "/" not in target:
        return f'includes "{target}": write the path from the repository\'s root'
    if not target.startswith(tuple(allowed)) or (forbidden and target.startswith(forbidden)):
        return f'may not include "{target}"'
    if not path.startswith(MAY_INCLUDE_ANYTHING) and target.startswith(MAY_INCLUDE_ANYTHING):
        return f'may not include "{target}": the program does not know its tests'
    return None


def angle_complaint(path, target):
    if path.startswith("plugins/abi/"):
        return None if C_STANDARD.match(target) else "may include <stdint.h> and its like only"
    if CXX_STANDARD.match(target) or path.startswith(MAY_INCLUDE_ANYTHING):
        return None
    for prefix, folders in VENDORS.items():
        if target.startswith(prefix):
            return None if path.startswith(folders) else f"may not include <{target}>"
    if C_STANDARD.match(target) and path.startswith("plugins/"):
        return None
    return None if path.startswith(MAY_CALL_THE_SYSTEM) else f"may not include the system header <{target}>"


def complaints_about(path, text):
    found = []
    for line, kind, target in repository.includes(text):
        complaint = quoted_complaint(path, target) if kind == '"' else angle_complaint(path, target)
        if complaint:
            found.append(f"{path}:{line}: {complaint}")
    return found


class IncludeDirections(repository.HouseTest):
    def test_arrows_point_one_way(self):
        found = []
        for path in repository.files(*repository.CODE_FOLDERS, ending=repository.HEADERS + repository.SOURCES):
            found += complaints_about(path, repository.read(path))
        self.assert_clean(found)

    def test_a_wrong_arrow_is_seen(self):
        wrong = {
            "core/digest.cpp": ['"tiers/planner.hpp"', '"core/posix/clock.hpp"', "<unistd.h>", "<boost/json.hpp>"],
            "tiers/planner.cpp": ['"engine/runtime/engine.hpp"', '"plugins/host/registry.hpp"', "<sys/mman.h>", "<tbb/task.h>"],
            "plugins/abi/strata_io.h": ['"core/types.hpp"', "<vector>", "<unistd.h>"],
            "plugins/io_posix/queue.cpp": ['"core/result.hpp"', '"plugins/io_uring/ring.hpp"', "<liburing.h>"],
            "engine/runtime/engine.cpp": ['"engine/server/http.hpp"', '"plugins/device_host/device.hpp"', "<boost/json.hpp>"],
            "engine/server/http.cpp": ['"tiers/tier_stack.hpp"', '"engine/cli/main.hpp"', '"tests/support/fakes.hpp"'],
            "core/lines.cpp": ['"lines.hpp"'],
            "src/other.cpp": ['"core/types.hpp"'],
        }
        for path, targets in wrong.items():
            for target in targets:
                with self.subTest(path=path, target=target):
                    self.assertTrue(complaints_about(path, f"#include {target}\n"))

    def test_right_arrows_pass(self):
        right = {
            "core/digest.cpp": ['"core/digest.hpp"', "<vector>", "<xxhash.h>", "<tl/expected.hpp>"],
            "core/posix/clock.cpp": ['"core/clock.hpp"', "<time.h>"],
            "tiers/planner.cpp": ['"core/image.hpp"', '"tiers/planner.hpp"', "<fmt/format.h>"],
            "plugins/abi/strata_io.h": ['"plugins/abi/strata_plugin.h"', "<stdint.h>"],
            "plugins/io_uring/queue.cpp": ['"plugins/sdk/guard.hpp"', '"plugins/io_uring/ring.hpp"', "<liburing.h>"],
            "engine/server/http.cpp": ['"core/lines.hpp"', "<boost/json.hpp>"],
            "engine/cli/main.cpp": ['"engine/server/serve.hpp"', "<CLI/CLI.hpp>"],
        }
        for path, targets in right.items():
            text = "".join(f"#include {target}\n" for target in targets)
            self.assert_clean(complaints_about(path, text))


if __name__ == "__main__":
    sys.exit(repository.main())
