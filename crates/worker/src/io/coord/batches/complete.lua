-- Publishes the completion of a batch, if nobody has: the job and the end of the batch, or neither.
-- KEYS: the notes' stream or list, where the completion goes. ARGV: the batch's id, for how long a late note of it
-- is dropped in milliseconds, then the command that adds the job and its arguments after the key; none: no job.
-- Gives 1 if this one completed it.
local name, id = KEYS[1], ARGV[1]
if redis.call('SREM', name .. ':full', id) == 0 then
  return 0
end
if #ARGV > 2 then
  redis.call(ARGV[3], KEYS[2], unpack(ARGV, 4))
end
redis.call('DEL', name .. ':batch:' .. id)
redis.call('SET', name .. ':over:' .. id, '1', 'PX', ARGV[2])
return 1
