"""Shell code that takes the outputs of a cached task from an earlier run.

The outputs are stored in ``/pipeline/cache/TASK/KEY``. The session computes the key, because the
contents of the inputs are part of it and hashing them may take long. If the image has no
``sha256sum`` or the cache cannot be written, the task runs without a cache.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from .definition import Cache, Task

# The last line of the log of a task whose outputs are taken from the cache.
CACHED_LINE = "The outputs were taken from the cache; the command was not run."
# Maximum number of cache entries of a task; of a mapped task, for each value. The least recently
# used entries are deleted first.
MAX_ENTRIES = 20
# If a file cannot be read, ``_bai_hash`` returns a new hash for each session, so nothing is taken
# from the cache.
_FUNCTIONS = """\
_bai_hash() {
  for _bai_path in "$@"; do
    echo "$_bai_path"
    find -H "$_bai_path" -type f -exec sha256sum {} + || echo "$BAI_SESSION_ID"
    find -H "$_bai_path" -type l -exec sh -c 'for l; do echo "$l"; readlink "$l"; done' sh {} +
  done | LC_ALL=C sort
}
_bai_copy() {
  _bai_from=$1 _bai_to=$2
  shift 2
  for _bai_path in "$@"; do
    mkdir -p "$_bai_to/$(dirname "$_bai_path")" && rm -rf "$_bai_to/$_bai_path" &&
      cp -a "$_bai_from/$_bai_path" "$_bai_to/$_bai_path" || return 1
  done
}"""


def lookup(task: Task, cache: Cache, values: Mapping[str, Any], root: str) -> str:
    """Return the code that runs before the command and ends the script if the outputs are cached.

    ``values``: variables, parameters and the value of ``for_each`` for the command. ``root``: path
    of the pipeline's folder. The key is a hash of ``values``, the image, the command, and the
    contents of the inputs and of the files of ``cache``.
    """
    fixed = {"command": task.command, "values": values, "outputs": list(task.outputs)}
    digest = hashlib.sha256(json.dumps(fixed, sort_keys=True).encode()).hexdigest()
    files = [f"{root}/{path}" for path in (*cache.files, *filter(None, [task.notebook]))]
    return f"""\
{_FUNCTIONS}
_bai_cache={root}/cache/{task.name.replace("/", ".")}
_bai_key=
if command -v sha256sum > /dev/null; then
  _bai_key=$({{ echo "{digest} $BAI_IMAGE"; _bai_hash {_words(task.inputs, files)}; }} |
    sha256sum | cut -c 1-64)
  if [ -d "$_bai_cache/$_bai_key" ] && _bai_copy "$_bai_cache/$_bai_key" . {_words(task.outputs)}
  then
    touch "$_bai_cache/$_bai_key"
    echo "{CACHED_LINE}"
    exit 0
  fi
else
  echo "The image has no sha256sum, so the outputs are not cached." >&2
fi"""


def storing(task: Task, items: int) -> str:
    """Return the code that runs after the command, stores the outputs and removes the oldest
    entries.
    """
    return f"""\
if [ -n "$_bai_key" ]; then
  mkdir -p "$_bai_cache" && _bai_new=$(mktemp -d "$_bai_cache/.new.XXXXXX") &&
    _bai_copy . "$_bai_new" {_words(task.outputs)} &&
    {{ [ -d "$_bai_cache/$_bai_key" ] || mv "$_bai_new" "$_bai_cache/$_bai_key"; }} ||
    echo "The outputs could not be stored in the cache." >&2
  rm -rf "$_bai_new"
  ls -1t "$_bai_cache" | tail -n +{MAX_ENTRIES * max(items, 1) + 1} |
    while read -r _bai_old; do rm -rf "$_bai_cache/$_bai_old"; done
  find "$_bai_cache" -maxdepth 1 -name '.new.*' -mtime +0 -exec rm -rf {{}} +
fi
exit 0"""


def _words(*groups: Sequence[str]) -> str:
    """Return paths as words of a command; ``./`` prevents that a name with a leading ``-`` is read
    as an option.
    """
    paths = [path if path.startswith("/") else f"./{path}" for group in groups for path in group]
    return " ".join(map(shlex.quote, paths))
