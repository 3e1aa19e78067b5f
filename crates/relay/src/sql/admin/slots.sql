SELECT slot_name::text AS name, slot_type AS kind, coalesce(plugin, '')::text AS plugin,
       coalesce(database, '')::text AS database, active AS is_active, coalesce(wal_status, '') AS wal_status,
       pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_receive_lsn() ELSE pg_current_wal_lsn() END,
                       restart_lsn)::int8 AS kept_bytes,
       pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_receive_lsn() ELSE pg_current_wal_lsn() END,
                       confirmed_flush_lsn)::int8 AS lag_bytes,
       safe_wal_size AS safe_bytes
FROM pg_replication_slots WHERE NOT temporary ORDER BY slot_name
