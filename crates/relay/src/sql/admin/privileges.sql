WITH companion AS (
  SELECT c.oid, n.oid AS namespace FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
  WHERE n.nspname = 'millrace' AND c.relname IN ('relay_failures', 'relay_slots'))
SELECT coalesce(has_table_privilege($1::int8::oid, 'SELECT'), false) AS may_select,
       coalesce(has_any_column_privilege($1::int8::oid, 'UPDATE'), false) AS may_lock,
       coalesce(has_table_privilege($1::int8::oid, 'DELETE'), false) AS may_delete,
       (SELECT coalesce(bool_and(has_column_privilege($1::int8::oid, a.attnum, 'UPDATE')), true) FROM pg_attribute a
        WHERE a.attrelid = $1::int8::oid AND a.attname = ANY($2::text[])) AS may_mark,
       (SELECT count(*) FROM companion) AS companion_tables,
       (SELECT coalesce(bool_and(has_schema_privilege(namespace, 'USAGE') AND has_table_privilege(oid, 'SELECT')
          AND has_table_privilege(oid, 'INSERT') AND has_table_privilege(oid, 'UPDATE')
          AND has_table_privilege(oid, 'DELETE')), false) FROM companion) AS may_remember
