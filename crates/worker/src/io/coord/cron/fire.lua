-- Fires a tick if the last one is still the one that the caller knows: the tick and the job, or neither.
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then
  return 0
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
if #ARGV > 3 then
  redis.call(ARGV[4], KEYS[2], unpack(ARGV, 5))
end
return 1
