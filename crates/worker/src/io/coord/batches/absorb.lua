-- Moves notes of batches from their stream or list into a hash for each batch: each job once, whatever comes twice.
-- KEYS: the stream or list. ARGV: how many notes at most, the age in milliseconds after which a batch is given up.
-- Keys beside it: NAME:batch:ID (the fields `words`, and a job's hash -> done or dead), NAME:over:ID (the batch was
-- completed), NAME:full (a set of ids that have all their jobs).
-- Gives how many notes were moved, and for each batch that is full: its id, its words, done, dead.
local name, most, age = KEYS[1], tonumber(ARGV[1]), ARGV[2]
local kind = redis.call('TYPE', name).ok
local bodies = {}
if kind == 'stream' then
  for _, entry in ipairs(redis.call('XRANGE', name, '-', '+', 'COUNT', most)) do
    for i = 1, #entry[2], 2 do
      if entry[2][i] == 'body' then bodies[#bodies + 1] = entry[2][i + 1] end
    end
    redis.call('XDEL', name, entry[1])
  end
  -- An empty stream would refuse the notes of lists.
  if redis.call('XLEN', name) == 0 then redis.call('DEL', name) end
elseif kind == 'list' then
  for _, element in ipairs(redis.call('LPOP', name, most)) do
    local is_json, envelope = pcall(cjson.decode, element)
    if is_json and type(envelope) == 'table' and type(envelope.body) == 'string' then
      bodies[#bodies + 1] = envelope.body
    end
  end
end
for _, body in ipairs(bodies) do
  local is_json, note = pcall(cjson.decode, body)
  if is_json and type(note) == 'table' and note.id and redis.call('EXISTS', name .. ':over:' .. note.id) == 0 then
    local key = name .. ':batch:' .. note.id
    if redis.call('HSETNX', key, 'words', body) == 1 then
      redis.call('PEXPIRE', key, age)
    end
    if note.done and note.done ~= '' then redis.call('HSET', key, note.done, 'done') end
    if note.dead and note.dead ~= '' then redis.call('HSETNX', key, note.dead, 'dead') end
    if redis.call('HLEN', key) - 1 >= tonumber(note.size) then
      redis.call('SADD', name .. ':full', note.id)
    end
  end
end
local fulls = {}
for _, id in ipairs(redis.call('SRANDMEMBER', name .. ':full', 100)) do
  local key = name .. ':batch:' .. id
  local words = redis.call('HGET', key, 'words')
  if words then
    local done, dead = 0, 0
    for _, ended in ipairs(redis.call('HVALS', key)) do
      if ended == 'done' then done = done + 1 elseif ended == 'dead' then dead = dead + 1 end
    end
    fulls[#fulls + 1] = { id, words, done, dead }
  else
    redis.call('SREM', name .. ':full', id)
  end
end
return { #bodies, fulls }
