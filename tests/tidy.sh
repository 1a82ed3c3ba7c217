#!/usr/bin/env bash
# Checks the rules of the source itself. Prints each breach; exit 1 if there are any.
set -uo pipefail

cd "$(dirname "$0")/.."
breaches=0
# usage: breach MESSAGE LINES; nothing happens when LINES is empty.
breach() {
  [ -n "$2" ] || return 0
  printf '%s\n%s\n\n' "$1" "$2"
  breaches=$((breaches + 1))
}

mapfile -t sources < <(git ls-files '*.cc' '*.h')
mapfile -t texts < <(git ls-files '*.cc' '*.h' '*.sh' '*.md' '*.txt' '*.cmake' '*.json' '*.pod' \
  'vm-images/guest/bin/*' .ci/run)

breach "core/ may include only compress/ and core/, compress/ only compress/:" "$(
  grep -nE '#include "(core|plugin|tests)/' compress/* /dev/null
  grep -nE '#include "(plugin|tests)/' core/* /dev/null
  grep -nE '#include <nbdkit' core/* compress/* /dev/null)"
breach "Files over 500 lines are two files:" "$(
  wc -l "${sources[@]}" | awk '$1 > 500 && $2 != "total"')"
breach "Lines over 100 columns:" "$(
  awk 'length($0) > 100 {print FILENAME ":" FNR}' "${sources[@]}")"
breach "core/ and compress/ print only from a failed check:" "$(
  grep -nE 'std::(cout|cerr)|(^|[^n])printf\(' core/*.cc core/*.h compress/* | grep -v '^core/check.cc')"
breach "Marks of unfinished work:" "$(
  grep -nE '\b(TODO|FIXME|XXX|HACK)\b' "${texts[@]}" | grep -v '^tests/tidy.sh')"
breach "Mirrors come from the machine's own configuration, not from the repository:" "$(
  grep -nE '\bdeb (\[|https?:)|https?://[^ ]*/debian' "${texts[@]}" | grep -v '^tests/tidy.sh')"
breach "Files over 512 KiB do not belong into the repository:" "$(
  git ls-files -z | xargs -0 -r find 2>/dev/null -- -maxdepth 0 -size +512k)"
breach "Sources that no CMakeLists.txt or script names:" "$(
  for file in $(git ls-files '*.cc'); do
    # A list in a CMakeLists.txt may leave out what all its names share.
    name=$(basename "$file" .cc)
    name=${name%_test}
    git grep -qF "${name#fuzz_}" -- '*CMakeLists.txt' '*.cmake' '*.sh' || echo "$file"
  done)"
breach "Scripts without run bit:" "$(
  git ls-files -s '*.sh' .ci/run | awk '$1 != "100755" {print $4}' | grep -v 'lib.sh$')"
if command -v clang-format >/dev/null; then
  breach "clang-format would change:" "$(
    clang-format --dry-run "${sources[@]}" 2>&1 | grep -E 'warning' | cut -d: -f1 | sort | uniq -c)"
fi

if [ "$breaches" -gt 0 ]; then
  echo "$breaches rules are broken"
  exit 1
fi
echo "${#sources[@]} sources keep the rules"
