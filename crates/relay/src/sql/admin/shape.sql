SELECT n.nspname AS schema, c.relname AS name, c.oid::int8 AS oid, c.relkind::text AS kind,
       c.relpersistence::text AS persistence, c.relrowsecurity AS has_row_security,
       (SELECT sum(greatest(h.reltuples, 0))::float8 FROM pg_class h
        WHERE h.oid = c.oid OR h.oid IN (SELECT relid FROM pg_partition_tree(c.oid))) AS rows,
       (SELECT coalesce(sum(pg_table_size(h.oid)), 0)::int8 FROM pg_class h
        WHERE h.relkind = 'r' AND (h.oid = c.oid OR h.oid IN (SELECT relid FROM pg_partition_tree(c.oid)))) AS bytes,
       pg_get_partkeydef(c.oid) AS partition_key,
       (SELECT coalesce(json_agg(json_build_object(
                  'name', a.attname, 'kind', format_type(a.atttypid, a.atttypmod),
                  'is_required', a.attnotnull, 'is_generated', a.attgenerated <> '',
                  'is_sequence', a.attidentity <> ''
                      OR coalesce(pg_get_expr(d.adbin, d.adrelid), '') LIKE 'nextval(%'
                ) ORDER BY a.attnum), '[]')
        FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped) AS columns,
       (SELECT coalesce(json_agg(json_build_object(
                  'name', ic.relname, 'is_valid', i.indisvalid AND i.indisready, 'is_unique', i.indisunique,
                  'keys', (SELECT json_agg(a.attname ORDER BY k.place)
                           FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k(attnum, place)
                           LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.attnum AND k.attnum > 0
                           WHERE k.place <= i.indnkeyatts),
                  'included', (SELECT coalesce(json_agg(a.attname ORDER BY k.place), '[]')
                               FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k(attnum, place)
                               JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.attnum
                               WHERE k.place > i.indnkeyatts),
                  'predicate', pg_get_expr(i.indpred, i.indrelid), 'method', m.amname,
                  'definition', pg_get_indexdef(i.indexrelid)) ORDER BY ic.relname), '[]')
        FROM pg_index i JOIN pg_class ic ON ic.oid = i.indexrelid JOIN pg_am m ON m.oid = ic.relam
        WHERE i.indrelid = c.oid) AS indexes,
       CASE WHEN c.relkind = 'p' THEN
         (SELECT coalesce(json_agg(json_build_object(
                    'schema', ln.nspname, 'name', l.relname, 'bound', pg_get_expr(l.relpartbound, l.oid)
                  ) ORDER BY l.relname), '[]')
          FROM pg_partition_tree(c.oid) t JOIN pg_class l ON l.oid = t.relid
          JOIN pg_namespace ln ON ln.oid = l.relnamespace WHERE t.isleaf AND l.relkind = 'r')
       ELSE json_build_array(json_build_object('schema', n.nspname, 'name', c.relname, 'bound', NULL))
       END AS leaves
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = to_regclass($1::text)
