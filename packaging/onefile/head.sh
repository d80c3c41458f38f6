#!/bin/sh
# gpufleet with an interpreter of its own: a POSIX shell, tail, gzip and tar are all it needs.
# It unpacks itself once, into the first of these places that takes it and lets programs run:
# $GPUFLEET_UNPACK, the user's cache folder, $XDG_RUNTIME_DIR, ${TMPDIR:-/tmp}. What is unpacked is
# known by the checksum of the payload, belongs to who runs it, and is never used when it does not.
key=@KEY@
lines=@LINES@

start() {
  place=$1
  shift
  exec "$place/$key/bin/python3" -I "$place/$key/run.py" "$0" "$@"
}

ready() {
  [ -f "$1/$key/ready" ] && [ ! -L "$1/$key" ] && [ -O "$1/$key" ]
}

cache=
if [ -n "${GPUFLEET_UNPACK:-}" ]; then
  cache=$GPUFLEET_UNPACK
elif [ -n "${XDG_CACHE_HOME:-}" ]; then
  cache=$XDG_CACHE_HOME/gpufleet/onefile
elif [ -n "${HOME:-}" ]; then
  cache=$HOME/.cache/gpufleet/onefile
fi
[ -n "$cache" ] && ready "$cache" && start "$cache" "$@"

# The way of the first time, and of a home that cannot be written to.
new=
trap '[ -z "$new" ] || rm -rf "$new"' EXIT
trap 'exit 130' HUP INT TERM
umask 077

payload() { tail -n "+$lines" "$0"; }

unpack() {
  mkdir -p "$1" 2>/dev/null
  [ -d "$1" ] && [ ! -L "$1" ] && [ -O "$1" ] || return 1
  new=$1/.$key.$$
  mkdir "$new" 2>/dev/null || { new=; return 1; }
  payload | gzip -dc 2>/dev/null | tar -xf - -C "$new" 2>/dev/null &&
    "$new/bin/python3" -I -c '' 2>/dev/null && : >"$new/ready" &&
    { mv -T "$new" "$1/$key" 2>/dev/null || rm -rf "$new"; }
  rm -rf "$new"
  new=
  ready "$1"
}

temporary=${TMPDIR:-/tmp}/gpufleet-$(id -u)
runtime=${XDG_RUNTIME_DIR:+$XDG_RUNTIME_DIR/gpufleet}
for place in "$runtime" "$temporary"; do
  [ -n "$place" ] && ready "$place" && start "$place" "$@"
done
if command -v sha256sum >/dev/null && [ "$(payload | sha256sum | cut -c1-32)" != "$key" ]; then
  echo "gpufleet: $0 is damaged: copy it again" >&2
  exit 1
fi
[ -t 2 ] && [ -z "${_GPUFLEET_COMPLETE:-}" ] && echo "gpufleet: unpacking itself, once" >&2
for place in "$cache" "$runtime" "$temporary"; do
  [ -n "$place" ] && unpack "$place" && start "$place" "$@"
done
echo "gpufleet: no place to unpack into and run from: set GPUFLEET_UNPACK to a folder of yours" \
  "that is not mounted noexec, with 150 MB free" >&2
exit 1
