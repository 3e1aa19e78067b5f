SELECT (c.relreplident = 'd' AND NOT EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary))
         OR c.relreplident = 'n' AS is_missing,
       (SELECT coalesce(json_agg(p.pubname), '[]') FROM pg_publication p
        WHERE (p.pubupdate OR p.pubdelete) AND (p.puballtables OR EXISTS (
          SELECT FROM pg_publication_rel r WHERE r.prpubid = p.oid AND r.prrelid = c.oid))) AS publications
FROM pg_class c WHERE c.oid = $1::int8::oid
