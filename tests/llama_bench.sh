#!/bin/sh
# llama_bench.sh FOLDER: put Debian's llama-bench, with the libraries that it needs, into a folder of its own.
# It is in Debian's unstable release only. apt's lock and this computer's packages are left alone.
set -eu
root=$1 new=$1.new apt=$1.apt
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
exec 9>"$root.lock"
flock 9
[ ! -x "$root/llama-bench" ] || exit 0
[ -f "$keyring" ] || { echo "$keyring isn't there" >&2; exit 1; }
trap 'rm -rf "$new" "$apt"' EXIT
mkdir -p "$new" "$apt/lists/partial" "$apt/cache/archives/partial"
: >"$apt/status"
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 2>/dev/null | grep -m 1 '/debian/*$' || true)
[ -n "$mirror" ] || { echo "apt has no mirror of Debian here" >&2; exit 1; }
echo "deb [signed-by=$keyring] $mirror sid main" >"$apt/sources.list"
own_apt() {
  apt-get -q -o Dir::State="$apt" -o Dir::State::status="$apt/status" -o Dir::Cache="$apt/cache" \
    -o Dir::Etc::sourcelist="$apt/sources.list" -o Dir::Etc::sourceparts=/dev/null -o Dir::Etc::preferences=/dev/null \
    -o Dir::Etc::preferencesparts=/dev/null -o APT::Sandbox::User=root -o Acquire::Languages=none \
    -o Acquire::Retries=5 -o Debug::NoLocking=1 "$@"
}
own_apt update
own_apt install -y --download-only --no-install-recommends llama.cpp-tools
for package in "$apt"/cache/archives/*.deb; do
  dpkg-deb --fsys-tarfile "$package" | tar -x -C "$new" --keep-directory-symlink
done
libraries=$(dirname "$(find "$new/usr/lib" -name libllama.so.0 | head -n 1)")
[ "$libraries" != . ] || { echo "the packages hold no libllama" >&2; exit 1; }
name=${libraries#"$new"}
backend=$(find "$libraries/ggml" -name 'libggml-cpu-x64.so' -o -name 'libggml-cpu.so' | head -n 1)
loader=$(find "$new/usr/lib" -name 'ld-linux-*.so.*' | head -n 1)
cat >"$new/llama-bench" <<END
#!/bin/sh
# Its own C library and loader: this computer's may be older.
GGML_BACKEND_PATH=$root${backend#"$new"} exec $root${loader#"$new"} --library-path $root$name:$root$name/llama $root/usr/bin/llama-bench "\$@"
END
chmod +x "$new/llama-bench"
rm -rf "$root"
mv "$new" "$root"
