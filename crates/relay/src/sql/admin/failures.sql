SELECT reason, dead_at IS NOT NULL AS is_dead, count(*) AS count, max(attempts) AS attempts_max,
       extract(epoch FROM min(next_attempt_at) - now())::float8 AS next_seconds,
       extract(epoch FROM now() - min(first_failed_at))::float8 AS oldest_seconds,
       (array_agg(error ORDER BY last_failed_at DESC))[1] AS error,
       (array_agg(row_id ORDER BY last_failed_at DESC))[1] AS example
FROM millrace.relay_failures WHERE outbox = $1::text GROUP BY 1, 2 ORDER BY 2, 3 DESC
