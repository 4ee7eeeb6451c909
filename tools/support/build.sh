# Shared by the tools that install, configure and build (sourced by bash; sets nothing but the functions below).
# Progress goes to stderr, one line a stage, so that a tool's own output stays apart.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

note() { printf '\n== %s\n' "$*" >&2; }

# Missing packages are installed; on a system without apt-get the build goes on and names what it lacks itself.
ensure_packages() {
  local status=0
  "$root/tools/install_deps" || status=$?
  [ "$status" -eq 0 ] || [ "$status" -eq 3 ]
}

# Compilers at once: one a core, and 1.6 GiB for each (a sanitizer build of the HTTP server takes 1.5 GB).
build_jobs() {
  local cores available_mib by_memory
  cores=$(nproc 2>/dev/null || echo 1)
  available_mib=$(awk '/^MemAvailable:/ { print int($2 / 1024) }' /proc/meminfo 2>/dev/null || echo 0)
  by_memory=$((available_mib / 1600))
  [ "$by_memory" -ge 1 ] || by_memory=1
  echo $((cores < by_memory ? cores : by_memory))
}

# build_preset PRESET [TARGET…]: configures and builds build/PRESET; no target: everything.
build_preset() {
  local preset=$1 jobs log
  shift
  jobs=$(build_jobs)
  mkdir -p "$root/build"
  log="$root/build/$preset.configure.log"
  note "$preset: configure"
  if ! (cd "$root" && cmake --preset "$preset" >"$log" 2>&1); then
    cat "$log" >&2
    return 1
  fi
  note "$preset: build${*:+ $*} ($jobs at a time)"
  # shellcheck disable=SC2048  # ${*:+} only asks whether there are targets
  (cd "$root" && cmake --build --preset "$preset" --parallel "$jobs" ${*:+--target "$@"}) >&2
}
