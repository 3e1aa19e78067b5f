SELECT s.relname::text AS name, s.n_live_tup AS live, s.n_dead_tup AS dead,
       extract(epoch FROM now() - greatest(s.last_autovacuum, s.last_vacuum))::float8 AS seconds,
       coalesce(c.reloptions::text LIKE '%autovacuum_enabled=false%', false) AS is_off,
       s.n_tup_upd AS updated, s.n_tup_hot_upd AS hot
FROM pg_stat_all_tables s JOIN pg_class c ON c.oid = s.relid
WHERE s.relid = $1::int8::oid OR s.relid IN (SELECT relid FROM pg_partition_tree($1::int8::oid::regclass) WHERE isleaf)
ORDER BY s.n_dead_tup DESC LIMIT 20
