//! The scripts that Redis runs, each of them all or nothing.

/// Reads arguments one after the other, publishes, and remembers the answer to the last batch. Its caller's keys begin
/// with the queue, the delayed, the dead, the answer.
macro_rules! common {
    () => {
        r"
local at = 0
local function take() at = at + 1; return ARGV[at] end
local function takes() local n, all = tonumber(take()), {}; for i = 1, n do all[i] = take() end; return all end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function ms(number) return string.format('%.0f', number) end
local function delay(key, after, nonce, values)
  table.insert(values, 1, nonce)
  redis.call('ZADD', key, ms(now + after), cmsgpack.pack(values))
end
local function answered(number)
  local prior = redis.call('GET', KEYS[4])
  if not prior then return nil end
  local last, verdicts = string.match(prior, '^(%d+) (.*)$')
  if last == number then return verdicts end
end
local function answer(number, verdicts)
  redis.call('SET', KEYS[4], number .. ' ' .. verdicts, 'PX', 3600000)
  return verdicts
end
"
    };
}

/// Settles jobs of a stream. Keys: queue, delayed, dead, answer. Arguments: group, consumer, number, count of
/// operations, and the operations. Gives one letter for each: `s` settled, `l` somebody else has it.
pub const SETTLE_STREAM: &str = concat!(
    common!(),
    r"
local group, consumer, number, count = take(), take(), take(), tonumber(take())
local before = answered(number)
if before then return before end
local function is_mine(id)
  local pending = redis.call('XPENDING', KEYS[1], group, id, id, 1)
  return #pending == 1 and pending[1][2] == consumer
end
local function let_go(id)
  redis.call('XACK', KEYS[1], group, id)
  redis.call('XDEL', KEYS[1], id)
end
local function publish()
  for i = 1, tonumber(take()) do
    local stream, after, nonce, values = take(), tonumber(take()), take(), takes()
    if after > 0 then delay(stream .. ':delayed', after, nonce, values)
    else redis.call('XADD', stream, '*', unpack(values)) end
  end
end
local function skip_publishes()
  for i = 1, tonumber(take()) do take(); take(); take(); takes() end
end
local function copy(id, changes)
  local entry = redis.call('XRANGE', KEYS[1], id, id)[1]
  if not entry then return nil end
  local values = entry[2]
  for i = 1, #changes, 2 do
    local is_new = true
    for j = 1, #values, 2 do
      if values[j] == changes[i] then values[j + 1] = changes[i + 1]; is_new = false end
    end
    if is_new then values[#values + 1] = changes[i]; values[#values + 1] = changes[i + 1] end
  end
  return values
end
local out = {}
for i = 1, count do
  local kind = take()
  if kind == 'D' then
    local ids = takes()
    redis.call('XACK', KEYS[1], group, unpack(ids))
    -- Somebody else may have settled one meanwhile: then it is not there any more.
    for j = 1, #ids do ids[j] = redis.call('XDEL', KEYS[1], ids[j]) == 1 and 's' or 'l' end
    out[i] = table.concat(ids)
  else
    local id, after, nonce, changes = take(), tonumber(take()), take(), takes()
    if is_mine(id) then
      local values = nil
      if kind ~= 'd' then values = copy(id, changes) end
      let_go(id)
      if values then
        if kind == 'x' then redis.call('XADD', KEYS[3], '*', 'dead_ms', ms(now), unpack(values))
        elseif after > 0 then delay(KEYS[2], after, nonce, values)
        else redis.call('XADD', KEYS[1], '*', unpack(values)) end
      end
      publish()
      out[i] = 's'
    else
      skip_publishes()
      out[i] = 'l'
    end
  end
end
return answer(number, table.concat(out))
"
);

/// Settles jobs of a list. Keys: queue, delayed, dead, answer, taken, deliveries. Arguments: the side that jobs are
/// taken from, number, count of operations, and the operations. Gives one letter for each.
pub const SETTLE_LIST: &str = concat!(
    common!(),
    r"
local side, number, count = take(), take(), tonumber(take())
local before = answered(number)
if before then return before end
local back, front = 'LPUSH', 'RPUSH'
if side == 'LEFT' then back, front = 'RPUSH', 'LPUSH' end
local counts = redis.call('EXISTS', KEYS[6]) == 1
local function let_go(element)
  if redis.call('LREM', KEYS[5], 1, element) == 0 then return false end
  if counts then redis.call('HDEL', KEYS[6], redis.sha1hex(element)) end
  return true
end
local function publish()
  for i = 1, tonumber(take()) do
    local list, after, nonce, values = take(), tonumber(take()), take(), takes()
    if after > 0 then delay(list .. ':delayed', after, nonce, values)
    else redis.call(back, list, values[1]) end
  end
end
local function skip_publishes()
  for i = 1, tonumber(take()) do take(); take(); take(); takes() end
end
local out = {}
for i = 1, count do
  local kind = take()
  if kind == 'D' then
    local elements, letters = takes(), {}
    for j = 1, #elements do letters[j] = let_go(elements[j]) and 's' or 'l' end
    out[i] = table.concat(letters)
  else
    local element, after, nonce, values = take(), tonumber(take()), take(), takes()
    if let_go(element) then
      if kind == 'r' then redis.call(front, KEYS[1], element)
      elseif kind == 'x' then redis.call('XADD', KEYS[3], '*', 'dead_ms', ms(now), unpack(values))
      elseif kind == 'l' and after > 0 then delay(KEYS[2], after, nonce, values)
      elseif kind == 'l' then redis.call(back, KEYS[1], values[1]) end
      publish()
      out[i] = 's'
    else
      skip_publishes()
      out[i] = 'l'
    end
  end
end
return answer(number, table.concat(out))
"
);

/// Puts jobs back whose delay is over. Keys: queue, delayed, dead. Arguments: how many at most, `stream` or the side
/// that a list's jobs are taken from. Gives how many, and in how many milliseconds the next is due (-1: none).
pub const MOVE_DUE: &str = r"
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local due = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', string.format('%.0f', now), 'LIMIT', 0, ARGV[1])
for i = 1, #due do
  local is_read, values = pcall(cmsgpack.unpack, due[i])
  if not is_read or type(values) ~= 'table' or #values < 2 then
    redis.call('XADD', KEYS[3], '*', 'dead_ms', string.format('%.0f', now), 'body', due[i],
      'dead_cause', 'malformed', 'dead_why', 'it is no delayed job')
  elseif ARGV[2] == 'stream' then redis.call('XADD', KEYS[1], '*', unpack(values, 2))
  elseif ARGV[2] == 'LEFT' then redis.call('RPUSH', KEYS[1], values[2])
  else redis.call('LPUSH', KEYS[1], values[2]) end
end
if #due > 0 then redis.call('ZREM', KEYS[2], unpack(due)) end
local first = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
local next = -1
if first[2] then next = math.max(0, math.ceil(tonumber(first[2]) - now)) end
return {#due, next}
";

/// Takes over entries whose lease has run out. Keys: queue, dead. Arguments: group, consumer, lease in milliseconds,
/// where to go on, how many, and how often an entry may come out. Gives where to go on, entries, and how many died.
pub const RECLAIM: &str = r"
local group, consumer, lease, from, count, most = unpack(ARGV)
local found = redis.call('XAUTOCLAIM', KEYS[1], group, consumer, lease, from, 'COUNT', count)
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local entries, died = {}, 0
for _, entry in ipairs(found[2]) do
  local pending = redis.call('XPENDING', KEYS[1], group, entry[1], entry[1], 1)[1]
  if pending and pending[4] > tonumber(most) then
    local values = entry[2]
    redis.call('XADD', KEYS[2], '*', 'dead_ms', string.format('%.0f', now), 'dead_cause', 'exhausted',
      'dead_why', 'it came out ' .. pending[4] - 1 .. ' times and was never settled: it may end its worker',
      unpack(values))
    redis.call('XACK', KEYS[1], group, entry[1])
    redis.call('XDEL', KEYS[1], entry[1])
    died = died + 1
  elseif entry[2] then entries[#entries + 1] = entry end
end
return {found[1], entries, died}
";

/// Makes leases longer. Keys: queue. Arguments: group, consumer, ids. Gives `1` or `0` for each.
pub const RENEW: &str = r"
local group, consumer, out = ARGV[1], ARGV[2], {}
for i = 3, #ARGV do
  local id = ARGV[i]
  local pending = redis.call('XPENDING', KEYS[1], group, id, id, 1)
  out[i - 2] = '0'
  if #pending == 1 and pending[1][2] == consumer then
    local claimed = redis.call('XCLAIM', KEYS[1], group, consumer, 0, id, 'JUSTID')
    if #claimed == 1 then out[i - 2] = '1' end
  end
end
return table.concat(out)
";

/// Forgets consumers that are gone and hold nothing. Keys: queue, answer. Arguments: group, consumer, and idle
/// milliseconds after which others are gone; -1: forget this one, too.
pub const FORGET: &str = r"
local group, me, idle = ARGV[1], ARGV[2], tonumber(ARGV[3])
for _, consumer in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], group)) do
  local about = {}
  for i = 1, #consumer, 2 do about[consumer[i]] = consumer[i + 1] end
  local is_me = about.name == me
  if about.pending == 0 and ((is_me and idle < 0) or (not is_me and idle >= 0 and about.idle > idle)) then
    redis.call('XGROUP', 'DELCONSUMER', KEYS[1], group, about.name)
  end
