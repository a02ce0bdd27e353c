-- The role and the database of the broker. psql of the image runs this file once, as superuser, when
-- the volume is empty. The broker's role is none, because a superuser reads files and runs programs of
-- the database's container.
\set password `cat /run/secrets/database-password`
CREATE ROLE tenant_broker LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION PASSWORD :'password';
CREATE DATABASE tenant_broker OWNER tenant_broker;
REVOKE CONNECT ON DATABASE tenant_broker FROM PUBLIC;
