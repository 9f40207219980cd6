#!/usr/bin/env bash
# A server and three hospitals on this machine, as docs/deploying.md describes them.
# Usage: [PORT=8443] [ROUNDS=20] examples/hospitals/run.sh [--private] [DIRECTORY]
# With the same directory, it resumes. With --private, hospitals clip their updates, the server
# learns only their sum, and the audit logs of all are compared at the end.
set -euo pipefail
private=()
if [ "${1:-}" = --private ]; then
    private=(--private)
    shift
fi
here=$(cd "$(dirname "$0")" && pwd)
directory=${1:-$(mktemp -d)}
port=${PORT:-8443}
mkdir -p "$directory"
directory=$(cd "$directory" && pwd)

python "$here/split.py" "$directory" "${private[@]}"

# At the server: make its keys and certificates.
[ -e "$directory/server/ca.crt" ] || fedadb deploy keys "$directory/server" --host localhost

# At each hospital: make a key. The server gets its public half; the hospital gets ca.crt.
for k in 0 1 2; do
    [ -e "$directory/hospital-$k/site.key" ] || fedadb deploy keys "$directory/hospital-$k" --site
    cp "$directory/hospital-$k/site.pub" "$directory/server/sites/hospital-$k.pub"
    cp "$directory/server/ca.crt" "$directory/hospital-$k/"
done

# At each hospital: put the public keys of all into roster/, and compare the fingerprints.
if [ ${#private[@]} -gt 0 ]; then
    for k in 0 1 2; do
        mkdir -p "$directory/hospital-$k/roster"
        for other in 0 1 2; do
            cp "$directory/hospital-$other/site.pub" \
                "$directory/hospital-$k/roster/hospital-$other.pub"
        done
        fedadb deploy fingerprint "$directory/hospital-$k"
    done
fi

# At each hospital: take part. The sites wait for the server.
trap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT
for k in 0 1 2; do
    fedadb deploy site "$directory/hospital-$k" "$directory/experiment.toml" \
        --server "localhost:$port" --data "npz:$directory/hospital-$k/images.npz" \
        >"$directory/hospital-$k.log" 2>&1 &
done

# At the server: train.
fedadb deploy server "$directory/server" "$directory/experiment.toml" \
    --out "$directory/run" --listen "127.0.0.1:$port"

# At the server: its audit log is unbroken, and the hospitals' logs say that they sent what it got.
if [ ${#private[@]} -gt 0 ]; then
    logs=()
    for k in 0 1 2; do
        logs+=(--site "hospital-$k=$directory/hospital-$k/audit.jsonl")
    done
    fedadb deploy audit "$directory/server" "${logs[@]}"
fi

python "$here/compare.py" "$directory"
echo "The run is in $directory/run. For its report: fedadb report $directory/run"
