SELECT a.pid, a.application_name AS name, CASE WHEN a.query = '<insufficient privilege>' THEN 'unknown' ELSE coalesce(host(a.client_addr), 'local') END AS address,
       coalesce(a.state, '') AS state, extract(epoch FROM now() - a.xact_start)::float8 AS transaction_seconds,
       (SELECT count(*) FROM pg_locks l WHERE l.pid = a.pid AND l.locktype = 'advisory' AND l.granted) AS locks
FROM pg_stat_activity a
WHERE a.application_name LIKE 'millrace-relay%' AND a.datname = current_database() AND a.pid <> pg_backend_pid()
ORDER BY a.application_name, a.pid LIMIT 200
