-- Notes a key for a window, and adds the job only if the key was not noted: both or neither.
if not redis.call('SET', KEYS[1], '1', 'NX', 'PX', ARGV[1]) then
  return 0
end
redis.call(ARGV[2], KEYS[2], unpack(ARGV, 3))
return 1