end
if idle < 0 then redis.call('DEL', KEYS[2]) end
return 1
";

/// Takes elements of a list. Keys: queue, taken, workers. Arguments: worker, how many, side. Gives them, or nothing
/// where the worker has shown no sign of life.
pub const TAKE: &str = r"
if not redis.call('ZSCORE', KEYS[3], ARGV[1]) then return false end
local pop = ARGV[3] == 'LEFT' and 'LPOP' or 'RPOP'
local elements = redis.call(pop, KEYS[1], ARGV[2])
if not elements then return {} end
redis.call('RPUSH', KEYS[2], unpack(elements))
return elements
";

/// A worker's sign of life; puts back what workers hold that gave none. Keys: queue, dead, workers, deliveries.
/// Arguments: worker, lease in milliseconds, side, how many elements at most, how often one may come out, what the
/// names of lists of taken elements begin with, `open` at the start. Gives whether the worker's own lease had run out
/// (then all that it held is back in the list), and how many elements of others were put back or died.
pub const ALIVE: &str = r"
local me, lease, side, most, times, prefix, is_open = unpack(ARGV)
lease, most, times = tonumber(lease), tonumber(most), tonumber(times)
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local front = side == 'LEFT' and 'LPUSH' or 'RPUSH'
local back, died = 0, 0
local function put_back(list, counts)
  while back + died < most do
    local element = redis.call('RPOP', list)
    if not element then return true end
    local count = counts and redis.call('HINCRBY', KEYS[4], redis.sha1hex(element), 1) or 0
    if count > times then
      redis.call('XADD', KEYS[2], '*', 'dead_ms', string.format('%.0f', now), 'element', element,
        'dead_cause', 'exhausted',
        'dead_why', 'it was in the hands of ' .. count .. ' workers that died: it may end its worker')
      redis.call('HDEL', KEYS[4], redis.sha1hex(element))
      died = died + 1
    else
      redis.call(front, KEYS[1], element)
      back = back + 1
    end
  end
  return redis.call('LLEN', list) == 0
