#!/bin/sh
# Installs the kubectl plugin kubectl-tenant for Linux or macOS: downloads its archive of a release,
# compares the archive's SHA-256 with the list of the release, and copies two programs.
#
#   sh install.sh [--version VERSION] [--dir FOLDER] [--base-url URL]
#
# Nothing is changed outside of FOLDER (default: ~/.local/bin), and nothing if a check fails. The
# checksum finds a damaged download. It proves no origin, because it comes from the same server;
# docs/install.md says how to verify the tag.
set -eu

# `cargo make-release` writes both.
version=""
repository=""

usage() {
  cat <<'END'
Installs the kubectl plugin kubectl-tenant.

  --version VERSION  version to install [default: the one that this script belongs to]
  --dir FOLDER       folder of your PATH [default: ~/.local/bin]
  --base-url URL     folder with the archives and SHA256SUMS: https, file, or http on this machine
                     [default: the release of the version]
  --help             print this text
END
}

fail() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# Sets `platform` as in the names of archives.
find_platform() {
  case $(uname -s) in
    Linux) system=linux ;;
    Darwin) system=darwin ;;
    MINGW* | MSYS* | CYGWIN* | Windows*)
      fail "Windows is not supported. In the Windows Subsystem for Linux (WSL) the plugin for Linux works."
      ;;
    *) fail "$(uname -s) is not supported; there are programs for Linux and macOS" ;;
  esac
  case $(uname -m) in
    x86_64 | amd64) machine=amd64 ;;
    aarch64 | arm64) machine=arm64 ;;
    *) fail "$(uname -m) is not supported; there are programs for x86_64 (amd64) and aarch64 (arm64)" ;;
  esac
  platform=${system}_$machine
}

# download URL FILE
#
# It needs curl, because BusyBox's wget checks no certificate, and GNU Wget follows a redirect to
# plain HTTP.
download() {
  case $1 in
    file://*) cp "${1#file://}" "$2" || fail "cannot read $1" ;;
    *)
      command -v curl >/dev/null || fail "curl is needed for the download; install it"
      curl --fail --silent --show-error --location --proto '=http,https' --proto-redir '=https' \
        --retry 2 --connect-timeout 20 --max-time 600 --output "$2" "$1" || fail "cannot download $1"
      ;;
  esac
}

# Prints the SHA-256 of a file.
sha256() {
  if command -v sha256sum >/dev/null; then
    sha256sum <"$1"
  elif command -v shasum >/dev/null; then
    shasum -a 256 <"$1"
  else
    fail "sha256sum or shasum is needed to check the download; install one of them"
  fi | cut -d ' ' -f 1
}

# Puts a program into the folder at once, so that a running one is not changed. Nobody else can
# prepare the temporary name, for example as a link to another file.
put() {
  new=$(mktemp "$folder/.$1.XXXXXX") && cp "$work/$1" "$new" && chmod 0755 "$new" &&
    mv -f "$new" "$folder/$1" || fail "cannot write to $folder; choose another one with --dir"
  new=""
}

main() {
  folder=${HOME:-}/.local/bin
  base=""
  while [ $# -gt 0 ]; do
    case $1 in
      --version | --dir | --base-url)
        [ $# -ge 2 ] || fail "$1 needs a value"
        case $1 in
          --version) version=${2#v} ;;
          --dir) folder=$2 ;;
          *) base=${2%/} ;;
        esac
        shift 2
        ;;
      --help | -h)
        usage
        exit 0
        ;;
      *) fail "unknown option $1; --help lists the options" ;;
    esac
  done
  find_platform
  [ -n "$version" ] || fail "this copy of the script belongs to no release; add --version VERSION"
  case $version in
    *[!0-9A-Za-z.-]*) fail "$version is no version" ;;
  esac
  case $folder in
    /.local/bin) fail "HOME is not set; add --dir FOLDER" ;;
  esac
  if [ -z "$base" ]; then
    [ -n "$repository" ] || fail "this copy of the script belongs to no release; add --base-url URL"
    base=$repository/releases/download/v$version
  fi
  case $base in
    http://*@*) fail "--base-url $base: plain HTTP with a user name" ;;
    https://* | file:///* | http://127.0.0.1[:/]* | http://localhost[:/]* | http://\[::1\][:/]*) ;;
    *) fail "--base-url $base: use https, file, or http on this machine" ;;
  esac

  archive=kubectl-tenant_${version}_$platform.tar.gz
  work=$(mktemp -d) || fail "cannot make a temporary folder"
  new=""
  trap 'rm -rf "$work" ${new:+"$new"}' EXIT
  trap 'exit 1' HUP INT TERM
  download "$base/SHA256SUMS" "$work/SHA256SUMS"
  expected=$(sed -n "s/^\([0-9a-f]\{64\}\)  $archive\$/\1/p" "$work/SHA256SUMS")
  [ -n "$expected" ] || fail "version $version has no program for $platform; docs/install.md lists other ways"
  download "$base/$archive" "$work/$archive"
  actual=$(sha256 "$work/$archive")
  [ "$actual" = "$expected" ] ||
    fail "the checksum of $archive is $actual instead of $expected; nothing was installed"
  tar -xzf "$work/$archive" -C "$work" kubectl-tenant kubectl_complete-tenant ||
    fail "cannot unpack $archive"
  "$work/kubectl-tenant" --version >/dev/null 2>&1 ||
    fail "the program does not run on this system; docs/install.md says what it needs"

  mkdir -p "$folder" || fail "cannot make $folder; choose another one with --dir"
  for program in kubectl_complete-tenant kubectl-tenant; do
    [ ! -d "$folder/$program" ] || fail "$folder/$program is a folder; choose another one with --dir"
  done
  put kubectl_complete-tenant
  put kubectl-tenant
  printf 'kubectl-tenant %s is in %s\n' "$version" "$folder"
  case :${PATH:-}: in
    *":$folder:"*) printf 'Next: kubectl tenant login --broker https://BROKER\n' ;;
    *) printf 'Add %s to PATH, so that kubectl finds it.\n' "$folder" ;;
  esac
}

# The last line, so that a copy that was cut off does nothing.
main "$@"
