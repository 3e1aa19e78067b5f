SELECT t.tgname::text AS name, p.proname::text AS function, (t.tgtype & 1) = 1 AS is_per_row,
       (t.tgtype & 24) <> 0 AS fires_on_mark, p.prosrc ~* '\m(pg_)?notify\M' AS notifies
FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid
WHERE t.tgrelid = $1::int8::oid AND NOT t.tgisinternal AND t.tgenabled <> 'D' ORDER BY t.tgname
