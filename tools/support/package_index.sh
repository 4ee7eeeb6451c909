# Pinned files from the Python package index, for tools/install_deps. Sourced, not run.
# A file is used only when its sha256 is the expected one; what is not complete never stands in the cache.
# shellcheck shell=bash

# shellcheck disable=SC2034  # read by the scripts that are sourced after this one
strata_cache="${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/strata"

# fetch_package REQUIREMENT SHA256 FOLDER [pip options]: downloads one package file into FOLDER and prints its path.
fetch_package() {
  local requirement=$1 expected=$2 folder=$3 file
  shift 3
  if ! python3 -m pip --version >/dev/null 2>&1; then
    say "python3 has no pip: install the package python3-pip"
    return 1
  fi
  say "getting $requirement"
  mkdir -p "$folder"
  if ! python3 -m pip download --quiet --disable-pip-version-check --no-deps --retries 1 --timeout 20 \
    --dest "$folder" "$@" "$requirement" >"$folder/pip.log" 2>&1; then
    say "cannot get $requirement: the Python package index cannot be reached, or does not have it"
    return 1
  fi
  rm -f "$folder/pip.log"
  file=$(find "$folder" -maxdepth 1 -type f | head -n 1)
  if [ "$(sha256sum "$file" | cut -d' ' -f1)" != "$expected" ]; then
    say "$requirement has the sha256 $(sha256sum "$file" | cut -d' ' -f1), not $expected: not used"
    return 1
  fi
  printf '%s\n' "$file"
}
