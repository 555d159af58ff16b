my @all;
for my $round (1 .. 6) { @all = map { "x" x (($_ * 7919) % 900) } 1 .. 20000; $sum += length($all[$_]) for 0 .. $#all }
print "$sum\n";