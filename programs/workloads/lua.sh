# Lua builds and sorts a table of 100,000 strings
# package: lua5.4
lua5.4 -e '
local t = {}
for i = 1, 100000 do t[i] = string.format("%08d%s", i * 7919 % 100000, string.rep("x", i % 20)) end
table.sort(t)
collectgarbage()
print(#t, t[1], t[50000])'
