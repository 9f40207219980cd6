#!/usr/bin/env bash
# A server and three hospitals on this machine: what docs/deploying.md walks through.
# Usage: [PORT=8443] [ROUNDS=20] examples/hospitals/run.sh [DIRECTORY]
# With the same directory it goes on where it stopped.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
place=${1:-$(mktemp -d)}
port=${PORT:-8443}
mkdir -p "$place"
place=$(cd "$place" && pwd)

python "$here/split.py" "$place"

# At the server: keys and certificates.
[ -e "$place/server/ca.crt" ] || fedadb deploy keys "$place/server" --host localhost

# At each hospital: a key of its own. The public half goes to the server, ca.crt comes back.
for k in 0 1 2; do
    [ -e "$place/hospital-$k/site.key" ] || fedadb deploy keys "$place/hospital-$k" --site
    cp "$place/hospital-$k/site.pub" "$place/server/sites/hospital-$k.pub"
    cp "$place/server/ca.crt" "$place/hospital-$k/"
done

# At each hospital: take part. They wait for the server.
trap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT
for k in 0 1 2; do
    fedadb deploy site "$place/hospital-$k" "$place/experiment.toml" \
        --server "localhost:$port" --data "npz:$place/hospital-$k/images.npz" \
        >"$place/hospital-$k.log" 2>&1 &
done

# At the server: train.
fedadb deploy server "$place/server" "$place/experiment.toml" \
    --out "$place/run" --listen "127.0.0.1:$port"

python "$here/compare.py" "$place"
echo "The run is in $place/run: fedadb report $place/run"
