#!/bin/sh
# Makes the secrets of ../compose.yaml in the folder secrets, as far as they are missing, and says
# which of the others you have to add. Run it again after that. It changes no existing secret.
#
# The containers run as users of their own and read the files as they are. So the files are readable
# by everybody, in a folder that only you may enter; the container engine mounts what is in it.
set -eu
umask 077
cd "$(dirname "$0")"
chmod a+r broker.toml database.sql
mkdir -p secrets/renewed
chmod 0700 secrets
chmod 0755 secrets/renewed
cd secrets

command -v openssl >/dev/null || {
  echo "openssl is missing; install it: apt-get install openssl" >&2
  exit 1
}

# A file appears under its name only when it is complete.
for password in postgres-password database-password; do
  if [ ! -e "$password" ]; then
    openssl rand -hex 24 >"$password.new"
    mv "$password.new" "$password"
  fi
done
# Without TLS, because both containers are on this machine and alone on the network `database`. The URL
# of a PostgreSQL elsewhere needs ?sslmode=verify-full.
if [ ! -e database-url ]; then
  printf 'postgres://tenant_broker:%s@postgres:5432/tenant_broker?sslmode=disable\n' \
    "$(cat database-password)" >database-url.new
  mv database-url.new database-url
fi
if [ ! -e issuer-key.pem ]; then
  openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out issuer-key.pem.new
  mv issuer-key.pem.new issuer-key.pem
fi
chmod 0444 postgres-password database-password database-url issuer-key.pem

missing=0
for file in tls.crt tls.key broker.kubeconfig; do
  if [ -e "renewed/$file" ]; then
    chmod 0444 "renewed/$file"
  else
    case $file in
      tls.crt) what='the certificate chain (PEM) of the host in public_url' ;;
      tls.key) what='the private key (PEM) of that certificate' ;;
      *) what='tenant-broker install --apply --credential makes it' ;;
    esac
    echo "missing: $(pwd)/renewed/$file: $what" >&2
    missing=1
  fi
done
exit "$missing"
