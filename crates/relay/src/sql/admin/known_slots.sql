SELECT k.slot AS name, k.outbox, k.publication, s.slot_name IS NOT NULL AS is_there,
       coalesce(s.active, false) AS is_active, coalesce(s.wal_status, '') AS wal_status,
       pg_wal_lsn_diff(pg_current_wal_lsn(), s.confirmed_flush_lsn)::int8 AS lag_bytes,
       extract(epoch FROM now() - k.last_commit_at)::float8 AS last_commit_seconds,
       coalesce(p.pubinsert, false) AS has_publication, k.confirmed_lsn IS NULL AS is_begun
FROM millrace.relay_slots k LEFT JOIN pg_replication_slots s ON s.slot_name = k.slot
LEFT JOIN pg_publication p ON p.pubname = k.publication ORDER BY k.slot
