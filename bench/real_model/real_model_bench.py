#!/usr/bin/env python3
"""Strata with a real model: gaps between tokens, and beside llama.cpp's own server on the same file.

Prints a table and writes JSON. Three parts: `gaps` (an answer while a long prompt is read in another slot), `speed`
(reading and writing new prompts) and `switching` (five conversations over two slots, then a restart). Needs the release
build (cmake --preset release && cmake --build --preset release), tools/install_deps models and, to compare,
tools/install_deps llama-server. About ten minutes on two quiet cores; other work beside it spoils the figures.
"""

import argparse
import json
import os
import platform
import sys
import time

import measurements
import servers

PARTS = {"gaps": measurements.gaps, "speed": measurements.speed, "switching": measurements.switching}
NEEDS_LLAMA_SERVER = ("speed", "switching")


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    out = os.path.join(servers.ROOT, "build", "bench")
    parser.add_argument("--strata", default=servers.strata_binary(), metavar="FILE", help="the built program")
    parser.add_argument("--model", default=servers.default_model(), metavar="FILE", help="GGUF file (SmolLM2 where installed)")
    parser.add_argument("--llama-server", default=servers.llama_server_binary(), metavar="FILE",
                        help="llama.cpp's server; an empty name leaves it out")
    parser.add_argument("--only", choices=PARTS, action="append", help="one of the parts (repeatable)")
    parser.add_argument("--threads", type=int, default=1, help="of each server")
    parser.add_argument("--tokens", type=int, default=2500, help="length of the prompts")
    parser.add_argument("--context", type=int, default=4096, help="of each slot")
    parser.add_argument("--answer", type=int, default=300, help="tokens of the answer whose gaps are measured")
    parser.add_argument("--speed-answer", type=int, default=64, help="tokens written after each prompt of `speed`")
    parser.add_argument("--repeats", type=int, default=3, help="prompts of `speed`")
    parser.add_argument("--work", default=os.path.join(out, "real_model"), metavar="FOLDER", help="for logs and conversations")
    parser.add_argument("--json", default=os.path.join(out, "real_model.json"), metavar="FILE", help="where the results go")
    options = parser.parse_args(arguments)
    options.parts = options.only or list(PARTS)
    return options


def missing(options):
    """In one line each, what is not there and what brings it."""
    if not os.path.isfile(options.strata):
        yield f"{options.strata} is not there: cmake --preset release && cmake --build --preset release"
    if not options.model or not os.path.isfile(options.model):
        yield "no model: tools/install_deps models brings SmolLM2, --model names another file"


def without_llama_server(options):
    """Leaves out what cannot be measured, and says so."""
    if options.llama_server and os.access(options.llama_server, os.X_OK):
        return
    print("llama.cpp's server is not there: nothing is compared (tools/install_deps llama-server builds it)", file=sys.stderr)
    options.llama_server = None
    options.parts = [part for part in options.parts if part not in NEEDS_LLAMA_SERVER]


def machine():
    model = "unknown processor"
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    return f"{len(os.sched_getaffinity(0))} cores, {model}, {platform.system()}"


def show(results):
    print(f"{'':58} {'Strata':34} {'llama.cpp server':34} target")
    for result in results:
        verdict = "" if result.holds is None else ("  holds" if result.holds else "  DOES NOT HOLD")
        print(f"{result.what:58} {result.strata:34} {result.other:34} {result.target}{verdict}".rstrip(), flush=True)


def main():
    options = parse(sys.argv[1:])
    if problems := list(missing(options)):
        for problem in problems:
            print(f"real_model_bench: {problem}", file=sys.stderr)
        return 1
    without_llama_server(options)
    os.makedirs(options.work, exist_ok=True)
    load = os.getloadavg()
    document = {"machine": machine(), "load_at_start": load, "model": os.path.basename(options.model),
                "threads": options.threads, "tokens": options.tokens, "results": {}}
    print(f"{document['machine']}; load {load[0]:.1f} at start; {document['model']}, {options.threads} thread(s), prompts of "
          f"{options.tokens} tokens")
    for part in options.parts:
        started = time.monotonic()
        try:
            results = PARTS[part](options)
        except (servers.strata_process.Died, AssertionError, OSError) as error:
            print(f"real_model_bench: {part}: {error}", file=sys.stderr)
            return 1
        print(f"\n{part} ({time.monotonic() - started:.0f} s)")
        show(results)
        document["results"][part] = [result._asdict() for result in results]
    with open(options.json, "w", encoding="utf-8") as file:
        json.dump(document, file, indent=1)
    print(f"\n{os.path.relpath(options.json)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
