-- Parts a rate among those who ask: the granter of `shares`, by the server's clock.
-- KEYS: the hash. ARGV: who asks, its wish, the rate, the lease in milliseconds. Gives the share as a text.
-- Fields of the hash: `start` (nothing is granted for one lease after it, in case that Redis has forgotten), and for
-- each process the JSON of {wish, gone, grants = [[rate, until], ...]}.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local me, wish = ARGV[1], tonumber(ARGV[2])
local rate, lease = tonumber(ARGV[3]), tonumber(ARGV[4])
local start = tonumber(redis.call('HGET', KEYS[1], 'start'))
if not start then
  start = now
  redis.call('HSET', KEYS[1], 'start', now)
end
local sharers, others, count = {}, 0, 0
local all = redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  if all[i] ~= 'start' and all[i] ~= me then
    local sharer = cjson.decode(all[i + 1])
    if sharer.gone <= now then
      redis.call('HDEL', KEYS[1], all[i])
    else
      local charge = 0
      for _, grant in ipairs(sharer.grants) do
        if grant[2] > now and grant[1] > charge then charge = grant[1] end
      end
      others = others + charge
      count = count + 1
      sharers[#sharers + 1] = { wish = sharer.wish, me = false }
    end
  end
end
if count >= 1000 then return '0' end
local grants = {}
local mine = redis.call('HGET', KEYS[1], me)
if mine then
  for _, grant in ipairs(cjson.decode(mine).grants) do
    if grant[2] > now then grants[#grants + 1] = grant end
  end
end
sharers[#sharers + 1] = { wish = wish, me = true }
table.sort(sharers, function(a, b) return a.wish < b.wish end)
local left, parts, part = rate, #sharers, 0
for _, sharer in ipairs(sharers) do
  local given = math.min(sharer.wish, left / parts)
  if sharer.me then part = given end
  left = left - given
  parts = parts - 1
end
part = part + math.max(left, 0) / #sharers
local granted = math.min(part, math.max(rate - others, 0))
if now < start + lease then granted = 0 end
grants[#grants + 1] = { granted, now + lease }
redis.call('HSET', KEYS[1], me, cjson.encode({ wish = wish, gone = now + lease, grants = grants }))
redis.call('PEXPIRE', KEYS[1], lease * 10)
return string.format('%.9f', granted)
