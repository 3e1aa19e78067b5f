SELECT key, count(*) AS failed, bool_or(dead_at IS NOT NULL) AS is_dead,
       extract(epoch FROM min(next_attempt_at) - now())::float8 AS next_seconds,
       (array_agg(row_id ORDER BY first_failed_at))[1] AS row_id, (array_agg(reason ORDER BY first_failed_at))[1] AS reason
FROM millrace.relay_failures WHERE outbox = $1::text AND key <> row_id
GROUP BY key ORDER BY min(first_failed_at) LIMIT 21
