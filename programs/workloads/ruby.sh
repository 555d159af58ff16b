# Ruby builds a table of strings, sorts it and collects garbage
# package: ruby
ruby --disable-gems -e '
table = {}
60000.times { |i| table["key#{i * 7919 % 60000}"] = "v" * (i % 40) }
GC.start
puts table.size, table.values.sum(&:size), table.keys.sort[30000]'
