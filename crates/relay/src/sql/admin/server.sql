SELECT current_setting('server_version_num')::int4 AS version,
       current_setting('wal_level') AS wal_level,
       current_setting('fsync') = 'on' AS fsync,
       current_setting('full_page_writes') = 'on' AS full_page_writes,
       (SELECT reset_val FROM pg_settings WHERE name = 'synchronous_commit') AS synchronous_commit,
       current_setting('autovacuum') = 'on' AS autovacuum,
       pg_is_in_recovery() AS is_standby,
       (SELECT setting::int8 * 1048576 FROM pg_settings WHERE name = 'max_slot_wal_keep_size' AND setting::int8 >= 0)
         AS slot_wal_keep_bytes,
       coalesce((SELECT setting::int8 FROM pg_settings WHERE name = 'transaction_timeout'), 0)
         AS transaction_timeout_ms,
       current_setting('max_connections')::int8 AS connections_max,
       -- The type of others' sessions is hidden from a role without pg_monitor, their user is not.
       (SELECT count(*) FROM pg_stat_activity
        WHERE backend_type = 'client backend' OR backend_type IS NULL AND datname IS NOT NULL) AS connections,
       current_setting('max_replication_slots')::int8 AS slots_max,
       current_user::text AS role,
       (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) AS is_superuser,
       (SELECT rolsuper OR rolreplication FROM pg_roles WHERE rolname = current_user) AS may_replicate,
       (SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user) AS bypasses_row_security,
       coalesce((SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()), false) AS uses_tls,
       inet_client_addr() IS NOT NULL AND NOT (inet_client_addr() <<= '127.0.0.0/8'
         OR inet_client_addr() = '::1' OR inet_client_addr() = inet_server_addr()) AS is_remote,
       (SELECT count(*) FROM pg_stat_activity
        WHERE application_name LIKE 'millrace-relay%' AND pid <> pg_backend_pid()) AS relays
