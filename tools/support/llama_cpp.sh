# Builds llama.cpp's libraries once, into the cache folder; on demand also its server, which bench/real_model compares with.
# Sourced by tools/install_deps, not run.
#
# The result is a folder with include/ and lib/ that needs nothing else. It is built beside its final place and moved there
# when it is complete. Instruction sets are fixed (AVX2 on x86-64), not those of the building machine: equal source then
# gives equal bytes of state on every machine that shares stored conversations.
# shellcheck shell=bash

llama_requirement="llama-cpp-python==0.3.36" # holds llama.cpp v0.5.0 in vendor/llama.cpp
llama_sha256=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e
# shellcheck disable=SC2154  # from package_index.sh
llama_folder="$strata_cache/llama-0.3.36"

# llama_configure SOURCE BUILD [more options]: a later option wins over the same one before it.
llama_configure() {
  local source=$1 build=$2
  shift 2
  cmake -S "$source" -B "$build" -G Ninja -Wno-dev -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF \
    -DCMAKE_POSITION_INDEPENDENT_CODE=ON -DCMAKE_CXX_VISIBILITY_PRESET=hidden -DCMAKE_C_VISIBILITY_PRESET=hidden \
    -DLLAMA_BUILD_COMMON=ON -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_BUILD_EXAMPLES=OFF \
    -DLLAMA_BUILD_SERVER=OFF -DLLAMA_BUILD_APP=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_SUBPROCESS=OFF -DLLAMA_BUILD_IS_DEV=OFF \
    -DGGML_NATIVE=OFF -DGGML_CCACHE=OFF "$@"
}

# Headers and libraries only: objects and sources are several hundred MiB.
llama_collect() {
  local source=$1 build=$2 to=$3
  mkdir -p "$to/include/common" "$to/lib"
  cp "$source"/include/*.h "$source"/ggml/include/*.h "$to/include/"
  (cd "$source/common" && find . \( -name "*.h" -o -name "*.hpp" \) -exec cp --parents {} "$to/include/common/" \;)
  cp -r "$source/vendor/nlohmann" "$to/include/"
  cp "$source/LICENSE" "$to/"
  find "$build" -name '*.a' -exec cp {} "$to/lib/" \;
  [ -f "$to/lib/libllama.a" ] && [ -f "$to/lib/libllama-common.a" ]
}

# llama_unpack WORK: fetches the package and prints the folder of llama.cpp's source.
llama_unpack() {
  local work=$1 archive
  archive=$(fetch_package "$llama_requirement" "$llama_sha256" "$work/package" --no-binary llama-cpp-python) || return 1
  say "unpacking"
  mkdir -p "$work/source"
  tar -xzf "$archive" -C "$work/source" --strip-components=1 --wildcards '*/vendor/llama.cpp/*' || return 1
  printf '%s\n' "$work/source/vendor/llama.cpp"
}

# llama_compile SOURCE BUILD "TARGETS" [cmake options]
llama_compile() {
  local source=$1 build=$2 targets=$3
  shift 3
  if ! llama_configure "$source" "$build" "$@" >"$build.log" 2>&1; then
    tail -n 20 "$build.log" >&2
    say "llama.cpp could not be configured"
    return 1
  fi
  # shellcheck disable=SC2086  # a list of words
  if ! cmake --build "$build" --parallel "${STRATA_JOBS:-$(nproc)}" --target $targets >&2; then
    say "llama.cpp could not be built"
    return 1
  fi
}

llama_build() {
  local work=$1 source
  source=$(llama_unpack "$work") || return 1
  say "building llama.cpp once, some minutes"
  llama_compile "$source" "$work/build" "llama llama-common" || return 1
  llama_collect "$source" "$work/build" "$work/result" || { say "the build left no libraries"; return 1; }
}

# Equal instruction sets and compiler options as the libraries'; without the web page, which would come from the network.
llama_build_server() {
  local work=$1 source
  source=$(llama_unpack "$work") || return 1
  say "building llama.cpp's server once, some minutes"
  llama_compile "$source" "$work/build" llama-server -DLLAMA_BUILD_TOOLS=ON -DLLAMA_BUILD_SERVER=ON \
    -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF
}

install_llama() {
  if [ -f "$llama_folder/lib/libllama-common.a" ]; then
    say "llama.cpp is there: $llama_folder"
    return 0
  fi
  mkdir -p "$strata_cache"
  local work
  work=$(mktemp -d "$strata_cache/building-XXXXXX")
  if ! llama_build "$work" || ! mv -T "$work/result" "$llama_folder"; then
    rm -rf "$work"
    return 1
  fi
  rm -rf "$work"
  say "llama.cpp is built: $llama_folder"
}

# Into the folder of the libraries, which come first: they are moved there as a whole.
install_llama_server() {
  install_llama || return 1
  if [ -x "$llama_folder/bin/llama-server" ]; then
    say "llama.cpp's server is there: $llama_folder/bin/llama-server"
    return 0
  fi
  local work
  work=$(mktemp -d "$strata_cache/building-XXXXXX")
  mkdir -p "$llama_folder/bin"
  if ! llama_build_server "$work" || ! mv "$work/build/bin/llama-server" "$llama_folder/bin/llama-server"; then
    rm -rf "$work"
    return 1
  fi
  rm -rf "$work"
  say "llama.cpp's server is built: $llama_folder/bin/llama-server"
}
