SELECT * FROM (
  SELECT 'session' AS kind, 'pid ' || pid AS name, coalesce(usename, '')::text AS who,
         coalesce(application_name, '') AS application, coalesce(state, '') AS state,
         extract(epoch FROM now() - xact_start)::float8 AS seconds,
         age(coalesce(backend_xmin, backend_xid))::int8 AS transactions,
         left(regexp_replace(coalesce(query, ''), '\s+', ' ', 'g'), 120) AS detail,
         coalesce(query = '<insufficient privilege>', false) AS is_masked
  FROM pg_stat_activity
  WHERE coalesce(backend_xmin, backend_xid) IS NOT NULL
    AND pid <> pg_backend_pid() AND datname = current_database() AND backend_type IS DISTINCT FROM 'walsender'
    AND coalesce(query, '') NOT LIKE 'autovacuum:%' AND usename IS NOT NULL
  UNION ALL
  SELECT 'prepared transaction', gid, owner::text, '', 'prepared',
         extract(epoch FROM now() - prepared)::float8, age(transaction)::int8, '', false
  FROM pg_prepared_xacts WHERE database = current_database()
  UNION ALL
  SELECT 'slot', slot_name::text, '', coalesce(plugin, 'physical')::text,
         CASE WHEN active THEN 'active' ELSE 'inactive' END, NULL, age(xmin)::int8, '', false
  FROM pg_replication_slots WHERE xmin IS NOT NULL
  UNION ALL
  SELECT 'standby', coalesce(host(client_addr), 'local'), coalesce(usename, '')::text, coalesce(application_name, ''),
         coalesce(state, ''), NULL, age(backend_xmin)::int8, 'hot_standby_feedback', false
  FROM pg_stat_replication WHERE backend_xmin IS NOT NULL
) h ORDER BY transactions DESC, seconds DESC NULLS LAST LIMIT 20