end
local last = redis.call('ZSCORE', KEYS[3], me)
local has_lapsed = 0
if is_open ~= 'open' and (not last or now - tonumber(last) > lease) then
  local all = most
  most = 1e9
  put_back(prefix .. me, false)
  most, back = all, 0
  has_lapsed = 1
end
if is_open ~= 'open' or not last then redis.call('ZADD', KEYS[3], string.format('%.0f', now), me) end
local gone = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', string.format('%.0f', now - lease - 1), 'LIMIT', 0, 64)
for _, worker in ipairs(gone) do
  if worker ~= me then
    local is_empty = put_back(prefix .. worker, true)
    local seen = tonumber(redis.call('ZSCORE', KEYS[3], worker))
    -- A call of its that waits may still bring it an element: it is remembered for a day.
    if is_empty and now - seen > 86400000 then redis.call('ZREM', KEYS[3], worker) end
  end
end
return {has_lapsed, back, died}
";

/// Puts elements back that a worker holds and does not know of: the answer that brought them was lost. Keys: queue,
/// taken. Arguments: side, elements. Gives how many.
pub const PUT_BACK: &str = r"
local front = ARGV[1] == 'LEFT' and 'LPUSH' or 'RPUSH'
local back = 0
for i = 2, #ARGV do
  if redis.call('LREM', KEYS[2], 1, ARGV[i]) == 1 then
    redis.call(front, KEYS[1], ARGV[i])
    back = back + 1
  end
end
return back
";

/// A worker ends: what it still holds goes back. Keys: queue, taken, workers, answer. Arguments: worker, side.
pub const LEAVE: &str = r"
local front = ARGV[2] == 'LEFT' and 'LPUSH' or 'RPUSH'
while true do
  local element = redis.call('RPOP', KEYS[2])
  if not element then break end
  redis.call(front, KEYS[1], element)
end
redis.call('ZREM', KEYS[3], ARGV[1])
redis.call('DEL', KEYS[4])
return 1
";

/// A dead job goes back. Keys: queue, dead. Arguments: the entry's id, `stream` or a side, and the fields or the
/// element. Gives 0 where the dead job is not there any more.
pub const REPLAY: &str = r"
if redis.call('XDEL', KEYS[2], ARGV[1]) == 0 then return 0 end
if ARGV[2] == 'stream' then redis.call('XADD', KEYS[1], '*', unpack(ARGV, 3))
elseif ARGV[2] == 'LEFT' then redis.call('RPUSH', KEYS[1], ARGV[3])
else redis.call('LPUSH', KEYS[1], ARGV[3]) end
return 1
";

/// A job is published, unless one with its unique key was within the window. Keys: queue, the note of the unique key.
/// Arguments: `stream` or a side, milliseconds of delay, the window in milliseconds (0: it is not unique), a nonce, and
/// the fields or the element. Gives 0 where it was not published.
pub const SEND: &str = r"
local window = tonumber(ARGV[3])
if window > 0 and not redis.call('SET', KEYS[2], '1', 'NX', 'PX', window) then return 0 end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local after = tonumber(ARGV[2])
if after > 0 then
  local values = {}
  for i = 4, #ARGV do values[i - 3] = ARGV[i] end
  redis.call('ZADD', KEYS[1] .. ':delayed', string.format('%.0f', now + after), cmsgpack.pack(values))
elseif ARGV[1] == 'stream' then redis.call('XADD', KEYS[1], '*', unpack(ARGV, 5))
elseif ARGV[1] == 'LEFT' then redis.call('RPUSH', KEYS[1], ARGV[5])
else redis.call('LPUSH', KEYS[1], ARGV[5]) end
return 1
";
